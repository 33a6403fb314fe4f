package planner

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/loop"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// gpuWorld is a controller with nodes of GPUs: n1 has some that are cut as jobs ask for it, n2 some that are shared, n3 plain ones.
type gpuWorld struct {
	bench
	cfg   *state.Config
	store *journal.Memory
	gpus  map[string][]*pb.Device // what is really there, as the node would report it
}

var migProfiles = []*pb.MigProfile{{Name: "1g.10gb", Size: 1, Starts: []uint32{0, 1, 2, 3, 4, 5, 6}},
	{Name: "2g.20gb", Size: 2, Starts: []uint32{0, 2, 4}},
	{Name: "3g.40gb", Size: 4, Starts: []uint32{0, 4}}, {Name: "4g.40gb", Size: 4, Starts: []uint32{0}},
	{Name: "7g.80gb", Size: 8, Starts: []uint32{0}}}

func newGPUWorld(t rapid.TB) *gpuWorld {
	w := &gpuWorld{cfg: config(3), store: journal.NewMemory(), gpus: map[string][]*pb.Device{}}
	w.t, w.now = t, 1000e9
	for _, n := range w.cfg.Nodes {
		n.Cpus, n.Cores, n.RealMemoryMib = 64, 64, 64000
	}
	w.cfg.Nodes[1].Gres = "gpu:v100:2,shard:8"
	w.cfg.Gres = map[string]state.GresConfig{"n1": {DynamicMIG: true}}
	for _, g := range []struct {
		node, typ string
		n         int
	}{{"n1", "h100", 2}, {"n2", "v100", 2}, {"n3", "a100", 3}} {
		for i := range g.n {
			d := &pb.Device{Name: "gpu", Type: g.typ, Index: uint32(i), Id: fmt.Sprintf("%s-%d", g.typ, i), MemoryMib: 32768,
				Cores: fmt.Sprint(i * 8), MigNoReset: true}
			if g.typ == "h100" {
				d.MigMode, d.MigProfiles = "on", migProfiles
			}
			w.gpus[g.node] = append(w.gpus[g.node], d)
		}
	}
	w.boot(state.New(w.cfg, "c", 1))
	for n := range w.gpus {
		w.hello(n)
	}
	return w
}

// boot starts a controller on a state.
func (w *gpuWorld) boot(v *state.View) {
	clock := func() time.Time { return time.Unix(0, w.now) }
	w.loop = loop.New(w.store, v, clock, discard())
	w.p = New(w.loop, record.Params{Weights: record.Weights{Basic: true}}, clock, discard())
	w.loop.Observe(w.p.Changed)
	w.plan = nil
}

// crash is the end of a controller with kill -9, and the start of the next.
func (w *gpuWorld) crash() {
	v, err := state.Load(w.cfg, w.store, "c", 1)
	if err != nil {
		w.t.Fatal(err)
	}
	before := w.loop.View()
	w.boot(v)
	for _, n := range v.Nodes() {
		if got, want := n.Inv.Gres, before.Node(n.Name).Inv.Gres; got != want {
			w.t.Fatalf("node %s had %s before the crash, and %s after it", n.Name, want, got)
		}
	}
	for n := range w.gpus {
		w.hello(n)
	}
}

func (w *gpuWorld) devices(node string) []*pb.Device {
	var out []*pb.Device
	there := map[string]*pb.Device{}
	for _, d := range w.gpus[node] {
		c := proto.Clone(d).(*pb.Device)
		out = append(out, c)
		there[d.Id] = c
	}
	for _, d := range w.instances(node) { // those that it has made for jobs, as a node daemon numbers and names them
		if p := there[d.Parent]; p != nil {
			out = append(out, &pb.Device{Name: "gpu", Type: d.Type, Index: uint32(len(w.gpus[node])) + 8*p.Index + d.MigStart,
				Id: instanceID(d), Parent: d.Parent, MigStart: d.MigStart, Fault: p.Fault, Foreign: p.Foreign})
		}
	}
	return out
}

func instanceID(d *pb.GresDevice) string {
	return fmt.Sprintf("MIG/%s/%s/%d", d.Parent, d.Type, d.MigStart)
}

// instanceOf returns the MIG instance of a job's device in one form, whichever way it is written.
func instanceOf(d *pb.GresDevice) *pb.GresDevice {
	if p := strings.Split(d.Id, "/"); p[0] == "MIG" {
		start, _ := strconv.Atoi(p[3])
		return &pb.GresDevice{Name: "gpu", Type: p[2], Parent: p[1], MigStart: uint32(start)}
	}
	return d
}

