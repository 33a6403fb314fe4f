package crashtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/timespec"
)

// TestOrdersSurvive: what the controller has said yes to is still so when it is killed the moment after.
func TestOrdersSurvive(t *testing.T) {
	c := newCluster(t, 1)
	c.start()
	held := func() uint32 { return c.submit(plainJob, func(s *msg.JobSpec) { s.Hold = true }, c.witness("held")) }
	gated := func(name string) (uint32, string) {
		w := c.witness(name)
		id := c.submit(gatedJob, nil, w)
		c.started(w)
		return id, w
	}
	// after makes the call, kills the controller as soon as it is answered, and gives the job as the next one finds it.
	after := func(id uint32, call func(context.Context, *client.Client) error) *msg.JobRecord {
		t.Helper()
		cl := c.dial()
		defer cl.Close()
		must(t, call(context.Background(), cl))
		c.ctld.kill()
		c.startCtld()
		return c.jobs(id)[id]
	}
	control := func(verb string, id uint32) func(context.Context, *client.Client) error {
		return func(ctx context.Context, cl *client.Client) error {
			r, err := cl.ControlJobs(ctx, &msg.ControlJobsRequest{Verb: verb, Ids: []string{fmt.Sprint(id)}})
			return outcome(err, r.GetOutcomes())
		}
	}
	cancel := func(id uint32) func(context.Context, *client.Client) error {
		return func(ctx context.Context, cl *client.Client) error {
			r, err := cl.CancelJobs(ctx, &msg.CancelJobsRequest{Ids: []string{fmt.Sprint(id)}})
			return outcome(err, r.GetOutcomes())
		}
	}
	update := func(id uint32, key, value string) func(context.Context, *client.Client) error {
		return func(ctx context.Context, cl *client.Client) error {
			r, err := cl.UpdateJob(ctx, &msg.UpdateJobRequest{Ids: []string{fmt.Sprint(id)},
				Set: []*msg.KeyValue{{Key: key, Value: value}}})
			return outcome(err, r.GetOutcomes())
		}
	}

	id := held()
	if j := after(id, cancel(id)); j.State != msg.JobState_JOB_CANCELLED {
		t.Errorf("a pending job, cancelled, is %v", j.State)
	}
	id = held()
	if j := after(id, update(id, "TimeLimit", "17")); j.TimeLimitS != 17*60 {
		t.Errorf("the time limit is %d s, 17 minutes were accepted", j.TimeLimitS)
	}
	if j := after(id, update(id, "Comment", "kept")); j.Spec.Comment != "kept" {
		t.Errorf("the comment is %q", j.Spec.Comment)
	}
	if after(id, control("release", id)); c.wait(id).State != msg.JobState_JOB_COMPLETED {
		t.Errorf("a released job does not run")
	}
	id, w := gated("cancelled")
	if after(id, cancel(id)); c.wait(id).State != msg.JobState_JOB_CANCELLED {
		t.Errorf("a running job, cancelled, is %v", c.jobs(id)[id].State)
	}
	if seen, err := readWitness(w); len(seen) != 1 || err != nil {
		t.Errorf("the cancelled job: %v, %v", seen, err)
	}
	id, w = gated("requeued")
	after(id, control("requeue", id))
	c.await("the requeued job is pending again", func() bool {
		j := c.jobs(id)[id]
		return j.State == msg.JobState_JOB_PENDING && j.StateFlags&msg.JobCompleting == 0 && j.Restarts == 1
	})
	must(t, update(id, "StartTime", timespec.FormatUnix(time.Now()))(context.Background(), c.dial()))
	second := c.line(w, 1)
	open(c, w)
	if j := c.wait(id); j.State != msg.JobState_JOB_COMPLETED || j.Attempt != 2 || second.what != "start" || second.restarts != 1 {
		t.Errorf("the requeued job is %v, attempt %d, its second line %v", j.State, j.Attempt, second)
	}
	if seen, err := readWitness(w); len(seen) != 3 || err != nil {
		t.Errorf("the requeued job: %v, %v", seen, err)
	}
	c.settled()
	c.nodesUp()
}

// outcome is the first refusal of a call.
func outcome(err error, all []*msg.JobOutcome) error {
	for _, o := range all {
		if err == nil && o.Problem != nil {
			err = o.Problem
		}
	}
	return err
}
