package sched

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/timespec"
)

// Explanation says in words why a pending job waits.
type Explanation struct {
	Reason Reason
	// Partition is what the job asks for beyond what the partition has or
	// allows; Nodes then says nothing.
	Partition string
	// Nodes counts the partition's nodes by the first thing that keeps the job
	// off each, most frequent first.
	Nodes []Failing
	// Switches is how the nodes that could take a part of the job now are
	// connected, where that is what keeps it from starting; else "".
	Switches string
	// Licenses says which of the job's licenses are not free now, with how many are.
	Licenses []string
	// Reserved are the reservations of others that keep it off nodes, by name.
	Reserved []string
	// Start and Where are the expected start and nodes; Start is 0 when the
	// job would start now, Forever when nothing can be said.
	Start int64
	Where []string
	// TooFar: so many come before the job that it was not worked out when it
	// starts.
	TooFar bool
	// After are running jobs on those nodes that have to end first.
	After []uint32
	// Smaller are changes to the request with each of which the job would start
	// now, as options of sbatch.
	Smaller []string
}

// Failing is a number of nodes and what keeps the job off them.
type Failing struct {
	Nodes int
	Why   string
	// Most is how much the best of these nodes has of what they are short of;
	// below 0 where that is no amount.
	Most int64
}

func (f Failing) String() string {
	nodes := "nodes"
	if f.Nodes == 1 {
		nodes = "node"
	}
	if f.Most < 0 {
		return fmt.Sprintf("%d %s: %s", f.Nodes, nodes, f.Why)
	}
	return fmt.Sprintf("%d %s: %s (at most %d)", f.Nodes, nodes, f.Why, f.Most)
}

// String is the explanation as `sluice explain` prints it, a line for each point.
func (x *Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "reason: %s\n", x.Reason)
	if x.Partition != "" {
		fmt.Fprintf(&b, "%s\n", x.Partition)
	}
	for _, f := range x.Nodes {
		fmt.Fprintln(&b, f)
	}
	if len(x.Licenses) > 0 {
		fmt.Fprintf(&b, "licenses not free: %s\n", strings.Join(x.Licenses, ", "))
	}
	if x.Switches != "" {
		fmt.Fprintf(&b, "%s\n", x.Switches)
	}
	if x.Start > 0 && x.Start < Forever {
		fmt.Fprintf(&b, "expected on %s\n", foldNames(x.Where))
	}
	if x.TooFar {
		b.WriteString("expected start not worked out: too many jobs come before this one\n")
	}
	switch len(x.After) {
	case 0:
	case 1:
		fmt.Fprintf(&b, "after the end of job %d\n", x.After[0])
	default:
		fmt.Fprintf(&b, "after the end of jobs %s\n", joinIDs(x.After))
	}
	for _, how := range x.Smaller {
		fmt.Fprintf(&b, "would start now: %s\n", how)
	}
	return b.String()
}

func joinIDs(ids []uint32) string {
	const most = 20
	var words []string
	for i, id := range ids {
		if i == most {
			words = append(words, fmt.Sprintf("and %d more", len(ids)-most))
			break
		}
		words = append(words, fmt.Sprint(id))
	}
	return strings.Join(words, ",")
}

// Explain says why the pending job id waits in the snapshot. It costs up to a
// conservative pass: call it when somebody asks, on a Scheduler of its own or
// between passes. It reports false when the job is not pending.
func (s *Scheduler) Explain(in *Snapshot, id uint32) (*Explanation, bool) {
	s.follow(in)
	s.choosePrimaries()
	j := s.jobOf(id)
	if j == nil {
		return nil, false
	}
	x := &Explanation{Reason: j.rec.Reason, Start: Forever}
	if j.wait.Code != "" {
		x.Reason = j.wait
		return x, true
	}
	e := j.primary()
	if fault := s.faultOf(e.class); fault.Code != "" {
		x.Reason = fault
	}
	if x.Partition = s.beyond(e); x.Partition == "" {
		x.Nodes, x.Reserved = s.failing(e)
	}
	var holders []*vrun
	x.Licenses, holders = s.shortLicenses(e.class.shape)
	switch s.faultOf(e.class).Code {
	case "":
		x.Switches = s.scattered(e)
		fallthrough
	case ReqNodeNotAvail: // until maintenance is over, it may be
		s.expect(in, j, e.class, x, holders)
	}
	if x.Start > 0 {
		x.Smaller = s.smaller(in, e)
	}
	return x, true
}

