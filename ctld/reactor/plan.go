package reactor

import (
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/limit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/fit"
)

// ApplyPlan carries what the scheduler decided on an older view. Each decision is checked against the state of now; stale ones
// are dropped, and the next pass sees the state that made them stale.
type ApplyPlan struct {
	Starts  []PlannedStart
	Shown   []PlannedShow
	Preempt []PlannedPreempt
	Never   []uint32 // jobs that cannot meet their deadline
	// Reservations are those that the plan was made with: with others, nothing of it starts.
	Reservations []*pb.ReservationRecord
	// Clock is what it went by: once somebody has set the clock, nothing of it starts.
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
	// Reservation it starts in; one that it has not asked for draws it in (MAGNETIC).
	Reservation string
	// Owner is who the job of a crontab would run as, were it submitted now; nil: as it was.
	Owner *Owner
	// Certificate and Key are those of the job's first step, as in CreateStep.
	Certificate, Key []byte
}

// Owner is an account as the directory has it at the start of a job that nobody submits: the crontab may be years old.
type Owner struct {
	GID     uint32
	Groups  []uint32
	Problem string // why the user may have no jobs any more
	Missing bool   // the user is not found, which may pass
}

// PlannedShow is what is shown of a job that waits.
type PlannedShow struct {
	ID            uint32
	Reason        string
	Detail        string
	ExpectedNS    int64
	ExpectedNodes string
	Priority      uint32 // as computed for the present period; 0 = no change
	Promised      bool   // a start, as the first that waits; false = no change
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
		return false // the scheduler counts by record, and others of the array have been started since
	}
	if !limit.Allows(tx.View(), &pb.JobRecord{Spec: j.Spec, Partition: s.Partition, Alloc: s.Alloc, TimeLimitS: s.LimitS}) {
		return false // they have been changed, or used by what has been started since
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
	counted := j.Spec.NumTasks == 0 // nobody has said how many: those on the nodes that it has got
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
		// Where it cannot be made, or not yet, srun asks for it, and is told why.
		CreateStep{Job: n.Id, Spec: first.Spec, RequestID: first.RequestId, Certificate: s.Certificate, Key: s.Key}.in(tx, n)
	}
	return true
}

// topologyOf names a node's switches from the topmost down, then the node; "" without topology.conf.
func topologyOf(n *state.Node) string {
	if len(n.Switches) == 0 {
		return ""
	}
	return strings.Join(n.Switches, "/") + "/" + n.Name
}

// fits reports whether a share is still free on its node, for a job of which so many may have one CPU of the partition.
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

// cpusFree reports whether the CPUs of a share, whose numbers are cores, are free on its node.
func cpusFree(tx *state.Tx, n *state.Node, partition string, shared uint32, cores state.Cores, a *pb.NodeAlloc) bool {
	if shared > 1 {
		return mayShare(tx, n, partition, shared, cores, a)
	}
	return n.AllocCpus+a.Cpus <= n.Cpus && !n.Held.InUse().Overlaps(cores)
}

// mayShare reports whether a job may share the CPUs of others on a node: of its partition, and with room for one more.
func mayShare(tx *state.Tx, n *state.Node, partition string, shared uint32, cores state.Cores, a *pb.NodeAlloc) bool {
	counted := a.Cpus * countedUnit / shared // of CPUs without numbers each job counts for its part
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

// countedUnit is what a CPU counts for, so that parts of it are whole numbers.
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
	if s.Priority != 0 && j.Priority != 0 { // not of a job that has been held meanwhile
		n.Priority = s.Priority
	}
	if promise { // kept by whoever plans next
		n.Promised = true
		tx.Emit(state.JobChanged{Job: n, What: "promised a start"})
		return
	}
	tx.Emit(state.JobShown{Job: n})
}

// batchHost is the node that runs the script: the first with the features of --batch (sbatch(1)), or the first of all.
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
