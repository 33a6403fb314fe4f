package reactor

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// bench is a controller without disk, network and clock: commands go in, the trace of events comes out.
type bench struct {
	t     *testing.T
	view  *state.View
	trace []string
	now   int64
}

var (
	root  = Caller{UID: 0, Operator: true}
	alice = Caller{UID: 1000}
	bob   = Caller{UID: 1001}
)

func newBench(t *testing.T, set func(*state.Settings)) *bench {
	t.Helper()
	s := &state.Settings{Cluster: "test", CountMemory: true, DefMemPerCPUMiB: 100, KillWaitS: 30, NodeTimeoutS: 100, ReturnToService: 1,
		MinJobAgeS: 300, JobRequeue: true, HoldOnPrologFail: true, RequeueDelayS: 120, PriorityBasic: true, MaxJobsPerUser: 1000,
		MaxArraySize: 1001}
	if set != nil {
		set(s)
	}
	cfg := &state.Config{Settings: s, Default: "debug", PartitionNodes: map[string][]string{"debug": {"n1", "n2"}}}
	for _, n := range []string{"n1", "n2"} {
		cfg.Nodes = append(cfg.Nodes, &pb.NodeRecord{Name: n, Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 4000})
	}
	cfg.Partitions = []*pb.PartitionRecord{{Name: "debug", State: "UP", MaxTimeS: pb.Unlimited, DefaultTimeS: 1800, MaxNodes: pb.Unlimited}}
	b := &bench{t: t, view: state.New(cfg, "c", 1), now: 1000e9}
	for _, n := range []string{"n1", "n2"} {
		b.do(hello(n, "boot1"))
	}
	b.trace = nil
	return b
}

func hello(node, boot string, steps ...*pb.StepReport) NodeHello {
	return NodeHello{Hello: &pb.NodeHello{Node: node, BootId: boot, Hardware: &pb.Hardware{Cpus: 4, Sockets: 1, Cores: 4, Threads: 1,
		RealMemoryMib: 4000}}, Steps: steps}
}

// do runs one command as a commit of its own, or one for each of its slices, and checks the state after it.
func (b *bench) do(cmd Command) any {
	b.t.Helper()
	for {
		reply := b.slice(cmd)
		more, ok := reply.(More)
		if !ok {
			b.followUp()
			return reply
		}
		cmd = more.Next
	}
}

// followUp does what the commands so far have left to later turns.
func (b *bench) followUp() {
	b.t.Helper()
	for b.view.Owing() {
		b.slice(FollowUp{})
	}
}

func (b *bench) slice(cmd Command) any {
	b.t.Helper()
	tx := state.Begin(b.view, b.now)
	reply := cmd.Handle(tx)
	Follow(tx, 0)
	for _, e := range tx.Events() {
		b.trace = append(b.trace, name(e))
	}
	if p, ok := reply.(*pb.Problem); ok && len(tx.Events()) > 0 {
		b.t.Errorf("%T was refused (%v) but emitted %v", cmd, p, tx.Events())
	}
	b.view, _ = tx.Freeze()
	if err := b.view.Check(); err != nil {
		b.t.Fatalf("after %T: %v", cmd, err)
	}
	return reply
}

func name(e state.Event) string {
	s := strings.TrimPrefix(fmt.Sprintf("%T", e), "state.")
	switch e := e.(type) {
	case state.JobEnded:
		return s + " " + state.StateName(e.Job) + " " + e.Job.Reason
	case state.JobChanged:
		return s + " " + e.What
	case state.JobLeftNode:
		return s + " " + e.Node
	case state.NodeChanged:
		return s + " " + e.Node.Name + " " + e.What
	case state.JobRequeued:
		return s + " " + e.Why
	}
	return s
}

// expect compares the events since the last call.
func (b *bench) expect(want ...string) {
	b.t.Helper()
	if got := strings.Join(b.trace, "; "); got != strings.Join(want, "; ") {
		b.t.Errorf("events:\n got %s\nwant %s", got, strings.Join(want, "; "))
	}
	b.trace = nil
}

func (b *bench) submit(spec *pb.JobSpec) uint32 {
	b.t.Helper()
	return b.submitKnowing(spec, nil)
}