func (j *vjob) primary() *entry {
	for _, e := range j.entries {
		if e.primary {
			return e
		}
	}
	return j.entries[0]
}

// beyond says in which way e asks for more than its partition has or allows;
// "" when it does not.
func (s *Scheduler) beyond(e *entry) string {
	p, r := e.class.part.rec, e.class.shape.req
	d := &e.class.shape.demand
	switch s.faultOf(e.class).Code {
	case WaitPartitionDown:
		return fmt.Sprintf("partition %s is down", p.Name)
	case WaitPartitionInactive:
		return fmt.Sprintf("partition %s is inactive", p.Name)
	case PartitionTimeLimit:
		return fmt.Sprintf("asks for %s, partition %s allows %s", timespec.Clock(e.least), p.Name, timespec.Clock(p.MaxTimeS))
	case PartitionNodeLimit:
		if p.MaxNodes > 0 && d.lo > p.MaxNodes {
			return fmt.Sprintf("asks for %d nodes, partition %s allows %d", d.lo, p.Name, p.MaxNodes)
		}
		return fmt.Sprintf("asks for %d nodes, partition %s wants at least %d", d.hi, p.Name, p.MinNodes)
	case MaxMemPerLimit:
		return fmt.Sprintf("asks for %d MiB of memory on each node, partition %s allows %d", e.class.shape.leastMemory(), p.Name, p.MaxMemNodeMiB)
	case PartitionConfig:
		if n := len(e.class.part.nodes); r.MinNodes > n {
			return fmt.Sprintf("asks for %d nodes, partition %s has %d", r.MinNodes, p.Name, n)
		}
		return fmt.Sprintf("asks for %d CPUs, partition %s has %d", max(r.Tasks, 1)*max(r.CPUsPerTask, 1), p.Name, s.cpusOf(e.class.part))
	}
	return ""
}

// failing counts nodes by why the least part of the job does not fit there now, and names the reservations among the causes.
func (s *Scheduler) failing(e *entry) (out []Failing, reserved []string) {
	at, c := map[string]int{}, e.class
	for _, i := range c.part.nodes {
		f := Failing{1, "not in the reservation", -1}
		if n := c.shape.resv.seat(s.nodes.vals[i]); n != nil {
			f.Why, f.Most = s.whyNot(c, n)
			if why, by := s.heldFor(e, n, f.Why); by != "" {
				f.Why, reserved = why, append(reserved, by)
			}
		}
		if same, ok := at[f.Why]; ok {
			out[same].Nodes++
			out[same].Most = max(out[same].Most, f.Most)
			continue
		}
		at[f.Why] = len(out)
		out = append(out, f)
	}
	slices.SortStableFunc(out, func(a, b Failing) int { return b.Nodes - a.Nodes })
	slices.Sort(reserved)
	return out, slices.Compact(reserved)
}

// Causes that heldFor makes more exact.
const (
	whyReserved = "reserved"
	whyPartOnly = "could take a part of the job now"
	whyRoom     = "has room for the job now"
)

// heldFor names the reservation of others that has the node, or that begins before the job may have ended there.
func (s *Scheduler) heldFor(e *entry, n *vnode, why string) (text, by string) {
	if why != whyReserved && why != whyPartOnly && why != whyRoom {
		return why, ""
	}
	first := Forever
	for _, w := range n.reserved() {
		if from := max(s.now, w.start+w.delay); w.end > s.now && !e.class.shape.resv.passes(w.resv) && from < min(first, add(s.now, e.least)) {
			first, by = from, w.resv.rec.Name
		}
	}
	switch {
	case by == "":
		return why, ""
	case why == whyReserved:
		return fmt.Sprintf("reserved (%s)", by), by
	}
	return fmt.Sprintf("reserved (%s) before the job has ended by its time limit", by), by
}

