package sched

import (
	"github.com/sluice-hpc/sluice/sched/reason"
	"github.com/sluice-hpc/sluice/sched/record"
	"github.com/sluice-hpc/sluice/sched/sizing"
	"slices"
	"strings"
)

// checkTrue checks the plan's reasons of waiting jobs by counting, without the scheduler's own code:
//
//   - A job that waits for resources or for its turn does not fit now on nodes where nothing is promised. Other free
//     resources are kept for a promise (in FIFO, for the jobs before it).
//   - Every other reason must agree with the records.
func checkTrue(t testingT, params *record.Params, in *record.Snapshot, p *record.Plan) {
	t.Helper()
	c := count(in, p)
	said := map[uint32]reason.Reason{}
	for _, r := range p.Reasons {
		said[r.ID] = r.Reason
	}
	for _, j := range in.Pending {
		r, changed := said[j.ID]
		if !changed {
			r = j.Reason
		}
		if c.gone[j.ID] || r.Code == "" {
			continue
		}
		if why := c.lie(params, j, r.Code); why != "" {
			t.Fatalf("job %d waits for %q, and %s\n%+v\n%+v\n%s", j.ID, r, why, j, j.Request, showPlan(p))
		}
	}
}

// counted adds up running and starting jobs.
type counted struct {
	in       *record.Snapshot
	plan     *record.Plan
	nodes    map[string]*countedNode
	licenses int64
	gone     map[uint32]bool // jobs of which nothing waits any more
	active   map[uint32]int
}

type countedNode struct {
	rec     *record.Node
	cpus    int
	mem     int64
	devices map[int]int64 // shares taken, 4 for whole
	jobs    []*record.Job
	alone   []bool // whether each takes its nodes for its user alone
}

func count(in *record.Snapshot, p *record.Plan) *counted {
	c := &counted{in: in, plan: p, nodes: map[string]*countedNode{}, licenses: 3, gone: map[uint32]bool{}, active: map[uint32]int{}}
	for _, n := range in.Nodes {
		c.nodes[n.Name] = &countedNode{rec: n, cpus: n.CPUs, mem: n.MemMiB, devices: map[int]int64{}}
	}
	for _, r := range in.Running {
		c.take(r.Job, r.Partition, r.Allocs)
	}
	for _, s := range p.Start {
		c.take(s.Job, s.Partition, s.Allocs)
		c.active[s.Job.ID]++
		c.gone[s.Job.ID] = s.Job.Array == nil || c.active[s.Job.ID] == s.Job.Array.Count()
	}
	return c
}

func (c *counted) take(j *record.Job, partition string, allocs []record.Alloc) {
	for _, l := range j.Request.Licenses {
		c.licenses -= l.Count
	}
	for _, a := range allocs {
		n := c.nodes[a.Node]
		n.cpus -= a.CPUs
		n.mem -= a.MemMiB
		n.jobs = append(n.jobs, j)
		n.alone = append(n.alone, aloneIn(c.in, partition, j))
		for _, g := range a.Gres {
			for _, d := range g.Devices {
				if g.Shares > 0 {
					n.devices[d] += g.Shares
				} else {
					n.devices[d] += 4
				}
			}
		}
	}
}

// lie returns why the reason is false, or "".
func (c *counted) lie(params *record.Params, j *record.Job, code reason.Code) string {
	now := c.in.Now
	resv := j.Request.Reservation
	switch code {
	case reason.BeginTime:
		return unless(j.Begin > now, "its time has come")
	case reason.JobArrayTaskLimit:
		return unless(
			j.Array != nil && j.Array.Limit > 0 && j.Array.Active+c.active[j.ID] >= j.Array.Limit,
			"its array's limit is not reached",
		)
	case reason.PartitionTimeLimit:
		return unless(
			slices.Contains(j.Partitions, "q") && j.LimitS > 60 && (j.TimeMinS == 0 || j.TimeMinS > 60),
			"no partition forbids its limit",
		)
	case reason.Reservation, reason.ReservationDeleted:
		return unless(resv != "" && (code == reason.Reservation) == (len(c.in.Reservations) > 0), "it is not about a reservation")
	case reason.Licenses:
		return unless(len(j.Request.Licenses) > 0 && (c.licenses < 2 || len(c.plan.Reserve) > 0), "the licenses are there")
	case reason.Resources, reason.Priority:
		if params.Policy == record.FIFO || c.limited(j) || c.more(j) {
			return ""
		}
		for _, name := range j.Partitions {
			if c.startable(j, name) {
				return "could start now in partition " + name
			}
		}
	case reason.BadConstraints, reason.PartitionNodeLimit, reason.PartitionConfig:
		for _, name := range j.Partitions {
			if resv == "" && c.possible(j, name) { // of a reservation there may be no nodes
				return "could start in partition " + name + " if that were idle"
			}
		}
	case reason.ReqNodeNotAvail:
		for _, r := range c.in.Reservations {
			if len(r.Parts) == 0 && r.Start < now+j.LimitS || len(r.Again) > 0 {
				return ""
			}
		}
		gone := func(name string) bool { return c.nodes[name].rec.State != record.NodeUsable }
		return unless(slices.ContainsFunc(j.Request.NodeList, gone), "nothing is reserved until then, and the nodes it names are up")
	default:
		if strings.HasPrefix(string(code), "limit ") {
			return unless(c.limited(j) || c.more(j), "it would keep its limits")
		}
		return "no such reason is expected here"
	}
	return ""
}