// submitKnowing is submit, with what accounting says.
func (b *bench) submitKnowing(spec *pb.JobSpec, ends Ends) uint32 {
	b.t.Helper()
	if spec.Uid == 0 {
		spec.Uid = alice.UID
	}
	spec.User = fmt.Sprint("u", spec.Uid)
	j, p := admit.Job(b.view, spec, "")
	if p != nil {
		b.t.Fatal(p)
	}
	r := b.do(Submit{Job: j, Ends: ends})
	s, ok := r.(Submitted)
	if !ok {
		b.t.Fatal(r)
	}
	return s.ID
}

// start starts a job on nodes as a plan would.
func (b *bench) start(id uint32, nodes ...string) Applied {
	b.t.Helper()
	j := b.view.Jobs.Get(id)
	s := PlannedStart{ID: id, Spec: j.Spec, Partition: "debug", NodeList: strings.Join(nodes, ","), LimitS: j.TimeLimitS}
	for _, n := range nodes {
		s.Alloc = append(s.Alloc, &pb.NodeAlloc{Node: n, Cpus: 1, MemMib: 100})
	}
	return b.do(ApplyPlan{Starts: []PlannedStart{s}, Reservations: b.view.Reservations()}).(Applied)
}

// ended is a node's report that its part of a job has ended.
func (b *bench) ended(id uint32, node, verdict string, status uint32) {
	b.t.Helper()
	j := b.view.Jobs.Get(id)
	b.do(StepReports{Node: node, Steps: []*pb.StepReport{endReport(j, verdict, status)}})
}

func endReport(j *pb.JobRecord, verdict string, status uint32) *pb.StepReport {
	return &pb.StepReport{Key: &pb.StepKey{JobId: j.Id, Attempt: j.Attempt, Epoch: j.Epoch, Step: pb.BatchStep},
		Phase: pb.StepPhase_STEP_ENDED,
		Exit:  &pb.ExitRecord{Verdict: verdict, WaitStatus: status, Detail: "detail"}}
}

func (b *bench) job(id uint32) *pb.JobRecord { return b.view.Jobs.Get(id) }

func (b *bench) state(id uint32) string {
	j := b.job(id)
	s := state.StateName(j)
	if j.StateFlags&pb.JobCompleting != 0 {
		s += "+COMPLETING"
	}
	return s + " " + j.Reason
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		verdict string
		status  uint32
		want    string
		exit    uint32
	}{
		{"exited", 0, "COMPLETED None", 0},
		{"exited", 3 << 8, "FAILED NonZeroExitCode", 3 << 8},
		{"signaled", 9, "FAILED RaisedSignal:9(Killed)", 9},
		{"timeout", 15, "TIMEOUT TimeLimit", 0},
		{"oom", 9, "OUT_OF_MEMORY OutOfMemory", 125},
		{"output_failed", 0, "FAILED JobLaunchFailure", 53},
		{"launch_failed", 0, "FAILED JobLaunchFailure", 1 << 8},
		{"lost", 0, "NODE_FAIL NodeDown", 0},
	} {
		b := newBench(t, nil)
		id := b.submit(&pb.JobSpec{})
		b.start(id, "n1")
		b.trace = nil
		b.ended(id, "n1", c.verdict, c.status)
		if got := b.state(id); got != c.want {
			t.Errorf("%s %d: %s, want %s", c.verdict, c.status, got, c.want)
		}
		if got := b.job(id).ExitStatus; got != c.exit {
			t.Errorf("%s %d: exit status %d, want %d", c.verdict, c.status, got, c.exit)
		}
		b.expect("JobLeftNode n1", "JobEnded "+c.want)
		b.ended(id, "n1", "exited", 0) // a report that comes twice changes nothing
		b.expect()
	}
}

func TestMultiNodeEndsWhenEveryNodeHas(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{MinNodes: 2})
	b.start(id, "n1", "n2")
	b.ended(id, "n1", "exited", 0)
	if got := b.state(id); got != "COMPLETED+COMPLETING None" {
		t.Errorf("after the batch node: %s", got)
	}
	if b.view.Node("n1").AllocCpus != 0 || b.view.Node("n2").AllocCpus != 1 {
		t.Error("only the first node's share must be free")
	}
	b.ended(id, "n2", "cancelled", 15)
	if got := b.state(id); got != "COMPLETED None" {
		t.Errorf("after both: %s", got)
	}
}

func TestSecondNodeLostFailsTheJob(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{MinNodes: 2})
	b.start(id, "n1", "n2")
	b.ended(id, "n2", "lost", 0)
	if got := b.state(id); got != "NODE_FAIL+COMPLETING NodeDown" {
		t.Errorf("%s", got)
	}
	b.ended(id, "n1", "cancelled", 15)
	if got := b.state(id); got != "NODE_FAIL NodeDown" {
		t.Errorf("%s", got)
	}
}

