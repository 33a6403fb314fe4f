package acct

import (
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
)

// State is the State column: "CANCELLED by 1000".
func (r Row) State() string {
	if r.Step != "" {
		return r.stepState()
	}
	if r.GetStateFlags()&msg.JobRequeued != 0 {
		return "REQUEUED"
	}
	s := baseState(r.JobRecord)
	if s == "CANCELLED" {
		s += " by " + strconv.FormatUint(uint64(r.GetCancelledBy()), 10)
	}
	return s
}

// baseState is a job's base state: accounting has neither COMPLETING nor CONFIGURING.
func baseState(j *msg.JobRecord) string { return strings.TrimPrefix(j.GetState().String(), "JOB_") }

// stepState is the final state of a step. As in Slurm, a batch script ended by a signal or by the controller is CANCELLED.
func (r Row) stepState() string {
	if r.made != nil {
		return r.madeState()
	}
	if !ended(r.JobRecord) && (r.Step == "extern" || r.GetBatchVerdict() == "") {
		return baseState(r.JobRecord)
	}
	if r.Step == "extern" {
		if r.GetState() == msg.JobState_JOB_NODE_FAIL {
			return "CANCELLED"
		}
		return "COMPLETED"
	}
	status := r.stepStatus()
	switch {
	case r.GetState() == msg.JobState_JOB_OUT_OF_MEMORY:
		return "OUT_OF_MEMORY"
	case status&0x7f != 0, r.GetState() == msg.JobState_JOB_NODE_FAIL:
		return "CANCELLED"
	case status != 0:
		return "FAILED"
	}
	return "COMPLETED"
}

// madeState is the final state of a step created by srun: FAILED if its tasks failed, CANCELLED if a signal ended them.
func (r Row) madeState() string {
	s := strings.TrimPrefix(r.made.GetState().String(), "JOB_")
	if r.made.GetState() == msg.JobState_JOB_RUNNING && r.GetState() == msg.JobState_JOB_SUSPENDED {
		return "SUSPENDED"
	}
	if s == "FAILED" && r.made.GetExitStatus()&0x7f != 0 {
		return "CANCELLED"
	}
	if s == "CANCELLED" && r.made.GetStopReason() == "cancel" {
		s += " by " + strconv.FormatUint(uint64(r.made.GetCancelledBy()), 10)
	}
	return s
}

// sigTerm ends a script that is told to stop.
const sigTerm = 15

// stepStatus is the wait status of the batch script. A script that was told to stop keeps its own status: a trap may return any
// exit code, and SIGKILL ends a script without one.
func (r Row) stepStatus() uint32 {
	switch r.GetBatchVerdict() {
	case "oom":
		return r.GetExitStatus()
	case "": // no report: its node was lost, or it never ran
		if s := r.GetState(); s == msg.JobState_JOB_CANCELLED || s == msg.JobState_JOB_TIMEOUT || s == msg.JobState_JOB_PREEMPTED {
			return sigTerm
		}
	}
	return r.GetBatchStatus()
}

// exitCode is the ExitCode column. A job that was told to stop has 0:0; the signal is shown with the step that received it.
func (r Row) exitCode() string {
	switch {
	case r.Step == "extern":
		return "0:0"
	case r.made != nil:
		return format.ExitCode(r.made.GetExitStatus())
	}
	if r.Step == "batch" {
		if r.GetBatchVerdict() == "" && !ended(r.JobRecord) {
			return "0:0"
		}
		return format.ExitCode(r.stepStatus())
	}
	switch r.GetState() {
	case msg.JobState_JOB_CANCELLED, msg.JobState_JOB_TIMEOUT, msg.JobState_JOB_PREEMPTED, msg.JobState_JOB_NODE_FAIL,
		msg.JobState_JOB_PENDING, msg.JobState_JOB_RUNNING,
		msg.JobState_JOB_SUSPENDED, msg.JobState_JOB_DEADLINE:
		return "0:0"
	}
	return format.ExitCode(r.GetExitStatus())
}

// jobID is the JobID column: "12", "12_3", "12_[4-9%2]", "12.batch".
func (r Row) jobID(c *Context) string {
	id := strconv.FormatUint(uint64(r.GetId()), 10)
	if array := r.GetArrayJobId(); array != 0 {
		tasks := strconv.FormatUint(uint64(r.GetArrayTaskId()), 10)
		if list := r.GetArrayTasks(); list != "" {
			tasks = "[" + format.CutTasks(list, c.BitstrLen) + "]"
		}
		id = strconv.FormatUint(uint64(array), 10) + "_" + tasks
	}
	return id + r.dotStep()
}

func (r Row) dotStep() string {
	if r.Step == "" {
		return ""
	}
	return "." + r.Step
}

// reason is why the job waited or waits, other than for its turn. For a failed launch it is Slurm's word, followed by the cause.
func (r Row) reason() string {
	if r.GetReason() == launchFailure {
		if r.GetReasonDetail() == "" {
			return launchFailure
		}
		return launchFailure + ": " + r.GetReasonDetail()
	}
	why := r.GetWaitReason()
	if why == "" && len(r.GetAlloc()) == 0 {
		why = r.GetReason()
	}
	if why == "" || why == "Priority" || why == "Resources" {
		return "None"
	}
	return why
}

// launchFailure is the reason of a job that could not be launched.
const launchFailure = "JobLaunchFailure"

// ID formats the id of a job for users: "12", "12_3".
func ID(c *Context, j *msg.JobRecord) string { return Row{JobRecord: j}.jobID(c) }
