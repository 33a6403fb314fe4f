package planner

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/predict"
	"github.com/sluice-hpc/sluice/sched/record"
)

// mirror holds the scheduler's records of the state: sorted slices of pointers. A record is replaced when its source has changed.
type mirror struct {
	nodes   []*record.Node // by name
	parts   []*record.Partition
	pending []*record.Job // by id
	running []*record.Run // by id
	sources map[uint32]source
	arrays  map[uint32]*arrayFacts

	requests map[string]*record.Request // by contents: one of each
	spare    []*record.Job              // the previous pending list, for reuse

	history  predict.History
	typical  typicals
	licenses []record.License
	resvs    []*record.Reservation
	limits   limits
	shares   []record.Share
	qos      []*record.QOS
	topAssoc uint64        // highest priority of an association
	qosOf    *state.Policy // the policy that it was computed from

	settings *state.Settings // of the view of nodes and partitions; a reconfiguration replaces it
	users    state.Users     // of the view of requests

	mu   sync.Mutex // seen is read by the loop's goroutine
	seen map[string]nodeFacts
}

// source holds the records of a job, and the values that they were made from.
type source struct {
	spec *pb.JobSpec
	job  *record.Job
	run  *record.Run
	// of an array's record: its tasks, and the number of running ones
	tasks  string
	active int
}

// arrayFacts holds facts that the records of an array share.
type arrayFacts struct {
	live    map[uint32]bool // records of tasks that hold resources
	waiting map[uint32]bool // waiting records
}

// countTask notes whether a record (nil = gone) is a running or a waiting part of an array, and reports whether the number of running tasks
// changed.
func (m *mirror) countTask(id uint32, j *pb.JobRecord) (array uint32, changed bool) {
	if j == nil {
		for a, f := range m.arrays { // a forgotten record: its array has ended, and few arrays exist
			if f.live[id] || f.waiting[id] {
				delete(f.live, id)
				delete(f.waiting, id)
				return a, true
			}
		}
		return 0, false
	}
	if j.ArrayJobId == 0 {
		return 0, false
	}
	f := m.arrays[j.ArrayJobId]
	if f == nil {
		f = &arrayFacts{live: map[uint32]bool{}, waiting: map[uint32]bool{}}
		m.arrays[j.ArrayJobId] = f
	}
	before := len(f.live)
	set(f.live, id, state.Live(j))
	set(f.waiting, id, state.Pending(j))
	if len(f.live)+len(f.waiting) == 0 {
		delete(m.arrays, j.ArrayJobId)
	}
	return j.ArrayJobId, len(f.live) != before
}

func set(m map[uint32]bool, id uint32, in bool) {
	if in {
		m[id] = true
	} else {
		delete(m, id)
	}
}

