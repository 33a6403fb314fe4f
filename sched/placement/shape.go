package placement

import (
	"math"
	"slices"

	"github.com/sluice-hpc/sluice/sched/fit"
	"github.com/sluice-hpc/sluice/sched/index"
	"github.com/sluice-hpc/sluice/sched/node"
	"github.com/sluice-hpc/sluice/sched/reason"
	"github.com/sluice-hpc/sluice/sched/record"
	"github.com/sluice-hpc/sluice/sched/sizing"
)

// Shape is the common part of equal requests in one partition (and reservation): the suitable nodes, the free amount that each must have,
// and an index of how well each does now. Jobs differ from their shape only in time.
type Shape struct {
	id      int
	Request *record.Request
	part    *index.Partition
	Resv    *node.Reservation
	Demand  sizing.Demand
	Bulk    bulk
	fault   reason.Reason // why it can never start, whatever is free; Code "" when it may
	Alts    []Candidates
	Lic     []int64 // licenses, in the dimensions of index.Licenses
	depth   int64   // jobs that may share one CPU
	Whole   bool    // takes its nodes whole
	user    string  // set for jobs that take nodes for one user alone
}

// Candidates are the nodes that satisfy one alternative of the constraint,
// with the index over them.
type Candidates struct {
	Nodes  []*node.Node
	Pos    []int32 // by node index; -1: not a candidate
	Counts []countOf
	Must   []int32  // places in nodes that -w names
	Lacks  bool     // a node that -w names is not among them
	Refuse []string // names of nodes that could hold a part of the job but refuse its user
	Tasks  int      // on each node; for flexible ones the least
	GPUs   int64    // part of the per-job devices, as in node.NeedOf
	Lo, Hi int      // node counts
	Flex   bool
	seen   int // position in the log
	cost   []int64
	until  []int64
	caps   []int32 // tasks that fit now, for flexible shapes
	vers   []uint32
	blocks []block
	needs  map[needKey]*node.Need
	even   []*node.Need // needs for Tasks and GPUs, by number of the config
	firsts []*firsts    // of the current pass, by length

	patience int64 // the reduction of until, unless it is each node's own time to wake: see pickAwake
}

type countOf struct {
	Match []bool // by place in nodes
	N     int
}

type block struct{ cost, until int64 }

const blockSize = 64

const noFit = int64(math.MaxInt64)

type needKey struct {
	cfg   *node.Config
	tasks int
	gpus  int64
}

// NeedFor returns the need of tasks tasks (and gpus of the job's devices) on a node.
func (sh *Shape) NeedFor(c *Candidates, cfg *node.Config, tasks int, gpus int64) *node.Need {
	key := needKey{cfg, tasks, gpus}
	if v := c.needs[key]; v != nil {
		return v
	}
	v := node.NeedOf(sh.Request, cfg, tasks, gpus)
	if sh.part != nil && sh.part.Cap > 0 {
		v.Cap = cfg.Caps + sh.part.Cap - 1
	}
	if sh.Whole {
		v.TakeAll(sh.Request, cfg)
	}
	v.CPUUnits = cfg.Units(v.CPUs) / sh.depth
	if c.needs == nil {
		c.needs = map[needKey]*node.Need{}
	}
	c.needs[key] = v
	return v
}

// NeedOn is NeedFor with the alternative's tasks and devices on each node.
func (sh *Shape) NeedOn(c *Candidates, cfg *node.Config) *node.Need {
	if cfg.Num >= len(c.even) {
		c.even = append(c.even, make([]*node.Need, cfg.Num+1-len(c.even))...)
	}
	if c.even[cfg.Num] == nil {
		c.even[cfg.Num] = sh.NeedFor(c, cfg, c.Tasks, c.GPUs)
	}
	return c.even[cfg.Num]
}

// shapeKey identifies a shape.
type shapeKey struct {
	req  int32
	part int32
	resv *node.Reservation
	user string
}

// ShapeOf returns the shape of an interned request in a partition and a reservation (or nil); user where users are distinguished.
func (pl *Placer) ShapeOf(req int32, part *index.Partition, resv *node.Reservation, user string) *Shape {
	return pl.newShape(shapeKey{req, part.Index, resv, user}, pl.requests[req], part, resv)
}

