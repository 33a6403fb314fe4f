package reactor

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// startOn starts a job on cores of n1 as a plan would.
func (b *bench) startOn(id uint32, cores string) bool {
	b.t.Helper()
	c, err := state.ParseCores(cores)
	if err != nil {
		b.t.Fatal(err)
	}
	j := b.job(id)
	s := PlannedStart{ID: id, Spec: j.Spec, Partition: j.Partition, NodeList: "n1", LimitS: j.TimeLimitS,
		Alloc: []*pb.NodeAlloc{{Node: "n1", Cpus: uint32(c.Count()), CpuIds: cores, MemMib: 1}}}
	return b.do(ApplyPlan{Starts: []PlannedStart{s}, Reservations: b.view.Reservations()}).(Applied).Started == 1
}

func TestSharedCores(t *testing.T) {
	b := newBench(t, nil)
	b.do(UpdatePartition{Caller: root, Name: "debug", Set: []*pb.KeyValue{{Key: "OverSubscribe", Value: "YES:2"}}})
	ask := func() *pb.JobSpec { return &pb.JobSpec{Sharing: "oversubscribe"} }
	one, two, three, alone := b.submit(ask()), b.submit(ask()), b.submit(ask()), b.submit(&pb.JobSpec{})
	for _, step := range []struct {
		id    uint32
		cores string
		want  bool
	}{{one, "0-1", true}, {alone, "1", false}, {alone, "2", true}, {two, "2", false}, {two, "0-1", true}, {three, "1", false},
		{three, "3", true}} {
		if b.startOn(step.id, step.cores) != step.want {
			t.Errorf("job %d on cores %s: want %v", step.id, step.cores, step.want)
		}
	}
	if n := b.view.Node("n1"); n.AllocCpus != 4 || n.HeldCPUs != 6 {
		t.Errorf("%d CPUs allocated, %d held", n.AllocCpus, n.HeldCPUs)
	}
	b.ended(one, "n1", "exited", 0)
	if n := b.view.Node("n1"); n.AllocCpus != 4 || n.Held.By(2).Count() != 0 {
		t.Errorf("%d CPUs allocated, shared: %s", n.AllocCpus, n.Held.By(2))
	}
}

// TestSuspendedJobMakesRoom: its CPUs are another's to have, and it is back on them when it goes on.
func TestSuspendedJobMakesRoom(t *testing.T) {
	b := newBench(t, nil)
	one, two := b.submit(&pb.JobSpec{}), b.submit(&pb.JobSpec{})
	b.startOn(one, "0-3")
	b.do(Control{Caller: root, Verb: "suspend", IDs: []string{fmt.Sprint(one)}})
	if !b.startOn(two, "0-1") || b.view.Node("n1").AllocCpus != 2 {
		t.Fatalf("no room beside a suspended job: %d CPUs allocated", b.view.Node("n1").AllocCpus)
	}
	b.do(Control{Caller: root, Verb: "resume", IDs: []string{fmt.Sprint(one)}})
	if n := b.view.Node("n1"); n.AllocCpus != 4 || n.HeldCPUs != 6 {
		t.Errorf("%d CPUs allocated, %d held", n.AllocCpus, n.HeldCPUs)
	}
	b.do(Control{Caller: root, Verb: "suspend", IDs: []string{fmt.Sprint(one)}})
	b.ended(one, "n1", "cancelled", 0) // while it is suspended
	b.ended(two, "n1", "exited", 0)
	if n := b.view.Node("n1"); n.AllocCpus != 0 || n.HeldCPUs != 0 || len(n.Held) != 0 {
		t.Errorf("%d CPUs allocated, %d held", n.AllocCpus, n.HeldCPUs)
	}
}

