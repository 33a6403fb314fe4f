package format

import (
	"strconv"
	"sync"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/tres"
)

// Jobs is the table of squeue's fields, built on first use.
var Jobs = sync.OnceValue(func() *Table[Job] { return NewTable(append(jobLetters(), jobNames()...)) })

type jobText = func(b []byte, c *Context, j Job) []byte

// text converts a function that returns a string to a field's function; unset replaces the empty string.
func text(unset string, get func(r *msg.JobRecord) string) jobText {
	return func(b []byte, _ *Context, j Job) []byte {
		if s := get(j.JobRecord); s != "" {
			return append(b, s...)
		}
		return append(b, unset...)
	}
}

func fixed(s string) jobText {
	return func(b []byte, _ *Context, _ Job) []byte { return append(b, s...) }
}

func count(get func(r *msg.JobRecord) uint64) jobText {
	return func(b []byte, _ *Context, j Job) []byte { return strconv.AppendUint(b, get(j.JobRecord), 10) }
}

// orStar is a count that Slurm prints as '*' if it was not requested.
func orStar(get func(s *msg.JobSpec) uint32) jobText {
	return func(b []byte, _ *Context, j Job) []byte {
		if n := get(j.GetSpec()); n != 0 {
			return strconv.AppendUint(b, uint64(n), 10)
		}
		return append(b, '*')
	}
}

func moment(get func(r *msg.JobRecord) int64) jobText {
	return func(b []byte, c *Context, j Job) []byte { return c.AppendTime(b, get(j.JobRecord), "N/A") }
}

func by[N uint32 | uint64 | int32 | int64](get func(r *msg.JobRecord) N) jobText {
	return func(b []byte, _ *Context, j Job) []byte { return appendNumberKey(b, int64(get(j.JobRecord))) }
}

func spec(get func(s *msg.JobSpec) string) func(*msg.JobRecord) string {
	return func(r *msg.JobRecord) string { return get(r.GetSpec()) }
}

const null = "(null)"

