package reactor

import (
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/limit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/fit"
)

// ApplyPlan carries the scheduler's decisions, made on an older view. Each is checked against the current state; stale ones are dropped,
// and the next pass sees the state that made them stale.
type ApplyPlan struct {
	Starts  []PlannedStart
	Shown   []PlannedShow
	Preempt []PlannedPreempt
	Never   []uint32 // jobs that cannot meet their deadline
	// Reservations are those of the plan's snapshot: if they have changed, nothing starts.
	Reservations []*pb.ReservationRecord
	// Clock is the clock of the plan's snapshot: if somebody has set it since, nothing starts.
	Clock *pb.ClockRecord
}

// PlannedStart starts a job. Spec is the specification that the plan was made for.
type PlannedStart struct {
	ID         uint32
	Task       int32 // of an array's record, -1 = not an array
	Spec       *pb.JobSpec
	Partition  string
	Alloc      []*pb.NodeAlloc
	NodeList   string // folded
	LimitS     uint32
	Priority   uint32
	Backfilled bool
	AllocTRES  string
	// Reservation in which it starts, possibly one that it has not requested (MAGNETIC).
	Reservation string
	// Owner is the identity of a crontab's job if it were submitted now; nil: unchanged.
	Owner *Owner
	// Certificate and Key are those of the job's first step, as in CreateStep.
	Certificate, Key []byte
}

// Owner is the user's current account. It is read at the start of a job that nobody submits: the crontab may be years old.
type Owner struct {
	GID     uint32
	Groups  []uint32
	Problem string // why the user may no longer have jobs
	Missing bool   // the user is not found, possibly only for the moment
}

// PlannedShow holds the displayed fields of a waiting job.
type PlannedShow struct {
	ID            uint32
	Reason        string
	Detail        string
	ExpectedNS    int64
	ExpectedNodes string
	Priority      uint32 // for the current period; 0 = no change
	Promised      bool   // a start, as the first waiting job; false = no change
}

// Applied is the reply to ApplyPlan.
type Applied struct{ Started, Dropped int }

// Handle applies the plan.
func (c ApplyPlan) Handle(tx *state.Tx) any {
	var r Applied
	same := slices.Equal(c.Reservations, tx.Reservations()) && c.Clock == tx.View().Clock()
	for i := range c.Starts {
		if same && start(tx, &c.Starts[i]) {
			r.Started++
		} else {
			r.Dropped++
		}
	}
	for i := range c.Preempt {
		if !preempt(tx, &c.Preempt[i]) {
			r.Dropped++
		}
	}
	for i := range c.Shown {
		show(tx, &c.Shown[i])
	}
	for _, id := range c.Never {
		if j := tx.Job(id); j != nil && state.Pending(j) {
			endPending(tx, j, pb.JobState_JOB_DEADLINE, "DeadLine")
		}
	}
	return r
}

func start(tx *state.Tx, s *PlannedStart) bool {
	j := tx.Job(s.ID)
	if j == nil || !state.Pending(j) || j.Spec != s.Spec || j.Priority == 0 || j.Dependency != "" || tx.View().Uncertain(j) {
		return false
	}
	shared := state.Shares(tx.Partition(s.Partition), j.Spec)
	if s.Owner != nil && s.Owner.Problem != "" {
		holdCron(tx, j, s.Owner.Problem)
		return false
	}
	if s.Owner != nil && s.Owner.Missing {
		delayCron(tx, j)
		return false
	}
	for _, a := range s.Alloc {
		if !fits(tx, s.Partition, shared, a) {
			return false
		}
	}
	if j.ArrayThrottle != 0 && tx.ArrayCounts(j.ArrayJobId).Live >= int(j.ArrayThrottle) {
		return false // the scheduler counts by record, and other tasks of the array have been started since
	}
	if !limit.Allows(tx.View(), &pb.JobRecord{Spec: j.Spec, Partition: s.Partition, Alloc: s.Alloc, TimeLimitS: s.LimitS}) {
		return false // the job has changed, or its resources were used by jobs started since
	}
	if j.ArrayTasks != "" {
		if s.Task < 0 || !state.ArraySet(j).Has(uint32(s.Task)) {
			return false
		}
		j = ownTask(tx, j, uint32(s.Task))
	}
	n := state.CloneJob(j)
	n.Spec = s.Owner.identity(n.Spec)
	n.State, n.StateFlags = pb.JobState_JOB_RUNNING, 0
	if tx.Settings().PrologSlurmctld {
		n.StateFlags = pb.JobConfiguring
	}
	n.WaitReason = waitReason(j)
	n.Reason, n.ReasonDetail, n.ExpectedStartNs, n.ExpectedNodes, n.Promised = "None", "", 0, "", false
	n.Attempt, n.Epoch = j.Attempt+1, tx.Seq
	n.Partition, n.NodeList, n.BatchHost = s.Partition, s.NodeList, batchHost(tx, j.Spec, s.Alloc)
	n.StartNs, n.EndNs, n.TimeLimitS = tx.NowNS, 0, s.LimitS
	if s.LimitS != pb.Unlimited {
		n.EndNs = tx.NowNS + int64(s.LimitS)*1e9
	}
	n.Oversubscribe = state.Oversubscribed(tx.Partition(s.Partition))
	n.LastSchedNs, n.Scheduler = tx.NowNS, "Main"
	if s.Backfilled {
		n.Scheduler = "Backfill"
	}
	if s.Priority != 0 && j.Spec.Priority == 0 && !tx.Settings().PriorityBasic {
		n.Priority = s.Priority
	}
	n.NumNodes, n.NumCpus, n.AllocTres = uint32(len(s.Alloc)), 0, s.AllocTRES
	counted := j.Spec.NumTasks == 0 // no number requested: count the tasks on its nodes
	if counted {
		n.NumTasks = 0
	}
	var sleepers []*state.Node
	n.Alloc = make([]*pb.NodeAlloc, len(s.Alloc))
	for i, a := range s.Alloc {
		if counted {
			n.NumTasks += a.Tasks
		}
		c := state.CloneAlloc(a)
		if on := tx.Node(a.Node); on.Asleep() {
			sleepers = append(sleepers, on)
		} else {
			c.BootId = on.BootId
		}
		c.Topology = topologyOf(tx.Node(a.Node))
		if shared > 1 {
			c.Shared = shared
		}
		n.Alloc[i] = c
		n.NumCpus += a.Cpus
	}
	waitForNodes(n, sleepers)
	n.ResvName = ""
	if s.Reservation != j.Spec.Reservation {
		n.ResvName = s.Reservation
	}
	n.PreemptedBy, n.PreemptNs = "", 0
	n.Signals, n.StopReason, n.ExitStatus, n.DerivedStatus, n.FailedNode = nil, "", 0, 0, ""
	n.FirstStep = nil
	tx.Emit(state.JobStarted{Job: n})
	if first := j.FirstStep; first != nil {
		// If it cannot be made, or not yet, srun requests it and gets the reason.
		CreateStep{Job: n.Id, Spec: first.Spec, RequestID: first.RequestId, Certificate: s.Certificate, Key: s.Key}.in(tx, n)
	}
	return true
}

