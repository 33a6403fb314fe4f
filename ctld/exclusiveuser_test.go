package ctld

import (
	"testing"

	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// TestExclusiveUser: a node that runs a job of a partition with ExclusiveUser belongs to that job's user. The starts and waits are those of
// a real Slurm 22.05 with the same jobs.
func TestExclusiveUser(t *testing.T) {
	b := newConfBench(t, `NodeName=n1 CPUs=4 RealMemory=4000
PartitionName=exu Nodes=n1 ExclusiveUser=YES
PartitionName=open Nodes=n1
`)
	b.turn(reactor.NodeHello{Hello: &pb.NodeHello{Node: "n1", BootId: "b",
		Hardware: &pb.Hardware{Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 4000}}})
	for _, c := range []struct {
		user, partition string
		uid             uint32
		runs            bool
	}{{"root", "exu", 0, true}, {"nobody", "exu", 65534, false}, {"nobody", "open", 65534, false}, {"root", "open", 0, true}} {
		j, p := admit.Job(b.loop.View(), &pb.JobSpec{Name: "j", Uid: c.uid, Gid: c.uid, User: c.user, Partition: c.partition,
			MemPerNodeMib: 100}, "")
		if p != nil {
			t.Fatal(p)
		}
		id := b.turn(reactor.Submit{Job: j}).(reactor.Submitted).ID
		if _, cmd := b.planner.Prepare(record.Cursor{}); cmd != nil {
			b.turn(*cmd)
		}
		if j := b.loop.View().Jobs.Get(id); (j.State == pb.JobState_JOB_RUNNING) != c.runs {
			t.Errorf("%s in %s: %v (%s), runs in Slurm: %v", c.user, c.partition, j.State, j.Reason, c.runs)
		}
	}
}
