package resv

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Reservations of parts of nodes: CoreCnt= and TRES= (scontrol(1)). The cores and devices of each node are chosen here, once, by number.

// hardware is the core layout of a node.
type hardware struct{ cores, threads uint32 }

func hardwareOf(n *state.Node) hardware {
	h := hardware{n.Sockets * n.NodeRecord.Cores, max(1, n.Threads)}
	if h.cores*h.threads != n.Cpus {
		return hardware{n.Cpus, 1}
	}
	return h
}

// room lists the resources of a node that can be reserved.
type room struct {
	node    *state.Node
	cores   []int
	devices [][]*pb.Device // for each of the requested resources
}

// need is the amount to reserve on one node.
type need struct {
	cores   int
	devices []int
}

// chooseParts finds the requested cores and devices.
func (e *edit) chooseParts() *pb.Problem {
	r := e.r
	if e.old != nil {
		return pb.NewProblem(pb.CodeCoreResvUpdate, "the cores of reservation %s cannot be changed",
			r.Name).WithHint("delete it and create it again")
	}
	if p := e.checkFeatures(); p != nil {
		return p
	}
	if !e.nodesSaid || e.pick > 0 {
		r.Partition = cmp.Or(r.Partition, e.tx.DefaultPartition())
		return e.partsOfAny()
	}
	names, err := hostlist.Expand(r.Nodes)
	if err != nil {
		return pb.NewProblem(pb.CodeInvalidNodeName, "%v", err)
	}
	if len(e.cores) > 0 && len(e.cores) != len(names) {
		return pb.NewProblem(pb.CodeCoreCount, "%d numbers of cores for %d nodes", len(e.cores),
			len(names)).WithHint("give one count for each of %s", r.Nodes)
	}
	needs := e.needs(len(names), func(i int) int { return int(e.cores[i]) })
	for i, name := range names {
		if by := e.wholly(name); by != "" {
			return pb.NewProblem(pb.CodeResvOverlap, "node %s is in reservation %s at that time", name,
				by).WithHint("choose other nodes or another time, or add Flags=OVERLAP")
		}
		if part := e.part(e.roomOn(e.tx.Node(name)), needs[i]); part != nil {
			r.Parts = append(r.Parts, part)
			continue
		}
		return e.tooLittle(needs[i], "node "+name)
	}
	e.howNamed(true, r.AllNodes)
	return nil
}

// needs distributes the request over a number of nodes.
func (e *edit) needs(nodes int, cores func(i int) int) []need {
	out := make([]need, nodes)
	for i := range out {
		if len(e.cores) > 0 {
			out[i].cores = cores(i)
		}
		for _, g := range e.gres {
			out[i].devices = append(out[i].devices, evenly(int(g.Count), nodes, i))
		}
	}
	return out
}

// evenly returns the i-th part of total in n parts that differ by one at most.
func evenly(total, n, i int) int {
	if i < total%n {
		return total/n + 1
	}
	return total / n
}

func (e *edit) tooLittle(n need, where string) *pb.Problem {
	what := ""
	for i, g := range e.gres {
		what += " and " + tres.Gres{Name: g.Name, Type: g.Type, Count: uint64(n.devices[i])}.String()
	}
	return pb.NewProblem(pb.CodeNodesBusy, "%d cores%s requested; %s has less that is not reserved and free by then", n.cores, what,
		where).WithHint("choose a later start, or add Flags=IGNORE_JOBS")
}