func (pl *Placer) newShape(key shapeKey, req *record.Request, part *index.Partition, resv *node.Reservation) *Shape {
	if sh := pl.shapes[key]; sh != nil {
		return sh
	}
	sh := &Shape{id: len(pl.shapes), Request: req, part: part, Resv: resv, Demand: sizing.WorkOut(req), user: key.user}
	sh.Whole, sh.depth = pl.wholeNodes(part, req), part.Rec.Depth(req)
	pl.shapes[key] = sh
	sh.Bulk = sh.bulkOf(key)
	sh.Lic = pl.ix.Licenses.Need(req)
	con, err := fit.ParseConstraint(req.Features)
	if err != nil || sh.Demand.Short {
		sh.fault = reason.Reason{Code: reason.BadConstraints}
		return sh
	}
	for _, alt := range con.Alternatives {
		sh.addModes(pl, &alt)
	}
	return sh
}

// addModes adds the ways to place the job under one alternative. A job whose tasks may be spread is tried on one node first.
func (sh *Shape) addModes(pl *Placer, alt *fit.Alternative) {
	d := &sh.Demand
	if !d.Flexible {
		sh.Alts = append(sh.Alts, pl.candidatesOf(sh, alt, Candidates{Tasks: d.PerNode, GPUs: -int64(d.Lo), Lo: d.Lo, Hi: d.Hi}))
		return
	}
	if d.Allowed(1) && !sh.Request.Wide() {
		sh.Alts = append(sh.Alts, pl.candidatesOf(sh, alt, Candidates{Tasks: d.Tasks, GPUs: -1, Lo: 1, Hi: 1}))
	}
	least := Candidates{Tasks: 1, Lo: d.Lo, Hi: d.Hi, Flex: true}
	if d.Even {
		least.Tasks = d.PerNode
	}
	if len(d.JobGres) > 0 {
		least.GPUs = 1
	}
	sh.Alts = append(sh.Alts, pl.candidatesOf(sh, alt, least))
}

// pool returns the nodes among which the job may choose: those of the partition, and of the reservation.
func (sh *Shape) pool() []int32 {
	if sh.Resv != nil && !sh.Resv.Rec.Flex && !sh.Resv.LicensesOnly() {
		return index.Intersect(sh.part.Nodes, sh.Resv.Nodes)
	}
	return sh.part.Nodes
}

// candidatesOf returns the nodes that could ever hold a part of the job, in node order.
func (pl *Placer) candidatesOf(sh *Shape, alt *fit.Alternative, c Candidates) Candidates {
	c.Pos, c.seen, c.patience = make([]int32, len(pl.ix.Nodes.Vals)), -1, wakesAll
	for i := range c.Pos {
		c.Pos[i] = -1
	}
	pool := sh.pool()
	excluded := pl.ix.NodeSet(sh.Request.Exclude)
	required := pl.ix.NodeSet(sh.Request.NodeList)
	matches := map[*node.Config]bool{}
	for _, i := range pool {
		n := sh.Resv.Seat(pl.ix.Nodes.Vals[i])
		if n == nil || excluded[i] || len(required) >= c.Hi && len(required) > 0 && !required[i] || n.Rec.State == record.NodeFuture {
			continue
		}
		ok, known := matches[n.Config]
		if !known {
			ok = alt.Each.Match(n.Rec.Features) && sh.possible(&c, n.Config)
			matches[n.Config] = ok
		}
		if ok && n.Rec.Refuses(sh.Request) {
			c.Refuse = append(c.Refuse, n.Rec.Name)
			continue
		}
		if ok {
			c.Pos[n.Index] = int32(len(c.Nodes))
			if required[i] {
				c.Must = append(c.Must, c.Pos[n.Index])
			}
			c.Nodes = append(c.Nodes, n)
		}
	}
	c.Lacks = len(c.Must) < len(slices.Compact(slices.Sorted(slices.Values(sh.Request.NodeList))))
	for _, count := range alt.Counts {
		co := countOf{N: count.N}
		for _, n := range c.Nodes {
			co.Match = append(co.Match, count.Of.Match(n.Rec.Features))
		}
		c.Counts = append(c.Counts, co)
	}
	return c
}

// possible reports whether an empty node of this hardware holds the least part
// of the job that any node must hold.
func (sh *Shape) possible(c *Candidates, cfg *node.Config) bool {
	r := sh.Request
	if r.Sockets > max(1, cfg.Rec.Sockets) || r.CoresPerSocket > cfg.Socket || r.ThreadsPerCore > max(1, cfg.Rec.Threads) ||
		r.TmpMiB > cfg.Rec.TmpMiB || sizing.NodeCPUs(r) > max(cfg.CPUs, int64(cfg.Rec.CPUs)) {
		return false
	}
	return sh.NeedFor(c, cfg, c.Tasks, c.GPUs).Fits(cfg, cfg.Full)
}