// whyNot is the first thing that keeps jobs of the class off a node now, and
// how much of it the node has; below 0 where it is no amount.
func (s *Scheduler) whyNot(c *class, n *vnode) (string, int64) {
	sh := c.shape
	if len(sh.alts) == 0 {
		return "the constraint cannot be read", -1
	}
	alt := &sh.alts[len(sh.alts)-1]
	v := sh.vecFor(alt, n.cfg, alt.tasks, alt.gpus)
	switch blocked, _ := n.blocked(sh.resv, s.now); {
	case n.rec.State == NodeFuture:
		return "not part of the cluster yet", -1
	case alt.pos[n.idx] < 0:
		return s.neverFits(sh, n, v)
	case n.rec.State != NodeUsable:
		return map[NodeState]string{NodeDrained: "drained", NodeDown: "down", NodeMaint: "under maintenance"}[n.rec.State], -1
	case blocked:
		return whyReserved, -1
	}
	if what, has := v.shortOf(n.cfg, n.prof.Now()); what != "" {
		if n.soonReserved(s.now, s.now+1) {
			return what + " not free, in use or reserved", has
		}
		return what + " not free", has
	}
	return s.inTheWay(sh, n, v), -1
}

// inTheWay is what keeps a job off a node that has enough of everything free.
func (s *Scheduler) inTheWay(sh *shape, n *vnode, v *vec) string {
	switch {
	case s.openUntil(sh, n, v) <= s.now:
		return "what is free is reserved"
	case sh.stranger(n, v):
		return "in use by other jobs, and the job wants it alone"
	case s.lacksCores(sh, n, v):
		return "CPUs in use by jobs that do not share them with this one"
	case n.lacksCuts(v):
		return "no place for the MIG instance: the GPUs are cut otherwise, or in use"
	case n.lacksSockets(v):
		return "not enough devices free on each socket"
	}
	if sh.demand.hi == 1 {
		return whyRoom
	}
	return whyPartOnly
}

// neverFits: the node is not a candidate at all.
func (s *Scheduler) neverFits(sh *shape, n *vnode, v *vec) (string, int64) {
	if slices.Contains(sh.req.Exclude, n.rec.Name) {
		return "excluded by the job", -1
	}
	if len(sh.req.NodeList) > 0 && !slices.Contains(sh.req.NodeList, n.rec.Name) {
		return "not among the nodes the job names", -1
	}
	if what, has := v.shortOf(n.cfg, n.cfg.full); what != "" {
		if len(n.rec.Withheld) > 0 {
			return what + " not there, or faulty", has
		}
		return what + " not there", has
	}
	if sh.req.Features != "" {
		return "no feature " + sh.req.Features, -1
	}
	return "too small", -1
}

// shortOf names the first resource of which free has too little, with how much
// is wanted, and says how much there is.
func (v *vec) shortOf(cfg *config, free []int64) (what string, has int64) {
	switch {
	case free[dimCPU] < v.cpuUnits:
		return fmt.Sprintf("%d CPUs", v.cpu), max(0, free[dimCPU]*v.cpu/v.cpuUnits)
	case free[dimMem] < v.mem:
		return fmt.Sprintf("%d MiB of memory", v.mem), max(0, free[dimMem])
	case v.cap > 0 && free[v.cap] < v.cpu:
		return fmt.Sprintf("%d CPUs of those that the partition may use per node", v.cpu), max(0, free[v.cap])
	}
	for i := range v.gres {
		if g := &v.gres[i]; !g.fits(cfg, free) {
			return fmt.Sprintf("%d %s", g.count, g.name), g.whole(cfg, free)
		}
	}
	return "", -1
}

// whole is how many whole devices are free; below 0 where parts of devices are asked for.
func (g *vecGres) whole(cfg *config, free []int64) (n int64) {
	if g.shares > 0 || len(g.cuts) > 0 {
		return -1
	}
	for _, gi := range g.groups {
		n += max(0, cfg.groups[gi].free(free))
	}
	return n
}

// explainBudget is how many questions of (job, node) an answer is worth: about a second.
const explainBudget = 3_000_000

// expect takes the start from a plan in which every job is promised one. Where the job waits for licenses alone, it is for those who
// have them, whatever else ends until then on the nodes that it will be given.
func (s *Scheduler) expect(in *Snapshot, j *vjob, c *class, x *Explanation, holders []*vrun) {
	bounded := *in
	bounded.Budget = cmp.Or(in.Budget, explainBudget)
	plan := s.PlanTo(&bounded, j.rec.ID)
	for i := range plan.Start {
		if st := &plan.Start[i]; st.Job.ID == j.rec.ID {
			x.Start = 0
			for _, a := range st.Allocs {
				x.Where = append(x.Where, a.Node)
			}
		}
	}
	for i := range plan.Reserve {
		if r := &plan.Reserve[i]; r.ID == j.rec.ID {
			x.Start, x.Where = r.At, r.Nodes
		}
	}
	if x.Start == 0 || x.Start == Forever {
		x.TooFar = plan.Truncated && x.Start == Forever
		return
	}
	for _, r := range holders {
		if r.end <= x.Start {
			x.After = append(x.After, r.rec.ID)
		}
	}
	where := x.Where
	if len(x.After) > 0 && slices.ContainsFunc(x.Nodes, func(f Failing) bool { return f.Why == whyPartOnly || f.Why == whyRoom }) {
		where = nil
	}
	for _, i := range s.nodeList(where) {
		x.After = append(x.After, s.mustEnd(c.shape, s.nodes.vals[i], x.Start)...)
	}
	slices.Sort(x.After)
	x.After = slices.Compact(x.After)
}