// withArrays returns the changed jobs, and the waiting records of throttled arrays whose number of running tasks has changed; ascending.
func (m *mirror) withArrays(v *state.View, dirty map[uint32]struct{}) []uint32 {
	ids := make([]uint32, 0, len(dirty))
	for id := range dirty {
		ids = append(ids, id)
		array, changed := m.countTask(id, v.Jobs.Get(id))
		if f := m.arrays[array]; changed && f != nil {
			for w := range f.waiting {
				if j := v.Jobs.Get(w); j != nil && j.ArrayThrottle != 0 {
					ids = append(ids, w)
				}
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// nodeFacts holds the changing facts about a node that the scheduler sees.
type nodeFacts struct {
	state  record.NodeState
	asleep bool
	at     int64 // when it will be asleep, during a power-down
	reason string
	weight uint32
	feats  string
	cpus   uint32
	memMiB uint64
	inv    *state.Inventory // replaced when anything about the devices changes
	root   bool             // refuses root's jobs
	below  uint32
}

func factsOf(n *state.Node) nodeFacts {
	at, _ := n.AsleepAt()
	return nodeFacts{convert.NodeState(n), n.Asleep(), at, n.Reason, n.Weight, n.ActiveFeatures, n.Cpus, n.RealMemoryMib, n.Inv,
		n.RefusesRoot, n.RefusesBelow}
}

func (m *mirror) nodeChanged(n *state.Node) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[n.Name] != factsOf(n)
}

// rebuild makes everything anew.
func (m *mirror) rebuild(v *state.View) {
	m.rebuildNodes(v)
	m.settings, m.users = v.Settings, v.Users()
	m.resvs = nil
	for _, r := range v.Reservations() {
		m.resvs = append(m.resvs, reservation(v, r))
	}
	m.licenses = nil
	for _, l := range v.Settings.Licenses {
		m.licenses = append(m.licenses, record.License{Name: l.Name, Count: int64(l.Count)})
	}
	m.pending, m.running = nil, nil
	m.sources = make(map[uint32]source, v.Jobs.Len())
	m.arrays = map[uint32]*arrayFacts{}
	for j := range v.Jobs.All() {
		m.countTask(j.Id, j)
	}
	for j := range v.Jobs.All() {
		s := m.convert(v, j)
		if s.job != nil {
			m.pending = append(m.pending, s.job)
		}
		if s.run != nil {
			m.running = append(m.running, s.run)
		}
	}
}

// assocFactor returns the priority of a job's association, or of the nearest account above it that has one, as a fraction of the highest.
func (m *mirror) assocFactor(j *record.Job, spec *pb.JobSpec) float64 {
	if m.topAssoc == 0 {
		return 0
	}
	for up := range m.qosOf.Chain(m.qosOf.AssocOf(spec.User, state.AccountOf(spec), j.Partitions[0])) {
		if p := valueOf(up.Values, "Priority"); p > 0 {
			return float64(p) / float64(m.topAssoc)
		}
	}
	return 0
}

// valueOf returns a value of a record by name; 0 if there is none.
func valueOf(values []*pb.PolicyValue, name string) uint64 {
	for _, v := range values {
		if v.Name == name {
			return v.Value
		}
	}
	return 0
}

// update renews the records of changed jobs and nodes.
func (m *mirror) update(v *state.View, dirty map[uint32]struct{}) {
	ids := m.withArrays(v, dirty)
	if moved := m.updateNodes(v); moved != nil { // devices were added, removed or renumbered
		ids = append(ids, moved...)
		slices.Sort(ids)
		ids = slices.Compact(ids)
	}
	if len(ids) == 0 {
		return
	}
	var jobs []*record.Job
	var runs []*record.Run
	for _, id := range ids {
		var s source
		if j := v.Jobs.Get(id); j != nil {
			s = m.convert(v, j)
		} else {
			delete(m.sources, id)
		}
		jobs, runs = append(jobs, s.job), append(runs, s.run)
	}
	m.pending, m.spare = merge(m.spare, m.pending, ids, jobs, func(j *record.Job) uint32 { return j.ID }), m.pending
	m.running = merge(nil, m.running, ids, runs, func(r *record.Run) uint32 { return r.ID })
}

// merge replaces, inserts and (where the new record is nil) removes the records of ids in a list sorted by id. It reuses into for the
// result if that is large enough.
func merge[T any](into, old []*T, ids []uint32, fresh []*T, id func(*T) uint32) []*T {
	out := slices.Grow(into[:0], len(old)+len(ids))
	i := 0
	for k, x := range ids {
		n, found := slices.BinarySearchFunc(old[i:], x, func(t *T, x uint32) int {
			switch a := id(t); {
			case a < x:
				return -1
			case a > x:
				return 1
			}
			return 0
		})
		out = append(out, old[i:i+n]...)
		i += n
		if found {
			i++
		}
		if fresh[k] != nil {
			out = append(out, fresh[k])
		}
	}
	return append(out, old[i:]...)
}

// updateNodes renews the records of changed nodes. It returns the jobs on nodes whose devices have changed.
func (m *mirror) updateNodes(v *state.View) (moved []uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.nodes) != len(v.Nodes()) {
		m.nodes = nil
		for _, n := range v.Nodes() {
			m.nodes = append(m.nodes, convert.Node(n, false))
			m.seen[n.Name] = factsOf(n)
		}
		slices.SortFunc(m.nodes, func(a, b *record.Node) int { return strings.Compare(a.Name, b.Name) })
		return nil
	}
	var fresh []*record.Node
	for i, old := range m.nodes {
		n := v.Node(old.Name)
		if f := factsOf(n); f != m.seen[old.Name] {
			if fresh == nil {
				fresh = slices.Clone(m.nodes)
			}
			if f.inv != m.seen[old.Name].inv {
				moved = append(moved, n.Jobs...)
			}
			fresh[i], m.seen[old.Name] = convert.Node(n, false), f
		}
	}
	if fresh != nil {
		m.nodes = fresh
	}
	return moved
}

// convert makes the records of one job, and reuses old ones that have not changed.
func (m *mirror) convert(v *state.View, j *pb.JobRecord) source {
	old := m.sources[j.Id]
	s := source{spec: j.Spec}
	switch {
	case state.Pending(j):
		var req *record.Request
		if old.job != nil && old.spec == j.Spec {
			req = old.job.Request
		} else {
			req = m.request(j.Spec, v.Users())
		}
		s.job = pendingJob(v, j, req)
		s.job.PredictedS = m.history.Predict(j.Spec.User, j.Spec.Name)
		if old.job != nil && old.spec == j.Spec {
			s.job.PredictedS = old.job.PredictedS // as at submission, so that the record stays the same
		}
		s.job.Limits, s.job.PartLimits = m.limitsOf(v, j.Spec, s.job.Partitions)
		s.job.AssocFactor = m.assocFactor(s.job, j.Spec)
		m.addArray(&s, &old, j)
		m.typical.note(j, s.job.Request)
		if old.job != nil && sameJob(old.job, s.job) {
			s.job = old.job
		}
	case state.Live(j):
		s.run = runningJob(v, j, old.job)
		if old.run != nil && old.run.Job != nil {
			s.run.Job = old.run.Job
		}
		if old.run != nil && sameRun(old.run, s.run) {
			s.run = old.run
		}
	default:
		if old.run != nil && j.State == pb.JobState_JOB_COMPLETED {
			m.history.Ended(j.Spec.User, j.Spec.Name, (j.EndNs-j.StartNs)/1e9)
		}
		delete(m.sources, j.Id)
		return s
	}
	m.sources[j.Id] = s
	return s
}

// maxRequests bounds the requests that are kept for sharing.
const maxRequests = 4096

// request returns a job's request. Jobs with equal requests get the same record, so that the scheduler need not compare contents.
func (m *mirror) request(spec *pb.JobSpec, users state.Users) *record.Request {
	r := convert.Request(spec, users)
	key := r.Key()
	if known := m.requests[key]; known != nil {
		return known
	}
	if m.requests == nil || len(m.requests) >= maxRequests {
		m.requests = map[string]*record.Request{}
	}
	m.requests[key] = r
	return r
}

// sameJob reports whether two records of a waiting job are equal. Equal records share slices and pointers, so most comparisons end at the
// first element.
func sameJob(a, b *record.Job) bool {
	return a.ID == b.ID && a.Array == b.Array && a.Name == b.Name && a.User == b.User && slices.Equal(a.Groups, b.Groups) &&
		a.Account == b.Account &&
		a.QOS == b.QOS && slices.Equal(a.Partitions, b.Partitions) && a.Request == b.Request && a.Submit == b.Submit &&
		a.Eligible == b.Eligible && a.Accrue == b.Accrue &&
		a.Begin == b.Begin && a.Deadline == b.Deadline && a.LimitS == b.LimitS && a.TimeMinS == b.TimeMinS &&
		a.PredictedS == b.PredictedS &&
		a.Hold == b.Hold && a.HoldReason == b.HoldReason && a.Dependency == b.Dependency && a.Priority == b.Priority && a.Nice == b.Nice &&
		a.SiteFactor == b.SiteFactor && a.AssocFactor == b.AssocFactor && a.NoPreemptors == b.NoPreemptors && a.Reason == b.Reason &&
		a.Promised == b.Promised && a.SameLimits(b)
}

// sameRun reports whether two records of a running job are equal.
func sameRun(a, b *record.Run) bool {
	return a.ID == b.ID && a.Task == b.Task && a.Job == b.Job && a.Partition == b.Partition && a.Reservation == b.Reservation &&
		a.Priority == b.Priority && a.Start == b.Start && a.End == b.End && a.Suspended == b.Suspended &&
		a.NotPreemptable == b.NotPreemptable &&
		slices.EqualFunc(a.Allocs, b.Allocs, sameAlloc)
}

func sameAlloc(a, b record.Alloc) bool {
	return a.Node == b.Node && a.Tasks == b.Tasks && a.CPUs == b.CPUs && slices.Equal(a.Cores, b.Cores) && a.MemMiB == b.MemMiB &&
		slices.EqualFunc(a.Gres, b.Gres, sameGres)
}

func sameGres(a, b record.GresAlloc) bool {
	return a.Name == b.Name && a.Type == b.Type && a.Count == b.Count && a.Shares == b.Shares && slices.Equal(a.Devices, b.Devices) &&
		slices.Equal(a.Starts, b.Starts)
}

// addArray sets the tasks of a waiting record of an array, and keeps the old list if it is equal.
func (m *mirror) addArray(s, old *source, j *pb.JobRecord) {
	if j.ArrayJobId == 0 {
		return
	}
	s.tasks = j.ArrayTasks
	if j.IsArrayTask {
		s.tasks = strconv.FormatUint(uint64(j.ArrayTaskId), 10)
	}
	if f := m.arrays[j.ArrayJobId]; f != nil && j.ArrayThrottle != 0 {
		s.active = len(f.live)
	}
	if old.job != nil && old.job.Array != nil && old.tasks == s.tasks && old.active == s.active &&
		old.job.Array.Limit == int(j.ArrayThrottle) {
		s.job.Array = old.job.Array
		return
	}
	a := &record.Array{Limit: int(j.ArrayThrottle), Active: s.active}
	set := state.ArraySet(j)
	if j.IsArrayTask {
		set = jobid.SetOf(j.ArrayTaskId)
	}
	for _, span := range set {
		a.Tasks = append(a.Tasks, record.TaskRange{First: span.First, Last: span.Last, Step: 1})
	}
	s.job.Array = a
}

// snapshot makes the scheduler's input.
func (m *mirror) snapshot(v *state.View, now int64, resume record.Cursor) *record.Snapshot {
	rows, left := m.limits.current(v, now, m.shares)
	return &record.Snapshot{Seq: v.Seq, Now: now, Resume: resume, Nodes: m.nodes, Partitions: m.parts, Pending: m.pending,
		Running: m.running, Licenses: m.licenses, Reservations: m.resvs, Typical: m.typical.current(), Limits: rows,
		Left: left, Freed: m.limits.freed, Shares: m.shares, QOS: m.qos}
}