// instances are the MIG instances that jobs of a node hold.
func (w *gpuWorld) instances(node string) []*pb.GresDevice {
	var out []*pb.GresDevice
	if w.loop == nil {
		return nil
	}
	for j := range w.loop.View().Jobs.All() {
		for _, a := range j.Alloc {
			for _, d := range a.Devices {
				if d = instanceOf(d); a.Node == node && !a.Ended && d.Parent != "" {
					out = append(out, d)
				}
			}
		}
	}
	return out
}

// reconfigure changes whether GPUs are cut as jobs ask for it, and what slurm.conf says of n2.
func (w *gpuWorld) reconfigure(dynamic bool, gres string) {
	c := *w.cfg
	c.Nodes = slices.Clone(c.Nodes)
	c.Nodes[1] = state.CloneNode(c.Nodes[1])
	c.Nodes[1].Gres = gres
	c.Gres = map[string]state.GresConfig{"n1": {DynamicMIG: dynamic}}
	w.cfg = &c
	w.report("n1") // with the instances that there are
	// Also what running jobs hold may go.
	if p, refused := w.do(reactor.Reconfigure{Config: &c, Force: true}).(*pb.Problem); refused {
		w.t.Fatal(p)
	}
}

// hello says what the node runs as well, so that the controller need not guess.
func (w *gpuWorld) hello(node string) {
	h := reactor.NodeHello{Hello: &pb.NodeHello{Node: node, BootId: "b",
		Hardware: &pb.Hardware{Cpus: 64, Sockets: 1, Cores: 64, Threads: 1, RealMemoryMib: 64000, Devices: w.devices(node)}}}
	for j := range w.loop.View().Jobs.All() {
		for _, a := range j.Alloc {
			if a.Node == node && !a.Ended {
				h.Steps = append(h.Steps, &pb.StepReport{Key: &pb.StepKey{JobId: j.Id, Attempt: j.Attempt, Epoch: j.Epoch,
					Step: pb.BatchStep}, Phase: pb.StepPhase_STEP_RUNNING})
			}
		}
	}
	w.do(h)
}

func (w *gpuWorld) report(node string) {
	w.do(reactor.DeviceReport{Node: node, Report: &pb.DeviceReport{Devices: w.devices(node)}})
}

// request draws one of the ways to ask for GPUs.
func (w *gpuWorld) request(t *rapid.T) {
	n := rapid.IntRange(1, 3).Draw(t, "count")
	s := &pb.JobSpec{NumTasks: 1, TimeLimitS: uint32(rapid.IntRange(60, 600).Draw(t, "limit"))}
	switch rapid.IntRange(0, 9).Draw(t, "form") {
	case 0:
		s.TresPerNode = fmt.Sprintf("gres/gpu:%d", n)
	case 1:
		s.TresPerNode = fmt.Sprintf("gres/gpu:%s:%d", rapid.SampledFrom([]string{"a100", "v100", "h100"}).Draw(t, "type"), min(n, 2))
	case 2:
		s.TresPerJob, s.MinNodes, s.MaxNodes = fmt.Sprintf("gres/gpu:%d", n), 1, 3
	case 3:
		s.TresPerTask, s.NumTasks = "gres/gpu:1", uint32(n)
	case 4, 5:
		s.TresPerNode = fmt.Sprintf("gres/shard:%d", n)
	case 6, 7, 8:
		s.TresPerNode = fmt.Sprintf("gres/gpu:%s:%d",
			rapid.SampledFrom([]string{"1g.10gb", "h100_2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"}).Draw(t, "profile"), min(n, 2))
	case 9:
		s.TresPerNode, s.Sharing = "gres/gpu:1", "exclusive"
	}
	s.Name, s.Uid, s.User = "job", 1000, "u"
	j, p := admit.Job(w.loop.View(), s, "")
	if p != nil {
		return // shards where there are none now
	}
	w.do(reactor.Submit{Job: j})
}

// mishap changes what is there: a fault, somebody else's process, a card that is pulled, put back or put into another slot, a MIG mode.
func (w *gpuWorld) mishap(t *rapid.T) {
	node := rapid.SampledFrom([]string{"n1", "n2", "n3"}).Draw(t, "node")
	list := w.gpus[node]
	d := rapid.SampledFrom(list).Draw(t, "gpu")
	switch what := rapid.SampledFrom([]string{"fault", "foreign", "heal", "move", "mig", "only hello"}).Draw(t, "what"); what {
	case "fault":
		d.Fault = "XID 79"
	case "foreign":
		d.Foreign = "python3 (pid 1) of eve"
	case "heal":
		d.Fault, d.Foreign = "", ""
	case "mig":
		if len(d.MigProfiles) > 0 {
			d.MigMode = rapid.SampledFrom([]string{"on", "off", "pending on", "pending off"}).Draw(t, "mode")
		}
	case "move":
		slices.Reverse(list)
		for i, d := range list {
			d.Index = uint32(i)
		}
	}
	if rapid.Bool().Draw(t, "hello") {
		w.hello(node)
		return
	}
	w.report(node)
}

