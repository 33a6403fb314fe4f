package planner

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/conf/accounts"
	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// accruing says of each job whether its age counts: A, or - .
func (b *bench) accruing() string {
	b.do(reactor.Tick{})
	var out []string
	for j := range b.loop.View().Jobs.All() {
		counts := j.Priority != 0 && record.AgesFrom(pendingJob(b.loop.View(), j, nil)) <= b.now/1e9
		if counts != (j.AccrueNs != 0) && b.loop.View().Policy().Accrues() {
			b.t.Errorf("job %d: AccrueTime %d, and its age counts: %t", j.Id, j.AccrueNs, counts)
		}
		out = append(out, map[bool]string{true: "A", false: "-"}[counts])
	}
	if err := b.loop.View().Check(); err != nil {
		b.t.Fatal(err)
	}
	return strings.Join(out, " ")
}

// TestAccrueLimits: whose age counts while none can start. The answers are those of a Slurm 22.05 (AccrueTime in squeue).
func TestAccrueLimits(t *testing.T) {
	for _, tt := range []struct{ limits, jobs, want string }{
		{"user u1@lab MaxJobsAccrue 2", "u1@lab,u1@lab,u1@lab,u2@lab,u1@group", "A A - A A"},
		{"account lab MaxJobsAccrue 1", "u1@lab,u1@lab,u2@lab,u1@group", "A - A A"},
		{"account group MaxJobsAccrue 1", "u1@lab,u1@lab,u2@lab,u1@group,u1@group", "A - A A -"},
		{"account lab MaxJobsAccrue 0", "u1@lab,u2@lab", "- -"},
		{"account lab GrpJobsAccrue 2", "u1@lab,u2@lab,u1@lab,u1@group", "A A - A"},
		{"account group GrpJobsAccrue 2", "u1@lab,u2@lab,u1@lab,u1@group,u1@group,u2@group", "A A - - - -"},
		{"user u1@lab GrpJobsAccrue 1", "u1@lab,u1@lab,u2@lab", "A - A"},
		{"qos high MaxJobsAccruePerUser 1", "high u1@lab,high u1@lab,high u1@group,high u2@lab,u1@lab", "A - - A A"},
		{"qos high MaxJobsAccruePerAccount 1", "high u1@lab,high u2@lab,high u1@group,u1@lab", "A - A A"},
		{"qos high GrpJobsAccrue 1", "high u1@lab,high u2@group,u1@lab", "A - A"},
		{"qos high MaxJobsAccruePerUser 2,account lab MaxJobsAccrue 1", "high u1@lab,high u1@lab,high u1@lab,u1@lab", "A A - -"},
		{"qos high GrpJobsAccrue 2,account lab GrpJobsAccrue 1", "high u1@lab,high u1@lab,high u1@lab,u1@lab", "A A - -"},
		{"qos high MaxJobsAccruePerAccount 2,account lab GrpJobsAccrue 1", "high u1@lab,high u1@lab,high u1@lab,u1@lab", "A A - -"},
	} {
		b := limitBench(t)
		b.limits(strings.Split(tt.limits, ",")...)
		for job := range strings.SplitSeq(tt.jobs, ",") {
			qos, who, own := strings.Cut(job, " ")
			if !own {
				qos, who = "normal", job
			}
			user, account, _ := strings.Cut(who, "@")
			b.send(user, account, qos, &pb.JobSpec{})
		}
		if got := b.accruing(); got != tt.want {
			t.Errorf("%s; %s: %s, want %s", tt.limits, tt.jobs, got, tt.want)
		}
	}
}

