package format

import (
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/msg"
)

// Job is one row of squeue: a job, one task of an array that has not started (-r), or a job in one of its partitions (-P).
type Job struct {
	*msg.JobRecord
	// InPartition overrides the record's partition, unless empty.
	InPartition string
	// Task is the row's task, if IsTask.
	Task   uint32
	IsTask bool
}

// JobStates are the names of base states and of the flags shown instead, in the order of the constants (squeue(1), "JOB STATE
// CODES").
var (
	JobStates = [...][2]string{
		{"PENDING", "PD"}, {"RUNNING", "R"}, {"SUSPENDED", "S"}, {"COMPLETED", "CD"}, {"CANCELLED", "CA"}, {"FAILED", "F"},
		{"TIMEOUT", "TO"}, {"NODE_FAIL", "NF"}, {"PREEMPTED", "PR"}, {"BOOT_FAIL", "BF"}, {"DEADLINE", "DL"}, {"OUT_OF_MEMORY", "OOM"},
	}
	JobFlags = [...][2]string{
		{"COMPLETING", "CG"}, {"STAGE_OUT", "SO"}, {"CONFIGURING", "CF"}, {"RESIZING", "RS"}, {"REQUEUED", "RQ"},
		{"REQUEUE_HOLD", "RH"}, {"SPECIAL_EXIT", "SE"}, {"STOPPED", "ST"}, {"REVOKED", "RV"}, {"RESV_DEL_HOLD", "RD"}, {"SIGNALING", "SI"},
	}
)

func jobState(r *msg.JobRecord, form int) string {
	if flags := r.GetStateFlags(); flags != 0 {
		for i := range JobFlags {
			if flags&(1<<i) != 0 {
				return JobFlags[i][form]
			}
		}
	}
	if s := int(r.GetState()); s >= 0 && s < len(JobStates) {
		return JobStates[s][form]
	}
	return "?"
}

// JobStateName is the state in squeue's %T and scontrol.
func JobStateName(r *msg.JobRecord) string { return jobState(r, 0) }

// ParseJobState reads one name of -t, long or compact, in any case: a base state, or a flag (flag != 0).
func ParseJobState(name string) (state msg.JobState, flag uint32, ok bool) {
	for i := range JobStates {
		if strings.EqualFold(name, JobStates[i][0]) || strings.EqualFold(name, JobStates[i][1]) {
			return msg.JobState(i), 0, true
		}
	}
	for i := range JobFlags {
		if strings.EqualFold(name, JobFlags[i][0]) || strings.EqualFold(name, JobFlags[i][1]) {
			return 0, 1 << i, true
		}
	}
	if strings.EqualFold(name, "REQUEUE_FED") || strings.EqualFold(name, "RF") {
		return 0, federated, true
	}
	return 0, 0, false
}

// federated is a flag that no job has: the states of federations are valid names that match nothing.
const federated = 1 << 31

// JobStateNames is the list in the error about an invalid -t: base states and flags.
func JobStateNames() string {
	var names []string
	for i := range JobStates {
		names = append(names, JobStates[i][0])
	}
	return strings.Join(names, ",") +
		",COMPLETING,CONFIGURING,RESIZING,RESV_DEL_HOLD,REQUEUED,REQUEUE_FED,REQUEUE_HOLD,REVOKED,SIGNALING,SPECIAL_EXIT,STAGE_OUT,STOPPED"
}

// AppendJobID writes "12", "12_3", or "12_[4-9%2]" for the rest of an array.
func AppendJobID(b []byte, c *Context, j Job) []byte {
	r := j.JobRecord
	if r.GetArrayJobId() == 0 {
		return strconv.AppendUint(b, uint64(r.GetId()), 10)
	}
	b = append(strconv.AppendUint(b, uint64(r.GetArrayJobId()), 10), '_')
	if j.IsTask {
		return strconv.AppendUint(b, uint64(j.Task), 10)
	}
	if r.GetArrayTasks() != "" {
		b = append(b, '[')
		b = append(b, CutTasks(r.GetArrayTasks(), c.BitstrLen)...)
		return append(b, ']')
	}
	return strconv.AppendUint(b, uint64(r.GetArrayTaskId()), 10)
}

