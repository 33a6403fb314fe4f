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
		if got := s.remembered(context.Background(), id, own); got.GetAttempt() != want {
			t.Errorf("%s: %v, want attempt %d", id, got, want)
		}
	}
}

func TestFate(t *testing.T) {
	v := state.New(stateConfig(), "c", 1)
	s := &Service{Users: NewUsers()}
	const hour = int64(3600e9)
	for want, j := range map[string]*pb.JobRecord{
		"It reached its time limit of 01:00:00; request more with --time.": {State: pb.JobState_JOB_TIMEOUT, TimeLimitS: 3600,
			NodeList: "n1"},
		"It used more memory than it was allocated (mem=2G); request more with --mem": {State: pb.JobState_JOB_OUT_OF_MEMORY,
			AllocTres: "cpu=1,mem=2G,node=1"},
		"02:00:00 after its start on n1: TIMEOUT": {State: pb.JobState_JOB_TIMEOUT, StartNs: hour,
			EndNs: 3 * hour, NodeList: "n1"},
		"It was preempted by job 7.":       {State: pb.JobState_JOB_PREEMPTED, PreemptedBy: "7"},
		"Node n1 failed while running it.": {State: pb.JobState_JOB_NODE_FAIL, FailedNode: "n1"},
		"Node gone is no longer in slurm.conf.": {State: pb.JobState_JOB_RUNNING,
			Alloc: []*pb.NodeAlloc{{Node: "gone"}}},
		"has not been cleaned up yet on n1, n2.": {State: pb.JobState_JOB_COMPLETED,
			Alloc: []*pb.NodeAlloc{{Node: "n1"}, {Node: "n2"}}},
		"It is being ended (timeout).": {State: pb.JobState_JOB_RUNNING,
			StopReason: "timeout"},
	} {
		j.Id, j.Spec = 3, &pb.JobSpec{WorkDir: "/secret"}
		if got := s.fate(v, j, false); !strings.Contains(got, want) || strings.Contains(got, "/secret") {
			t.Errorf("%q lacks %q, or names files", got, want)
		}
		if got := s.fate(v, j, true); strings.Contains(got, "/secret") != (j.NodeList != "") {
			t.Errorf("told its owner: %q", got)
		}
	}
}