// TestAccrueSlots: a slot that becomes free goes to the job with the lowest id. A held job loses its slot and the time that has counted; a
// lower limit takes neither.
func TestAccrueSlots(t *testing.T) {
	b := limitBench(t)
	b.limits("account lab MaxJobsAccrue 2")
	b.send("u1", "lab", "normal", &pb.JobSpec{Hold: true})
	b.send("u1", "lab", "normal", &pb.JobSpec{BeginNs: b.now + 60e9})
	for range 4 {
		b.send("u1", "lab", "normal", &pb.JobSpec{})
	}
	root := reactor.Caller{Operator: true}
	step := func(what, want string) {
		t.Helper()
		b.now += 1e9
		if got := b.accruing(); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	step("at first", "- - A A - -")
	b.do(reactor.Control{Caller: root, IDs: []string{"3"}, Verb: "hold"})
	step("one is held", "- - - A A -")
	b.do(reactor.Control{Caller: root, IDs: []string{"3"}, Verb: "release"})
	step("it is released", "- - - A A -")
	set := func(id, key, value string) {
		out, _ := b.do(reactor.UpdateJob{Caller: root, IDs: []string{id}, Set: []*pb.KeyValue{{Key: key, Value: value}}}).(*pb.Problem)
		if out != nil {
			t.Fatal(out)
		}
	}
	at := func(seconds int64) string { return timespec.FormatUnix(time.Unix(0, b.now+seconds*1e9)) }
	set("6", "ResetAccrueTime", "")
	step("one without asks for it", "- - - A A -")
	set("4", "StartTime", at(60))
	step("one is put off", "- - A - A -")
	set("4", "StartTime", at(0))
	step("it is not any more", "- - A - A -")
	b.do(reactor.Control{Caller: root, IDs: []string{"3"}, Verb: "hold"})
	step("another one is held", "- - - A A -")
	set("4", "Dependency", "afterany:1")
	set("4", "StartTime", at(0))
	step("one has to wait for another job, whenever it may begin", "- - - - A A")
	b.do(reactor.Control{Caller: root, IDs: []string{"6"}, Verb: "hold"})
	set("4", "Dependency", "")
	step("it has not any more", "- - - A A -")
	b.do(reactor.Control{Caller: root, IDs: []string{"6"}, Verb: "release"})
	b.do(reactor.Control{Caller: root, IDs: []string{"3"}, Verb: "release"})
	first := b.loop.View().Jobs.Get(4).AccrueNs
	b.limits("account lab MaxJobsAccrue 1")
	step("the limit is lower", "- - - A A -")
	b.limits("account lab MaxJobsAccrue 3")
	step("the limit is higher", "- - A A A -")
	b.now += 60e9
	b.limits("account lab MaxJobsAccrue 4")
	step("one may begin", "- A A A A -")
	if j := b.loop.View().Jobs.Get(4); j.AccrueNs != first {
		t.Errorf("job 4 began anew")
	}
	b.limits(fmt.Sprint("account lab MaxJobsAccrue ", uint64(accounts.None)))
	step("no limit", "- A A A A A")
}

// TestAccrueArray: as many tasks as there is room for get a record of their own; an array for which there is room stays one.
func TestAccrueArray(t *testing.T) {
	b := limitBench(t)
	b.limits("account lab MaxJobsAccrue 3")
	b.send("u1", "lab", "normal", &pb.JobSpec{Array: "1-5"})
	b.send("u1", "lab", "normal", &pb.JobSpec{})
	b.send("u2", "lab", "normal", &pb.JobSpec{Array: "1-3"})
	b.send("u2", "lab", "normal", &pb.JobSpec{})
	b.do(reactor.Tick{})
	b.do(reactor.Tick{})
	got := ""
	for j := range b.loop.View().Jobs.All() {
		got += fmt.Sprintf("%s %t, ", state.JobName(j), j.AccrueNs != 0)
	}
	if want := "1_[4-5] false, 2 false, 3_[1-3] true, 4 false, 1_[1-3] true, "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestAgeOutlivesHold: as with Slurm 22.05, a job that is held and released is as old as before where nothing limits that; scontrol update
// ResetAccrueTime makes it young.
func TestAgeOutlivesHold(t *testing.T) {
	b := limitBench(t)
	b.send("u1", "lab", "normal", &pb.JobSpec{})
	from := func() int64 {
		return record.AgesFrom(pendingJob(b.loop.View(), b.loop.View().Jobs.Get(1), nil))
	}
	was := from()
	root := reactor.Caller{Operator: true}
	b.do(reactor.Control{Caller: root, IDs: []string{"1"}, Verb: "hold"})
	b.now += 60e9
	b.do(reactor.Control{Caller: root, IDs: []string{"1"}, Verb: "release"})
	if from() != was {
		t.Errorf("its age begins at %d, want %d", from(), was)
	}
	b.do(reactor.UpdateJob{Caller: root, IDs: []string{"1"}, Set: []*pb.KeyValue{{Key: "ResetAccrueTime"}}})
	if from() != b.now/1e9 {
		t.Errorf("reset, its age begins at %d, want %d", from(), b.now/1e9)
	}
}
