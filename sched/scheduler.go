package sched

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/sched/profile"
)

// Scheduler makes plans. Not safe for concurrent use; see the package comment
// for what it remembers.
type Scheduler struct {
	params Params
	guardS int64

	// what the last snapshot said
	now        int64
	nodes      table[Node, *vnode]
	jobs       table[Job, *vjob]
	runs       table[Run, *vrun]
	parts      []*vpart
	partRecs   []*Partition
	resvs      []*vresv
	resvRecs   []*Reservation
	licenses   []License // by name
	licRecs    []License
	qos        []*QOS
	limitRecs  []*Limit
	shares     []Share
	cluster    cluster
	period     int64
	multiEpoch uint64
	epoch      uint64 // of node states, partitions and reservations, for faults
	limited    bool
	timed      bool // limits depend on time limits
	byUser     bool
	loading    bool
	arriving   []*class
	redo       bool
	lowTier    uint16 // lowest tier of a partition
	capped     []*vpart
	nodeByName map[string]int32
	configs    map[string]*config
	lic        *profile.Profile

	// the queue
	requests []*Request
	reqByPtr map[*Request]int32
	reqByKey map[string]int32
	shapes   map[shapeKey]*shape
	classes  map[classKey]*class
	aside    map[*vjob]struct{}  // jobs that are not in the queue
	asideOdd map[*vjob]struct{}  // those whose record does not say why
	odd      map[*entry]struct{} // those in the queue whose record does not say what their class says
	multi    map[*vjob]struct{}  // jobs of several partitions
	timers   timers
	ends     runHeap

	// the index
	log     []int32
	logBase int

	// of the pass that is under way
	pass        uint64
	probes      int
	scale       int64 // units of a CPU: see shareScale
	buffers     map[int][]int64
	free        []int64   // of fitsWithout
	open        []stretch // of earliestEven
	next        stretchHeap
	remembering []*candidates // those with first stretches

	forecaster *Scheduler // of Forecast

	// placement
	typicalRecs []Typical
	typicals    map[*config][]typical
	fragFree    []int64
	biggest     [2]int64 // CPUs and device thousandths of any node
	switches    int      // 0: not known
}

// vpart is a partition.
type vpart struct {
	rec   *Partition
	idx   int32
	cap   int // place in Scheduler.capped plus one; 0: no limit of CPUs per node
	nodes []int32

	// of the pass that is under way
	promises int
	old      int // jobs that have waited for longer than MaxWaitS
	waiting  int
	closed   bool // FIFO: something before waits
	put      bool // put off: the first that waits is not promised a start yet
}

// vresv is a reservation.
type vresv struct {
	rec   *Reservation
	nodes []int32
	parts map[int32]*vnode // of one that has parts of nodes: by the node's number
	lic   int              // first of its dimensions in the profile of licenses; 0: it has none
}

// New returns a Scheduler for one configuration. A changed configuration is a
// new Scheduler.
func New(p Params) *Scheduler {
	s := &Scheduler{params: p, guardS: p.GuardS}
	if s.guardS == 0 {
		s.guardS = 86400
	}
	s.reset()
	return s
}

// Plan decides what starts now, what is promised to whom, and why the rest
// waits. Deterministic: it depends on the snapshot alone, and not on the order
// of its slices.
func (s *Scheduler) Plan(in *Snapshot) *Plan {
	changed := s.follow(in)
	s.choosePrimaries()
	p := s.decide(in, nil)
	p.Stats.Changed = changed
	return p
}

// decide makes the plan, as far as one job where that is not nil.
func (s *Scheduler) decide(in *Snapshot, until *vjob) *Plan {
	p := newPass(s, in)
	if until != nil {
		p.until = until
		for _, e := range until.entries {
			if s.faultOf(e.class).Code == "" {
				p.left++
			}
		}
	}
	p.run()
	p.finish()
	return p.plan
}