// jobLetters returns the fields with a letter, in the order of %all.
func jobLetters() []Field[Job] {
	priority := by((*msg.JobRecord).GetPriority)
	return []Field[Job]{
		{Letter: 'a', Names: []string{"account"}, Header: "ACCOUNT", Text: text(null, spec((*msg.JobSpec).GetAccount))},
		{Letter: 'b', Names: []string{"tres-per-node", "gres"}, Header: "TRES_PER_NODE",
			Text: text("N/A", spec((*msg.JobSpec).GetTresPerNode))},
		{Letter: 'c', Names: []string{"mincpus"}, Header: "MIN_CPUS",
			Text: count(func(r *msg.JobRecord) uint64 { return uint64(MinCPUs(r.GetSpec())) }),
			Key:  by(func(r *msg.JobRecord) uint32 { return MinCPUs(r.GetSpec()) })},
		{Letter: 'd', Names: []string{"mintmpdisk"}, Header: "MIN_TMP_DISK", Text: appendTmpDisk,
			Key: by(func(r *msg.JobRecord) uint64 { return r.GetSpec().GetTmpDiskMib() })},
		{Letter: 'e', Names: []string{"endtime"}, Header: "END_TIME", Text: appendEnd, Key: by(endKey)},
		{Letter: 'f', Names: []string{"feature"}, Header: "FEATURES", Text: text(null, spec((*msg.JobSpec).GetFeatures))},
		{Letter: 'g', Names: []string{"groupname"}, Header: "GROUP", Text: AppendGroup},
		{Letter: 'h', Names: []string{"oversubscribe", "shared"}, Header: "OVER_SUBSCRIBE", Text: text("", oversubscribe)},
		{Letter: 'i', Names: []string{"jobarrayid"}, Header: "JOBID", Text: AppendJobID, Key: appendIDKey},
		{Letter: 'j', Names: []string{"name"}, Header: "NAME", Text: text("", spec((*msg.JobSpec).GetName))},
		{Letter: 'k', Names: []string{"comment"}, Header: "COMMENT", Text: text(null, spec((*msg.JobSpec).GetComment))},
		{Letter: 'l', Whole: true, Names: []string{"timelimit"}, Header: "TIME_LIMIT",
			Text: func(b []byte, _ *Context, j Job) []byte { return appendLimit(b, j.GetTimeLimitS()) },
			Key:  by((*msg.JobRecord).GetTimeLimitS)},
		{Letter: 'm', Names: []string{"minmemory"}, Header: "MIN_MEMORY", Text: appendMemory,
			Key: by(func(r *msg.JobRecord) uint64 { m, _ := Memory(r.GetSpec()); return m })},
		{Letter: 'n', Names: []string{"reqnodes"}, Header: "REQ_NODES", Text: text("", spec((*msg.JobSpec).GetReqNodes))},
		{Letter: 'o', Names: []string{"command"}, Header: "COMMAND", Text: text(null, spec(CommandLine)), NoSort: true},
		{Letter: 'p', Names: []string{"priority"}, Header: "PRIORITY", Text: appendPriorityShare, Key: priority},
		{Letter: 'q', Names: []string{"qos"}, Header: "QOS", Text: text(null, spec((*msg.JobSpec).GetQos))},
		{Letter: 'r', Names: []string{"reason"}, Header: "REASON", Text: text("", Reason)},
		{Letter: 's', Names: []string{"selectjobinfo"}, Header: "", Text: fixed(""), NoSort: true},
		{Letter: 't', Names: []string{"statecompact"}, Header: "ST", Text: func(b []byte, _ *Context,
			j Job) []byte {
			return append(b, jobState(j.JobRecord, 1)...)
		}},
		{Letter: 'u', Names: []string{"username"}, Header: "USER", Text: AppendUser},
		{Letter: 'v', Names: []string{"reservation"}, Header: "RESERVATION",
			Text: text(null, func(r *msg.JobRecord) string { return Or(r.GetResvName(), r.GetSpec().GetReservation()) })},
		{Letter: 'w', Names: []string{"wckey"}, Header: "WCKEY", Text: text(null, spec((*msg.JobSpec).GetWckey))},
		{Letter: 'x', Header: "EXC_NODES", Text: text("", spec((*msg.JobSpec).GetExcNodes))},
		{Letter: 'y', Names: []string{"nice"}, Header: "NICE", Text: func(b []byte, _ *Context, j Job) []byte {
			return strconv.AppendInt(b, int64(j.GetSpec().GetNice()), 10)
		},
			Key: by(func(r *msg.JobRecord) int32 { return r.GetSpec().GetNice() })},
		{Letter: 'z', Names: []string{"sct"}, Header: "S:C:T", Text: appendSCT},
		{Letter: 'A', Names: []string{"jobid"}, Header: "JOBID", Text: count(func(r *msg.JobRecord) uint64 { return uint64(r.GetId()) }),
			Key: by((*msg.JobRecord).GetId)},
		{Letter: 'B', Names: []string{"batchhost"}, Header: "EXEC_HOST", Text: text("n/a", (*msg.JobRecord).GetBatchHost)},
		{Letter: 'C', Names: []string{"numcpus"}, Header: "CPUS",
			Text: count(func(r *msg.JobRecord) uint64 { return uint64(r.GetNumCpus()) }), Key: by((*msg.JobRecord).GetNumCpus)},
		{Letter: 'D', Names: []string{"numnodes"}, Header: "NODES",
			Text: count(func(r *msg.JobRecord) uint64 { return uint64(NodeCount(r)) }), Key: by(NodeCount)},
		{Letter: 'E', Names: []string{"dependency"}, Header: "DEPENDENCY", Text: text(null, (*msg.JobRecord).GetDependencyShown)},
		{Letter: 'F', Names: []string{"arrayjobid"}, Header: "ARRAY_JOB_ID", Text: count(arrayID), NoSort: true},
		{Letter: 'G', Names: []string{"groupid"}, Header: "GROUP",
			Text: count(func(r *msg.JobRecord) uint64 { return uint64(r.GetSpec().GetGid()) }),
			Key:  by(func(r *msg.JobRecord) uint32 { return r.GetSpec().GetGid() })},
		{Letter: 'H', Names: []string{"sockets"}, Header: "SOCKETS_PER_NODE", Text: orStar((*msg.JobSpec).GetSocketsPerNode)},
		{Letter: 'I', Names: []string{"cores"}, Header: "CORES_PER_SOCKET", Text: orStar((*msg.JobSpec).GetCoresPerSocket)},
		{Letter: 'J', Names: []string{"threads"}, Header: "THREADS_PER_CORE", Text: orStar((*msg.JobSpec).GetThreadsPerCore)},
		{Letter: 'K', Names: []string{"arraytaskid"}, Header: "ARRAY_TASK_ID", Text: appendTaskID},
		{Letter: 'L', Whole: true, Names: []string{"timeleft"}, Header: "TIME_LEFT", Text: appendLeft, Key: appendLeftKey},
		{Letter: 'M', Whole: true, Names: []string{"timeused"}, Header: "TIME",
			Text: func(b []byte, c *Context, j Job) []byte { return appendElapsed(b, UsedSeconds(c, j.JobRecord)) },
			Key:  func(b []byte, c *Context, j Job) []byte { return appendNumberKey(b, UsedSeconds(c, j.JobRecord)) }},
		{Letter: 'N', Names: []string{"nodelist"}, Header: "NODELIST", Text: text("", (*msg.JobRecord).GetNodeList), Key: appendNodesKey},
		{Letter: 'O', Names: []string{"contiguous"}, Header: "CONTIGUOUS",
			Text: flag(func(r *msg.JobRecord) bool { return r.GetSpec().GetContiguous() })},
		{Letter: 'P', Names: []string{"partition"}, Header: "PARTITION",
			Text: func(b []byte, _ *Context, j Job) []byte { return append(b, j.ShownPartition()...) }},
		{Letter: 'Q', Names: []string{"prioritylong"}, Header: "PRIORITY",
			Text: count(func(r *msg.JobRecord) uint64 { return uint64(r.GetPriority()) }), Key: priority},
		{Letter: 'R', Names: []string{"reasonlist"}, Header: "NODELIST(REASON)", Text: appendReasonList, NoSort: true},
		{Letter: 'S', Names: []string{"starttime"}, Header: "START_TIME", Text: moment(Started), Key: by(startKey)},
		{Letter: 'T', Names: []string{"state"}, Header: "STATE", Text: func(b []byte, _ *Context,
			j Job) []byte {
			return append(b, jobState(j.JobRecord, 0)...)
		}},
		{Letter: 'U', Names: []string{"userid"}, Header: "UID",
			Text: count(func(r *msg.JobRecord) uint64 { return uint64(r.GetSpec().GetUid()) }),
			Key:  by(func(r *msg.JobRecord) uint32 { return r.GetSpec().GetUid() })},
		{Letter: 'V', Names: []string{"submittime"}, Header: "SUBMIT_TIME", Text: moment((*msg.JobRecord).GetSubmitNs),
			Key: by((*msg.JobRecord).GetSubmitNs)},
		{Letter: 'W', Names: []string{"licenses"}, Header: "LICENSES", Text: text(null, spec((*msg.JobSpec).GetLicenses))},
		{Letter: 'X', Names: []string{"corespec"}, Header: "CORE_SPEC", Text: appendCoreSpec},
		{Letter: 'Y', Names: []string{"schednodes"}, Header: "SCHEDNODES", Text: text(null, (*msg.JobRecord).GetExpectedNodes)},
		{Letter: 'Z', Names: []string{"workdir"}, Header: "WORK_DIR", Text: text("", spec((*msg.JobSpec).GetWorkDir))},
	}
}

