package fairshare

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/acct"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// emit is a command that makes one event.
type emit struct{ state.Event }

func (c emit) Handle(tx *state.Tx) any { tx.Emit(c.Event); return nil }

// budgeted is a cluster with a budget of an account and one of a QOS that does not fade, and a job that runs on two CPUs since 900.
func budgeted(t *testing.T) *cluster {
	c := newCluster(t)
	c.add(&pb.ChangePolicyRequest{Names: []string{"lab"},
		Set: []*pb.PolicySetting{{Name: "GrpTRESMins", Values: []*pb.PolicyValue{{Name: "GrpTRESMins", Tres: "cpu", Value: 100}}}}})
	c.add(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"course"}, Set: []*pb.PolicySetting{
		{Name: "GrpWall", Values: []*pb.PolicyValue{{Name: "GrpWall", Value: 600}}}, {Name: "Flags", Words: []string{"NoDecay"}}}})
	c.add(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_USER, Names: []string{"ann"}, Accounts: []string{"lab"}})
	c.submit("ann", "lab")
	c.do(emit{state.JobStarted{Job: &pb.JobRecord{Id: 1, Attempt: 1, State: pb.JobState_JOB_RUNNING, StartNs: 900e9, EndNs: 1500e9,
		TimeLimitS: 600, AllocTres: "cpu=2,mem=100M,node=1,billing=2", Partition: "p", Alloc: []*pb.NodeAlloc{{Node: "n", Cpus: 2}},
		Spec: &pb.JobSpec{Name: "j", User: "ann", Uid: 1000, Account: "lab", Qos: "course"}}}})
	return c
}

// usage is the usage that accounting has at second 1000, including the running job.
func usage(_ context.Context, _ func() *state.View, fades bool) ([]*acct.Share, int64, error) {
	share := &acct.Share{Account: "lab", User: "ann", Partition: "p", QOS: "course", Used: acct.Sums{"cpu": 700, acct.Wall: 500}}
	if !fades {
		share.Used = acct.Sums{"cpu": 1400, acct.Wall: 1000}
	}
	return []*acct.Share{share}, 1000e9, nil
}

// TestPast: usage from accounting plus the usage counted since gives the total at any moment, also after the job has ended.
func TestPast(t *testing.T) {
	c := budgeted(t)
	k := New(Keeper{View: c.loop.View, Log: slog.New(slog.DiscardHandler), Usage: usage,
		Settings: func() (bool, time.Duration) { return false, time.Hour },
		Set:      func([]record.Share) { t.Error("fair share has no weight") },
		SetPast:  func(_ context.Context, p *state.Past) error { c.do(reactor.PastRead{Past: p}); return nil }})
	lab, course := c.loop.View().Policy().Assoc("", "lab", "").Id, c.loop.View().Policy().QOS("course").Id
	if _, known := c.loop.View().AssocSpent(lab, "cpu", 1000); known {
		t.Fatal("known before accounting was read")
	}
	if !k.wanted(c.loop.View(), false, false) {
		t.Fatal("not wanted")
	}
	if err := k.read(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if k.wanted(c.loop.View(), false, false) {
		t.Error("wanted again")
	}
	check := func(nowS, cpu, wall int64) {
		t.Helper()
		v := c.loop.View()
		got, known := v.AssocSpent(lab, "cpu", nowS)
		root, _ := v.AssocSpent(1, "cpu", nowS)
		lasting, _ := v.QOSSpent(course, state.WallTime, nowS)
		if !known || got != cpu || root != cpu || lasting != wall {
			t.Errorf("at %d: %d cpu seconds, %d of root, %d seconds of the QOS; want %d, %d", nowS, got, root, lasting, cpu, wall)
		}
		if err := v.Check(); err != nil {
			t.Error(err)
		}
	}
	check(1000, 700, 1000)
	check(1010, 720, 1010)
	end := state.CloneJob(c.loop.View().Jobs.Get(1))
	end.StopReason, end.EndNs, end.StateFlags = "done", 1020e9, pb.JobCompleting
	c.do(emit{state.JobChanged{Job: end}})
	check(1100, 740, 1020)
	// It is to be requeued, and accounting counts it until its node is done with it.
	late := []*acct.Share{{Account: "lab", User: "ann", Partition: "p", QOS: "course", Used: acct.Sums{"cpu": 900, acct.Wall: 600}}}
	if got := Past(c.loop.View(), late, 1100e9, true).Assoc[lab]["cpu"] + c.loop.View().AssocTime(lab).Total("cpu", 1100); got != 740 {
		t.Errorf("with a node that is not done, %d cpu seconds are counted, not 740", got)
	}
	end = state.CloneJob(end)
	end.State, end.StateFlags, end.Alloc = pb.JobState_JOB_COMPLETED, 0, []*pb.NodeAlloc{{Node: "n", Cpus: 2, Ended: true}}
	c.do(emit{state.JobLeftNode{Job: end, Node: "n"}})
	c.do(emit{state.JobEnded{Job: end}})
	check(1200, 740, 1020)
	// A user who leaves the account does not give its budget back.
	p := Past(c.loop.View(), []*acct.Share{{Account: "lab", User: "gone", QOS: "course", Used: acct.Sums{"cpu": 50}}}, 1200e9, true)
	if got := p.Assoc[lab]["cpu"]; got != 50-c.loop.View().AssocTime(lab).Total("cpu", 1200) {
		t.Errorf("what a user without an association has used counts as %d", got)
	}
	c.add(&pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_MODIFY, Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"course"},
		Set: []*pb.PolicySetting{{Name: "UsageFactor", Values: []*pb.PolicyValue{{Name: "UsageFactor", Value: 500000}}}}})
	if _, known := c.loop.View().AssocSpent(lab, "cpu", 1200); known {
		t.Error("what was used is known after a change of its factor")
	}
	if err := k.read(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	check(1200, 350, 500)                                    // usage knows nothing of the end yet
	c.add(&pb.ChangePolicyRequest{Names: []string{"other"}}) // another tree: it is counted anew
	if _, known := c.loop.View().AssocSpent(lab, "cpu", 1200); known || !k.wanted(c.loop.View(), false, false) {
		t.Error("what was used is known of a tree that has changed")
	}
}
