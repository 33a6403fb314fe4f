package planner

import (
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/explain"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// TestExplainWaiting: a job that does not wait for resources is told what it waits for, how far that has got, and what would help.
func TestExplainWaiting(t *testing.T) {
	b := newBench(t)
	b.submit(&pb.JobSpec{Array: "0-9%2"})
	running := b.apply()
	b.submit(&pb.JobSpec{Dependency: "afterok:1"})
	b.submit(&pb.JobSpec{Dependency: "afterany:1_9"})
	b.submit(&pb.JobSpec{Dependency: "singleton", Name: "one"})
	b.submit(&pb.JobSpec{Hold: true, BeginNs: b.now + 3600e9})
	v := b.loop.View()
	advisor := NewAdvisor(record.Params{Weights: record.Weights{Basic: true}})
	said := map[uint32]string{}
	var last uint32
	for j := range v.Jobs.All() {
		if j.State == pb.JobState_JOB_PENDING {
			said[j.Id], last = explain.Waiting(v, j, advisor.Why), j.Id
		}
	}
	array := uint32(1)
	if _, pending := said[array]; !pending {
		t.Fatalf("running: %v, pending: %v", running, said)
	}
	for id, want := range map[uint32]string{
		array: "reason: JobArrayTaskLimit\n2 tasks of array 1 run, of at most 2 at a time; " +
			"scontrol update JobId=1 ArrayTaskThrottle=N sets another limit\n",
		last - 3: "reason: Dependency\nwaits for afterok:1_*(unfulfilled)\n  array 1: 10 of 10 tasks have not ended (8 PENDING, 2 RUNNING)\n",
		last - 2: "  job 1_9 is PENDING\n",
		last - 1: "  it starts when no other job of u named job is left\n",
		last:     "held; to release it: scontrol release 7\nbegins no earlier than 1970-01-01T01:16:40Z\n",
	} {
		if !strings.Contains(said[id], want) {
			t.Errorf("of job %d:\n%s\nwant:\n%s", id, said[id], want)
		}
	}
}