// limited: of something that is limited less is left than the job asks for.
func (c *counted) limited(j *record.Job) bool {
	counts := sizing.Count(j.Request)
	return slices.ContainsFunc(j.Limits, func(i int32) bool {
		l := &c.in.Limits[i]
		left := c.in.Left[i]
		for _, s := range c.plan.Start {
			if !l.PerJob && slices.Contains(s.Job.Limits, i) {
				left -= heldOf(l.What, s.Allocs)
			}
		}
		need := sizing.LimitNeed(l.What, &counts, j.LimitS)
		if strings.HasPrefix(l.What, record.LimitLeast) { // what it gets is not known
			need = sizing.LimitNeedAtOnce(l.What, &counts, 0)
		}
		return need > left
	})
}

// more: there are limits on it, and it may get more than it asks for: whole nodes, or more of them.
func (c *counted) more(j *record.Job) bool {
	return len(j.Limits) > 0 && (j.Request.Exclusive || c.in.Partitions[0].Share == record.ShareExclusive || j.Request.MinNodes != 1)
}

func unless(ok bool, why string) string {
	if ok {
		return ""
	}
	return why
}

// possible is startable in an idle cluster.
func (c *counted) possible(j *record.Job, partition string) bool {
	in := *c.in
	in.Running, in.Reservations = nil, nil
	in.Nodes = nil
	for _, n := range c.in.Nodes {
		up := *n
		up.State = record.NodeUsable
		in.Nodes = append(in.Nodes, &up)
	}
	return count(&in, &record.Plan{}).startable(j, partition)
}

// startable: enough nodes without a promise or a reservation of others have
// room, for requests that can be judged node by node.
func (c *counted) startable(j *record.Job, partition string) bool {
	r := j.Request
	part := c.in.Partitions[slices.IndexFunc(c.in.Partitions, func(p *record.Partition) bool { return p.Name == partition })]
	want := max(1, r.MinNodes)
	perJob := slices.ContainsFunc(r.Gres, func(g record.GresRequest) bool { return g.Per == record.PerJob })
	switch {
	case want > 1 && (r.Tasks > 0 || perJob || r.Switches > 0),
		len(r.NodeList)+len(r.Exclude) > 0,
		part.Share == record.ShareYes,
		part.Share == record.ShareForce:
		return false // beyond these means
	case part.MaxTimeS > 0 && j.LimitS > part.MaxTimeS, len(r.Licenses) > 0 && (c.licenses < 2 || len(c.plan.Reserve) > 0):
		return false
	}
	fit, counts := 0, 0
	roots := map[string]int{} // nodes by topmost switch, where switches are known
	known := slices.ContainsFunc(c.in.Nodes, func(n *record.Node) bool { return n.Switch != "" })
	for _, name := range part.Nodes {
		if n := c.nodes[name]; c.open(j, n) && n.holds(j, part) {
			root, _, _ := strings.Cut(n.rec.Switch, "/")
			if known && root == "" {
				root = "alone " + name
			}
			roots[root]++
			fit = max(fit, roots[root])
			if slices.Contains(n.rec.Features, "b") {
				counts++
			}
		}
	}
	if strings.Contains(r.Features, "*") && (counts == 0 || known && want > 1) || r.Features == "[a|b]" && want > 1 {
		return false
	}
	return fit >= want
}

// open: the node is up, and neither promised nor reserved while the job would run.
func (c *counted) open(j *record.Job, n *countedNode) bool {
	end := c.in.Now + j.LimitS + n.rec.WakeS
	if j.Request.MinNodes > 1 {
		for _, other := range c.in.Nodes { // of several, the last to wake, whichever those are
			end = max(end, c.in.Now+j.LimitS+other.WakeS)
		}
	}
	for i := range c.plan.Reserve {
		if r := &c.plan.Reserve[i]; r.At < end && slices.Contains(r.Nodes, n.rec.Name) {
			return false
		}
	}
	for _, r := range c.in.Reservations {
		mine := j.Request.Reservation == r.Name
		on := slices.Contains(r.Nodes, n.rec.Name)
		if on && len(r.Parts) > 0 && r.Start < end && c.in.Now < r.End {
			return false // beyond these means
		}
		for _, w := range r.Again {
			if on && w.Start < end && c.in.Now < w.End {
				return false
			}
		}
		if !mine && on && r.Start < end && c.in.Now < r.End || mine && !r.Flex && (!on || c.in.Now < r.Start || end > r.End) ||
			mine && j.User != "v" {
			return false
		}
	}
	return n.rec.State == record.NodeUsable
}

// holds: there is room on the node for one node's part of the job.
func (n *countedNode) holds(j *record.Job, part *record.Partition) bool {
	r := j.Request
	tasks := max(1, r.Tasks)
	cpus := tasks * max(1, r.CPUsPerTask)
	mem := r.MemNodeMiB
	if mem == 0 {
		mem = n.rec.MemMiB
	}
	if (r.Exclusive || part.Share == record.ShareExclusive) && len(n.jobs) > 0 || n.cpus < cpus || n.mem < mem ||
		len(r.Features) == 1 && !slices.Contains(n.rec.Features, r.Features) {
		return false
	}
	for i, other := range n.jobs {
		if (r.ExclusiveUser || part.ExclusiveUser || n.alone[i]) && other.User != j.User {
			return false
		}
	}
	for _, g := range r.Gres {
		if !n.gives(g, tasks) {
			return false
		}
	}
	return true
}

func (n *countedNode) gives(g record.GresRequest, tasks int) bool {
	want := g.Count
	if g.Per == record.PerTask {
		want *= int64(tasks)
	}
	whole, share := int64(0), false
	for i := range n.rec.Gres {
		for _, d := range n.rec.Gres[i].Devices {
			used := n.devices[d.Index]
			if used == 0 {
				whole++
			}
			share = share || n.rec.Gres[i].Shared != "" && used+want <= 4
		}
	}
	if g.Name == "shard" {
		return share
	}
	return whole >= want
}
