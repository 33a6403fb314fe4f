package explain

import (
	"fmt"
	"strings"

	"github.com/sluice-hpc/sluice/conf/filename"
	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/ctld/limit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Fate describes what has become of a job that does not wait: since when it runs, where, and what will end it; or when and why it ended,
// and what would help. user names a uid. mine: the caller may know which files it writes.
func Fate(v *state.View, j *pb.JobRecord, user func(uid uint32) string, mine bool) string {
	f := &fate{v: v, j: j, name: state.JobName(j), user: user}
	switch {
	case j.State == pb.JobState_JOB_RUNNING && j.StateFlags&pb.JobCompleting == 0:
		f.running()
	case j.State == pb.JobState_JOB_SUSPENDED:
		f.say("Job %s has been suspended since %s; it started at %s%s. An administrator can resume it with scontrol resume %s.",
			f.name, moment(j.SuspendNs), moment(j.StartNs), f.on(), f.name)
	case j.State.Terminal():
		f.ended()
	}
	if state.Live(j) && (j.State.Terminal() || j.StateFlags&pb.JobCompleting != 0 || j.State == pb.JobState_JOB_PENDING) {
		f.say("Its last attempt has not been cleaned up yet on %s.", strings.Join(f.unended(), ", "))
	}
	f.nodes()
	if j.ReasonDetail != "" {
		f.say("%s", j.ReasonDetail)
	}
	if mine && f.launched() && !j.Spec.Interactive {
		f.say("Its output is in %s.", outputFile(j))
	}
	if j.State.Terminal() && j.NodeList != "" {
		f.say("What it used: sacct -j %s", f.name)
	}
	return f.text.String()
}

// fate is a text under construction.
type fate struct {
	v    *state.View
	j    *pb.JobRecord
	name string
	user func(uid uint32) string
	text strings.Builder
}

func (f *fate) say(format string, args ...any) {
	fmt.Fprintf(&f.text, format+"\n", args...)
}

func moment(ns int64) string { return timespec.FormatUTC(ns) }

// launched reports whether the present attempt got far enough for its script to begin.
func (f *fate) launched() bool {
	return f.j.State != pb.JobState_JOB_PENDING && f.j.NodeList != "" && f.j.StateFlags&pb.JobPowerUp == 0 &&
		f.j.Reason != pb.ReasonLaunchFailure && f.j.Reason != pb.ReasonProlog
}

func (f *fate) on() string {
	if f.j.NodeList == "" {
		return ""
	}
	return " on " + f.j.NodeList
}

// powering names the nodes that a job waits for because they are powered down.
func (f *fate) powering() {
	f.say("Job %s was given its nodes%s at %s, and starts when they have been powered up.", f.name, f.on(), moment(f.j.StartNs))
	for _, a := range f.j.Alloc {
		switch n := f.v.Node(a.Node); {
		case n == nil || a.Ended:
		case n.StateFlags&pb.NodePoweringUp != 0:
			f.say("Node %s has been powering up for %s; the limit is %s (ResumeTimeout).", a.Node,
				timespec.Clock(max(0, f.v.NowNS-n.PowerNs)/1e9), timespec.Clock(int64(n.Power.UpS)))
		case n.StateFlags&state.PowerFlags != 0:
			f.say("Node %s is to be powered up.", a.Node)
		}
	}
}

func (f *fate) running() {
	if f.j.StateFlags&pb.JobPowerUp != 0 {
		f.powering()
		return
	}
	ran := max(0, f.v.NowNS-max(f.j.StartNs, f.j.SuspendNs)) + f.j.PreSuspendNs // the view is at most a second old
	f.say("Job %s has been running%s since %s, for %s so far.", f.name, f.on(), moment(f.j.StartNs), timespec.Clock(ran/1e9))
	switch {
	case f.j.StopReason != "":
		f.say("It is being ended (%s).", f.j.StopReason)
	case f.j.TimeLimitS == pb.Unlimited || f.j.EndNs == 0:
		f.say("It has no time limit.")
	default:
		f.say("Its time limit of %s will end it at %s.", timespec.Clock(int64(f.j.TimeLimitS)), moment(f.j.EndNs))
	}
}

// ended describes when and how the job ended, and what would help.
func (f *fate) ended() {
	j := f.j
	switch {
	case j.NodeList == "" && j.Restarts > 0:
		f.say("Job %s ended at %s while it waited to be started again: %s. It had been requeued; sacct --duplicates -j %s has its runs.",
			f.name, moment(j.EndNs), state.StateName(j), f.name)
	case j.NodeList == "":
		f.say("Job %s ended at %s without having started: %s.", f.name, moment(j.EndNs), state.StateName(j))
	default:
		f.say("Job %s ended at %s, %s after its start%s: %s.", f.name, moment(j.EndNs), timespec.Clock(max(0, j.EndNs-j.StartNs)/1e9),
			f.on(), state.StateName(j))
	}
	switch j.State {
	case pb.JobState_JOB_FAILED:
		f.failed()
	case pb.JobState_JOB_TIMEOUT:
		if j.Reason == pb.ReasonInactiveLimit || limit.OutOfBudget(j) {
			break // the diagnosis says it
		}
		f.say("It reached its time limit of %s; request more with --time.", timespec.Clock(int64(j.TimeLimitS)))
	case pb.JobState_JOB_OUT_OF_MEMORY:
		f.say("It used more memory than it was allocated (%s); request more with --mem or --mem-per-cpu.", memory(j))
	case pb.JobState_JOB_CANCELLED:
		f.say("It was cancelled by %s.", f.user(j.CancelledBy))
	case pb.JobState_JOB_PREEMPTED:
		if j.PreemptedBy != "" {
			f.say("It was preempted by job %s.", j.PreemptedBy)
		}
	case pb.JobState_JOB_DEADLINE:
		f.say("Its --deadline passed, or could no longer be met.")
	case pb.JobState_JOB_NODE_FAIL:
		switch {
		case j.Reason == pb.ReasonLaunchFailure:
			f.say("Node %s could not start it, and it may not be requeued (--no-requeue, or JobRequeue=0).", j.FailedNode)
		case j.FailedNode != "":
			f.say("Node %s failed while running it.", j.FailedNode)
		}
	}
}

func (f *fate) failed() {
	who := "Its script"
	if f.j.Spec.Interactive {
		who = "Its command"
	}
	switch status := f.j.ExitStatus; {
	case f.j.Reason == pb.ReasonLaunchFailure:
		f.say("It could not be launched.")
	case f.j.Reason == pb.ReasonProlog:
		f.say("The prolog failed on node %s; its script was not started.", f.j.FailedNode)
	case status&0x7f != 0:
		f.say("%s was killed by signal %d.", who, status&0x7f)
	case status != 0:
		f.say("%s ended with exit code %d.", who, status>>8&0xff)
	}
}

// memory returns the job's memory from its TRES: "mem=2G".
func memory(j *pb.JobRecord) string {
	for _, item := range strings.Split(j.AllocTres, ",") {
		if strings.HasPrefix(item, "mem=") {
			return item
		}
	}
	return "all of its nodes"
}

// unended returns the nodes that have not reported the end of the last attempt.
func (f *fate) unended() (names []string) {
	for _, a := range f.j.Alloc {
		if !a.Ended {
			names = append(names, a.Node)
		}
	}
	return names
}

// nodes describes problems of the nodes of a job that has not ended.
func (f *fate) nodes() {
	for _, name := range f.unended() {
		switch n := f.v.Node(name); {
		case n == nil:
			f.say("Node %s is no longer in slurm.conf.", name)
		case n.StateFlags&pb.NodeNoRespond != 0:
			f.say("Node %s does not respond; it will be marked down after SlurmdTimeout.", name)
		case n.State == pb.NodeState_NODE_DOWN:
			f.say("Node %s is down: %s", name, n.Reason)
		}
	}
}

func outputFile(j *pb.JobRecord) string {
	return filename.Output(j.Spec.StdOut, j.Spec.WorkDir, filename.Values{JobID: j.Id, ArrayJobID: j.ArrayJobId, ArrayTaskID: j.ArrayTaskId,
		IsArrayTask: j.IsArrayTask, JobName: j.Spec.Name, User: j.Spec.User, Host: j.BatchHost})
}