func TestCancel(t *testing.T) {
	b := newBench(t, nil)
	pending, running, other := b.submit(&pb.JobSpec{}), b.submit(&pb.JobSpec{}), b.submit(&pb.JobSpec{Uid: bob.UID})
	b.start(running, "n1")
	b.trace = nil
	out := b.do(Cancel{Caller: alice, IDs: []string{fmt.Sprint(pending), fmt.Sprint(running), fmt.Sprint(other), "99"}}).(Outcomes)
	var got []string
	for _, o := range out.List {
		got = append(got, o.Id+":"+o.Problem.GetPhrase())
	}
	if s := strings.Join(got, " "); s != "1: 2: 3:Access/permission denied 99:Invalid job id specified" {
		t.Error(s)
	}
	b.expect("JobEnded CANCELLED None", "JobChanged stop: cancel")
	if got := b.state(running); got != "CANCELLED+COMPLETING None" {
		t.Error(got)
	}
	b.ended(running, "n1", "cancelled", 15)
	if got := b.state(running); got != "CANCELLED None" || b.job(running).ExitStatus != 15 {
		t.Error(got, b.job(running).ExitStatus)
	}
	if b.state(other) != "PENDING None" {
		t.Error("the job of another user changed: ", b.state(other))
	}
}

// TestCancelByIDAndFilter: an id without an active job is an error, a job that the filter leaves out is none, and a step stays a step.
func TestCancelByIDAndFilter(t *testing.T) {
	b := newBench(t, nil)
	taken, left, ended := b.submit(&pb.JobSpec{Name: "a"}), b.submit(&pb.JobSpec{Name: "b"}), b.submit(&pb.JobSpec{Name: "a"})
	stepped := b.submit(&pb.JobSpec{Name: "a"})
	b.start(stepped, "n1")
	b.step(stepped, &pb.StepSpec{})
	b.do(Cancel{Caller: alice, IDs: []string{fmt.Sprint(ended)}})
	out := b.do(Cancel{Caller: alice, IDs: []string{fmt.Sprint(taken), fmt.Sprint(left), fmt.Sprint(ended), "99",
		fmt.Sprint(stepped, ".0")},
		Match: func(j *pb.JobRecord) bool { return j.Spec.Name == "a" }}).(Outcomes)
	var got []string
	for _, o := range out.List {
		got = append(got, o.Id+":"+o.Problem.GetPhrase())
	}
	if s := strings.Join(got, " "); s != "1: 3:Invalid job id specified 99:Invalid job id specified 4.0:" {
		t.Error(s)
	}
	for id, want := range map[uint32]string{taken: "CANCELLED None", left: "PENDING None", stepped: "RUNNING None"} {
		if got := b.state(id); got != want {
			t.Errorf("job %d is %s, not %s", id, got, want)
		}
	}
}

func TestCancelWinsOverALateExit(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{})
	b.start(id, "n1")
	b.do(Cancel{Caller: alice, IDs: []string{fmt.Sprint(id)}})
	b.ended(id, "n1", "exited", 0)
	if got := b.state(id); got != "CANCELLED None" {
		t.Error(got)
	}
}

func TestSignalIsNumberedOnce(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{})
	if p := b.do(Cancel{Caller: alice, IDs: []string{fmt.Sprint(id)},
		Signal: 10}).(Outcomes).List[0].Problem; p.GetCode() != uint32(pb.CodeTransition) {
		t.Errorf("signalling a pending job: %v", p)
	}
	b.start(id, "n1")
	for range 40 {
		b.do(Cancel{Caller: alice, IDs: []string{fmt.Sprint(id)}, Signal: 10, Batch: true})
	}
	s := b.job(id).Signals
	if len(s) != maxSignals || s[len(s)-1].Seq != 40 || s[0].Seq != 40-maxSignals+1 || s[0].Target != pb.SignalBatch {
		t.Errorf("%d signals, %v", len(s), s)
	}
}