// TestResumedJobGetsNobodysCPUs: a job that was suspended for another goes on when that one has ended and its CPUs are free; if other jobs
// have started on them meanwhile, it waits for the end of those, one after the other. No CPU is ever given to two jobs.
func TestResumedJobGetsNobodysCPUs(t *testing.T) {
	for _, c := range []struct{ low, high, third, fourth string }{
		{"0-3", "0-1", "2", "3"},
		{"", "0-1", "2", "3"}, // four CPUs without numbers
	} {
		b := newBench(t, nil)
		low, high, third, fourth := b.submit(&pb.JobSpec{}), b.submit(&pb.JobSpec{}), b.submit(&pb.JobSpec{}), b.submit(&pb.JobSpec{})
		if c.low == "" {
			j := b.job(low)
			b.do(ApplyPlan{Starts: []PlannedStart{{ID: low, Task: -1, Spec: j.Spec, Partition: "debug", NodeList: "n1", LimitS: 600,
				Alloc: []*pb.NodeAlloc{{Node: "n1", Cpus: 4, MemMib: 1}}}}, Reservations: b.view.Reservations()})
		} else {
			b.startOn(low, c.low)
		}
		b.do(ApplyPlan{Preempt: []PlannedPreempt{{ID: low, For: high, Mode: "SUSPEND"}}})
		if !b.startOn(high, c.high) || !b.startOn(third, c.third) || !b.startOn(fourth, c.fourth) {
			t.Fatal("no room beside a suspended job")
		}
		for _, id := range []uint32{high, third, fourth} {
			if got := b.state(low); got != "SUSPENDED None" {
				t.Errorf("cores %q: %s before the end of job %d", c.low, got, id)
			}
			b.ended(id, "n1", "exited", 0)
			if j := b.job(low); id == high && !strings.Contains(j.ReasonDetail, "goes on when job 3 of ") {
				t.Errorf("it says %q", j.ReasonDetail)
			}
		}
		if got, n := b.state(low), b.view.Node("n1"); got != "RUNNING None" || n.AllocCpus != 4 || n.HeldCPUs != 4 {
			t.Errorf("cores %q: %s, %d CPUs allocated, %d held", c.low, got, n.AllocCpus, n.HeldCPUs)
		}
	}
}

// TestSuspendedForArray: a job suspended for an array task resumes when that task has ended or the array is cancelled before it starts,
// even though the name of the array's record has changed.
func TestSuspendedForArray(t *testing.T) {
	for _, started := range []bool{true, false} {
		b := newBench(t, nil)
		low := b.submit(&pb.JobSpec{})
		b.startOn(low, "0-3")
		array := b.submit(&pb.JobSpec{Array: "0-3"})
		b.do(ApplyPlan{Preempt: []PlannedPreempt{{ID: low, For: array, Mode: "SUSPEND"}}})
		b.do(Cancel{Caller: root, IDs: []string{fmt.Sprintf("%d_2", array)}})
		if got := b.state(low); got != "SUSPENDED None" {
			t.Error(got)
		}
		if started {
			b.ended(b.startTask(array, 0, "n1"), "n1", "exited", 0)
		} else {
			b.do(Cancel{Caller: root, IDs: []string{fmt.Sprint(array)}})
		}
		if got := b.state(low); got != "RUNNING None" {
			t.Errorf("task started %t: %s", started, got)
		}
	}
}

// TestResumedByOperator: CPUs without numbers are never more than the node has, however many jobs an operator lets go on.
func TestResumedByOperator(t *testing.T) {
	b := newBench(t, nil)
	first := b.submit(&pb.JobSpec{})
	b.start(first, "n1")
	b.do(Control{Caller: root, Verb: "suspend", IDs: []string{fmt.Sprint(first)}})
	for range 4 {
		b.start(b.submit(&pb.JobSpec{}), "n1")
	}
	b.do(Control{Caller: root, Verb: "resume", IDs: []string{fmt.Sprint(first)}})
	if n := b.view.Node("n1"); b.state(first) != "RUNNING None" || n.AllocCpus != 4 || n.HeldCPUs != 5 {
		t.Errorf("%s: %d CPUs allocated, %d held", b.state(first), n.AllocCpus, n.HeldCPUs)
	}
	b.ended(first, "n1", "exited", 0)
	if n := b.view.Node("n1"); n.AllocCpus != 4 || n.HeldCPUs != 4 {
		t.Errorf("%d CPUs allocated, %d held", n.AllocCpus, n.HeldCPUs)
	}
}

