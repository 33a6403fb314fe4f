package reactor

import (
	"fmt"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestDeadlines: a job that cannot end by its deadline whenever it starts is refused, submitted or updated, with the codes of a Slurm
// 22.05.
func TestDeadlines(t *testing.T) {
	const hour = int64(3600e9)
	for _, tt := range []struct {
		name string
		spec *pb.JobSpec // moments from now on
		code pb.Code
	}{
		{"passed", &pb.JobSpec{DeadlineNs: -hour}, pb.CodeInvalidTimeLimit},
		{"longer than is left", &pb.JobSpec{DeadlineNs: hour, TimeLimitS: 7200}, 0}, // Slurm takes it and gives it up at once
		{"--time-min is longer than is left", &pb.JobSpec{DeadlineNs: hour, TimeMinS: 7200, TimeLimitS: 9000}, pb.CodeInvalidTimeMin},
		{"--time-min fits", &pb.JobSpec{DeadlineNs: hour, TimeMinS: 1800, TimeLimitS: 9000}, 0},
		{"begins after it", &pb.JobSpec{DeadlineNs: hour, BeginNs: 2 * hour}, pb.CodeInvalidTime},
		{"begins too late for --time-min", &pb.JobSpec{DeadlineNs: hour, BeginNs: hour / 2, TimeMinS: 2400, TimeLimitS: 2400},
			pb.CodeInvalidTimeMin},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, nil)
			s := tt.spec
			s.Name, s.Uid, s.User = "j", alice.UID, "alice"
			if s.DeadlineNs += b.now; s.BeginNs != 0 {
				s.BeginNs += b.now
			}
			p, _ := b.do(Submit{Job: &pb.JobRecord{Spec: s}}).(*pb.Problem)
			if p.GetCode() != uint32(tt.code) {
				t.Errorf("%v, want code %d", p, tt.code)
			}
		})
	}
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{Name: "j", TimeLimitS: 7200, DeadlineNs: b.now + hour})
	out := b.do(UpdateJob{Caller: root, IDs: []string{fmt.Sprint(id)}, Set: []*pb.KeyValue{{Key: "TimeMin", Value: "90"}}}).(Outcomes)
	if p := out.List[0].Problem; p.GetCode() != uint32(pb.CodeInvalidTimeMin) {
		t.Errorf("an update: %v", p)
	}
}

// TestBatchHost: the script runs on the first node that has the features of --batch.
func TestBatchHost(t *testing.T) {
	for batch, want := range map[string]string{"": "n1", "fast": "n2", "fast|none": "n2", "fast&slow": "n1"} {
		b := newBench(t, nil)
		b.do(UpdateNode{Caller: root, Nodes: []string{"n2"}, Set: keys("AvailableFeatures", "fast", "ActiveFeatures", "fast")})
		b.do(UpdateNode{Caller: root, Nodes: []string{"n1"}, Set: keys("AvailableFeatures", "slow", "ActiveFeatures", "slow")})
		spec := &pb.JobSpec{Name: "j", MinNodes: 2, MaxNodes: 2, BatchFeatures: batch}
		j := &pb.JobRecord{Spec: spec, Partition: "debug", TimeLimitS: 600}
		spec.Uid, spec.User = alice.UID, "alice"
		r, ok := b.do(Submit{Job: j, Layout: b.view.Layout}).(Submitted)
		if !ok {
			t.Fatal("refused")
		}
		b.start(r.ID, "n1", "n2")
		if got := b.job(r.ID).BatchHost; got != want {
			t.Errorf("--batch=%s: %s, want %s", batch, got, want)
		}
	}
}

// TestCancelKeepsAnEnd: a job that has ended as COMPLETED and waits for the end of its node's work stays COMPLETED.
func TestCancelKeepsAnEnd(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{Name: "j", TimeLimitS: 600, MinNodes: 2, MaxNodes: 2})
	b.start(id, "n1", "n2")
	j := b.job(id)
	b.do(StepReports{Node: "n1", Steps: []*pb.StepReport{{Key: &pb.StepKey{JobId: id, Attempt: j.Attempt, Epoch: j.Epoch,
		Step: pb.BatchStep},
		Phase: pb.StepPhase_STEP_ENDED, Exit: &pb.ExitRecord{Verdict: "exited", EndNs: b.now}}}})
	if j = b.job(id); j.State != pb.JobState_JOB_COMPLETED || j.StateFlags&pb.JobCompleting == 0 {
		t.Fatalf("%v, flags %#x: not completing", j.State, j.StateFlags)
	}
	out := b.do(Cancel{Caller: root, IDs: []string{fmt.Sprint(id)}}).(Outcomes)
	if p := out.List[0].Problem; p.GetCode() != uint32(pb.CodeAlreadyDone) || b.job(id).State != pb.JobState_JOB_COMPLETED {
		t.Errorf("%v, and the job is %v", p, b.job(id).State)
	}
}
