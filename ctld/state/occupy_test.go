package state

import (
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"pgregory.net/rapid"
)

// TestHeldCountsOwners compares with a plain count for each core.
func TestHeldCountsOwners(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h Held
		var jobs []Cores
		for range rapid.IntRange(1, 20).Draw(t, "changes") {
			if len(jobs) > 0 && rapid.Bool().Draw(t, "ends") {
				i := rapid.IntRange(0, len(jobs)-1).Draw(t, "which")
				h = h.Without(jobs[i])
				jobs = append(jobs[:i], jobs[i+1:]...)
			} else {
				var c Cores
				for _, k := range rapid.SliceOfDistinct(rapid.IntRange(0, 130), rapid.ID[int]).Draw(t, "cores") {
					one, _ := ParseCores(Cores(bit(k)).String())
					c = c.With(one)
				}
				h, jobs = h.With(c), append(jobs, c)
			}
			count := map[int]int{}
			most := 0
			for _, c := range jobs {
				for k := range c.All() {
					count[k]++
					most = max(most, count[k])
				}
			}
			if len(h) < most {
				t.Fatalf("%d deep, want %d", len(h), most)
			}
			for n := 1; n <= len(h); n++ {
				for k := range 131 {
					if h.By(n).Overlaps(bit(k)) != (count[k] >= n) {
						t.Fatalf("core %d has %d owners, but By(%d) is %s", k, count[k], n, h.By(n))
					}
				}
			}
		}
	})
}

func bit(k int) Cores {
	c := make(Cores, k/64+1)
	c[k/64] = 1 << (k % 64)
	return c
}

// job is a running job with CPUs of n1.
func onNode(id uint32, cores string, cpus, shared uint32) *pb.JobRecord {
	return &pb.JobRecord{Id: id, Spec: &pb.JobSpec{}, State: pb.JobState_JOB_RUNNING, Partition: "p",
		Alloc: []*pb.NodeAlloc{{Node: "n1", Cpus: cpus, CpuIds: cores, Shared: shared}}}
}

// apply commits events.
func apply(t *testing.T, v *View, events ...Event) *View {
	t.Helper()
	tx := Begin(v, 1)
	for _, e := range events {
		tx.Emit(e)
	}
	next, _ := tx.Freeze()
	return next
}

func TestSharedCPUsCountOnce(t *testing.T) {
	v := New(testConfig(1, 4), "c", 10)
	v = apply(t, v, JobStarted{onNode(1, "0-3", 4, 2)}, JobStarted{onNode(2, "2-3", 2, 2)})
	if n := v.Node("n1"); n.AllocCpus != 4 || n.HeldCPUs != 6 || n.Held.By(2).String() != "2-3" {
		t.Errorf("%d CPUs allocated, %d held, shared: %s", n.AllocCpus, n.HeldCPUs, n.Held.By(2))
	}
	if err := v.Check(); err != nil {
		t.Error(err)
	}
	left := CloneJob(v.Jobs.Get(1))
	left.Alloc = []*pb.NodeAlloc{CloneAlloc(left.Alloc[0])}
	left.Alloc[0].Ended = true
	v = apply(t, v, JobLeftNode{left, "n1"})
	if n := v.Node("n1"); n.AllocCpus != 2 || n.Held.InUse().String() != "2-3" || len(n.Held) != 1 {
		t.Errorf("after one has ended: %d CPUs, %s", n.AllocCpus, n.Held.InUse())
	}
	v = apply(t, v, JobStarted{onNode(3, "3", 1, 1)})
	if v.Check() == nil {
		t.Error("a job that wants its CPU for itself shares one, and Check says nothing")
	}
}

// TestSuspendedJobsLeaveTheirCPUs: to others, until they go on.
func TestSuspendedJobsLeaveTheirCPUs(t *testing.T) {
	v := New(testConfig(1, 4), "c", 10)
	v = apply(t, v, JobStarted{onNode(1, "0-3", 4, 0)})
	paused := CloneJob(v.Jobs.Get(1))
	paused.State, paused.SuspendNs = pb.JobState_JOB_SUSPENDED, 1
	paused.Alloc = []*pb.NodeAlloc{CloneAlloc(paused.Alloc[0])}
	paused.Alloc[0].CpusFree = true
	v = apply(t, v, JobSuspended{Job: paused}, JobStarted{onNode(2, "0-1", 2, 0)})
	if n := v.Node("n1"); n.AllocCpus != 2 || v.Check() != nil {
		t.Errorf("%d CPUs allocated; %v", n.AllocCpus, v.Check())
	}
	back := CloneJob(paused)
	back.State = pb.JobState_JOB_RUNNING
	back.Alloc = []*pb.NodeAlloc{CloneAlloc(paused.Alloc[0])}
	back.Alloc[0].CpusFree = false
	v = apply(t, v, JobResumed{Job: back})
	if n := v.Node("n1"); n.AllocCpus != 4 || n.Held.By(2).String() != "0-1" || v.Check() != nil {
		t.Errorf("%d CPUs allocated, %s twice; %v", n.AllocCpus, n.Held.By(2), v.Check())
	}
}

func TestShares(t *testing.T) {
	ask := &pb.JobSpec{Sharing: "oversubscribe"}
	for text, want := range map[string][2]uint32{"": {1, 1}, "NO": {1, 1}, "EXCLUSIVE": {1, 1}, "YES": {1, 4}, "YES:2": {1, 2},
		"FORCE": {4, 4}, "force:3": {3, 3}, "FORCE:1": {1, 1}} {
		p := &pb.PartitionRecord{Oversubscribe: text}
		if got := [2]uint32{Shares(p, &pb.JobSpec{}), Shares(p, ask)}; got != want {
			t.Errorf("%q: %d jobs share, %d where they ask to; want %d", text, got[0], got[1], want)
		}
	}
}
