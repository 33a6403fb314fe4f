package reactor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// A restore of a backup takes the state back in time. Attempts that were started in the time that is taken back are lost. Nodes report
// them: those that still exist with their hello, and, asked once, those that have ended. Existing ones are killed. The job of a lost
// attempt, if the state knows it, waits for all nodes; then it gets the end of its last attempt, or is requeued.

// NodeHistory: a node has reported which attempts have ended there in the time that a restore has taken back. Together with its hello, the
// report is complete.
type NodeHistory struct {
	Node    string
	History *pb.NodeHistory
}

// Handle notes it. A report on an earlier restore answers nothing. A node that does not remember all of that time has not answered: an
// administrator decides (setState).
func (c NodeHistory) Handle(tx *state.Tx) any {
	old := tx.Node(c.Node)
	if old == nil || c.History.Restored != tx.View().Restored {
		return nil
	}
	strangers(tx, c.Node, c.History.Ended)
	n := change(tx.Node(c.Node))
	after, asked := tx.View().Untold(n)
	switch {
	case c.History.More || !asked:
		return nil
	case c.History.LostUpTo > after:
		n.UntoldNs = max(1, min(tx.NowNS, c.History.LostUntilNs-n.ClockOffNs))
		if n.UntoldNs != old.UntoldNs {
			tx.Emit(state.NodeChanged{Node: n, What: state.WhatForgot, Durable: true})
		}
		return nil
	}
	n.ToldSeq, n.UntoldNs = c.History.Restored, 0
	tx.Emit(state.NodeChanged{Node: n, What: state.WhatTold, Durable: true})
	return nil
}

// strangers notes the attempts of a node that a restored state does not know. Running ones become strays. The log names all.
func strangers(tx *state.Tx, node string, steps []*pb.StepReport) {
	if tx.View().Restored == 0 || tx.Node(node) == nil {
		return
	}
	n := change(tx.Node(node))
	var lost []string
	for _, r := range steps {
		k := r.GetKey()
		j := tx.Job(k.GetJobId())
		known := j != nil && j.Attempt == k.GetAttempt() && (j.Epoch == k.Epoch || k.Epoch == 0)
		listed := slices.ContainsFunc(n.Strays, func(s *pb.StepKey) bool { return proto.Equal(s, k) })
		ended := r.Phase == pb.StepPhase_STEP_ENDED
		if known || !tx.View().TakenBack(k.GetEpoch()) || listed && !ended {
			continue
		}
		if !state.Numbered(k.Step) {
			takeLost(tx, node, r)
			if !listed {
				lost = append(lost, fmt.Sprintf("%d.%d", k.JobId, k.Attempt))
			}
		}
		if !ended {
			n.Strays = append(slices.Clip(n.Strays), k)
		}
	}
	if len(lost) > 0 {
		tx.Emit(state.NodeChanged{Node: n, Durable: true, What: state.WhatLost, Lost: lost})
	}
}

// takeLost notes the last lost attempt of a job in its record. Where there is no such job, accounting stores the node's report.
func takeLost(tx *state.Tx, node string, r *pb.StepReport) {
	j := lostJob(tx, r)
	if j == nil && tx.Job(r.Key.JobId) == nil && r.Job != nil {
		tx.Emit(state.AttemptLost{Job: lostRecord(tx, node, r), Node: node})
	}
	if j == nil || !state.Active(j) || r.Key.Epoch <= max(j.Epoch, j.MadeSeq) { // from another job that had its id
		return
	}
	l := withLost(j.Lost, lostAttempt(tx, node, r))
	if l == nil {
		return
	}
	n := state.CloneJob(j)
	n.Lost = l
	if was := lostText(j.Lost); j.Lost != nil && strings.Contains(n.SystemComment, was) && l.Key.Epoch == j.Lost.Key.Epoch {
		n.SystemComment = strings.Replace(n.SystemComment, was, lostText(l), 1)
	} else {
		n.SystemComment = joinText(n.SystemComment, lostText(l))
	}
	tx.Emit(state.JobChanged{Job: n, What: "lost an attempt"})
}

