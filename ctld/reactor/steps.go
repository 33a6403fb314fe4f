package reactor

import (
	"fmt"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
)

// StepReports are a node's reports on its steps. Reports of attempts that are no longer the job's are ignored: the dispatcher tells the
// node to end and forget them.
type StepReports struct {
	Node  string
	Steps []*pb.StepReport
}

func (c StepReports) Handle(tx *state.Tx) any {
	for _, r := range c.Steps {
		takeReport(tx, c.Node, r)
	}
	strangers(tx, c.Node, c.Steps)
	straysGone(tx, c.Node, c.Steps)
	return nil
}

func takeReport(tx *state.Tx, node string, r *pb.StepReport) {
	k := r.GetKey()
	j := tx.Job(k.GetJobId())
	if j == nil || k.Attempt != j.Attempt || !sameEpoch(j, r) || state.AllocOn(j, node) == nil {
		return
	}
	if state.Numbered(k.Step) {
		takeStepReport(tx, j, node, r)
		return
	}
	launched(tx, j, node, r)
	if r.Exit == nil {
		return
	}
	if r.Phase != pb.StepPhase_STEP_ENDED {
		unkillable(tx, j, node, r.Exit)
		return
	}
	leave(tx, j, node, ownTime(tx, node, r.EndedAgoNs, boundExit(r.Exit)))
}

// killFailed is the reason that Slurm gives a node on which processes survive SIGKILL for UnkillableStepTimeout.
const killFailed = "Kill task failed"

// unkillable drains such a node. The job stays completing there. The report is repeated with every change and every new stream, so a node
// that is already drained is left alone.
func unkillable(tx *state.Tx, j *pb.JobRecord, node string, x *pb.ExitRecord) {
	if n := tx.Node(node); n == nil || n.StateFlags&pb.NodeDrain != 0 {
		return
	}
	drain(tx, node, killFailed)
	n := state.CloneJob(j)
	n.ReasonDetail = fmt.Sprintf("node %s: %s", node, x.Detail)
	tx.Emit(state.JobChanged{Job: n, What: "cannot be killed"})
}

// sameEpoch reports whether the report is about the job's present attempt. A node that can no longer read its records (its disk lost them
// in a power cut) reports the step as lost, with epoch 0: job and attempt identify it, and it must not be started again.
func sameEpoch(j *pb.JobRecord, r *pb.StepReport) bool {
	return r.Key.Epoch == j.Epoch || r.Key.Epoch == 0 && r.GetExit().GetVerdict() == pb.VerdictLost
}

// leave records that nothing of the job is left on a node, and ends the job when that decides it.
func leave(tx *state.Tx, j *pb.JobRecord, node string, x *pb.ExitRecord) {
	n := state.CloneJob(j)
	n.Alloc = make([]*pb.NodeAlloc, len(j.Alloc))
	copy(n.Alloc, j.Alloc)
	for i, a := range n.Alloc {
		if a.Node == node {
			n.Alloc[i] = state.CloneAlloc(a)
			n.Alloc[i].Ended = true
		}
	}
	n.DerivedStatus = max(n.DerivedStatus, stepsGone(tx, n, node, x))
	n.MaxRssKib = max(n.MaxRssKib, x.MaxRssKib)
	charge(n, node, x)
	decide(tx, n, node, x)
	tx.Emit(state.JobLeftNode{Job: n, Node: node})
	settle(tx, n)
}

// decide gives n its final state when this report decides it: the batch node's report always does, another node's only when
// it ended without having been told to.
func decide(tx *state.Tx, n *pb.JobRecord, node string, x *pb.ExitRecord) {
	if x.Verdict == pb.VerdictPrologFailed {
		n.FailedNode = node
		drain(tx, node, "Prolog error: "+x.Detail)
	}
	if x.Verdict == pb.VerdictNodeFailed {
		notLaunched(tx, n, node, x)
	} else {
		n.LaunchFailures = 0
	}
	if x.EpilogError != "" && x.NodeFault == "" {
		drain(tx, node, "Epilog error: "+x.EpilogError)
	}
	if n.StopReason != "" {
		if node == n.BatchHost && !n.Spec.Interactive {
			n.ExitStatus = stoppedStatus(n, x)
		}
		return
	}
	if node != n.BatchHost && x.StoppedOnOrder {
		return
	}
	if node != n.BatchHost {
		n.FailedNode = node
	}
	// An extern step only ends by itself at its time limit.
	if x.Verdict == pb.VerdictExited && state.HolderOn(n, node) == pb.ExternStep {
		if x.Verdict = pb.VerdictTimeout; x.StoppedOnOrder { // from an attempt that a restore of a backup has lost
			x.Verdict = pb.VerdictCancelled
		}
	}
	v := judge(tx, n, x)
	n.StopReason, n.StopState = v.stop, v.state
	n.ExitStatus = v.status
	n.Reason, n.ReasonDetail = v.reason, x.Detail
	if v.reason == pb.ReasonLaunchFailure && x.Detail != "" {
		n.SystemComment = joinText(n.SystemComment, x.Detail) // kept in accounting
	}
	n.StateFlags |= pb.JobCompleting
	n.EndNs = x.EndNs
	if n.EndNs < n.StartNs || n.EndNs > tx.NowNS {
		n.EndNs = max(tx.NowNS, n.StartNs)
	}
	if v.state != pb.JobState_JOB_PENDING {
		n.State = v.state
	}
}

