package steps

import (
	"fmt"
	"math"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/convert"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
	"github.com/sluice-hpc/sluice/sched/sizing"
)

// readNeed converts a step's request for sched/sizing. It leaves out that tasks may share CPUs (--overcommit): those of a step share where
// there are too few, while a job with it has the CPUs of one task on each node (srun(1)). The job's devices have been assigned to sockets
// already: devices per socket are a number on each node.
func readNeed(s *pb.StepSpec) (r record.Request, p *pb.Problem) {
	r = record.Request{CPUsPerTask: int(s.CpusPerTask), TasksPerNode: int(s.NtasksPerNode), Sockets: int(s.SocketsPerNode),
		MemNodeMiB: amountOf(s.MemPerNodeMib), MemCPUMiB: amountOf(s.MemPerCpuMib), MemGPUMiB: amountOf(s.MemPerGpuMib)}
	if s.NoGres {
		return r, nil
	}
	for _, text := range []string{s.TresPerTask, s.TresPerSocket, s.TresPerNode, s.TresPerStep} {
		if _, err := convert.ReadGres(text); err != nil {
			return r, pb.NewProblem(pb.CodeInvalidGres, "%v", err)
		}
	}
	r.Gres = convert.GresOf(s.TresPerTask, s.TresPerSocket, s.TresPerNode, s.TresPerStep)
	return r, nil
}

