package reactor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// A node that is declared DOWN gives up its jobs, and may be alive all the same: cut off, or set DOWN by hand. What it still runs are
// strays. They are named in its record until the node has said of each that it is gone, or has been rebooted, and nothing new starts
// on it before: it would share CPUs, memory and devices with them. The dispatcher orders them killed, and the node answers such an
// order even for what it does not have (agent.Reconcile).

// withStrays are a node's strays with what it may still run of its jobs.
func withStrays(tx *state.Tx, n *state.Node) []*pb.StepKey {
	out := slices.Clone(n.Strays)
	for _, id := range n.Jobs {
		j := tx.Job(id)
		if j == nil || state.AllocOn(j, n.Name) == nil || j.StateFlags&pb.JobPowerUp != 0 {
			continue
		}
		out = append(out, &pb.StepKey{JobId: j.Id, Attempt: j.Attempt, Epoch: j.Epoch, Step: state.HolderOn(j, n.Name)})
		for _, s := range tx.Steps(id).Live() {
			if state.StepOn(s, n.Name) != nil {
				out = append(out, &pb.StepKey{JobId: j.Id, Attempt: j.Attempt, Epoch: j.Epoch, Step: s.StepId})
			}
		}
	}
	return out
}

// strangers makes strays of what a node runs and a restored state does not know: attempts that were started in the time that the restore
// took back. They are lost; the log names them all.
func strangers(tx *state.Tx, node string, steps []*pb.StepReport) {
	n := change(tx.Node(node))
	var lost []string
	for _, r := range steps {
		k := r.GetKey()
		j := tx.Job(k.GetJobId())
		known := j != nil && j.Attempt == k.GetAttempt() && (j.Epoch == k.Epoch || k.Epoch == 0)
		listed := slices.ContainsFunc(n.Strays, func(s *pb.StepKey) bool { return proto.Equal(s, k) })
		if known || listed || !tx.View().FromBackup(k.GetEpoch()) {
			continue
		}
		if !state.Numbered(k.Step) {
			lost = append(lost, fmt.Sprintf("%d.%d", k.JobId, k.Attempt))
			if j != nil && state.Active(j) {
				noteLost(tx, j, node, k)
			}
		}
		if r.Phase != pb.StepPhase_STEP_ENDED {
			n.Strays = append(slices.Clip(n.Strays), k)
		}
	}
	if len(lost) > 0 {
		tx.Emit(state.NodeChanged{Node: n, Durable: true, What: state.WhatLost, Lost: lost})
	}
}

// noteLost leaves with a job that there was an attempt of it, once: sacct shows it.
func noteLost(tx *state.Tx, j *pb.JobRecord, node string, k *pb.StepKey) {
	text := fmt.Sprintf("attempt %d, on %s, was lost when the controller's state was restored from a backup", k.Attempt, node)
	if strings.Contains(j.SystemComment, text) {
		return
	}
	n := state.CloneJob(j)
	n.SystemComment = joinText(n.SystemComment, text)
	tx.Emit(state.JobChanged{Job: n, What: "lost an attempt"})
}

// straysGone takes off the list what the node reports as ended. A report with epoch 0 is of what the node can no longer read.
func straysGone(tx *state.Tx, node string, steps []*pb.StepReport) {
	old := tx.Node(node)
	if old == nil || len(old.Strays) == 0 {
		return
	}
	left := slices.DeleteFunc(slices.Clone(old.Strays), func(k *pb.StepKey) bool {
		return slices.ContainsFunc(steps, func(r *pb.StepReport) bool {
			return r.Phase == pb.StepPhase_STEP_ENDED && r.Key.GetJobId() == k.JobId && r.Key.Attempt == k.Attempt &&
				r.Key.Step == k.Step &&
				(r.Key.Epoch == k.Epoch || r.Key.Epoch == 0)
		})
	})
	if len(left) == len(old.Strays) {
		return
	}
	n := change(old)
	n.Strays = left
	tx.Emit(state.NodeChanged{Node: n, What: "strays gone", Durable: true})
	awake(tx, node)
}
