package ctld

import (
	"cmp"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// TestEnforcePartLimits: whether a job of an ordinary user is accepted, with which code it is refused, and the partitions that are kept of
// its list, are the answers of a real Slurm 22.05 with the same partitions; only where ANY meets a group or a host, slurm.conf(5) goes
// before it ("a job must satisfy any of the requested partitions"): 22.05 refuses as soon as one says no.
func TestEnforcePartLimits(t *testing.T) {
	bench := func(mode string) *confBench {
		return newConfBench(t, "EnforcePartLimits="+mode+`
NodeName=n[1-4] CPUs=4 RealMemory=4000
PartitionName=short Nodes=n1 MaxTime=10
PartitionName=wide Nodes=n[1-4] MaxTime=60 MaxNodes=2
PartitionName=mn Nodes=n[1-4] MaxTime=60 MinNodes=2
PartitionName=mem Nodes=n[1-4] MaxTime=60 MaxMemPerNode=500
PartitionName=grp Nodes=n[1-4] MaxTime=60 AllowGroups=root
PartitionName=inact Nodes=n[1-4] MaxTime=60 State=INACTIVE
PartitionName=dr Nodes=n[1-4] MaxTime=60 State=DRAIN
PartitionName=ro Nodes=n[1-4] MaxTime=60 RootOnly=YES
PartitionName=host Nodes=n[1-4] MaxTime=60 AllocNodes=elsewhere
`)
	}
	const ok = pb.Code(0)
	for _, c := range []struct {
		spec         *pb.JobSpec
		no, all, any pb.Code
		kept         string
		minutes      uint32 // the limit that is shown with ANY, where it is the partition's
	}{
		{spec: &pb.JobSpec{Partition: "short,wide", TimeLimitS: 30 * 60}, all: pb.CodeInvalidTimeLimit},
		{spec: &pb.JobSpec{Partition: "wide,short", TimeLimitS: 30 * 60}, all: pb.CodeInvalidTimeLimit},
		{spec: &pb.JobSpec{Partition: "short,wide", TimeLimitS: 90 * 60}, all: pb.CodeInvalidTimeLimit, any: pb.CodeInvalidTimeLimit},
		{spec: &pb.JobSpec{Partition: "short,wide", MinNodes: 2, MaxNodes: 2}, all: pb.CodeNodeCount, minutes: 60},
		{spec: &pb.JobSpec{Partition: "short,wide", MinNodes: 3, MaxNodes: 3}, all: pb.CodeNodeCount, any: pb.CodeNodeCount},
		{spec: &pb.JobSpec{Partition: "wide", MinNodes: 1, MaxNodes: 3}, all: pb.CodeNodeCount, any: pb.CodeNodeCount},
		{spec: &pb.JobSpec{Partition: "wide", NumTasks: 12}, all: ok, minutes: 60},
		{spec: &pb.JobSpec{Partition: "wide", NumTasks: 17}, all: pb.CodeTooManyCPUs, any: pb.CodeTooManyCPUs},
		{spec: &pb.JobSpec{Partition: "short", NumTasks: 8}, all: pb.CodeTooManyCPUs, any: pb.CodeTooManyCPUs},
		{spec: &pb.JobSpec{Partition: "mn,wide", MinNodes: 1, MaxNodes: 1}, all: pb.CodeNodeCount, minutes: 60},
		{spec: &pb.JobSpec{Partition: "mn", MinNodes: 1, MaxNodes: 1}, all: pb.CodeNodeCount, any: pb.CodeNodeCount},
		{spec: &pb.JobSpec{Partition: "mn"}},
		{spec: &pb.JobSpec{Partition: "inact,wide"}, kept: "wide"},
		{spec: &pb.JobSpec{Partition: "wide,dr"}, kept: "wide"},
		{spec: &pb.JobSpec{Partition: "dr,inact"}, no: pb.CodePartClosed, all: pb.CodePartClosed, any: pb.CodePartClosed},
		{spec: &pb.JobSpec{Partition: "mem,wide", MemPerNodeMib: 800}, all: pb.CodeInvalidMemory},
		{spec: &pb.JobSpec{Partition: "short,mem", MemPerNodeMib: 800}, all: pb.CodeInvalidMemory, minutes: 10},
		{spec: &pb.JobSpec{Partition: "mem", MemPerNodeMib: 800}, all: pb.CodeInvalidMemory, any: pb.CodeInvalidMemory},
		{spec: &pb.JobSpec{Partition: "wide,grp"}, all: pb.CodePartitionGroup},
		{spec: &pb.JobSpec{Partition: "grp"}, no: pb.CodePartitionGroup, all: pb.CodePartitionGroup, any: pb.CodePartitionGroup},
		{spec: &pb.JobSpec{Partition: "ro,wide"}, all: pb.CodeAccessDenied},
		{spec: &pb.JobSpec{Partition: "wide,host"}, all: pb.CodeAccessDenied},
		{spec: &pb.JobSpec{Partition: "ro"}, no: pb.CodeAccessDenied, all: pb.CodeAccessDenied, any: pb.CodeAccessDenied},
		{spec: &pb.JobSpec{Partition: "wide,nosuch"}, no: pb.CodeInvalidPartition, all: pb.CodeInvalidPartition,
			any: pb.CodeInvalidPartition},
	} {
		for mode, want := range map[string]pb.Code{"NO": c.no, "ALL": c.all, "ANY": c.any} {
			b := bench(mode)
			spec := state.CloneSpec(c.spec)
			spec.Name, spec.Uid, spec.Gid, spec.User, spec.AllocNode, spec.Hold = "j", 65534, 65534, "nobody", "login", true
			j, p := admit.Job(b.loop.View(), spec, "")
			if p.GetCode() != uint32(want) {
				t.Errorf("%s: -p %s -t %d -N %d-%d -n %d: %v, want code %d", mode, c.spec.Partition, c.spec.TimeLimitS/60, c.spec.MinNodes,
					c.spec.MaxNodes, c.spec.NumTasks, p, want)
			}
			if p != nil {
				continue
			}
			if kept := cmp.Or(c.kept, c.spec.Partition); spec.Partition != kept {
				t.Errorf("%s: -p %s became %s, want %s", mode, c.spec.Partition, spec.Partition, kept)
			}
			if mode == "ANY" && c.minutes != 0 && j.TimeLimitS != c.minutes*60 {
				t.Errorf("ANY: -p %s has a limit of %d minutes, want %d", c.spec.Partition, j.TimeLimitS/60, c.minutes)
			}
		}
	}
}

// TestListStartsWhereAllowed: a job that one partition of its list takes never runs in one that it is not for.
func TestListStartsWhereAllowed(t *testing.T) {
	b := newConfBench(t, `NodeName=n1 CPUs=4 RealMemory=4000
PartitionName=grp Nodes=n1 AllowGroups=root PriorityTier=9
PartitionName=ro Nodes=n1 RootOnly=YES PriorityTier=9
PartitionName=all Nodes=n1
`)
	b.turn(reactor.NodeHello{Hello: &pb.NodeHello{Node: "n1", BootId: "b",
		Hardware: &pb.Hardware{Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 4000}}})
	for uid, want := range map[uint32]string{65534: "all", 0: "grp"} {
		j, p := admit.Job(b.loop.View(), &pb.JobSpec{Name: "j", Uid: uid, Gid: uid, User: "u", Partition: "grp,ro,all",
			MemPerNodeMib: 100}, "")
		if p != nil {
			t.Fatal(p)
		}
		id := b.turn(reactor.Submit{Job: j}).(reactor.Submitted).ID
		if _, cmd := b.planner.Prepare(record.Cursor{}); cmd != nil {
			b.turn(*cmd)
		}
		if j := b.loop.View().Jobs.Get(id); j.State != pb.JobState_JOB_RUNNING || j.Partition != want {
			t.Errorf("uid %d: %v in %s, want it running in %s", uid, j.State, j.Partition, want)
		}
	}
}