// pull takes a card out for a while.
func (w *gpuWorld) pull(t *rapid.T) {
	node := rapid.SampledFrom([]string{"n1", "n2", "n3"}).Draw(t, "node")
	all := w.gpus[node]
	i := rapid.IntRange(0, len(all)-1).Draw(t, "gpu")
	w.gpus[node] = slices.Delete(slices.Clone(all), i, i+1)
	for k, d := range w.gpus[node] {
		d.Index = uint32(k)
	}
	w.report(node)
	if rapid.Bool().Draw(t, "start meanwhile") {
		w.run()
		w.check()
	}
	w.gpus[node] = all
	for k, d := range all {
		d.Index = uint32(k)
	}
	w.report(node)
}

// run applies a plan of the present state: all of it can be done, or the scheduler does not see what is free.
func (w *gpuWorld) run() {
	w.prepare()
	if w.plan != nil {
		plan := w.plan
		if r := w.apply(); r.Dropped > 0 {
			w.t.Fatalf("of a plan of the present state %d starts were refused: %v", r.Dropped, plan.Starts)
		}
	}
}

// apply applies the last plan, which may be stale. Jobs that start must get sound devices.
func (w *gpuWorld) apply() (r reactor.Applied) {
	if w.plan == nil {
		return r
	}
	before := w.loop.View()
	r = w.do(*w.plan).(reactor.Applied)
	w.plan = nil
	for j := range w.loop.View().Jobs.All() {
		if old := before.Jobs.Get(j.Id); !state.Live(j) || old != nil && old.Attempt == j.Attempt {
			continue
		}
		for _, a := range j.Alloc {
			for _, d := range a.Devices {
				if have := w.loop.View().Node(a.Node).Inv.Current(d); have == nil || state.Withheld(have) != "" {
					w.t.Fatalf("job %d was given %v, which is %v", j.Id, d, have)
				}
			}
		}
	}
	return r
}

// clash makes a plan stale in the worst way: the jobs that it would start are held, others take their places, and then it is applied.
func (w *gpuWorld) clash(t *rapid.T) {
	w.request(t)
	w.prepare()
	plan := w.plan
	if w.plan = nil; plan == nil {
		return
	}
	var ids []string
	for _, s := range plan.Starts {
		ids = append(ids, fmt.Sprint(s.ID))
	}
	w.do(reactor.Control{Caller: operator, Verb: "hold", IDs: ids})
	for range 3 {
		w.request(t)
	}
	w.run()
	w.do(reactor.Control{Caller: operator, Verb: "release", IDs: ids})
	w.plan = plan
	w.apply()
}

// check: no GPU, no shard and no slice of a GPU has two owners, by the identity of the GPU.
func (w *gpuWorld) check() {
	type use struct {
		slices uint64
		shares uint32
		by     []uint32
	}
	uses := map[string]*use{}
	for j := range w.loop.View().Jobs.All() {
		for _, a := range j.Alloc {
			if a.Ended {
				continue
			}
			for _, d := range a.Devices {
				d = instanceOf(d)
				id := d.Id + d.Parent
				if id == "" {
					w.t.Fatalf("job %d has a GPU without identity: %v", j.Id, d)
				}
				u := uses[id]
				if u == nil {
					u = &use{}
					uses[id] = u
				}
				u.by = append(u.by, j.Id)
				span := ^uint64(0)
				if d.Parent != "" {
					p := migProfiles[slices.IndexFunc(migProfiles,
						func(p *pb.MigProfile) bool { return strings.HasSuffix(d.Type, p.Name) })]
					if span = (1<<p.Size - 1) << d.MigStart; !slices.Contains(p.Starts, d.MigStart) {
						w.t.Fatalf("job %d has %v, where none can be", j.Id, d)
					}
				}
				if u.shares += d.Share; d.Share > 0 {
					if u.slices != 0 || u.shares > 4 {
						w.t.Fatalf("%d shares of %s are jobs %v's, and slices %b", u.shares, id, u.by, u.slices)
					}
					continue
				}
				if u.slices&span != 0 || u.shares > 0 {
					w.t.Fatalf("GPU %s has two owners, among jobs %v", id, u.by)
				}
				u.slices |= span
			}
		}
	}
	if err := w.loop.View().Check(); err != nil {
		w.t.Fatal(err)
	}
	w.checkShown()
}

