package ctld

import (
	"testing"

	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// TestOverTimeLimit: a partition's OverTimeLimit, 0 among its values, goes before that of the cluster; a launch carries it.
func TestOverTimeLimit(t *testing.T) {
	b := newConfBench(t, `OverTimeLimit=2
NodeName=n1 CPUs=4 RealMemory=100
PartitionName=main Nodes=n1 Default=YES
PartitionName=none Nodes=n1 OverTimeLimit=0
PartitionName=five Nodes=n1 OverTimeLimit=5
PartitionName=all Nodes=n1 OverTimeLimit=UNLIMITED
`)
	want := func(partition string, s uint32) {
		t.Helper()
		if got := b.loop.View().OverTime(partition); got != s {
			t.Errorf("jobs of %s may run for %d seconds too long, want %d", partition, got, s)
		}
	}
	want("main", 120)
	want("none", 0)
	want("five", 300)
	want("all", pb.Unlimited)
	root := reactor.Caller{Operator: true}
	b.turn(reactor.UpdatePartition{Caller: root, Name: "five", Set: []*pb.KeyValue{{Key: "OverTimeLimit", Value: "0"}}})
	want("five", 0)

	b.turn(reactor.NodeHello{Hello: &pb.NodeHello{Node: "n1", BootId: "b",
		Hardware: &pb.Hardware{Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 100}}})
	link := b.disp.Open("n1", nil)
	b.submit()
	b.turn(*b.plan())
	m, _ := link.Next()
	if len(m.GetSteps()) != 1 || m.Steps[0].GetLaunch().GetOverTimeS() != 120 {
		t.Errorf("the node is told %v, want a launch with 120 seconds", m)
	}
}

// TestMaxMemPerNode: a partition's limit on memory goes before that of the cluster; with EnforcePartLimits a job for more is refused, in
// Slurm's words, held or not; without it waits.
func TestMaxMemPerNode(t *testing.T) {
	for _, c := range []struct {
		partition string
		most      uint64
	}{{"main", 2000}, {"small", 1000}, {"large", 3000}, {"other", 4000}} {
		for enforce, refused := range map[string]bool{"ALL": true, "NO": false} {
			b := newConfBench(t, "EnforcePartLimits="+enforce+`
MaxMemPerNode=2000
NodeName=n1 CPUs=4 RealMemory=4000
PartitionName=main Nodes=n1
PartitionName=small Nodes=n1 MaxMemPerNode=1000
PartitionName=large Nodes=n1 MaxMemPerNode=3000
PartitionName=other Nodes=n1 MaxMemPerCPU=4000
`)
			ask := func(mib uint64, hold bool) (*pb.JobRecord, *pb.Problem) {
				return admit.Job(b.loop.View(), &pb.JobSpec{Name: "j", Uid: 1000, User: "u", NumTasks: 1, Partition: c.partition,
					MemPerNodeMib: mib, Hold: hold}, "")
			}
			if _, p := ask(c.most, false); p != nil {
				t.Errorf("%d MiB in %s: %v", c.most, c.partition, p)
			}
			if c.most == 4000 {
				continue // all there is
			}
			for _, hold := range []bool{false, true} {
				if _, p := ask(c.most+1, hold); refused && p.GetCode() != uint32(pb.CodeInvalidMemory) || !refused && p != nil {
					t.Errorf("%d MiB in %s, EnforcePartLimits=%s, held %v: %v", c.most+1, c.partition, enforce, hold, p)
				}
			}
			if refused {
				continue
			}
			b.turn(reactor.NodeHello{Hello: &pb.NodeHello{Node: "n1", BootId: "b",
				Hardware: &pb.Hardware{Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 4000}}})
			j, _ := ask(c.most+1, false)
			id := b.turn(reactor.Submit{Job: j}).(reactor.Submitted).ID
			if _, cmd := b.planner.Prepare(record.Cursor{}); cmd != nil {
				b.turn(*cmd)
			}
			if j := b.loop.View().Jobs.Get(id); j.State != pb.JobState_JOB_PENDING || j.Reason != "MaxMemPerLimit" {
				t.Errorf("%d MiB in %s: %v, %s", c.most+1, c.partition, j.State, j.Reason)
			}
		}
	}
}
