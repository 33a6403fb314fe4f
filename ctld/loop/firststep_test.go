package loop

import (
	"errors"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestFirstStepWithItsJob: a controller that is killed in the commit that starts a job finds job and first step as they were before, or
// both as they are after it.
func TestFirstStepWithItsJob(t *testing.T) {
	for _, wrote := range []bool{false, true} {
		disk, dying := journal.NewMemory(), false
		l := newLoop(journal.NewFailing(disk, func(int, journal.Batch) journal.Fault {
			if dying {
				return journal.Fault{Err: errors.New("killed"), After: wrote}
			}
			return journal.Fault{}
		}))
		job := submission("")
		job.Job.Spec.Interactive = true
		job.Job.FirstStep = &pb.FirstStep{RequestId: "1000:x", Spec: &pb.StepSpec{Name: "true"}}
		turn(t, l, reactor.NodeHello{Hello: &pb.NodeHello{Node: "n1", BootId: "b"}})
		id := turn(t, l, job)[0].(reactor.Submitted).ID
		dying = true
		_, err := l.Turn(reactor.ApplyPlan{Starts: []reactor.PlannedStart{{ID: id, Task: -1, Spec: l.View().Jobs.Get(id).Spec,
			Partition: "debug", LimitS: 60, NodeList: "n1", Alloc: []*pb.NodeAlloc{{Node: "n1", Cpus: 1}}, Key: []byte("key")}}})
		if err == nil {
			t.Fatal("the commit has not failed")
		}
		v, err := state.Load(config(), disk, "c", 1)
		if err != nil {
			t.Fatal(err)
		}
		j, s := v.Jobs.Get(id), v.Steps(id).Get(0)
		switch {
		case wrote && (j.State != pb.JobState_JOB_RUNNING || j.FirstStep != nil || string(s.GetKey()) != "key" || s.Epoch != j.Epoch):
			t.Errorf("written: %v, %v", j, s)
		case !wrote && (j.State != pb.JobState_JOB_PENDING || j.FirstStep.GetRequestId() != "1000:x" || s != nil):
			t.Errorf("not written: %v, %v", j, s)
		}
	}
}
