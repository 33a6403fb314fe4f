package rpc

import (
	"log/slog"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func TestCallsAreCounted(t *testing.T) {
	c := newCalls(slog.New(slog.DiscardHandler))
	waiting := c.begin("/sluice.v1.ControllerAPI/WaitJob", 1000)
	for range 3 {
		c.begin("/sluice.v1.ControllerAPI/Submit", 1000)()
	}
	c.begin("Jobs", 0)()
	name := func(uid uint32) string { return map[uint32]string{0: "root", 1000: "alice"}[uid] }
	methods, users, active := c.report(name, true)
	if len(methods) != 2 || methods[0].Name != "Submit" || methods[0].Count != 3 || methods[1].Name != "Jobs" || active != 1 {
		t.Errorf("methods %v, %d active", methods, active)
	}
	if len(users) != 2 || users[0].Name != "alice" || users[0].Count != 3 || users[1].Name != "root" {
		t.Errorf("users %v", users)
	}
	waiting() // ends after the reset, and belongs to the time after it
	if methods, _, active = c.report(name, false); len(methods) != 1 || methods[0].Name != "WaitJob" || active != 0 {
		t.Errorf("after the reset: %v, %d active", methods, active)
	}
}

func TestHiddenPartitions(t *testing.T) {
	hidden := []string{"h1", "h2"}
	for _, c := range []struct {
		state      pb.JobState
		now, asked string
		want       bool
	}{
		{pb.JobState_JOB_RUNNING, "h1", "h1,debug", true}, {pb.JobState_JOB_RUNNING, "debug", "h1,debug", false},
		{pb.JobState_JOB_PENDING, "h1", "h1,debug", false},
		{pb.JobState_JOB_PENDING, "h1", "h1,h2", true}, {pb.JobState_JOB_PENDING, "debug", "", false},
		{pb.JobState_JOB_PENDING, "h2", "h2", true},
	} {
		j := &pb.JobRecord{State: c.state, Partition: c.now, Spec: &pb.JobSpec{Partition: c.asked}}
		if got := isHidden(j, hidden); got != c.want {
			t.Errorf("%v in %s of %q: hidden = %v", c.state, c.now, c.asked, got)
		}
	}
}