// lostAttempt converts a node's report on an attempt.
func lostAttempt(tx *state.Tx, node string, r *pb.StepReport) *pb.LostAttempt {
	l := &pb.LostAttempt{Key: r.Key, Nodes: []string{node}, StartNs: r.StartNs}
	if r.Phase == pb.StepPhase_STEP_ENDED && r.Exit != nil {
		x := ownTime(tx, node, r.EndedAgoNs, boundExit(r.Exit))
		l.Verdict, l.WaitStatus, l.Detail, l.StopReason = x.Verdict, x.WaitStatus, x.Detail, x.StopReason
		l.StartNs, l.EndNs = x.StartNs, x.EndNs
	}
	return l
}

// lostRecord makes the record of a job that the state does not know from a node's report. A running attempt is killed, so it ends now.
func lostRecord(tx *state.Tx, node string, r *pb.StepReport) *pb.JobRecord {
	o := proto.CloneOf(r.Job)
	PlainWords(o)
	l := lostAttempt(tx, node, r)
	j := &pb.JobRecord{Id: r.Key.JobId, Attempt: r.Key.Attempt, Epoch: r.Key.Epoch, Restarts: o.Restarts, Lost: l,
		Spec: &pb.JobSpec{Uid: o.Uid, Gid: o.Gid, User: o.User, Name: o.Name, Account: o.Account, Qos: o.Qos, Interactive: o.Interactive,
			Partition: o.Partition, Requeue: pb.Yes},
		Partition: o.Partition, NodeList: o.NodeList, NumCpus: o.NumCpus, ArrayJobId: o.ArrayJobId, ArrayTaskId: o.ArrayTaskId,
		IsArrayTask: o.ArrayJobId != 0, SystemComment: "the controller's state was restored from a backup without this job: its nodes " +
			"reported this record"}
	if n, err := hostlist.Count(j.NodeList); err == nil {
		j.NumNodes = uint32(n)
	}
	x := runLost(tx, j)
	j.SubmitNs, j.EligibleNs = j.StartNs, j.StartNs
	v := judge(tx, j, x)
	j.StopReason, j.ExitStatus, j.Reason, j.ReasonDetail = v.stop, v.status, v.reason, x.Detail
	if v.state == pb.JobState_JOB_PENDING {
		return state.EndedAttempt(j, v.stop, tx.NowNS)
	}
	j.State = v.state
	return j
}

func lostText(l *pb.LostAttempt) string {
	return fmt.Sprintf("attempt %d, on %s, was lost when the controller's state was restored from a backup", l.GetKey().GetAttempt(),
		hostlist.FoldSorted(l.GetNodes()))
}

// lostJob finds the job of a lost attempt, nil where the restored state does not know it. Tasks of arrays may have had records of their
// own, with ids that other records may have now.
func lostJob(tx *state.Tx, r *pb.StepReport) *pb.JobRecord {
	j := tx.Job(r.Key.JobId)
	if o := r.GetJob(); o.GetArrayJobId() != 0 {
		j = tx.Job(tx.TaskRecord(o.ArrayJobId, o.ArrayTaskId))
		if j != nil && j.ArrayTasks != "" && tx.View().FromBackup(j.MadeSeq) {
			return ownTask(tx, j, o.ArrayTaskId)
		}
	}
	if j == nil || j.ArrayTasks != "" || !tx.View().FromBackup(j.MadeSeq) {
		return nil
	}
	return j
}

// withLost merges a node's report l into the known facts about a job's last attempt; nil: l adds nothing.
func withLost(known, l *pb.LostAttempt) *pb.LostAttempt {
	if known == nil || l.Key.Epoch > known.Key.Epoch {
		return l
	}
	node := l.Nodes[0]
	heard := slices.Contains(known.Nodes, node)
	switch more := state.SaysMore(l, known); {
	case l.Key.Epoch < known.Key.Epoch, heard && !more:
		return nil
	case more:
		l.Nodes = append(l.Nodes, slices.DeleteFunc(slices.Clone(known.Nodes), func(n string) bool { return n == node })...)
		return l
	}
	n := proto.CloneOf(known)
	n.Nodes = append(n.Nodes, node)
	return n
}