func TestRequeue(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{})
	b.start(id, "n1")
	b.trace = nil
	b.do(Control{Caller: alice, Verb: "requeue", IDs: []string{fmt.Sprint(id)}})
	b.expect("JobChanged stop: requeue")
	if b.start(id, "n2").Started != 0 {
		t.Error("a job was started while its last attempt still runs")
	}
	b.ended(id, "n1", "cancelled", 15)
	j := b.job(id)
	if b.state(id) != "PENDING BeginTime" || j.Restarts != 1 || j.EligibleNs != b.now+120e9 || j.Attempt != 1 || len(j.Alloc) != 0 {
		t.Error(b.state(id), j)
	}
	b.start(id, "n1")
	if b.job(id).Attempt != 2 {
		t.Error("the second start must be attempt 2")
	}
	b.trace = nil
	old := endReport(j, "exited", 0) // of attempt 1
	old.Key.Attempt, old.Key.Epoch = 1, j.Epoch
	b.do(StepReports{Node: "n1", Steps: []*pb.StepReport{old}})
	b.expect()
}

func TestRequeueRefused(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{Requeue: pb.No})
	b.start(id, "n1")
	out := b.do(Control{Caller: alice, Verb: "requeue", IDs: []string{fmt.Sprint(id)}}).(Outcomes)
	if out.List[0].Problem.GetCode() != uint32(pb.CodeDisabled) {
		t.Error(out.List)
	}
}

func TestHoldAndRelease(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{})
	ids := []string{fmt.Sprint(id)}
	b.do(Control{Caller: root, Verb: "hold", IDs: ids})
	if b.state(id) != "PENDING JobHeldAdmin" || b.start(id, "n1").Started != 0 {
		t.Error(b.state(id))
	}
	if p := b.do(Control{Caller: alice, Verb: "release", IDs: ids}).(Outcomes).List[0].Problem; p.GetCode() != uint32(pb.CodeAccessDenied) {
		t.Error("a user released an admin hold")
	}
	b.do(Control{Caller: root, Verb: "release", IDs: ids})
	b.do(Control{Caller: alice, Verb: "hold", IDs: ids})
	if b.state(id) != "PENDING JobHeldUser" {
		t.Error(b.state(id))
	}
	b.do(Control{Caller: alice, Verb: "release", IDs: ids})
	if b.state(id) != "PENDING None" || b.job(id).Priority == 0 {
		t.Error(b.state(id), b.job(id).Priority)
	}
}

func TestPrologFailureDrainsAndRequeuesHeld(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{})
	b.start(id, "n1")
	b.trace = nil
	b.ended(id, "n1", "prolog_failed", 0)
	b.expect("NodeChanged n1 drained", "JobLeftNode n1", "JobRequeued prolog")
	if b.state(id) != "PENDING launch_failed_requeued_held" {
		t.Error(b.state(id))
	}
	if n := b.view.Node("n1"); n.Up() || !strings.HasPrefix(n.Reason, "Prolog error") {
		t.Error(n)
	}
}

// A node that is drained keeps its reason: the prolog's when the epilog fails after it, and an administrator's.
func TestDrainedNodeKeepsItsReason(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{})
	b.start(id, "n1")
	r := endReport(b.view.Jobs.Get(id), "prolog_failed", 0)
	r.Exit.EpilogError = "exit status 1"
	b.do(StepReports{Node: "n1", Steps: []*pb.StepReport{r}})
	if why := b.view.Node("n1").Reason; !strings.HasPrefix(why, "Prolog error") {
		t.Error(why)
	}

	b = newBench(t, nil)
	id = b.submit(&pb.JobSpec{})
	b.start(id, "n1")
	b.do(UpdateNode{Caller: root, Nodes: []string{"n1"}, Set: keys("State", "DRAIN", "Reason", "mine")})
	r = endReport(b.view.Jobs.Get(id), "exited", 0)
	r.Exit.EpilogError = "exit status 1"
	b.do(StepReports{Node: "n1", Steps: []*pb.StepReport{r}})
	if why := b.view.Node("n1").Reason; why != "mine" {
		t.Error(why)
	}
}

func TestNodeTimeout(t *testing.T) {
	b := newBench(t, nil)
	again, never := b.submit(&pb.JobSpec{}), b.submit(&pb.JobSpec{Requeue: pb.No})
	b.start(again, "n1")
	b.start(never, "n1")
	b.do(NodeGone{Node: "n1"})
	b.trace = nil
	b.now += 40e9
	b.do(Tick{})
	b.expect("NodeChanged n1 not responding")
	b.now += 70e9
	b.do(Tick{})
	b.expect("NodeChanged n1 down", "JobLeftNode n1", "JobRequeued nodefail", "JobLeftNode n1", "JobEnded NODE_FAIL NodeDown")
	b.do(hello("n1", "boot1"))
	if n := b.view.Node("n1"); n.State != pb.NodeState_NODE_IDLE || n.Up() || len(n.Strays) != 2 {
		t.Errorf(
			"ReturnToService=1: a node that was down for not responding is back when it registers, once it is rid of what it ran: %v, "+
				"strays %v", n.State, n.Strays)
	}
	b.do(StepReports{Node: "n1", Steps: endsOf(b.view.Node("n1").Strays)})
	if !b.view.Node("n1").Up() {
		t.Error("the strays are gone and the node is not back")
	}
}

