package ctld

import (
	"testing"

	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// TestTasksOfWhatItGot: a job that does not say how many tasks it has has one on each node that it was given, as a real Slurm 22.05 counts
// them.
func TestTasksOfWhatItGot(t *testing.T) {
	for _, c := range []struct {
		ask                string
		spec               *pb.JobSpec
		nodes, tasks, cpus uint32
	}{
		{"--gpus=3", &pb.JobSpec{Partition: "gpu", TresPerJob: "gres/gpu:3"}, 2, 2, 2},
		{"--gpus=4 -c2", &pb.JobSpec{Partition: "gpu", TresPerJob: "gres/gpu:4", CpusPerTask: 2}, 2, 2, 4},
		{"--gpus=4 -n3", &pb.JobSpec{Partition: "gpu", TresPerJob: "gres/gpu:4", NumTasks: 3}, 2, 3, 3},
		{"--gpus=2", &pb.JobSpec{Partition: "gpu", TresPerJob: "gres/gpu:2"}, 1, 1, 1},
		{"-N1-3", &pb.JobSpec{Partition: "cpu", MinNodes: 1, MaxNodes: 3}, 3, 3, 3},
		{"-N2-4 -c2", &pb.JobSpec{Partition: "cpu", MinNodes: 2, MaxNodes: 4, CpusPerTask: 2}, 4, 4, 8},
		{"-N2 --ntasks-per-node=2", &pb.JobSpec{Partition: "cpu", MinNodes: 2, MaxNodes: 2, NtasksPerNode: 2}, 2, 4, 4},
		{"--exclusive", &pb.JobSpec{Partition: "cpu", Sharing: "exclusive"}, 1, 1, 4},
	} {
		b := newConfBench(t, `GresTypes=gpu
NodeName=n[1-4] CPUs=4 RealMemory=4000
NodeName=g[1-2] CPUs=8 RealMemory=8000 Gres=gpu:a100:2
PartitionName=cpu Nodes=n[1-4]
PartitionName=gpu Nodes=g[1-2]
`)
		for _, n := range []string{"n1", "n2", "n3", "n4", "g1", "g2"} {
			hw := &pb.Hardware{Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 4000}
			if n[0] == 'g' {
				hw = &pb.Hardware{Cpus: 8, Sockets: 1, Cores: 8, Threads: 1, RealMemoryMib: 8000}
			}
			b.turn(reactor.NodeHello{Hello: &pb.NodeHello{Node: n, BootId: "b", Hardware: hw}})
		}
		c.spec.Name, c.spec.Uid, c.spec.User, c.spec.MemPerCpuMib = "j", 1000, "u", 100
		j, p := admit.Job(b.loop.View(), c.spec, "")
		if p != nil {
			t.Fatal(p)
		}
		id := b.turn(reactor.Submit{Job: j}).(reactor.Submitted).ID
		if _, cmd := b.planner.Prepare(record.Cursor{}); cmd != nil {
			b.turn(*cmd)
		}
		if j := b.loop.View().Jobs.Get(id); j.State != pb.JobState_JOB_RUNNING || j.NumNodes != c.nodes || j.NumTasks != c.tasks ||
			j.NumCpus != c.cpus {
			t.Errorf("%s: %v (%s), %d nodes, %d tasks, %d CPUs, want %d, %d and %d", c.ask, j.State, j.Reason, j.NumNodes, j.NumTasks,
				j.NumCpus, c.nodes, c.tasks, c.cpus)
		}
	}
}