func flag(get func(r *msg.JobRecord) bool) jobText {
	return func(b []byte, _ *Context, j Job) []byte {
		if get(j.JobRecord) {
			return append(b, '1')
		}
		return append(b, '0')
	}
}

func arrayID(r *msg.JobRecord) uint64 {
	if r.GetArrayJobId() != 0 {
		return uint64(r.GetArrayJobId())
	}
	return uint64(r.GetId())
}

func appendMiB(b []byte, c *Context, mib uint64) []byte {
	if c.NoConvert && mib > 0 {
		return append(strconv.AppendUint(b, mib, 10), 'M')
	}
	return append(b, tres.FormatMiB(mib)...)
}

func appendTmpDisk(b []byte, c *Context, j Job) []byte {
	return appendMiB(b, c, j.GetSpec().GetTmpDiskMib())
}

func appendMemory(b []byte, c *Context, j Job) []byte {
	mib, _ := Memory(j.GetSpec())
	return appendMiB(b, c, mib)
}

func appendEnd(b []byte, c *Context, j Job) []byte {
	ns, unlimited := Ends(j.JobRecord)
	if unlimited {
		return append(b, "NONE"...)
	}
	return c.AppendTime(b, ns, "N/A")
}

func endKey(r *msg.JobRecord) int64 {
	ns, unlimited := Ends(r)
	if unlimited {
		return 1<<63 - 1
	}
	return ns
}