func TestRebootLosesWhatRan(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.JobRequeue = false })
	id := b.submit(&pb.JobSpec{})
	b.start(id, "n1")
	b.do(hello("n1", "boot1")) // noded restarted: the order may not have arrived, nothing is lost
	if b.state(id) != "RUNNING None" {
		t.Error(b.state(id))
	}
	b.do(hello("n1", "boot2"))
	if b.state(id) != "NODE_FAIL NodeDown" {
		t.Error(b.state(id))
	}
}

func TestRebootFindsWhatRan(t *testing.T) {
	b := newBench(t, nil)
	ids := []uint32{b.submit(&pb.JobSpec{}), b.submit(&pb.JobSpec{Requeue: 2})}
	var found []*pb.StepReport
	for _, id := range ids {
		b.start(id, "n1")
		found = append(found, endReport(b.job(id), "lost", 0)) // its folder outlived the reboot, its shim did not
	}
	b.trace = nil
	b.do(hello("n1", "boot2", found...))
	b.expect("NodeChanged n1 registered", "JobLeftNode n1", "JobRequeued nodefail", "JobLeftNode n1", "JobEnded NODE_FAIL NodeDown")
	if b.state(ids[0]) != "PENDING BeginTime" || b.state(ids[1]) != "NODE_FAIL NodeDown" {
		t.Errorf("%s and %s", b.state(ids[0]), b.state(ids[1]))
	}
}

func TestLostStepWithoutEpoch(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{})
	b.start(id, "n1")
	unreadable := endReport(b.job(id), "exited", 0)
	unreadable.Key.Epoch = 0
	b.do(hello("n1", "boot1", unreadable))
	if b.state(id) != "RUNNING None" {
		t.Errorf("an end of another epoch is believed: %s", b.state(id))
	}
	unreadable.Exit.Verdict = "lost"
	b.do(hello("n1", "boot1", unreadable))
	if b.state(id) != "NODE_FAIL NodeDown" {
		t.Errorf("%s: the node cannot read what it ran, so nothing runs", b.state(id))
	}
}

func TestEndDuringAbsenceIsTrue(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{})
	b.start(id, "n1")
	b.do(NodeGone{Node: "n1"})
	b.do(hello("n1", "boot2", endReport(b.job(id), "exited", 7<<8))) // it ended before the reboot, and its record survived
	if b.state(id) != "FAILED NonZeroExitCode" || b.job(id).ExitStatus != 7<<8 {
		t.Error(b.state(id))
	}
}

func TestLessHardwareDrains(t *testing.T) {
	b := newBench(t, nil)
	h := hello("n1", "boot1")
	h.Hello.Hardware.RealMemoryMib = 3000
	b.do(h)
	if n := b.view.Node("n1"); n.Up() || n.Reason != "Low RealMemory (reported:3000 < configured:4000)" {
		t.Error(n.Reason)
	}
	b.do(hello("n1", "boot1"))
	if n := b.view.Node("n1"); !n.Up() {
		t.Error("the node reports all of its memory again and must be back: ", n.Reason)
	}
}

func TestStalePlanIsDropped(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{})
	b.do(UpdateNode{Caller: root, Nodes: []string{"n1"}, Set: []*pb.KeyValue{{Key: "State", Value: "DRAIN"},
		{Key: "Reason", Value: "test"}}})
	if b.start(id, "n1").Started != 0 {
		t.Error("a job was started on a drained node")
	}
	for i := range 5 {
		got := b.start(b.submit(&pb.JobSpec{}), "n2").Started
		if want := map[bool]int{true: 1, false: 0}[i < 4]; got != want {
			t.Errorf("start %d on a node of 4 CPUs: %d", i, got)
		}
	}
}

