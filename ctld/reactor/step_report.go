package reactor

import (
	"cmp"
	"slices"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// takeStepReport handles a node's report on a step that has a record: its end frees the step's share, and does not affect the job.
func takeStepReport(tx *state.Tx, j *pb.JobRecord, node string, r *pb.StepReport) {
	s := tx.Steps(j.Id).Get(r.Key.Step)
	if s == nil || s.Attempt != r.Key.Attempt || state.StepOn(s, node) == nil || r.Exit == nil {
		return
	}
	if r.Phase != pb.StepPhase_STEP_ENDED {
		unkillable(tx, j, node, r.Exit)
		return
	}
	x := ownTime(tx, node, r.EndedAgoNs, boundExit(r.Exit))
	if x.Verdict == pb.VerdictNodeFailed && x.NodeFault != "" {
		nodeFault(tx, node, x.NodeFault)
	}
	status := leaveStep(tx, j, s, node, x)
	if n := tx.Job(j.Id); status > n.DerivedStatus && !pb.IsCopy(s.StepId) {
		n = state.CloneJob(n)
		n.DerivedStatus = status
		tx.Emit(state.JobChanged{Job: n, What: "derived exit status"})
	}
}

// stepsGone ends the steps that a job has on a node which it leaves, and returns the highest exit status of the steps that this ends. It is
// for failed nodes: others have reported the end of the steps before.
func stepsGone(tx *state.Tx, j *pb.JobRecord, node string, x *pb.ExitRecord) (status uint32) {
	for _, s := range tx.Steps(j.Id).Live() {
		if s.Attempt == j.Attempt && state.StepOn(s, node) != nil {
			lost := &pb.ExitRecord{Verdict: pb.VerdictLost, Detail: x.Detail, EndNs: tx.NowNS}
			if x.Verdict != pb.VerdictLost && x.Verdict != pb.VerdictUnknown && x.Verdict != pb.VerdictForgotten { // the node does not know
				lost.Verdict = pb.VerdictCancelled
			}
			status = max(status, leaveStep(tx, j, s, node, lost))
		}
	}
	return status
}

// leaveStep records that nothing of a step is left on a node, and ends the step when that was the last one. It returns the exit status of a
// step that has ended.
func leaveStep(tx *state.Tx, j *pb.JobRecord, s *pb.StepRecord, node string, x *pb.ExitRecord) (status uint32) {
	n := state.CloneStep(s)
	n.Nodes = slices.Clone(s.Nodes)
	left := false
	for i, part := range n.Nodes {
		if part.Node == node {
			part = pb.ShallowCopy(part)
			part.Ended, part.Lost, part.Usage = true, x.Verdict == pb.VerdictLost, usageOf(x)
			n.Nodes[i] = part
		}
		left = left || !part.Ended
	}
	n.ExitStatus = max(n.ExitStatus, x.WaitStatus)
	if n.StopReason == "" {
		if v := judgeStep(s, x); worse(v, n.StopState) {
			n.StopState = v
			if v != pb.JobState_JOB_COMPLETED && n.Reason == "" {
				n.Reason = x.Detail
			}
		}
	}
	n.StateFlags |= pb.JobCompleting
	if left {
		if x.Verdict == pb.VerdictLost && n.StopReason == "" && !s.Spec.GetNoKill() { // the other nodes end it too
			n.StopReason, n.Reason = pb.StopNodeFail, cmp.Or(n.Reason, x.Detail)
		}
		tx.Emit(state.StepChanged{Step: n, What: "gone from a node"})
		return 0
	}
	n.State, n.StateFlags = n.StopState, 0
	n.EndNs = x.EndNs
	if n.EndNs < n.StartNs || n.EndNs > tx.NowNS {
		n.EndNs = max(tx.NowNS, n.StartNs)
	}
	if n.State == pb.JobState_JOB_CANCELLED && n.StopReason == "" {
		n.CancelledBy = j.CancelledBy
	}
	n.Signals, n.Watchers, n.Certificate, n.Key, n.LimitNs = nil, nil, nil, nil, 0
	tx.Emit(state.StepEnded{Step: n})
	return n.ExitStatus
}

// usageOf returns a step's use of resources on a node.
func usageOf(x *pb.ExitRecord) *pb.StepUsage {
	u := &pb.StepUsage{CpuUsecUser: x.CpuUsecUser, CpuUsecSystem: x.CpuUsecSystem, MaxRssKib: x.MaxRssKib}
	if x.Usage != nil {
		u = proto.CloneOf(x.Usage)
	}
	u.Key, u.Node, u.RssKib, u.VmKib, u.PidList = nil, "", 0, 0, nil
	return u
}

// judgeStep returns the state of a step that ends on a node with this exit record.
func judgeStep(s *pb.StepRecord, x *pb.ExitRecord) pb.JobState {
	switch x.Verdict {
	case pb.VerdictTimeout:
		if s.LimitNs == 0 { // the job's limit
			return pb.JobState_JOB_CANCELLED
		}
		return pb.JobState_JOB_TIMEOUT
	case pb.VerdictOOM:
		return pb.JobState_JOB_OUT_OF_MEMORY
	case pb.VerdictLost, pb.VerdictNodeFailed:
		return pb.JobState_JOB_NODE_FAIL
	case pb.VerdictCancelled, pb.VerdictSignaled: // Slurm ends a step when a task was killed, and shows that state
		return pb.JobState_JOB_CANCELLED
	case pb.VerdictExited:
		if x.WaitStatus == 0 && !x.StoppedOnOrder {
			return pb.JobState_JOB_COMPLETED
		}
	}
	if x.StoppedOnOrder { // with its job, or because srun is gone
		return pb.JobState_JOB_CANCELLED
	}
	return pb.JobState_JOB_FAILED
}

// verdictRank orders the states of a step on its nodes: the step gets the worst one.
var verdictRank = map[pb.JobState]int{pb.JobState_JOB_COMPLETED: 1, pb.JobState_JOB_FAILED: 2, pb.JobState_JOB_CANCELLED: 3,
	pb.JobState_JOB_TIMEOUT: 4, pb.JobState_JOB_NODE_FAIL: 5, pb.JobState_JOB_OUT_OF_MEMORY: 6}

func worse(a, b pb.JobState) bool { return verdictRank[a] > verdictRank[b] }

// stopStep tells the nodes of a step to end it.
func stopStep(tx *state.Tx, s *pb.StepRecord, why string, final pb.JobState, by uint32) {
	if s.StopReason != "" {
		return
	}
	n := state.CloneStep(s)
	n.StopReason, n.StopState, n.CancelledBy = why, final, by
	n.StateFlags |= pb.JobCompleting
	tx.Emit(state.StepChanged{Step: n, What: "stop: " + why})
}

// stepsResumed moves the limits of the steps of a job that was suspended.
func stepsResumed(tx *state.Tx, j *pb.JobRecord, slept int64) {
	for _, s := range tx.Steps(j.Id).Live() {
		n := state.CloneStep(s)
		n.SuspendedNs += slept
		if n.LimitNs != 0 {
			n.LimitNs += slept
		}
		tx.Emit(state.StepChanged{Step: n, What: "resumed"})
	}
}