// reset forgets everything, as after New.
func (s *Scheduler) reset() {
	*s = Scheduler{params: s.params, guardS: s.guardS, pass: s.pass, byUser: s.byUser, forecaster: s.forecaster,
		nodeByName: map[string]int32{}, configs: map[string]*config{},
		reqByPtr: map[*Request]int32{}, reqByKey: map[string]int32{},
		shapes: map[shapeKey]*shape{}, classes: map[classKey]*class{}, aside: map[*vjob]struct{}{}, asideOdd: map[*vjob]struct{}{}, odd: map[*entry]struct{}{}, multi: map[*vjob]struct{}{}, buffers: map[int][]int64{}}
}

// follow makes the index say what the snapshot says, and returns how many
// records differed. A change of what nodes, partitions or reservations are
// (not of their state) starts over: it is rare, and exactness is worth more.
func (s *Scheduler) follow(in *Snapshot) int {
	if s.now > in.Now || s.restructured(in) || len(s.shapes) > idleShapes+2*len(s.classes) {
		s.reset()
	}
	last := s.now
	s.now = in.Now
	changed := 0
	if s.nodeByName == nil || len(s.nodes.recs) == 0 && len(in.Nodes) > 0 || s.parts == nil {
		s.build(in)
		last = in.Now
		changed += len(s.nodes.recs)
	} else {
		changed += s.nodeStates(in.Nodes)
	}
	s.limitRecs = in.Limits
	s.crossWindows(last)
	changed += s.runs.update(in.Running, &tableOps[Run, *vrun]{cmp: compareRuns, add: s.addRun, change: s.changeRun, remove: s.removeRun})
	s.extendLate()
	s.loading = len(in.Pending) > len(s.jobs.recs)+1024
	s.reprioritise(in)
	s.wakeJobs()
	changed += s.jobs.update(in.Pending, &tableOps[Job, *vjob]{cmp: compareJobIDs, add: s.addJob, change: s.changeJob, remove: s.removeJob})
	s.loading = false
	s.plantArrived()
	if s.redo { // the first --exclusive=user: shapes are by user from now on
		s.reset()
		return changed + s.follow(in)
	}
	s.trimLog()
	return changed
}

// idleShapes is how many requests are remembered of which no job waits, before
// all is forgotten: in a cluster where no two jobs are alike the index must not
// grow for ever.
const idleShapes = 4096

func compareRuns(a, b *Run) int {
	if c := cmp.Compare(a.ID, b.ID); c != 0 {
		return c
	}
	return cmp.Compare(a.Task, b.Task)
}

// runOf finds what runs.
func (s *Scheduler) runOf(id uint32, task int32) (*vrun, bool) {
	i, ok := slices.BinarySearchFunc(s.runs.recs, &Run{ID: id, Task: task}, compareRuns)
	if !ok {
		return nil, false
	}
	return s.runs.vals[i], true
}

func compareJobIDs(a, b *Job) int { return cmp.Compare(a.ID, b.ID) }

// restructured reports whether the index has to be built anew.
func (s *Scheduler) restructured(in *Snapshot) bool {
	if s.parts == nil {
		return false
	}
	limited := len(in.Limits) > 0
	if timedLimits(in.Limits) != s.timed {
		return true
	}
	if len(in.Typical) != len(s.typicalRecs) || len(in.Typical) > 0 && &in.Typical[0] != &s.typicalRecs[0] {
		return true
	}
	return limited != s.limited || !slices.Equal(s.partRecs, in.Partitions) || !slices.Equal(s.resvRecs, in.Reservations) ||
		!slices.Equal(s.licRecs, in.Licenses) || !slices.Equal(s.qos, in.QOS) || s.nodesReplaced(in.Nodes)
}

// nodesReplaced: anything but a node's state differs.
func (s *Scheduler) nodesReplaced(in []*Node) bool {
	if len(in) != len(s.nodes.recs) {
		return true
	}
	for i, n := range in {
		if n == s.nodes.recs[i] {
			continue
		}
		at, ok := s.nodeByName[n.Name]
		if !ok {
			return true
		}
		old := s.nodes.vals[at].rec
		if old != n && (configKey(old) != configKey(n) || (old.State == NodeFuture) != (n.State == NodeFuture)) {
			return true
		}
	}
	return false
}