// mustEnd are the runs that have left the node by then, without those that
// could as well stay: what they hold is left over.
func (s *Scheduler) mustEnd(sh *shape, n *vnode, start int64) (ids []uint32) {
	var all []uint32
	var ended []*vrun
	for _, r := range n.runs {
		if r.end > start {
			continue
		}
		all = append(all, r.rec.ID)
		if !s.leftOver(sh, n, start, r) {
			ids = append(ids, r.rec.ID)
		}
		ended = append(ended, r)
	}
	switch {
	case len(ids) > 0:
		return ids
	case s.leftOver(sh, n, start, ended...):
		return nil // it waits for something else
	}
	if cutters := n.cutters(sh, start); len(cutters) > 0 {
		return cutters
	}
	return all // any of them will do, and there is no saying which
}

// cutters are the runs that have left by then of those that hold devices of which the job wants instances.
func (n *vnode) cutters(sh *shape, start int64) (ids []uint32) {
	alt := &sh.alts[len(sh.alts)-1]
	if alt.pos[n.idx] < 0 {
		return nil
	}
	v := sh.vecFor(alt, n.cfg, alt.tasks, alt.gpus)
	wanted := func(gi int) bool {
		return slices.ContainsFunc(v.gres, func(g vecGres) bool { return slices.ContainsFunc(g.cuts, func(c cut) bool { return c.gi == gi }) })
	}
	for _, r := range n.runs {
		if r.end <= start && slices.ContainsFunc(r.parts, func(p vpartOf) bool { return p.node == n && n.holds(&p, wanted) }) {
			ids = append(ids, r.rec.ID)
		}
	}
	return ids
}

// holds reports whether a part of a run has a device of a group that is wanted.
func (n *vnode) holds(p *vpartOf, wanted func(gi int) bool) bool {
	for i := range p.alloc.Gres {
		a := &p.alloc.Gres[i]
		for _, d := range a.Devices {
			if gi, _ := n.find(a, d); gi >= 0 && wanted(gi) {
				return true
			}
		}
	}
	return false
}

// placesBeside reports whether the instances of v find places on the node when everything that ends by then has left it but some runs.
func (n *vnode) placesBeside(v *vec, runs []*vrun, start int64) bool {
	leave := func(sign int64) {
		for _, o := range n.runs {
			for i := range o.parts {
				if p := &o.parts[i]; p.node == n && o.end <= start && !slices.Contains(runs, o) {
					n.hold(p, sign)
				}
			}
		}
	}
	leave(-1)
	defer leave(1)
	return !n.lacksCuts(v)
}

// leftOver reports whether a part of the job would fit on the node then even if the runs had not ended. Where more than amounts count,
// or the part may be of several sizes, it does not know, and says no.
func (s *Scheduler) leftOver(sh *shape, n *vnode, start int64, runs ...*vrun) bool {
	alt := &sh.alts[len(sh.alts)-1]
	if alt.flex || alt.pos[n.idx] < 0 || slices.ContainsFunc(runs, sh.strange) {
		return false
	}
	v := sh.vecFor(alt, n.cfg, alt.tasks, alt.gpus)
	if v.whole || slices.ContainsFunc(v.gres, func(g vecGres) bool { return g.each > 0 }) {
		return false
	}
	free := slices.Clone(n.prof.At(n.prof.Find(start)))
	for _, r := range runs {
		for i := range r.parts {
			if p := &r.parts[i]; p.node == n {
				for d := range p.use {
					free[d] -= p.use[d]
				}
			}
		}
	}
	return v.fits(n.cfg, free) && n.placesBeside(v, runs, start)
}
