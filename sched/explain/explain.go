package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/sched/index"
	"github.com/sluice-hpc/sluice/sched/node"
	"github.com/sluice-hpc/sluice/sched/placement"
	"github.com/sluice-hpc/sluice/sched/queue"
	"github.com/sluice-hpc/sluice/sched/reason"
	"github.com/sluice-hpc/sluice/sched/record"
)

// explainer finds out why jobs wait, and what would help.
type explainer struct {
	ix    *index.Index
	pl    *placement.Placer
	q     *queue.Queue
	plans Plans
	fresh func() Plans
}

// Plans makes plans of other snapshots. That may change index and queue.
type Plans interface {
	Plan(in *record.Snapshot) *record.Plan
	PlanTo(in *record.Snapshot, id uint32) *record.Plan
}

// Why explains why j waits in the snapshot, which the index and the queue have followed. Afterwards they may be in another state. fresh
// makes a new scheduler of the same configuration.
func Why(in *record.Snapshot, j *queue.Job, ix *index.Index, pl *placement.Placer, q *queue.Queue, plans Plans,
	fresh func() Plans) *Explanation {
	ex := &explainer{ix: ix, pl: pl, q: q, plans: plans, fresh: fresh}
	return ex.explain(in, j)
}

// explain fills in an Explanation.
func (ex *explainer) explain(in *record.Snapshot, j *queue.Job) *Explanation {
	x := &Explanation{Reason: j.Rec.Reason, Start: record.Forever}
	if j.Wait.Code != "" {
		x.Reason = j.Wait
		return x
	}
	e := j.Primary()
	if fault := ex.q.FaultOf(e.Class.Family); fault.Code != "" {
		x.Reason = fault
	}
	if x.Partition = ex.beyond(e); x.Partition == "" {
		x.Nodes, x.Reserved = ex.failing(e)
	}
	x.Licenses = ex.shortLicenses(e.Class.Shape)
	fault := ex.q.FaultOf(e.Class.Family).Code
	if fault == "" {
		x.Switches = ex.scattered(e)
	}
	if fault != "" && fault != reason.ReqNodeNotAvail { // the fault may be temporary maintenance
		x.Smaller = ex.smaller(in, e, ex.knobs(e), true)
		return x
	}
	others := ex.others(e)
	x.Ahead = ahead(e, others)
	inTheWay, windows, knobs := ex.obstacles(in, e, others), ex.windows(e), ex.knobs(e)
	ex.expect(in, j, x) // from here on index and queue may be in another state
	ex.ways(in, j.Rec.ID, inTheWay, x)
	x.Smaller = ex.smaller(in, e, knobs, false)
	ex.delays(in, j.Rec.ID, windows, x)
	return x
}

// beyond describes how e exceeds what its partition has or allows; "" when it does not.
func (ex *explainer) beyond(e *queue.Entry) string {
	p, r := e.Class.Part.Rec, e.Class.Shape.Request
	d := &e.Class.Shape.Demand
	switch ex.q.FaultOf(e.Class.Family).Code {
	case reason.PartitionDown:
		return fmt.Sprintf("partition %s is down", p.Name)
	case reason.PartitionInactive:
		return fmt.Sprintf("partition %s is inactive", p.Name)
	case reason.PartitionTimeLimit:
		return fmt.Sprintf("requests %s, partition %s allows %s", timespec.Clock(e.Least), p.Name, timespec.Clock(p.MaxTimeS))
	case reason.PartitionNodeLimit:
		if p.MaxNodes > 0 && d.Lo > p.MaxNodes {
			return fmt.Sprintf("requests %s, partition %s allows %d", count(int64(d.Lo), "node"), p.Name, p.MaxNodes)
		}
		return fmt.Sprintf("requests %s, partition %s requires at least %d", count(int64(d.Hi), "node"), p.Name, p.MinNodes)
	case reason.MaxMemPerLimit:
		return fmt.Sprintf(
			"requests %d MiB of memory per node, partition %s allows %d",
			e.Class.Shape.LeastMemory(),
			p.Name,
			p.MaxMemNodeMiB,
		)
	case reason.PartitionConfig:
		if n := len(e.Class.Part.Nodes); r.MinNodes > n {
			return fmt.Sprintf("requests %s, partition %s has %d", count(int64(r.MinNodes), "node"), p.Name, n)
		}
		return fmt.Sprintf(
			"requests %s, partition %s has %d",
			count(int64(max(r.Tasks, 1)*max(r.CPUsPerTask, 1)), "CPU"),
			p.Name,
			ex.ix.CPUsOf(e.Class.Part),
		)
	}
	return ""
}