// recallLost judges the jobs that have lost an attempt, once all nodes have answered and nothing is left of it.
func recallLost(tx *state.Tx) {
	ids := tx.LostAttempts()
	if len(ids) == 0 || len(tx.View().Awaited()) > 0 {
		return
	}
	left := map[uint32]bool{}
	for _, n := range tx.Nodes() {
		for _, k := range n.Strays {
			left[k.JobId] = left[k.JobId] || n.State != pb.NodeState_NODE_DOWN
		}
	}
	for _, id := range ids {
		if j := tx.Job(id); state.Pending(j) && !left[j.Lost.Key.JobId] {
			recall(tx, j)
		}
	}
}

// recall gives a waiting job the outcome of its last attempt.
func recall(tx *state.Tx, j *pb.JobRecord) {
	n := state.CloneJob(j)
	n.Attempt, n.Epoch, n.StateFlags = max(j.Lost.Key.Attempt, j.Attempt+1), j.Lost.Key.Epoch, 0
	n.NodeList, n.NumNodes = hostlist.FoldSorted(j.Lost.Nodes), uint32(len(j.Lost.Nodes))
	n.ExpectedStartNs, n.ExpectedNodes, n.Promised = 0, "", false
	x := runLost(tx, n)
	n.Lost = nil
	tx.Emit(state.AttemptFound{Job: n})
	n = state.CloneJob(n)
	v := judge(tx, n, x)
	n.StopReason, n.StopState, n.ExitStatus, n.Reason, n.ReasonDetail = v.stop, v.state, v.status, v.reason, x.Detail
	if v.state != pb.JobState_JOB_PENDING {
		n.State = v.state
	}
	finish(tx, n)
}

// runLost puts a record into its lost attempt, whose parts have all ended, and returns how that attempt ended.
func runLost(tx *state.Tx, n *pb.JobRecord) *pb.ExitRecord {
	l := n.Lost
	x := &pb.ExitRecord{Verdict: l.Verdict, WaitStatus: l.WaitStatus, Detail: l.Detail, StopReason: l.StopReason}
	switch {
	case l.Verdict == pb.VerdictExited && n.Spec.Interactive: // as in decide
		if x.Verdict = pb.VerdictTimeout; l.StopReason != "" {
			x.Verdict = pb.VerdictCancelled
		}
	case l.Verdict == "" || l.Key.Step != pb.BatchStep:
		x = &pb.ExitRecord{Verdict: pb.VerdictUnknown,
			Detail: "the controller's state was restored from a backup, and no node knows how its last run ended"}
	}
	n.State, n.BatchHost = pb.JobState_JOB_RUNNING, l.Nodes[0]
	n.EndNs = min(tx.NowNS, l.EndNs)
	if n.EndNs == 0 {
		n.EndNs = tx.NowNS
	}
	if n.StartNs = min(l.StartNs, n.EndNs); n.StartNs == 0 {
		n.StartNs = n.EndNs
	}
	n.BatchStartNs, n.BatchEndNs, n.BatchStatus, n.BatchVerdict = n.StartNs, n.EndNs, x.WaitStatus, x.Verdict
	return x
}

// judgeStopped returns the verdict on an attempt that was ended by an order which the state does not know: the order's reason decides.
func judgeStopped(tx *state.Tx, j *pb.JobRecord, x *pb.ExitRecord) (v verdict, known bool) {
	switch x.StopReason {
	case pb.StopRequeue, pb.StopRequeueHold, pb.StopSpecialExit, pb.StopProlog, pb.StopPrologSlurmctld, pb.StopLaunch, pb.StopPreempt:
		if mayRequeue(tx, j) {
			return verdict{pb.JobState_JOB_PENDING, x.StopReason, "", 0}, true
		}
		if x.StopReason == pb.StopPreempt {
			return verdict{pb.JobState_JOB_PREEMPTED, x.StopReason, "None", 0}, true
		}
		return judge(tx, j, &pb.ExitRecord{Verdict: pb.VerdictUnknown}), true
	case pb.StopTimeout: // a budget was used up
		return judge(tx, j, &pb.ExitRecord{Verdict: pb.VerdictTimeout}), true
	case pb.StopNodeFail, pb.StopUnknown, pb.StopDone:
		// The last: salloc or srun has given it back, and nodes do not know with which status.
		return judge(tx, j, &pb.ExitRecord{Verdict: pb.VerdictUnknown}), true
	}
	return verdict{}, false
}