// partsOfAny takes the request from the nodes of the partition: from pick nodes, or from as few as suffice.
func (e *edit) partsOfAny() *pb.Problem {
	r := e.r
	r.Nodes, r.AllNodes = "", false
	var rooms []room
	_, free, busy := e.poolOf(func(n *state.Node) bool { return e.holder(n.Name, whole) == "" })
	for _, name := range slices.Concat(free, busy) {
		rooms = append(rooms, e.roomOn(e.tx.Node(name)))
	}
	left := need{cores: int(sum(e.cores))}
	for _, g := range e.gres {
		left.devices = append(left.devices, int(g.Count))
	}
	ok := true
	if e.pick > 0 {
		if e.has("FIRST_CORES") && len(e.cores) != int(e.pick) {
			return pb.NewProblem(pb.CodeCoreCount, "%d numbers of cores for %d nodes", len(e.cores),
				e.pick).WithHint("with FIRST_CORES, CoreCnt= has one for each node")
		}
		ok = e.takeEach(rooms)
	} else {
		ok = e.takeFill(rooms, left)
	}
	if !ok {
		return e.tooLittle(left, "partition "+r.Partition)
	}
	var names []string
	for _, p := range r.Parts {
		names = append(names, p.Node)
	}
	slices.SortFunc(names, hostlist.Compare)
	r.Nodes = hostlist.FoldSorted(names)
	e.howNamed(false, false)
	return nil
}

// takeEach takes parts of exactly pick nodes.
func (e *edit) takeEach(rooms []room) bool {
	needs := e.needs(int(e.pick), func(i int) int {
		if e.has("FIRST_CORES") {
			return int(e.cores[i])
		}
		return max(1, evenly(int(sum(e.cores)), int(e.pick), i))
	})
	for _, n := range needs {
		at := slices.IndexFunc(rooms, func(r room) bool { return e.part(r, n) != nil })
		if at < 0 {
			return false
		}
		e.r.Parts = append(e.r.Parts, e.part(rooms[at], n))
		rooms = slices.Delete(rooms, at, at+1)
	}
	return true
}

// takeFill takes all free resources of one node after another.
func (e *edit) takeFill(rooms []room, left need) bool {
	for _, r := range rooms {
		h := hardwareOf(r.node)
		some := need{cores: min(left.cores, len(r.cores)*e.perCore(h))}
		taken := some.cores > 0
		for i := range e.gres {
			k := min(left.devices[i], len(r.devices[i]))
			some.devices = append(some.devices, k)
			taken = taken || k > 0
		}
		if !taken || len(e.gres) > 0 && sumInts(some.devices) == 0 {
			continue
		}
		part := e.part(r, some)
		if part == nil {
			continue
		}
		e.r.Parts = append(e.r.Parts, part)
		left.cores -= some.cores
		for i := range e.gres {
			left.devices[i] -= some.devices[i]
		}
		if left.cores <= 0 && sumInts(left.devices) == 0 {
			return true
		}
	}
	return false
}

func sumInts(list []int) int {
	n := 0
	for _, x := range list {
		n += x
	}
	return n
}

// perCore returns how much of the count a core provides: its threads where CPUs were requested.
func (e *edit) perCore(h hardware) int {
	if e.cpus {
		return int(h.threads)
	}
	return 1
}

// part makes the part of a node; nil when there is not enough. Where devices were requested without cores, the part has the same share of
// the cores as of the devices.
func (e *edit) part(r room, n need) *pb.NodeAlloc {
	h := hardwareOf(r.node)
	cores := (n.cores + e.perCore(h) - 1) / e.perCore(h)
	out := &pb.NodeAlloc{Node: r.node.Name}
	all, some := 0, 0
	for i := range e.gres {
		if len(r.devices[i]) < n.devices[i] {
			return nil
		}
		for _, d := range r.devices[i][:n.devices[i]] {
			out.Devices = append(out.Devices, &pb.GresDevice{Name: d.Name, Type: e.typeOn(r.node, d), Index: d.Index, Id: d.Id})
		}
		all, some = all+e.devicesOn(r.node, e.gres[i]), some+n.devices[i]
	}
	if len(e.cores) == 0 && all > 0 {
		cores = max(1, int(h.cores)*some/all)
	}
	if len(r.cores) < cores || e.has("FIRST_CORES") && cores > 0 && r.cores[cores-1] != cores-1 {
		return nil
	}
	out.CpuIds, out.Cpus = coreSet(r.cores[:cores]...).String(), uint32(cores)*h.threads
	return out
}

func coreSet(numbers ...int) state.Cores {
	var set state.Cores
	for _, k := range numbers {
		for len(set) <= k/64 {
			set = append(set, 0)
		}
		set[k/64] |= 1 << (k % 64)
	}
	return set
}