// nodeStates follows nodes whose state changed.
func (s *Scheduler) nodeStates(in []*Node) int {
	changed := 0
	for i, n := range in {
		if n == s.nodes.recs[i] {
			continue
		}
		v := s.nodes.vals[s.nodeByName[n.Name]]
		if v.rec != n {
			v.rec = n
			s.touch(v)
			for _, part := range v.subs {
				part.rec = n
				s.touch(part)
			}
			s.epoch++
			changed++
		}
	}
	copy(s.nodes.recs, in)
	return changed
}

// build makes the structures for nodes, partitions and reservations.
func (s *Scheduler) build(in *Snapshot) {
	s.partRecs, s.resvRecs = slices.Clone(in.Partitions), slices.Clone(in.Reservations)
	s.licRecs, s.limited, s.timed = slices.Clone(in.Licenses), len(in.Limits) > 0, timedLimits(in.Limits)
	s.cluster, s.shares = measure(in), slices.Clone(in.Shares)
	s.qos = slices.Clone(in.QOS)
	s.typicalRecs, s.typicals = in.Typical, map[*config][]typical{}
	recs := slices.Clone(in.Partitions)
	slices.SortFunc(recs, func(a, b *Partition) int { return strings.Compare(a.Name, b.Name) })
	s.parts, s.scale = make([]*vpart, 0, len(recs)), 1
	for _, rec := range recs {
		p := &vpart{rec: rec, idx: int32(len(s.parts))}
		if s.parts = append(s.parts, p); p.idx == 0 || rec.PriorityTier < s.lowTier {
			s.lowTier = rec.PriorityTier
		}
		if rec.depth(&Request{Oversubscribe: true}) > 1 {
			s.scale = shareScale
		}
		s.byUser = s.byUser || rec.ExclusiveUser
		if rec.MaxCPUsPerNode > 0 {
			s.capped = append(s.capped, p)
			p.cap = len(s.capped)
		}
	}
	s.buildNodes(in.Nodes)
	for _, p := range s.parts {
		p.nodes = s.nodeList(p.rec.Nodes)
	}
	s.buildReservations(in.Reservations)
	s.buildLicenses()
	s.period = s.params.Weights.period(s.now)
	s.epoch++
}

// buildNodes numbers the nodes by name. The record slice keeps the caller's
// order, for comparison by pointer.
func (s *Scheduler) buildNodes(in []*Node) {
	sorted := slices.Clone(in)
	slices.SortFunc(sorted, func(a, b *Node) int { return compareNames(a.Name, b.Name) })
	for i, rec := range sorted {
		n := s.newNode(rec)
		n.idx = int32(i)
		s.nodeByName[rec.Name] = n.idx
		s.nodes.vals = append(s.nodes.vals, n)
	}
	s.nodes.recs = slices.Clone(in)
	s.measureNodes()
	s.connect()
}