// CutTasks cuts an array expression to less than limit bytes, ending with "...". Like Slurm it reserves room for the "..." even if
// nothing is cut. The throttle is kept and not counted.
func CutTasks(tasks string, limit int) string {
	const more = "..."
	list, throttle, has := strings.Cut(tasks, "%")
	if limit <= 0 || len(list)+len(more) <= limit {
		return tasks
	}
	list = list[:max(limit-1-len(more), 0)] + more[:min(limit-1, len(more))]
	if has {
		list += "%" + throttle
	}
	return list
}

// ShownPartition is the partition of a job, or all partitions that it may wait for.
func (j Job) ShownPartition() string {
	if j.InPartition != "" {
		return j.InPartition
	}
	r := j.JobRecord
	if r.GetState() == msg.JobState_JOB_PENDING && strings.Contains(r.GetSpec().GetPartition(), ",") {
		return r.GetSpec().GetPartition()
	}
	if r.GetPartition() == "" {
		return r.GetSpec().GetPartition()
	}
	return r.GetPartition()
}

// Partitions are the names in ShownPartition.
func (j Job) Partitions() []string { return strings.Split(j.ShownPartition(), ",") }

// Started is the time of the start, or the expected one; 0 if there is none.
func Started(r *msg.JobRecord) int64 {
	if r.GetStartNs() != 0 && r.GetState() != msg.JobState_JOB_PENDING {
		return r.GetStartNs()
	}
	if r.GetState() != msg.JobState_JOB_PENDING {
		return 0
	}
	if r.GetExpectedStartNs() != 0 {
		return r.GetExpectedStartNs()
	}
	return r.GetSpec().GetBeginNs()
}

// Ends is the time of the end, or the expected one according to plan and limit; 0 if there is none. unlimited means that there is
// no time limit.
func Ends(r *msg.JobRecord) (ns int64, unlimited bool) {
	if r.GetState().Terminal() {
		return r.GetEndNs(), false
	}
	if r.GetTimeLimitS() == msg.Unlimited {
		return 0, Started(r) != 0
	}
	if r.GetState() != msg.JobState_JOB_PENDING && r.GetEndNs() != 0 {
		return r.GetEndNs(), false
	}
	if s := Started(r); s != 0 {
		return s + int64(r.GetTimeLimitS())*1e9, false
	}
	return 0, false
}

// UsedSeconds is the run time so far without suspensions.
func UsedSeconds(c *Context, r *msg.JobRecord) int64 {
	if r.GetState() == msg.JobState_JOB_PENDING || r.GetStartNs() == 0 {
		return 0
	}
	if r.GetState() == msg.JobState_JOB_SUSPENDED {
		return r.GetPreSuspendNs() / 1e9
	}
	from := max(r.GetStartNs(), r.GetSuspendNs())
	until := c.Now.UnixNano()
	if r.GetState().Terminal() {
		until = r.GetEndNs()
		if until == 0 {
			return 0
		}
	}
	// Slurm counts seconds of the clock: a job that ended in the second in which it began took 0 s.
	return max(0, until/1e9-from/1e9) + r.GetPreSuspendNs()/1e9
}

// leftSeconds is the limit minus the time used; ok is false if there is no limit.
func leftSeconds(c *Context, r *msg.JobRecord) (seconds int64, ok bool) {
	if r.GetTimeLimitS() == msg.Unlimited {
		return 0, false
	}
	return LimitSeconds(r.GetTimeLimitS()) - UsedSeconds(c, r), true
}