// typeOn returns the scheduler's type of a device.
func (e *edit) typeOn(n *state.Node, d *pb.Device) string {
	for i := range n.Inv.Kinds {
		if slices.Contains(n.Inv.Kinds[i].Devices, d) {
			return n.Inv.Kinds[i].Type
		}
	}
	return d.Type
}

func kindsOf(n *state.Node, g tres.Gres) []*pb.Device {
	var out []*pb.Device
	if n.Inv == nil {
		return nil
	}
	for i := range n.Inv.Kinds {
		k := &n.Inv.Kinds[i]
		if k.Name == g.Name && !k.Shared && !k.NoConsume && (g.Type == "" || g.Type == k.Type) {
			out = append(out, k.Devices...)
		}
	}
	return out
}

func (e *edit) devicesOn(n *state.Node, g tres.Gres) int { return len(kindsOf(n, g)) }

// roomOn returns the resources of a node that are free when the reservation begins: no other reservation has them at its time, and no job
// beyond its start.
func (e *edit) roomOn(n *state.Node) room {
	out := room{node: n}
	var held state.Cores
	gone := map[string]bool{}
	take := func(a *pb.NodeAlloc, units bool) {
		c, _ := state.ParseCores(a.CpuIds) // cannot fail: this program wrote it
		if units {
			c = e.coresOf(n, c)
		}
		held = held.With(c)
		for _, d := range a.Devices {
			gone[deviceName(d.Name, d.Index)] = true
		}
	}
	for o := range e.atOnce {
		for _, p := range o.Parts {
			if p.Node == n.Name && !sharing(e.r) && !sharing(o) {
				take(p, false)
			}
		}
	}
	for _, id := range n.Jobs {
		j := e.tx.Job(id)
		if a := state.AllocOn(j, n.Name); a != nil && !e.has("IGNORE_JOBS") && (j.EndNs == 0 || j.EndNs > e.r.StartNs) {
			take(a, true)
		}
	}
	for k := range int(hardwareOf(n).cores) {
		if !held.Overlaps(coreSet(k)) {
			out.cores = append(out.cores, k)
		}
	}
	for _, g := range e.gres {
		out.devices = append(out.devices, slices.DeleteFunc(slices.Clone(kindsOf(n, g)), func(d *pb.Device) bool {
			return gone[deviceName(d.Name, d.Index)] || state.Withheld(d) != ""
		}))
	}
	return out
}

func deviceName(name string, index uint32) string { return name + " " + strconv.Itoa(int(index)) }

// coresOf converts CPU numbers of jobs, which are threads where those are allocated, to cores.
func (e *edit) coresOf(n *state.Node, units state.Cores) state.Cores {
	h := hardwareOf(n)
	if e.tx.Settings().WholeCores || h.threads == 1 {
		return units
	}
	var out []int
	for k := range units.All() {
		out = append(out, k/int(h.threads))
	}
	return coreSet(out...)
}

// wholly returns the reservation that has all of a node during the time of this one and does not share it, "" when none does.
func (e *edit) wholly(node string) string {
	return e.holder(node, func(o *pb.ReservationRecord) bool { return whole(o) && !sharing(o) })
}

// whole reports whether a reservation has whole nodes.
func whole(r *pb.ReservationRecord) bool { return len(r.Parts) == 0 }

// partsStillFree checks a reservation whose time has changed against the others.
func (e *edit) partsStillFree() *pb.Problem {
	for _, p := range e.r.Parts {
		mine, _ := state.ParseCores(p.CpuIds)
		by := e.wholly(p.Node)
		for o := range e.atOnce {
			for _, q := range o.Parts {
				theirs, _ := state.ParseCores(q.CpuIds)
				if q.Node == p.Node && theirs.Overlaps(mine) && !sharing(o) && !sharing(e.r) {
					by = o.Name
				}
			}
		}
		if by != "" {
			return pb.NewProblem(pb.CodeResvOverlap, "cores of node %s are in reservation %s at that time", p.Node, by)
		}
	}
	return nil
}