func (s *Scheduler) nodeList(names []string) []int32 {
	out := make([]int32, 0, len(names))
	for _, name := range names {
		if i, ok := s.nodeByName[name]; ok {
			out = append(out, i)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (s *Scheduler) nodeSet(names []string) map[int32]bool {
	out := make(map[int32]bool, len(names))
	for _, i := range s.nodeList(names) {
		out[i] = true
	}
	return out
}

func intersect(a, b []int32) []int32 {
	var out []int32
	for _, i := range a {
		if _, ok := slices.BinarySearch(b, i); ok {
			out = append(out, i)
		}
	}
	return out
}

func (s *Scheduler) partition(name string) *vpart {
	i, ok := slices.BinarySearchFunc(s.parts, name, func(p *vpart, name string) int { return strings.Compare(p.rec.Name, name) })
	if !ok {
		return nil
	}
	return s.parts[i]
}

// addRun, removeRun, changeRun follow what holds resources.
func (s *Scheduler) addRun(rec *Run) *vrun {
	end := s.endOf(rec)
	r := &vrun{rec: rec, end: max(end, s.now+1), late: end <= s.now, heap: -1, alone: s.exclusiveUser(rec)}
	depth, in := s.depthOf(rec)
	for i := range rec.Allocs {
		a := &rec.Allocs[i]
		at, ok := s.nodeByName[a.Node]
		if !ok {
			continue
		}
		n := s.nodes.vals[at]
		pool := int32(0)
		if depth > 1 {
			pool = in.idx + 1
		}
		s.runParts(r, n, a, pool)
	}
	if rec.Job != nil {
		s.noteUser(rec.Job.Request)
		r.lic = s.licenseNeed(rec.Job.Request)
	}
	s.occupy(r)
	s.ends.push(r)
	return r
}

// endOf is when a run is taken to end. One without a limit is given a year, and when that is over another.
func (s *Scheduler) endOf(rec *Run) int64 {
	if rec.End < Forever {
		return rec.End
	}
	years := max(0, s.now-rec.Start) / UnlimitedS
	return rec.Start + (years+1)*UnlimitedS
}

// noteUser notices that users have to be told apart.
func (s *Scheduler) noteUser(r *Request) {
	if r != nil && r.ExclusiveUser && !s.byUser {
		s.byUser, s.redo = true, true
	}
}

func (s *Scheduler) occupy(r *vrun) {
	for i := range r.parts {
		p := &r.parts[i]
		p.node.prof.Use(0, r.end, p.use)
		p.giveBack(0, r.end, 1)
		p.node.hold(p, 1)
		p.node.runs = append(p.node.runs, r)
		s.touch(p.node)
	}
	if r.lic != nil {
		s.lic.Use(0, r.end, r.lic)
	}
}

func (s *Scheduler) vacate(r *vrun) {
	for i := range r.parts {
		p := &r.parts[i]
		p.node.prof.Free(0, r.end, p.use)
		p.giveBack(0, r.end, -1)
		p.node.hold(p, -1)
		if at := slices.Index(p.node.runs, r); at >= 0 {
			last := len(p.node.runs) - 1
			p.node.runs[at] = p.node.runs[last]
			p.node.runs[last] = nil
			p.node.runs = p.node.runs[:last]
		}
		s.touch(p.node)
	}
	if r.lic != nil {
		s.lic.Free(0, r.end, r.lic)
	}
}

func (s *Scheduler) removeRun(r *vrun) {
	s.vacate(r)
	s.ends.drop(r)
}

func (s *Scheduler) changeRun(r *vrun, rec *Run) *vrun {
	s.removeRun(r)
	return s.addRun(rec)
}

// extendLate lets what should have ended already hold its resources for one
// more second, or for another year where it has no limit: nobody may be promised
// them now.
func (s *Scheduler) extendLate() {
	for len(s.ends.list) > 0 && s.ends.list[0].end <= s.now {
		r := s.ends.list[0]
		end := max(s.endOf(r.rec), s.now+1)
		for i := range r.parts {
			p := &r.parts[i]
			p.node.prof.Use(r.end, end, p.use)
			p.giveBack(r.end, end, 1)
			s.touch(p.node)
		}
		if r.lic != nil {
			s.lic.Use(r.end, end, r.lic)
		}
		r.end, r.late = end, r.rec.End < Forever
		s.ends.fix(r)
	}
}

// scratch is a buffer of n amounts, valid until the next call with that n.
func (s *Scheduler) scratch(n int) []int64 {
	b := s.buffers[n]
	if b == nil {
		b = make([]int64, n)
		s.buffers[n] = b
	}
	return b
}

// trimLog forgets the oldest changes; shapes that missed them look at all nodes.
func (s *Scheduler) trimLog() {
	if limit := 4*len(s.nodes.vals) + 1024; len(s.log) > limit {
		drop := len(s.log) - limit/2
		s.logBase += drop
		s.log = append(s.log[:0], s.log[drop:]...)
	}
}
