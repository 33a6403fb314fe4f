package jobcomp

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// line formats an ended attempt as jobcomp/filetxt of Slurm 22.05 does, newline included. Values are not quoted, not even blanks in a job's
// name; characters that would break the line are refused at submission.
func line(j *pb.JobRecord, cluster string) string {
	spec := j.GetSpec()
	var b strings.Builder
	put := func(key, value string) { b.WriteString(key + "=" + value + " ") }
	nodes, nodeCount, cpus, tres := j.NodeList, j.NumNodes, j.NumCpus, j.AllocTres
	if len(j.Alloc) == 0 { // it never had any
		nodes, nodeCount, cpus, tres = "(null)", 0, 0, j.ReqTres
	}
	put("JobId", strconv.FormatUint(uint64(j.Id), 10))
	put("UserId", fmt.Sprintf("%s(%d)", spec.GetUser(), spec.GetUid()))
	put("GroupId", fmt.Sprintf("%s(%d)", spec.GetGroup(), spec.GetGid()))
	put("Name", spec.GetName())
	put("JobState", stateName(j))
	put("Partition", j.Partition)
	put("TimeLimit", timeLimit(j.TimeLimitS))
	put("StartTime", stamp(j.StartNs))
	put("EndTime", stamp(j.EndNs))
	put("NodeList", nodes)
	put("NodeCnt", strconv.FormatUint(uint64(nodeCount), 10))
	put("ProcCnt", strconv.FormatUint(uint64(cpus), 10))
	put("WorkDir", spec.GetWorkDir())
	put("ReservationName", or(j.ResvName, spec.GetReservation()))
	put("Tres", tres)
	put("Account", spec.GetAccount())
	put("QOS", spec.GetQos())
	put("WcKey", spec.GetWckey())
	put("Cluster", cluster)
	put("SubmitTime", stamp(j.SubmitNs))
	put("EligibleTime", stamp(j.EligibleNs))
	if j.ArrayJobId != 0 && j.IsArrayTask {
		put("ArrayJobId", strconv.FormatUint(uint64(j.ArrayJobId), 10))
		put("ArrayTaskId", strconv.FormatUint(uint64(j.ArrayTaskId), 10))
	}
	put("DerivedExitCode", exitCode(j.DerivedStatus))
	put("ExitCode", exitCode(shownStatus(j)))
	b.WriteByte('\n')
	return b.String()
}

// stateName returns the base state; for a requeued attempt PENDING, which is its state in Slurm by then.
func stateName(j *pb.JobRecord) string {
	if j.StateFlags&pb.JobRequeued != 0 && !j.State.Terminal() {
		return "PENDING"
	}
	return state.StateName(j)
}

// shownStatus returns 0:0 for a job that was told to stop: the signal is shown with the step that got it.
func shownStatus(j *pb.JobRecord) uint32 {
	if s := j.State; s != pb.JobState_JOB_FAILED && s != pb.JobState_JOB_OUT_OF_MEMORY && s != pb.JobState_JOB_COMPLETED {
		return 0
	}
	return j.ExitStatus
}

func exitCode(status uint32) string { return fmt.Sprintf("%d:%d", status>>8&0xff, status&0x7f) }

// timeLimit formats a limit in minutes, rounded up.
func timeLimit(s uint32) string {
	if s == pb.Unlimited {
		return "UNLIMITED"
	}
	return strconv.FormatUint((uint64(s)+59)/60, 10)
}

func stamp(ns int64) string {
	if ns == 0 {
		return "Unknown"
	}
	return time.Unix(0, ns).Format(timespec.Layout)
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
