package reactor

import (
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestTop: the job moves ahead of the other jobs of its user only, which lose the priority that it gains.
func TestTop(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.PriorityBasic = true })
	for _, uid := range []uint32{1000, 1000, 1001, 1000} {
		b.submit(&pb.JobSpec{Name: "a", Uid: uid})
	}
	other := b.job(3).Priority
	if got := b.control("top", "4"); got != "4" {
		t.Fatal(got)
	}
	if p := b.job(4).Priority; p <= b.job(1).Priority || p <= b.job(2).Priority {
		t.Errorf("job 4 has priority %d, jobs 1 and 2 %d and %d", p, b.job(1).Priority, b.job(2).Priority)
	}
	if b.job(3).Priority != other || b.job(3).Spec.Nice != 0 {
		t.Errorf("another user's job has changed: %v", b.job(3))
	}
	if sum := b.job(1).Spec.Nice + b.job(2).Spec.Nice + b.job(4).Spec.Nice; sum < 0 {
		t.Errorf("the user's jobs have gained %d together", -sum)
	}
	before := b.job(4).Priority
	b.control("top", "4")
	if b.job(4).Priority != before {
		t.Errorf("at the top already, and moved from %d to %d", before, b.job(4).Priority)
	}
	b.control("hold", "2")
	for _, c := range []struct{ got, want string }{
		{b.control("top", "2"), "2: Job is in held state, pending scheduler release"},
		{b.control("top", "99"), "99: Invalid job id specified"},
		{outcomesOf(b.do(Control{Caller: Caller{UID: 1000}, Verb: "top", IDs: []string{"1"}})), "1: Access/permission denied"},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
}

// TestTopAmongEquals: jobs of the same priority give way by one, as a real Slurm has it.
func TestTopAmongEquals(t *testing.T) {
	b := newBench(t, nil)
	for range 3 {
		b.submit(&pb.JobSpec{Name: "a", Uid: 1000, Priority: 50})
	}
	b.control("top", "2")
	for id, want := range map[uint32]int32{1: 1, 2: 0, 3: 1} {
		if got := b.job(id).Spec.Nice; got != want {
			t.Errorf("job %d has nice %d, want %d", id, got, want)
		}
	}
}
