package rpc

import (
	"context"
	"maps"
	"runtime"
	"testing"

	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/ctld/turns"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// oldAccounting has attempts that the state has forgotten.
type oldAccounting struct {
	shownAccounting
	jobs   []*pb.JobRecord
	asking func() // nil: nothing
}

func (a oldAccounting) Select(_ context.Context, _ *pb.AccountingRequest, _ func() *state.View, each func([]byte) error) error {
	if a.asking != nil {
		a.asking()
	}
	for _, j := range a.jobs {
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

// TestEndsOfForgottenJobs: of a job its last attempt counts, of an array all tasks, of a task that was cancelled with others their record.
func TestEndsOfForgottenJobs(t *testing.T) {
	s := serve(t)
	const good, bad = pb.JobState_JOB_COMPLETED, pb.JobState_JOB_FAILED
	s.local.service.Acct = oldAccounting{jobs: []*pb.JobRecord{
		{Id: 1, State: bad}, {Id: 1, State: good}, {Id: 2, State: good, ExitStatus: 256},
		{Id: 10, ArrayJobId: 10, State: good, IsArrayTask: true, ArrayTaskId: 7},
		{Id: 11, ArrayJobId: 10, State: bad, IsArrayTask: true, ArrayTaskId: 5},
		{Id: 12, ArrayJobId: 10, State: pb.JobState_JOB_CANCELLED, ArrayTasks: "0-3"},
		{Id: 20, ArrayJobId: 20, State: good, IsArrayTask: true, ArrayTaskId: 1},
		{Id: 21, ArrayJobId: 20, State: good, IsArrayTask: true, ArrayTaskId: 2},
	}}
	v := *s.loop.View()
	v.NextJobID = 100
	task := func(job, task uint32) jobid.Condition { return jobid.Condition{Job: job, Task: task, HasTask: true} }
	want := reactor.Ends{{Job: 1}: true, {Job: 2}: false, {Job: 10}: false, {Job: 20}: true, task(10, 7): true, task(10, 5): false,
		task(10, 2): false, {Job: 11}: false}
	got := s.local.service.ends(t.Context(), &v, "afterok:1:2:3,afternotok:10,aftercorr:20,afterany:21,after:21", "",
		"afterok:10_7?afterok:10_5?afterok:10_2?afterok:11?afterok:200?singleton")
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := s.local.service.ends(t.Context(), &v, "afterany:1,singleton"); got != nil {
		t.Errorf("accounting is asked for what nobody wants to know: %v", got)
	}
}

// TestEndsTakeTurnsOfAccounting: a submission that asks accounting gives up its place meanwhile and takes one at accounting, where a user
// can have half of the places.
func TestEndsTakeTurnsOfAccounting(t *testing.T) {
	s := serve(t)
	mine := s.local.turnFor(&Peer{UID: 7, owner: 7}, "Submit")
	if err := mine.Take(t.Context()); err != nil {
		t.Fatal(err)
	}
	most := max(runtime.GOMAXPROCS(0), 2) / 2
	free := func() (n int) { // places that the user could have at accounting
		over, cancel := context.WithCancel(t.Context())
		cancel() // Take must not wait for a place
		for range most {
			if other := s.local.gates.Selection(7); other.Take(over) == nil {
				n++
				defer other.Give()
			}
		}
		return n
	}
	asked := false
	s.local.service.Acct = oldAccounting{asking: func() {
		asked = true
		if n := free(); mine.Held() || n != most-1 {
			t.Errorf("its place among reads: %t; %d of %d places at accounting are free", mine.Held(), n, most)
		}
	}}
	v := *s.loop.View()
	v.NextJobID = 100
	s.local.service.ends(turns.With(t.Context(), mine), &v, "afterok:1")
	if n := free(); !asked || n != most {
		t.Errorf("asked: %t; %d of %d places are free", asked, n, most)
	}
}