// stoppedStatus returns the exit status shown for a job that was told to stop: the signal that ended it, as Slurm prints 0:15.
func stoppedStatus(n *pb.JobRecord, x *pb.ExitRecord) uint32 {
	if x.WaitStatus&0x7f != 0 || n.StopReason == pb.StopCancel {
		return uint32(unix.SIGTERM)
	}
	return x.WaitStatus
}

type verdict struct {
	state  pb.JobState
	stop   string // StopReason: why the rest of the attempt is ended
	reason string
	status uint32
}

// launchFailed is the status that Slurm shows for a job whose files could not be opened (0:53).
const launchFailed = 53

// oomStatus is the status that Slurm shows for OUT_OF_MEMORY (0:125).
const oomStatus = 125

func judge(tx *state.Tx, j *pb.JobRecord, x *pb.ExitRecord) verdict {
	switch x.Verdict {
	case pb.VerdictExited:
		if why := requeueOfExit(tx, x.WaitStatus); why != "" {
			return verdict{pb.JobState_JOB_PENDING, why, "", x.WaitStatus}
		}
		if x.WaitStatus == 0 {
			return verdict{pb.JobState_JOB_COMPLETED, pb.StopDone, "None", 0}
		}
		return verdict{pb.JobState_JOB_FAILED, pb.StopDone, "NonZeroExitCode", x.WaitStatus}
	case pb.VerdictSignaled:
		sig := unix.Signal(x.WaitStatus & 0x7f)
		return verdict{pb.JobState_JOB_FAILED, pb.StopDone, fmt.Sprintf("RaisedSignal:%d(%s)", int(sig), signalWord(sig)),
			x.WaitStatus & 0x7f}
	case pb.VerdictTimeout:
		return verdict{pb.JobState_JOB_TIMEOUT, pb.StopTimeout, "TimeLimit", 0}
	case pb.VerdictOOM:
		return verdict{pb.JobState_JOB_OUT_OF_MEMORY, pb.StopDone, "OutOfMemory", oomStatus}
	case pb.VerdictOutputFailed:
		return verdict{pb.JobState_JOB_FAILED, pb.StopDone, pb.ReasonLaunchFailure, launchFailed}
	case pb.VerdictNodeFailed:
		return judgeLaunch(tx, j)
	case pb.VerdictPrologFailed:
		if mayRequeue(tx, j) {
			return verdict{pb.JobState_JOB_PENDING, pb.StopProlog, "", 0}
		}
		return verdict{pb.JobState_JOB_FAILED, pb.StopDone, pb.ReasonProlog, 1 << 8}
	case pb.VerdictUnknown:
		if mayRequeue(tx, j) {
			return verdict{pb.JobState_JOB_PENDING, pb.StopNodeFail, "", 0}
		}
		return verdict{pb.JobState_JOB_NODE_FAIL, pb.StopDone, "NodeDown", 0}
	case pb.VerdictLost, pb.VerdictForgotten:
		return verdict{pb.JobState_JOB_NODE_FAIL, pb.StopDone, "NodeDown", 0}
	case pb.VerdictCancelled:
		if v, known := judgeStopped(tx, j, x); known {
			return v
		}
		return verdict{pb.JobState_JOB_CANCELLED, pb.StopCancel, "None", uint32(unix.SIGTERM)}
	}
	return verdict{pb.JobState_JOB_FAILED, pb.StopDone, pb.ReasonLaunchFailure, max(x.WaitStatus, 1<<8)}
}

// settle ends the attempt once nothing is left of it on any node: with the terminal record, or by requeueing.
func settle(tx *state.Tx, j *pb.JobRecord) {
	if !state.Live(j) && !tx.Settings().EpilogSlurmctld {
		finish(tx, j)
	}
}

// finish ends an attempt when all its parts have ended and its EpilogSlurmctld has run.
func finish(tx *state.Tx, j *pb.JobRecord) {
	if pb.Requeues(j.StopReason) && j.StopState == pb.JobState_JOB_PENDING {
		backToQueue(tx, j)
		return
	}
	n := state.CloneJob(j)
	n.StateFlags &^= pb.JobCompleting | pb.JobStopped | pb.JobConfiguring | pb.JobPowerUp
	n.Signals = nil
	tx.Emit(state.JobEnded{Job: n})
}

// signalWord returns the name of a signal in Slurm's reasons: strsignal(3) without spaces.
func signalWord(s unix.Signal) string {
	if w, ok := signalWords[s]; ok {
		return w
	}
	return fmt.Sprintf("Unknown_signal_%d", int(s))
}

var signalWords = map[unix.Signal]string{
	unix.SIGHUP: "Hangup", unix.SIGINT: "Interrupt", unix.SIGQUIT: "Quit", unix.SIGILL: "Illegal_instruction",
	unix.SIGTRAP: "Trace/breakpoint_trap", unix.SIGABRT: "Aborted", unix.SIGBUS: "Bus_error", unix.SIGFPE: "Floating_point_exception",
	unix.SIGKILL: "Killed", unix.SIGUSR1: "User_defined_signal_1", unix.SIGSEGV: "Segmentation_fault",
	unix.SIGUSR2: "User_defined_signal_2",
	unix.SIGPIPE: "Broken_pipe", unix.SIGALRM: "Alarm_clock", unix.SIGTERM: "Terminated", unix.SIGXCPU: "CPU_time_limit_exceeded",
	unix.SIGXFSZ: "File_size_limit_exceeded", unix.SIGSYS: "Bad_system_call",
}