// count formats "1 node", "2 nodes".
func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// failing counts nodes by the reason why the least part of the job does not fit there now, and names the reservations among the causes.
func (ex *explainer) failing(e *queue.Entry) (out []Failing, reserved []string) {
	at, c := map[string]int{}, e.Class
	for _, i := range c.Part.Nodes {
		f := Failing{1, "not in the reservation", -1}
		if n := c.Shape.Resv.Seat(ex.ix.Nodes.Vals[i]); n != nil {
			f.Why, f.Most = ex.whyNot(c, n)
			if why, by := ex.heldFor(e, n, f.Why); by != "" {
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
	return fewer(out), slices.Compact(reserved)
}

// fewer bounds the listed causes.
func fewer(all []Failing) []Failing {
	const most = 20
	if len(all) <= most {
		return all
	}
	rest := Failing{0, "other causes", -1}
	for _, f := range all[most-1:] {
		rest.Nodes += f.Nodes
	}
	return append(all[:most-1:most-1], rest)
}

// Causes that heldFor refines.
const (
	whyReserved = "reserved"
	whyPartOnly = "could take part of the job now"
	whyRoom     = "has room for the job now"
	whyMaint    = "under maintenance"
)

// heldFor names others' reservation that has the node, or that begins before the job may have ended there.
func (ex *explainer) heldFor(e *queue.Entry, n *node.Node, why string) (text, by string) {
	if why != whyReserved && why != whyPartOnly && why != whyRoom && why != whyMaint {
		return why, ""
	}
	first := record.Forever
	for _, w := range n.Reserved() {
		if from := max(ex.ix.Now, w.Start+w.Delay); w.End > ex.ix.Now && !e.Class.Shape.Resv.Passes(w.Resv) &&
			from < min(first, record.Add(ex.ix.Now, record.Add(e.Least, n.Rec.WakeS))) {
			first, by = from, w.Resv.Rec.Name
		}
	}
	switch {
	case by == "":
		return why, ""
	case why == whyReserved || why == whyMaint:
		return fmt.Sprintf("%s (%s)", why, by), by
	}
	return fmt.Sprintf("reserved (%s) before the job's time limit would end it", by), by
}

// whyNot returns the first cause that keeps jobs of the class off a node now, and the node's amount of the missing resource; below 0 where
// it is no amount.
func (ex *explainer) whyNot(c *queue.Class, n *node.Node) (string, int64) {
	sh := c.Shape
	if len(sh.Alts) == 0 {
		return "the constraint cannot be parsed", -1
	}
	alt := &sh.Alts[len(sh.Alts)-1]
	v := sh.NeedFor(alt, n.Config, alt.Tasks, alt.GPUs)
	switch blocked, _ := n.Blocked(sh.Resv, ex.ix.Now); {
	case n.Rec.State == record.NodeFuture:
		return "not part of the cluster yet", -1
	case alt.Pos[n.Index] < 0:
		return ex.neverFits(sh, n, v)
	case n.Rec.State != record.NodeUsable:
		state := map[record.NodeState]string{
			record.NodeDrained: "drained", record.NodeDown: "down", record.NodeMaint: whyMaint,
		}[n.Rec.State]
		if n.Rec.Reason != "" {
			state += " (" + n.Rec.Reason + ")"
		}
		return state, -1
	case n.Away > 0:
		return "being powered down, and not to be had before that is over", -1
	case blocked:
		return whyReserved, -1
	case sh.Stranger(n, v):
		return "in use by other jobs, and the job needs it exclusively", -1
	}
	if what, has := shortOf(v, n.Config, n.Prof.Now()); what != "" {
		if n.SoonReserved(ex.ix.Now, ex.ix.Now+1) {
			return what + " not free, in use or reserved", has
		}
		return what + " not free", has
	}
	return ex.inTheWay(sh, n, v), -1
}

// inTheWay returns the cause that keeps a job off a node where enough of everything is free.
func (ex *explainer) inTheWay(sh *placement.Shape, n *node.Node, v *node.Need) string {
	switch {
	case ex.pl.OpenUntil(sh, n, v) <= ex.ix.Now:
		return "what is free is reserved"
	case ex.pl.LacksCores(sh, n, v):
		return "CPUs in use by jobs that this one cannot share with"
	case n.LacksCuts(v):
		return "no room for the MIG instance: the GPUs are divided differently, or in use"
	case n.LacksSockets(v):
		return "not enough devices free on each socket"
	}
	if sh.Demand.Hi == 1 {
		return whyRoom
	}
	return whyPartOnly
}

// neverFits explains why the node is not a candidate at all.
func (ex *explainer) neverFits(sh *placement.Shape, n *node.Node, v *node.Need) (string, int64) {
	if slices.Contains(sh.Request.Exclude, n.Rec.Name) {
		return "excluded by the job", -1
	}
	if len(sh.Request.NodeList) > 0 && !slices.Contains(sh.Request.NodeList, n.Rec.Name) {
		return "not in the job's node list", -1
	}
	if what, has := shortOf(v, n.Config, n.Config.Full); what != "" {
		if len(n.Rec.Withheld) > 0 {
			return what + " missing or faulty", has
		}
		return what + " not there", has
	}
	if n.Rec.Refuses(sh.Request) {
		if sh.Request.LowUID == 1 {
			return "jobs of root refused", -1
		}
		return fmt.Sprintf("jobs of uid %d refused", sh.Request.LowUID-1), -1
	}
	if sh.Request.Features != "" {
		return "no feature " + sh.Request.Features, -1
	}
	return "too small", -1
}

// shortOf returns the first resource that free has too little of, with the required and the free amount.
func shortOf(v *node.Need, cfg *node.Config, free []int64) (what string, has int64) {
	switch {
	case free[node.DimCPU] < v.CPUUnits:
		return count(v.CPUs, "CPU"), max(0, free[node.DimCPU]*min(v.CPUs, node.MostCPUs)/v.CPUUnits)
	case free[node.DimMem] < v.MemMiB:
		return fmt.Sprintf("%d MiB of memory", v.MemMiB), max(0, free[node.DimMem])
	case v.Cap > 0 && free[v.Cap] < v.CPUs:
		return count(v.CPUs, "CPU") + " per node, of those that the partition may use", max(0, free[v.Cap])
	}
	for i := range v.Gres {
		if g := &v.Gres[i]; !g.Fits(cfg, free) {
			return fmt.Sprintf("%d %s", g.Count, strings.TrimSuffix(g.Name+":"+g.Type, ":")), whole(g, cfg, free)
		}
	}
	return "", -1
}

// whole returns how many whole devices are free; below 0 where parts of devices are requested.
func whole(g *node.GresNeed, cfg *node.Config, free []int64) (n int64) {
	if g.Shares > 0 || len(g.Cuts) > 0 {
		return -1
	}
	for _, gi := range g.Groups {
		n += max(0, cfg.Groups[gi].Free(free))
	}
	return n
}

// explainBudget is the number of (job, node) questions that an answer may cost: about a second.
const explainBudget = 3_000_000

// planTo returns the expected start of a job and its nodes, from a plan in which every job is promised a start: Now if it would start at
// once, Forever if unknown.
func (ex *explainer) planTo(in *record.Snapshot, id uint32) (start int64, where []string, truncated bool) {
	bounded := *in
	bounded.Budget = cmp.Or(in.Budget, explainBudget)
	plan := ex.plans.PlanTo(&bounded, id)
	start = record.Forever
	for i := range plan.Reserve {
		if r := &plan.Reserve[i]; r.ID == id {
			start, where = r.At, r.Nodes
		}
	}
	for i := range plan.Start {
		if st := &plan.Start[i]; st.Job.ID == id {
			start, where = in.Now, nil
			for _, a := range st.Allocs {
				where = append(where, a.Node)
			}
		}
	}
	return start, where, plan.Truncated
}

// expect fills in the expected start.
func (ex *explainer) expect(in *record.Snapshot, j *queue.Job, x *Explanation) {
	var truncated bool
	if x.Start, x.Where, truncated = ex.planTo(in, j.Rec.ID); x.Start == in.Now {
		x.Start = 0
	}
	x.TooFar = truncated && x.Start == record.Forever
}

// shortLicenses lists the licenses of sh that are not free now.
func (ex *explainer) shortLicenses(sh *placement.Shape) (short []string) {
	if sh.Lic == nil {
		return nil
	}
	lic := ex.ix.Licenses
	for i := range lic.Recs {
		if have, want := lic.Of(i, lic.Prof.Now(), sh.Lic); have < want {
			short = append(short, fmt.Sprintf("%d %s (at most %d of %d)", want, lic.Recs[i].Name, max(0, have), lic.Recs[i].Count))
		}
	}
	return short
}

// scattered explains that enough nodes could take a part of the job now, but their switches keep it from starting.
func (ex *explainer) scattered(e *queue.Entry) string {
	sh := e.Class.Shape
	if ex.ix.Switches == 0 || len(sh.Alts) == 0 {
		return ""
	}
	c := &sh.Alts[len(sh.Alts)-1]
	if c.Lacks || c.Hi == 1 {
		return ""
	}
	ex.pl.Refresh(sh, c)
	places := c.Fitting(record.Add(ex.ix.Now, e.Least))
	sets, ok := ex.pl.SwitchSets(sh, c, places)
	if !ok || len(places) < c.Lo || len(sets) > 0 {
		return ""
	}
	leaves, roots := map[int32]bool{}, map[int32]bool{}
	for _, p := range places {
		leaves[c.LeafOf(p)], roots[c.RootOf(p)] = true, true
	}
	what := fmt.Sprintf("%d nodes could take part of the job now, on %d leaf switches", len(places), len(leaves))
	if len(roots) > 1 {
		what += fmt.Sprintf(" of %d networks without a connection", len(roots))
	}
	if sh.Request.Switches > 0 {
		return what + fmt.Sprintf("; the job waits for %d nodes on at most %d (--switches)", c.Lo, sh.Request.Switches)
	}
	return what + fmt.Sprintf("; the job needs %d nodes that are connected", c.Lo)
}