func TestSameRequestIsTheSameJob(t *testing.T) {
	b := newBench(t, nil)
	j, _ := admit.Job(b.view, &pb.JobSpec{Uid: 1}, "req")
	first, second := b.do(Submit{Job: j}).(Submitted), b.do(Submit{Job: j}).(Submitted)
	if first.ID != second.ID || b.view.Jobs.Len() != 1 {
		t.Error(first, second)
	}
}

func TestUserLimit(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.MaxJobsPerUser = 2 })
	b.submit(&pb.JobSpec{})
	last := b.submit(&pb.JobSpec{})
	j, _ := admit.Job(b.view, &pb.JobSpec{Uid: alice.UID}, "")
	if p, ok := b.do(Submit{Job: j}).(*pb.Problem); !ok || p.Code != uint32(pb.CodeQueueFull) {
		t.Error("the third job was taken")
	}
	b.do(Cancel{Caller: alice, IDs: []string{fmt.Sprint(last)}})
	if _, ok := b.do(Submit{Job: j}).(Submitted); !ok {
		t.Error("after a cancel there is room again")
	}
}

// A node's text about the end of a step is cut and cleaned before it is stored: it appears on terminals and is written with the job.
func TestNodeWordsAreBounded(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{NumTasks: 1})
	b.start(id, "n1")
	r := endReport(b.job(id), "exited", 256)
	r.Exit.Detail, r.Exit.EpilogError = "\x1b[2J"+strings.Repeat("x", 1<<20), "one\ntwo"
	r.Exit.Usage = &pb.StepUsage{PageFaults: 1}
	for range 10000 {
		r.Exit.Usage.Devices = append(r.Exit.Usage.Devices, &pb.DeviceUse{Id: "GPU-x"})
	}
	b.do(StepReports{Node: "n1", Steps: []*pb.StepReport{r}})
	if j := b.job(id); len(j.ReasonDetail) > maxWords || strings.Contains(j.ReasonDetail, "\x1b") || len(j.Usage[0].Devices) != 0 {
		t.Errorf("%d bytes of detail, %d devices", len(j.ReasonDetail), len(j.Usage[0].Devices))
	}
	if n := b.view.Node("n1"); !strings.HasSuffix(n.Reason, "one; two") {
		t.Errorf("the reason is %q", n.Reason)
	}
	h := hello("n2", "boot\x00")
	h.Hello.Version, h.Hello.Hardware.Driver = "1\x1b", strings.Repeat("d", 1<<20)
	b.do(h)
	if n := b.view.Node("n2"); n.Version != "1?" || n.BootId != "boot?" || len(n.Reported.Driver) > maxWords {
		t.Errorf("version %q, boot %q, %d bytes of driver", n.Version, n.BootId, len(n.Reported.Driver))
	}
	b.do(NodeBeats{Beats: map[string]*pb.Heartbeat{"n2": {CpuLoad: math.NaN()}}})
	if n := b.view.Node("n2"); n.CpuLoad != 0 {
		t.Error("a load that is no number was kept")
	}
}

func TestPurgeKeepsRequestIDsForAWhile(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.MinJobAgeS = 2 })
	j, _ := admit.Job(b.view, &pb.JobSpec{Uid: 1}, "req")
	id := b.do(Submit{Job: j}).(Submitted).ID
	b.start(id, "n1")
	b.ended(id, "n1", "exited", 0)
	b.now += 10e9
	b.do(Tick{Purge: true})
	if b.do(Submit{Job: j}).(Submitted).ID != id {
		t.Error("a retry after ten seconds made a second job")
	}
	b.now += 200e9
	b.do(Tick{Purge: true})
	if b.view.Jobs.Len() != 0 {
		t.Error("the job was not forgotten")
	}
}

func TestReconfigureKeepsRunningNodes(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{})
	b.start(id, "n2")
	only := &state.Config{Settings: b.view.Settings, Default: "debug", PartitionNodes: map[string][]string{"debug": {"n1"}},
		Nodes:      []*pb.NodeRecord{{Name: "n1", Cpus: 4}},
		Partitions: []*pb.PartitionRecord{{Name: "debug", State: "UP", MaxTimeS: pb.Unlimited}}}
	if p, ok := b.do(Reconfigure{Config: only}).(*pb.Problem); !ok || p.Code != uint32(pb.CodeNodesBusy) {
		t.Error("a node with a job was dropped")
	}
	b.ended(id, "n2", "exited", 0)
	if r := b.do(Reconfigure{Config: only}); r != nil || len(b.view.Nodes()) != 1 || !b.view.Node("n1").Up() {
		t.Error(r, b.view.Nodes())
	}
}
