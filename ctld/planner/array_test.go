package planner

import (
	"fmt"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/priority"
	"github.com/sluice-hpc/sluice/sched/record"
)

// apply makes plans and applies them until there is nothing more to start, and reports which tasks then run.
func (b *bench) apply() (running []*pb.JobRecord) {
	for {
		b.prepare()
		if b.plan == nil || len(b.plan.Starts) == 0 {
			break
		}
		b.do(*b.plan)
	}
	for j := range b.loop.View().Jobs.All() {
		if state.Live(j) {
			running = append(running, j)
		}
	}
	return running
}

// TestThrottle: an array never runs more tasks than its limit, in whatever order tasks were split off. The next tasks start as soon as one
// ends or the limit is raised.
func TestThrottle(t *testing.T) {
	b := newBench(t)
	b.submit(&pb.JobSpec{Array: "0-9%2"})
	ran := map[uint32]bool{}
	for range 20 {
		running := b.apply()
		if len(running) == 0 {
			break
		}
		if len(running) > 2 || len(running) < 2 && len(ran) < 8 {
			t.Fatalf("%d tasks run, %d have", len(running), len(ran))
		}
		j := running[0]
		if ran[j.ArrayTaskId] {
			t.Fatalf("task %d runs again", j.ArrayTaskId)
		}
		ran[j.ArrayTaskId] = true
		b.do(reactor.StepReports{Node: j.BatchHost,
			Steps: []*pb.StepReport{{Key: &pb.StepKey{JobId: j.Id, Attempt: j.Attempt, Epoch: j.Epoch, Step: pb.BatchStep},
				Phase: pb.StepPhase_STEP_ENDED,
				Exit:  &pb.ExitRecord{Verdict: "exited"}}}})
		if len(ran) == 3 { // treated apart, they still count together
			b.do(reactor.UpdateJob{Caller: operator, IDs: []string{"1_[7-8]"}, Set: []*pb.KeyValue{{Key: "TimeLimit", Value: "5"}}})
		}
	}
	if len(ran) != 10 {
		t.Errorf("%d of 10 tasks ran", len(ran))
	}
	b.submit(&pb.JobSpec{Array: "0-9%1"})
	if n := len(b.apply()); n != 1 {
		t.Errorf("%d tasks run with a limit of 1", n)
	}
	id := fmt.Sprint(b.loop.View().NextJobID - 2) // the array; its first task has the next
	for _, c := range []struct {
		limit string
		want  int
	}{{"3", 3}, {"0", 10}} {
		b.do(reactor.UpdateJob{Caller: operator, IDs: []string{id}, Set: []*pb.KeyValue{{Key: "ArrayTaskThrottle", Value: c.limit}}})
		if n := len(b.apply()); n != c.want {
			t.Errorf("%d tasks run with a limit of %s", n, c.limit)
		}
	}
}

// TestPrioritiesAreShown: with multifactor priorities a waiting job's record says what sprio says, and not what a submission gave it.
func TestPrioritiesAreShown(t *testing.T) {
	b := newBench(t)
	set := *b.loop.View().Settings
	set.PriorityBasic = false
	cfg := config(3)
	cfg.Settings = &set
	b.do(reactor.Reconfigure{Config: cfg})
	b.p.Configure(record.Params{Weights: record.Weights{JobSize: 1000, Age: 100000, MaxAgeS: 100000}})
	for range 5 {
		b.submit(&pb.JobSpec{MinNodes: 3, MaxNodes: 3, Sharing: "exclusive"})
	}
	b.submit(&pb.JobSpec{Hold: true})
	shown := func() {
		t.Helper()
		for range 3 {
			if b.prepare(); b.plan != nil {
				b.do(*b.plan)
			}
		}
		g := NewAdvisor(b.p.used)
		for j := range b.loop.View().Jobs.All() {
			if !state.Pending(j) {
				continue
			}
			want := uint32(0)
			if !j.Spec.Hold {
				terms, _ := g.Priorities(b.loop.View(), []*pb.JobRecord{j}, []string{"debug"})
				want = priority.Total(terms[0])
			}
			if j.Priority != want || want == 1 {
				t.Errorf("job %d shows priority %d, sprio %d", j.Id, j.Priority, want)
			}
		}
	}
	shown()
	b.now += 4000e9
	shown()
}