// amountOf converts an amount of a request that may be absurd.
func amountOf(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// nothing reports whether only CPUs are requested.
func (r *request) nothing() bool {
	return r.req.MemNodeMiB|r.req.MemCPUMiB|r.req.MemGPUMiB == 0 && len(r.req.Gres) == 0 && !r.all
}

// use returns what tasks with GPUs use of a node; memory 0 = the job's.
func (r *request) use(n *node, tasks int, gpus int64) sizing.Use {
	u := sizing.With(&r.req, int64(tasks), gpus, int64(n.perCore)).Within(&r.req, int64(n.cpus))
	if !r.exact {
		u = u.All(&r.req, int64(n.cpus), gpus)
	}
	return u
}

// gpusOf returns the number of GPUs of tasks on a node, without those that the step requests in total.
func (r *request) gpusOf(n *node, tasks int) int64 {
	if r.all {
		return int64(gpus(n.devices))
	}
	return sizing.GPUs(&r.req, int64(tasks), 0)
}

// holds reports whether a node has the memory and the devices for tasks.
func (r *request) holds(n *node, tasks int) bool {
	for i := range r.req.Gres {
		if g := &r.req.Gres[i]; int64(count(n.devices, g)) < sizing.Devices(&r.req, g, int64(tasks), 0) {
			return false
		}
	}
	return r.use(n, tasks, r.gpusOf(n, tasks)).MemMiB <= amountOf(n.mem)
}

// enough reports whether the chosen nodes have the step's total request.
func (r *request) enough() bool {
	r.given = r.devices()
	for i := range r.req.Gres {
		g, have := &r.req.Gres[i], uint64(0)
		for _, given := range r.given {
			have += count(given, g)
		}
		if g.Per == record.PerJob && have < uint64(g.Count) {
			return false
		}
	}
	return true
}

// devices returns the devices of each chosen node that the step gets.
func (r *request) devices() [][]*pb.GresDevice {
	out, free := make([][]*pb.GresDevice, len(r.chosen)), make([][]*pb.GresDevice, len(r.chosen))
	for i, on := range r.chosen {
		if free[i] = on.devices; r.all {
			out[i] = on.devices
		}
	}
	for k := range r.req.Gres {
		g := &r.req.Gres[k]
		if g.Per == record.PerJob {
			r.deal(g, out, free)
			continue
		}
		for i := range r.chosen {
			out[i], free[i] = move(out[i], free[i], g, uint64(sizing.Devices(&r.req, g, int64(r.counts[i]), 0)))
		}
	}
	return out
}

// deal distributes the step's total request over the nodes: one on each if there are enough, and the rest on the first ones. A node gets no
// more than it has memory for.
func (r *request) deal(g *record.GresRequest, out, free [][]*pb.GresDevice) {
	left := uint64(g.Count)
	for _, most := range []uint64{1, math.MaxUint64} {
		for i := range r.chosen {
			k := min(left, count(free[i], g), most)
			if g.Name == "gpu" && k > 0 {
				k = uint64(sizing.Most(0, int(min(k, math.MaxInt32)), func(more int) bool { return r.hasMemory(i, gpus(out[i])+more) }))
			}
			out[i], free[i] = move(out[i], free[i], g, k)
			left -= k
		}
	}
}

// hasMemory reports whether a chosen node has the memory that goes with that many GPUs.
func (r *request) hasMemory(i, gpus int) bool {
	return r.use(r.chosen[i], r.counts[i], int64(gpus)).MemMiB <= amountOf(r.chosen[i].mem)
}

// lead returns the message of Slurm's srun before it refuses a step that requests generic resources which its job lacks; "" when it has
// them.
func (r *request) lead(j *pb.JobRecord) string {
	for i := range r.req.Gres {
		g := &r.req.Gres[i]
		some, typed := false, uint64(0)
		if g.Per == record.PerTask || g.Per == record.PerSocket { // no message for these
			continue
		}
		for _, a := range j.Alloc {
			some = some || len(a.Devices) > 0
			typed += count(a.Devices, g)
		}
		text := g.Name
		if g.Type != "" {
			text += ":" + g.Type
		}
		switch {
		case !some:
			return "Step requested GRES but job doesn't have GRES"
		case typed == 0:
			return "Step requested GRES (" + text + ") not found in the job"
		case uint64(g.Count) > typed:
			return fmt.Sprintf("Step requested gres=%s:%d is more than the job's gres=%s:%d", text, g.Count, text, typed)
		}
	}
	return ""
}

// gpus returns the number of GPUs in a list.
func gpus(list []*pb.GresDevice) (n int) {
	for _, d := range list {
		if d.Name == "gpu" && d.Share == 0 {
			n += int(max(1, d.Count))
		}
	}
	return n
}

// amount returns the amount of a resource that an entry of a list stands for.
func amount(d *pb.GresDevice) uint64 {
	switch {
	case d.Count > 0:
		return uint64(d.Count)
	case d.Share > 0:
		return uint64(d.Share)
	}
	return 1
}

func matches(d *pb.GresDevice, g *record.GresRequest) bool {
	return d.Name == g.Name && (g.Type == "" || strings.EqualFold(d.Type, g.Type))
}

func count(list []*pb.GresDevice, g *record.GresRequest) (n uint64) {
	for _, d := range list {
		if matches(d, g) {
			n += amount(d)
		}
	}
	return n
}

// move takes k of a resource from one list to another, the first devices first; both are new lists.
func move(to, from []*pb.GresDevice, g *record.GresRequest, k uint64) (more, rest []*pb.GresDevice) {
	more = append(more, to...)
	for _, d := range from {
		have := amount(d)
		switch {
		case k == 0 || !matches(d, g):
			rest = append(rest, d)
		case have <= k:
			more, k = append(more, d), k-have
		default:
			more, rest = append(more, part(d, k)), append(rest, part(d, have-k))
			k = 0
		}
	}
	return more, rest
}

// part returns k of a counted or shared resource.
func part(d *pb.GresDevice, k uint64) *pb.GresDevice {
	c := pb.ShallowCopy(d)
	if d.Count > 0 {
		c.Count = uint32(k)
	} else {
		c.Share = uint32(k)
	}
	return c
}

// without subtracts the devices of a step.
func without(list, held []*pb.GresDevice) []*pb.GresDevice {
	for _, h := range held {
		var rest []*pb.GresDevice
		k := amount(h)
		for _, d := range list {
			have := amount(d)
			switch {
			case k == 0 || !same(d, h):
				rest = append(rest, d)
			case have <= k:
				k -= have
			default:
				rest, k = append(rest, part(d, have-k)), 0
			}
		}
		list = rest
	}
	return list
}

func same(a, b *pb.GresDevice) bool {
	return a.Name == b.Name && a.Type == b.Type && a.Index == b.Index && a.Id == b.Id && a.Parent == b.Parent && a.MigStart == b.MigStart
}