// LimitSeconds rounds up to minutes, the unit of limits in Slurm.
func LimitSeconds(s uint32) int64 { return (int64(s) + 59) / 60 * 60 }

// appendLimit writes a time limit as squeue does.
func appendLimit(b []byte, s uint32) []byte {
	switch s {
	case msg.Unlimited:
		return append(b, "UNLIMITED"...)
	case 0:
		return append(b, "NOT_SET"...)
	}
	return appendElapsed(b, LimitSeconds(s))
}

// Reason is Slurm's reason for the job's state.
func Reason(r *msg.JobRecord) string {
	if r.GetReason() == "" {
		return "None"
	}
	return r.GetReason()
}

// showsReason reports whether %R shows the reason, for jobs that wait or failed, or the nodes, for all others.
func showsReason(r *msg.JobRecord) bool {
	if r.GetStateFlags()&msg.JobCompleting != 0 {
		return false
	}
	switch r.GetState() {
	case msg.JobState_JOB_PENDING, msg.JobState_JOB_FAILED, msg.JobState_JOB_TIMEOUT, msg.JobState_JOB_OUT_OF_MEMORY,
		msg.JobState_JOB_DEADLINE:
		return true
	}
	return false
}

// MinCPUs is the number of CPUs required per node: --mincpus, or those of the tasks on it.
func MinCPUs(s *msg.JobSpec) uint32 {
	perTask := max(s.GetCpusPerTask(), 1)
	return max(s.GetPnMinCpus(), perTask*max(s.GetNtasksPerNode(), 1), 1)
}

// Memory is the requested memory and whether it is per CPU.
func Memory(s *msg.JobSpec) (mib uint64, perCPU bool) {
	if s.GetMemPerCpuMib() != 0 {
		return s.GetMemPerCpuMib(), true
	}
	return s.GetMemPerNodeMib(), false
}

// oversubscribe is squeue's %h: the partition's setting (FORCE, EXCLUSIVE), else the job's request.
func oversubscribe(r *msg.JobRecord) string {
	if r.GetOversubscribe() != "" {
		return r.GetOversubscribe()
	}
	s := r.GetSpec()
	switch s.GetSharing() {
	case "exclusive":
		return "NO"
	case "user", "mcs", "topo":
		return strings.ToUpper(s.GetSharing())
	case "oversubscribe":
		return "YES"
	}
	return "OK"
}

// CommandLine is the script and its arguments, "" for none.
func CommandLine(s *msg.JobSpec) string {
	if len(s.GetArgs()) == 0 {
		return s.GetCommand()
	}
	return s.GetCommand() + " " + strings.Join(s.GetArgs(), " ")
}

// NodeCount is %D: for a pending job the minimum number of nodes.
func NodeCount(r *msg.JobRecord) uint32 {
	if r.GetNumNodes() == 0 && r.GetState() == msg.JobState_JOB_PENDING {
		return max(r.GetSpec().GetMinNodes(), 1)
	}
	return r.GetNumNodes()
}

// ExpandTasks calls yield with each task of an expression such as "1-5,8,12-30:2%4" until it returns false; it reports whether the
// expression is valid.
func ExpandTasks(tasks string, yield func(task uint32) bool) bool {
	list, _, _ := strings.Cut(tasks, "%")
	for _, element := range strings.Split(list, ",") {
		span, stepText, hasStep := strings.Cut(element, ":")
		first, last, isRange := strings.Cut(span, "-")
		from, err := strconv.ParseUint(first, 10, 32)
		if err != nil {
			return false
		}
		to, step := from, uint64(1)
		if isRange {
			if to, err = strconv.ParseUint(last, 10, 32); err != nil {
				return false
			}
		}
		if hasStep {
			if step, err = strconv.ParseUint(stepText, 10, 32); err != nil || step == 0 {
				return false
			}
		}
		for task := from; task <= to; task += step {
			if !yield(uint32(task)) {
				return true
			}
		}
	}
	return true
}