// checkShown: a plan sees exactly the devices of a node that its jobs hold.
func (w *gpuWorld) checkShown() {
	v := w.loop.View()
	for _, n := range v.Nodes() {
		held := 0
		for _, id := range n.Jobs {
			for _, a := range v.Jobs.Get(id).Alloc {
				if a.Node == n.Name && !a.Ended {
					for _, d := range a.Devices {
						if n.Inv.Current(d) != nil {
							held++
						}
					}
				}
			}
		}
		seen := 0
		for _, id := range n.Jobs {
			for _, a := range v.Jobs.Get(id).Alloc {
				if a.Node == n.Name && !a.Ended {
					for _, g := range convert.GresAllocs(n, a) {
						seen += len(g.Devices)
						if g.Starts != nil && bits.OnesCount64(uint64(g.Shares)) == 0 {
							w.t.Fatalf("an instance of no size: %+v", g)
						}
					}
				}
			}
		}
		if seen != held {
			w.t.Fatalf("on %s jobs hold %d devices, the scheduler sees %d", n.Name, held, seen)
		}
	}
}

// settle ends every job, heals every GPU, and finds that none is lost: jobs that ask for all of them start at once.
func (w *gpuWorld) settle() {
	var ids []string
	for j := range w.loop.View().Jobs.All() {
		ids = append(ids, fmt.Sprint(j.Id))
	}
	w.do(reactor.Cancel{Caller: operator, IDs: ids})
	for j := range w.loop.View().Jobs.All() {
		for _, a := range j.Alloc {
			if !a.Ended {
				w.do(reactor.StepReports{Node: a.Node,
					Steps: []*pb.StepReport{{Key: &pb.StepKey{JobId: j.Id, Attempt: j.Attempt, Epoch: j.Epoch, Step: pb.BatchStep},
						Phase: pb.StepPhase_STEP_ENDED,
						Exit:  &pb.ExitRecord{Verdict: "exited"}}}})
			}
		}
	}
	for node, list := range w.gpus {
		for _, d := range list {
			d.Fault, d.Foreign = "", ""
			if len(d.MigProfiles) > 0 {
				d.MigMode = "on"
			}
		}
		w.report(node)
	}
	w.reconfigure(true, "gpu:v100:2,shard:8")
	for _, ask := range []string{"gres/gpu:h100:2", "gres/gpu:v100:2", "gres/gpu:a100:3"} {
		s := &pb.JobSpec{Name: "all", Uid: 1000, User: "u", NumTasks: 1, TresPerNode: ask}
		j, p := admit.Job(w.loop.View(), s, "")
		if p != nil {
			w.t.Fatal(p)
		}
		id := w.do(reactor.Submit{Job: j}).(reactor.Submitted).ID
		w.run()
		if j := w.loop.View().Jobs.Get(id); j.State != pb.JobState_JOB_RUNNING {
			w.t.Fatalf("a GPU is lost: with nothing running and everything healthy, a job for %s is %v (%s)", ask, j.State, j.Reason)
		}
	}
	w.check()
}

// TestGPUsHaveOneOwner: for any sequence of requests, starts, ends, crashes, mishaps and changes of MIG no device has two owners and
// none is lost.
func TestGPUsHaveOneOwner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newGPUWorld(t)
		for range 4 {
			w.request(t)
		}
		w.run()
		t.Repeat(map[string]func(*rapid.T){
			"request":  w.request,
			"request ": w.request,
			"end":      w.end,
			"end ":     w.end,
			"mishap":   w.mishap,
			"pull":     w.pull,
			"crash":    func(*rapid.T) { w.crash() },
			"reconfigure": func(t *rapid.T) {
				w.reconfigure(rapid.Bool().Draw(t, "dynamic"),
					rapid.SampledFrom([]string{"gpu:v100:2,shard:8", "gpu:v100:1,shard:4", ""}).Draw(t, "gres"))
			},
			"prepare": func(*rapid.T) { w.prepare() },
			"apply":   func(*rapid.T) { w.apply() },
			"clash":   w.clash,
			"run":     func(*rapid.T) { w.run() },
			"time": func(t *rapid.T) {
				w.now += int64(rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Minute}).Draw(t, "time"))
				w.do(reactor.Tick{})
			},
			"": func(*rapid.T) { w.check() },
		})
		w.settle()
	})
}
