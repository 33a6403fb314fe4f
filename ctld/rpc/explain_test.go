package rpc

import (
	"context"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// pastAccounting knows jobs that the controller has forgotten.
type pastAccounting struct {
	shownAccounting
	attempts []*pb.JobRecord
}

func (a pastAccounting) Select(_ context.Context, _ *pb.AccountingRequest, _ func() *state.View, each func([]byte) error) error {
	for _, j := range a.attempts {
		b, err := proto.Marshal(j)
		if err == nil {
			err = each(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stillWriter has a view and takes no command.
type stillWriter struct{ v *state.View }

func (w stillWriter) View() *state.View                              { return w.v }
func (stillWriter) Do(context.Context, reactor.Command) (any, error) { panic("a command") }

func TestAForgottenJobIsFoundInAccounting(t *testing.T) {
	v := state.New(stateConfig(), "c", 1)
	job := func(id, uid uint32, s pb.JobState, attempt uint32) *pb.JobRecord {
		return &pb.JobRecord{Id: id, State: s, Attempt: attempt, Spec: &pb.JobSpec{Uid: uid}}
	}
	task := job(9, 1, pb.JobState_JOB_FAILED, 1)
	task.ArrayJobId, task.ArrayTaskId, task.IsArrayTask = 8, 4, true
	s := &Service{Writer: stillWriter{v}, Users: NewUsers(), Acct: pastAccounting{attempts: []*pb.JobRecord{
		job(5, 1, pb.JobState_JOB_NODE_FAIL, 1), job(5, 1, pb.JobState_JOB_COMPLETED, 2), task, job(7, 2, pb.JobState_JOB_COMPLETED, 1),
		job(6, 1, pb.JobState_JOB_RUNNING, 1)}}}
	own := func(j *pb.JobRecord) bool { return j.Spec.Uid == 1 }
	for id, want := range map[string]uint32{"5": 2, "8_4": 1, "7": 0, "6": 0, "99": 0, "x": 0, "8_5": 0} {
		if got := s.remembered(context.Background(), id, own).Job; got.GetAttempt() != want {
			t.Errorf("%s: %v, want attempt %d", id, got, want)
		}
	}
}

// explainedBy asks the service about an id as root.
func explainedBy(t *testing.T, s *Service, id string) string {
	t.Helper()
	reply, err := s.Explain(context.WithValue(context.Background(), peerKey{}, &Peer{Operator: true}), &pb.ExplainRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	return reply.Text
}

// TestForgottenJobIsCleanedUp: accounting does not keep that nodes have reported the end of an attempt, so nothing is said of it.
func TestForgottenJobIsCleanedUp(t *testing.T) {
	v := state.New(stateConfig(), "c", 1)
	s := &Service{Writer: stillWriter{v}, Users: NewUsers(), Privacy: func() Privacy { return Privacy{} },
		Acct: pastAccounting{attempts: []*pb.JobRecord{{Id: 5, State: pb.JobState_JOB_COMPLETED, NodeList: "n1", Spec: &pb.JobSpec{},
			Alloc: []*pb.NodeAlloc{{Node: "n1"}}}}}}
	if got := explainedBy(t, s, "5"); !strings.Contains(got, "COMPLETED") || strings.Contains(got, "cleaned up") {
		t.Error(got)
	}
}

// TestArraySummary: of an array it is said how many tasks are in which state, and of a task alone nothing of the kind.
func TestArraySummary(t *testing.T) {
	v := state.New(stateConfig(), "c", 1)
	task := func(id, index uint32, end pb.JobState) *pb.JobRecord {
		return &pb.JobRecord{Id: id, State: end, ArrayJobId: 8, ArrayTaskId: index, IsArrayTask: true, ArraySpec: "0-9",
			Spec: &pb.JobSpec{}}
	}
	s := &Service{Writer: stillWriter{v}, Users: NewUsers(), Privacy: func() Privacy { return Privacy{} }, Acct: pastAccounting{
		attempts: []*pb.JobRecord{task(8, 0, pb.JobState_JOB_COMPLETED), task(9, 1, pb.JobState_JOB_NODE_FAIL),
			task(9, 1, pb.JobState_JOB_FAILED), task(10, 2, pb.JobState_JOB_COMPLETED)}}}
	const want = "Array 8: 2 COMPLETED, 1 FAILED, 7 ended earlier.\nFor one of its tasks: sluice explain 8_1\n"
	if got := explainedBy(t, s, "8"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := explainedBy(t, s, "8_1"); !strings.HasPrefix(got, "Job 8_1 ended") {
		t.Error(got)
	}
}

// TestSummaryOfCancelledTasks: tasks without a record are counted, and an example is one task.
func TestSummaryOfCancelledTasks(t *testing.T) {
	v := state.New(stateConfig(), "c", 1)
	v.Settings.MaxArraySize = 1001
	s := &Service{Writer: stillWriter{v}, Users: NewUsers(), Privacy: func() Privacy { return Privacy{} }, Acct: pastAccounting{
		attempts: []*pb.JobRecord{
			{Id: 8, State: pb.JobState_JOB_CANCELLED, ArrayJobId: 8, ArrayTasks: "6-9", ArraySpec: "0-9", Dropped: "2-5",
				Spec: &pb.JobSpec{}},
			{Id: 9, State: pb.JobState_JOB_COMPLETED, ArrayJobId: 8, IsArrayTask: true, ArraySpec: "0-9", Spec: &pb.JobSpec{}}}}}
	const example = "For one of its tasks: sluice explain 8_6\n"
	for id, want := range map[string]string{"8": "Array 8: 1 COMPLETED, 8 CANCELLED, 1 ended earlier.\n" + example,
		"8_[6-7]": "Array 8: 2 CANCELLED.\n" + example} {
		if got := explainedBy(t, s, id); got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
	if got := explainedBy(t, s, "8_7"); !strings.HasPrefix(got, "Job 8_[6-9] ended") {
		t.Error(got)
	}
	tx := state.Begin(v, 1)
	tx.Emit(state.JobSubmitted{Job: &pb.JobRecord{Id: 8, ArrayJobId: 8, ArrayTasks: "6-9", ArraySpec: "0-9", Dropped: "2-5",
		Spec: &pb.JobSpec{}}})
	s.Writer = stillWriter{tx.View()}
	if got := explainedBy(t, s, "8_3"); got != "8_3 was cancelled before it started.\n" {
		t.Error(got)
	}
}