// TestHeldWhileRunning: a hold of a running job changes nothing but its priority, and shows when it waits again.
func TestHeldWhileRunning(t *testing.T) {
	for _, by := range []struct {
		caller Caller
		reason string
	}{{root, "JobHeldAdmin"}, {alice, "JobHeldUser"}} {
		b := newBench(t, nil)
		id := b.submit(&pb.JobSpec{})
		b.start(id, "n1")
		b.do(Control{Caller: by.caller, Verb: "hold", IDs: []string{fmt.Sprint(id)}})
		if b.state(id) != "RUNNING None" || b.job(id).Priority != 0 {
			t.Error(b.state(id), b.job(id).Priority)
		}
		b.do(Control{Caller: root, Verb: "requeue", IDs: []string{fmt.Sprint(id)}})
		b.ended(id, "n1", "cancelled", 0)
		if b.state(id) != "PENDING "+by.reason || b.job(id).Priority != 0 {
			t.Error(b.state(id), b.job(id).Priority)
		}
	}
}

func TestSetOverSubscribe(t *testing.T) {
	for value, want := range map[string]string{"no": "NO", "Exclusive": "EXCLUSIVE", "yes": "YES:4", "force:2": "FORCE:2",
		"FORCE": "FORCE:4", "FORCE:": "", "YES:0": "", "YES:x": "", "maybe": "", "": ""} {
		p := &pb.PartitionRecord{Oversubscribe: "NO"}
		if problem := setPartition(p, "OverSubscribe", value); (problem == nil) != (want != "") || want != "" && p.Oversubscribe != want {
			t.Errorf("%q: %v, %s; want %q", value, problem, p.Oversubscribe, want)
		}
	}
}

// TestRandomSharing: with any plans, suspensions and ends, no core has more owners than all of them allow; bench.do runs state.Check after
// every step.
func TestRandomSharing(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := newBench(t, nil)
		var live []uint32
		started, refused := 0, 0
		for range 60 {
			id := fmt.Sprint(0)
			if len(live) > 0 {
				id = fmt.Sprint(live[r.IntN(len(live))])
			}
			switch r.IntN(8) {
			case 0:
				value := []string{"NO", "YES:2", "YES:3", "FORCE:2", "FORCE:3"}[r.IntN(5)]
				b.do(UpdatePartition{Caller: root, Name: "debug", Set: []*pb.KeyValue{{Key: "OverSubscribe", Value: value}}})
			case 1:
				b.do(Control{Caller: root, Verb: []string{"suspend", "resume"}[r.IntN(2)], IDs: []string{id}})
			case 2, 3:
				if len(live) > 0 {
					i := r.IntN(len(live))
					b.ended(live[i], "n1", "exited", 0)
					live = slices.Delete(live, i, i+1)
				}
			default:
				job := b.submit(&pb.JobSpec{Sharing: []string{"", "oversubscribe"}[r.IntN(2)]})
				if b.startOn(job, []string{"0", "1", "0-1", "1-2", "2,3", "0-3"}[r.IntN(6)]) {
					live = append(live, job)
					started++
				} else {
					refused++
				}
			}
		}
		for _, id := range live {
			b.ended(id, "n1", "exited", 0)
		}
		if n := b.view.Node("n1"); n.AllocCpus != 0 || n.HeldCPUs != 0 || len(n.Held) != 0 || started == 0 || refused == 0 {
			t.Errorf("seed %d: %d CPUs allocated, %d held after the last job; %d started, %d refused", seed, n.AllocCpus, n.HeldCPUs,
				started, refused)
		}
	}
}