// startKey sorts jobs without an expected start last.
func startKey(r *msg.JobRecord) int64 {
	if ns := Started(r); ns != 0 {
		return ns
	}
	return 1<<63 - 1
}

func AppendUser(b []byte, c *Context, j Job) []byte {
	s := j.GetSpec()
	if s.GetUser() != "" {
		return append(b, s.GetUser()...)
	}
	return append(b, c.user(s.GetUid())...)
}

func (c *Context) user(uid uint32) string {
	if c.UserName != nil {
		if name := c.UserName(uid); name != "" {
			return name
		}
	}
	return strconv.FormatUint(uint64(uid), 10)
}

func (c *Context) group(gid uint32) string {
	if c.GroupName != nil {
		if name := c.GroupName(gid); name != "" {
			return name
		}
	}
	return strconv.FormatUint(uint64(gid), 10)
}

func AppendGroup(b []byte, c *Context, j Job) []byte {
	s := j.GetSpec()
	if s.GetGroup() != "" {
		return append(b, s.GetGroup()...)
	}
	return append(b, c.group(s.GetGid())...)
}

// appendPriorityShare is %p: the priority as a fraction of the largest possible one.
func appendPriorityShare(b []byte, _ *Context, j Job) []byte {
	return strconv.AppendFloat(b, float64(j.GetPriority())/float64(msg.Unlimited), 'f', 14, 64)
}

func appendSCT(b []byte, c *Context, j Job) []byte {
	b = orStar((*msg.JobSpec).GetSocketsPerNode)(b, c, j)
	b = orStar((*msg.JobSpec).GetCoresPerSocket)(append(b, ':'), c, j)
	return orStar((*msg.JobSpec).GetThreadsPerCore)(append(b, ':'), c, j)
}

func appendTaskID(b []byte, c *Context, j Job) []byte {
	switch r := j.JobRecord; {
	case r.GetArrayJobId() == 0:
		return append(b, "N/A"...)
	case j.IsTask:
		return strconv.AppendUint(b, uint64(j.Task), 10)
	case r.GetArrayTasks() != "":
		return append(b, CutTasks(r.GetArrayTasks(), c.BitstrLen)...)
	default:
		return strconv.AppendUint(b, uint64(r.GetArrayTaskId()), 10)
	}
}

func appendLeft(b []byte, c *Context, j Job) []byte {
	left, limited := leftSeconds(c, j.JobRecord)
	switch {
	case !limited:
		return append(b, "UNLIMITED"...)
	case j.GetTimeLimitS() == 0:
		return append(b, "NOT_SET"...)
	}
	return appendElapsed(b, left)
}

// appendLeftKey sorts jobs without a limit last.
func appendLeftKey(b []byte, c *Context, j Job) []byte {
	left, limited := leftSeconds(c, j.JobRecord)
	if !limited {
		left = 1<<63 - 1
	}
	return appendNumberKey(b, left)
}

func appendReasonList(b []byte, _ *Context, j Job) []byte {
	if !showsReason(j.JobRecord) {
		return append(b, j.GetNodeList()...)
	}
	b = append(b, '(')
	b = append(b, Reason(j.JobRecord)...)
	return append(b, ')')
}

func appendCoreSpec(b []byte, _ *Context, j Job) []byte {
	switch s := j.GetSpec(); {
	case s.GetCoreSpec() != 0:
		return strconv.AppendUint(b, uint64(s.GetCoreSpec()), 10)
	case s.GetThreadSpec() != 0:
		return append(strconv.AppendUint(b, uint64(s.GetThreadSpec()), 10), 'T')
	}
	return append(b, "N/A"...)
}

// appendIDKey sorts by job, then by task; the rest of an array comes after its started tasks.
func appendIDKey(b []byte, _ *Context, j Job) []byte {
	return appendNumberKey(appendNumberKey(b, int64(arrayID(j.JobRecord))), int64(taskKey(j)))
}

func taskKey(j Job) uint64 {
	switch {
	case j.IsTask:
		return uint64(j.Task)
	case j.GetArrayTasks() != "":
		return 1 << 32
	}
	return uint64(j.GetArrayTaskId())
}

// appendNodesKey sorts node lists naturally, jobs without nodes last.
func appendNodesKey(b []byte, _ *Context, j Job) []byte { return appendHostsKey(b, j.GetNodeList()) }