// topologyOf names a node's switches from the top down, then the node; "" without topology.conf.
func topologyOf(n *state.Node) string {
	if len(n.Switches) == 0 {
		return ""
	}
	return strings.Join(n.Switches, "/") + "/" + n.Name
}

// fits reports whether a share is still free on its node, for a job that shares each CPU of the partition with up to shared jobs in total.
func fits(tx *state.Tx, partition string, shared uint32, a *pb.NodeAlloc) bool {
	n := tx.Node(a.Node)
	if n == nil || !n.Up() && !n.Asleep() {
		return false
	}
	if tx.Settings().CountMemory && n.AllocMemMib+a.MemMib > n.RealMemoryMib-min(n.MemSpecMib, n.RealMemoryMib) {
		return false
	}
	cores, err := state.ParseCores(a.CpuIds)
	if err != nil || !devicesFree(tx, n, a) {
		return false
	}
	return cpusFree(tx, n, partition, shared, cores, a)
}

// cpusFree reports whether the CPUs of a share, given by core numbers, are free on its node.
func cpusFree(tx *state.Tx, n *state.Node, partition string, shared uint32, cores state.Cores, a *pb.NodeAlloc) bool {
	if shared > 1 {
		return mayShare(tx, n, partition, shared, cores, a)
	}
	return n.AllocCpus+a.Cpus <= n.Cpus && !n.Held.InUse().Overlaps(cores)
}

// mayShare reports whether a job may share other jobs' CPUs on a node: they must be in its partition, with room for one more.
func mayShare(tx *state.Tx, n *state.Node, partition string, shared uint32, cores state.Cores, a *pb.NodeAlloc) bool {
	counted := a.Cpus * countedUnit / shared // where CPUs have no numbers, each job counts for its part
	for _, id := range n.Jobs {
		held := state.AllocOn(tx.Job(id), n.Name)
		if held == nil || held.CpusFree {
			continue
		}
		theirs, err := state.ParseCores(held.CpuIds)
		if err != nil {
			return false
		}
		depth := min(max(held.Shared, 1), shared)
		if theirs.Overlaps(cores) && (tx.Job(id).Partition != partition || n.Held.By(int(depth)).Overlaps(theirs.And(cores))) {
			return false
		}
		counted += held.Cpus * countedUnit / max(held.Shared, 1)
	}
	return cores != nil || counted <= n.Cpus*countedUnit
}

// countedUnit is the weight of a CPU, divisible so that parts of it are whole numbers.
const countedUnit = 720

func show(tx *state.Tx, s *PlannedShow) {
	j := tx.Job(s.ID)
	promise := s.Promised && j != nil && !j.Promised
	if j == nil || !state.Pending(j) || (!promise && (s.Priority == 0 || s.Priority == j.Priority) && j.Reason == s.Reason &&
		j.ReasonDetail == s.Detail && j.ExpectedStartNs == s.ExpectedNS && j.ExpectedNodes == s.ExpectedNodes) {
		return
	}
	n := state.CloneJob(j)
	n.WaitReason = waitReason(j)
	n.Reason, n.ReasonDetail, n.ExpectedStartNs, n.ExpectedNodes = s.Reason, s.Detail, s.ExpectedNS, s.ExpectedNodes
	n.LastSchedNs = tx.NowNS
	if s.Priority != 0 && j.Priority != 0 { // not for a job that has been held meanwhile
		n.Priority = s.Priority
	}
	if promise { // the next plan keeps it
		n.Promised = true
		tx.Emit(state.JobChanged{Job: n, What: "promised a start"})
		return
	}
	tx.Emit(state.JobShown{Job: n})
}

// batchHost returns the node that runs the script: the first with the features of --batch (sbatch(1)), or the first of all.
func batchHost(tx *state.Tx, s *pb.JobSpec, alloc []*pb.NodeAlloc) string {
	if s.BatchFeatures == "" {
		return alloc[0].Node
	}
	want, err := fit.ParseConstraint(s.BatchFeatures)
	for _, a := range alloc {
		features := strings.Split(tx.Node(a.Node).ActiveFeatures, ",")
		if err == nil && slices.ContainsFunc(want.Alternatives, func(alt fit.Alternative) bool { return alt.Each.Match(features) }) {
			return a.Node
		}
	}
	return alloc[0].Node
}
