package reactor

import (
	"slices"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// survives reports whether a job goes on without a node that has failed (--no-kill): one that runs, on others as well, and whose batch
// script is not there.
func survives(j *pb.JobRecord, node string) bool {
	running := j.State == pb.JobState_JOB_RUNNING || j.State == pb.JobState_JOB_SUSPENDED
	return j.Spec.GetNoKill() && running && j.StopReason == "" && j.StateFlags&(pb.JobConfiguring|pb.JobPowerUp) == 0 &&
		state.HolderOn(j, node) == pb.ExternStep &&
		slices.ContainsFunc(j.Alloc, func(a *pb.NodeAlloc) bool { return a.Node != node && !a.Ended })
}

// shrink takes a node that has failed from a job, which goes on. What it has from now on is what it is shown with; the share stays in the
// record, for accounting. Its steps there end, those with --no-kill on that node alone.
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
