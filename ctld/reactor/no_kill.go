package reactor

import (
	"slices"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// survives reports whether a job continues without a failed node (--no-kill): it must be running, on other nodes too, and its batch script
// must not be on that node.
func survives(j *pb.JobRecord, node string) bool {
	running := j.State == pb.JobState_JOB_RUNNING || j.State == pb.JobState_JOB_SUSPENDED
	return j.Spec.GetNoKill() && running && j.StopReason == "" && j.StateFlags&(pb.JobConfiguring|pb.JobPowerUp) == 0 &&
		state.HolderOn(j, node) == pb.ExternStep &&
		slices.ContainsFunc(j.Alloc, func(a *pb.NodeAlloc) bool { return a.Node != node && !a.Ended })
}

// shrink removes a failed node from a job, which continues. The job is displayed with its remaining resources; the share stays in the
// record for accounting. Its steps on that node end, those with --no-kill on that node only.
func shrink(tx *state.Tx, j *pb.JobRecord, node, why string) {
	n := state.CloneJob(j)
	n.FailedNode = node
	n.Alloc = slices.Clone(j.Alloc)
	var names []string
	var held []tres.Gres
	var mem uint64
	n.NumCpus = 0
	for i, a := range n.Alloc {
		if a.Node == node {
			n.Alloc[i] = state.CloneAlloc(a)
			n.Alloc[i].Ended = true
		}
		if n.Alloc[i].Ended {
			continue
		}
		names, held = append(names, a.Node), appendHeld(held, a.Devices)
		n.NumCpus, mem = n.NumCpus+a.Cpus, mem+a.MemMib
	}
	if n.BatchHost == node {
		n.BatchHost = names[0]
	}
	slices.Sort(names)
	n.NodeList, n.NumNodes = hostlist.FoldSorted(names), uint32(len(names))
	n.AllocTres = admit.TRES(n.NumCpus, mem, n.NumNodes) + admit.GresTRES(tx.Settings(), held)
	x := &pb.ExitRecord{Verdict: pb.VerdictLost, Detail: why, EndNs: tx.NowNS, StoppedOnOrder: true}
	n.DerivedStatus = max(n.DerivedStatus, stepsGone(tx, n, node, x))
	charge(n, node, x)
	tx.Emit(state.JobLeftNode{Job: n, Node: node})
}
