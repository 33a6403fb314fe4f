package format

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/terminal"
	"github.com/sluice-hpc/sluice/conf/filename"
	"github.com/sluice-hpc/sluice/conf/timespec"
)

// Block formats one record for scontrol show: keys with values, several per line, or all on one line (-o).
type Block struct {
	b   []byte
	sep string
	c   *Context
}

func newBlock(b []byte, c *Context, oneLine bool) *Block {
	if oneLine {
		return &Block{b, " ", c}
	}
	return &Block{b, "\n   ", c}
}

// line begins the next line of the block.
func (k *Block) line() { k.b = append(k.b, k.sep...) }

// put writes "key=value"; include a leading blank for every key except the first in a line.
func (k *Block) put(key, value string) {
	k.b = append(append(k.b, key...), '=')
	start := len(k.b)
	k.b = terminal.EscapeTail(append(k.b, value...), start)
}

func (k *Block) num(key string, n uint64) { k.put(key, strconv.FormatUint(n, 10)) }

func (k *Block) bit(key string, set bool) {
	if set {
		k.put(key, "1")
	} else {
		k.put(key, "0")
	}
}

func (k *Block) when(key string, ns int64, unset string) {
	k.put(key, string(k.c.AppendTime(nil, ns, unset)))
}

func Or(s, unset string) string {
	if s == "" {
		return unset
	}
	return s
}

// paths returns the file name symbols of a job's streams (sbatch(1), "filename pattern").
func paths(r *msg.JobRecord) (v filename.Values) {
	s := r.GetSpec()
	v = filename.Values{JobID: r.GetId(), ArrayJobID: r.GetArrayJobId(), ArrayTaskID: r.GetArrayTaskId(), JobName: s.GetName(),
		User: s.GetUser(), Host: r.GetBatchHost()}
	if r.GetArrayJobId() != 0 {
		v.TaskUnknown = r.GetArrayTasks() != ""
		v.IsArrayTask = !v.TaskUnknown
	}
	return v
}

// StdOut is the file of a job's standard output.
func StdOut(r *msg.JobRecord) string {
	v := paths(r)
	return filename.Output(r.GetSpec().GetStdOut(), r.GetSpec().GetWorkDir(), v)
}

// StdErr is the file of a job's standard error; without a pattern of its own that of the output.
func StdErr(r *msg.JobRecord) string {
	v := paths(r)
	if name := filename.Error(r.GetSpec().GetStdErr(), r.GetSpec().GetWorkDir(), v); name != "" {
		return name
	}
	return StdOut(r)
}

// errPattern is the pattern for standard error; without one that of the output.
func errPattern(s *msg.JobSpec) string {
	if p := s.GetStdErr(); p != "" {
		return p
	}
	return s.GetStdOut()
}

// StdIn is the file of a job's standard input.
func StdIn(r *msg.JobRecord) string {
	v := paths(r)
	return filename.Input(r.GetSpec().GetStdIn(), r.GetSpec().GetWorkDir(), v)
}

// askedFile is the file of a stream as requested, below the working directory, with its symbols unexpanded. They are expanded on
// request (squeue(1), --expand-patterns) and for a default file.
func askedFile(c *Context, r *msg.JobRecord, asked func(*msg.JobSpec) string, called func(*msg.JobRecord) string) string {
	pattern := asked(r.GetSpec())
	if c.Expand || pattern == "" || strings.EqualFold(pattern, "none") {
		return called(r)
	}
	if strings.HasPrefix(pattern, "/") {
		return pattern
	}
	return strings.TrimRight(r.GetSpec().GetWorkDir(), "/") + "/" + pattern
}

// ExitCode writes a wait status as Slurm does: "code:signal".
func ExitCode(status uint32) string {
	return strconv.FormatUint(uint64(status>>8&0xff), 10) + ":" + strconv.FormatUint(uint64(status&0x7f), 10)
}

// AppendJob writes a job as `scontrol show job` does, with the keys and order of the original, so that its parsers work. details is
// the number of -d. The job's usage (jobuse.go), and for a job that waits or failed the key Diagnosis, come last, where they do not
// disturb readers that do not know them. With oneLine, blanks of the diagnosis become underscores, as those of Reason always do.
func AppendJob(b []byte, c *Context, r *msg.JobRecord, oneLine bool, details int) []byte {
	k := newBlock(b, c, oneLine)
	jobIdentity(k, r)
	jobStateLines(k, r, details)
	jobTimes(k, r)
	jobPlace(k, r)
	jobShape(k, r, details)
	jobFiles(k, r)
	jobTresRequests(k, r)
	jobUse(k, r, details)
	if d := timespec.LocalTimes(r.GetReasonDetail(), c.location()); d != "" {
		k.line()
		if oneLine {
			d = strings.ReplaceAll(d, " ", "_")
		}
		k.put("Diagnosis", d)
	}
	if oneLine {
		return append(k.b, " \n"...)
	}
	return append(k.b, "\n   \n\n"...)
}

func jobIdentity(k *Block, r *msg.JobRecord) {
	s := r.GetSpec()
	k.num("JobId", uint64(r.GetId()))
	if r.GetArrayJobId() != 0 {
		k.num(" ArrayJobId", uint64(r.GetArrayJobId()))
		k.put(" ArrayTaskId", string(appendTaskID(nil, k.c, Job{JobRecord: r})))
		if r.GetArrayThrottle() != 0 {
			k.num(" ArrayTaskThrottle", uint64(r.GetArrayThrottle()))
		}
	}
	k.put(" JobName", s.GetName())
	k.line()
	k.put("UserId", string(AppendUser(nil, k.c, Job{JobRecord: r}))+"("+strconv.FormatUint(uint64(s.GetUid()), 10)+")")
	k.put(" GroupId", string(AppendGroup(nil, k.c, Job{JobRecord: r}))+"("+strconv.FormatUint(uint64(s.GetGid()), 10)+")")
	k.put(" MCS_label", Or(s.GetMcsLabel(), "N/A"))
	k.line()
	k.num("Priority", uint64(r.GetPriority()))
	k.put(" Nice", strconv.FormatInt(int64(s.GetNice()), 10))
	k.put(" Account", Or(s.GetAccount(), null))
	k.put(" QOS", Or(s.GetQos(), null))
	if s.GetWckey() != "" {
		k.put(" WCKey", s.GetWckey())
	}
}

func jobStateLines(k *Block, r *msg.JobRecord, details int) {
	s := r.GetSpec()
	k.line()
	k.put("JobState", JobStateName(r))
	k.put(" Reason", strings.ReplaceAll(Reason(r), " ", "_"))
	if r.GetFailedNode() != "" {
		k.put(" FailedNode", r.GetFailedNode())
	}
	k.put(" Dependency", Or(r.GetDependencyShown(), null))
	k.line()
	k.bit("Requeue", s.GetRequeue() != msg.No)
	k.num(" Restarts", uint64(r.GetRestarts()))
	k.bit(" BatchFlag", !s.GetInteractive())
	k.bit(" Reboot", s.GetReboot())
	k.put(" ExitCode", ExitCode(r.GetExitStatus()))
	if details > 0 {
		k.line()
		k.put("DerivedExitCode", ExitCode(r.GetDerivedStatus()))
	}
}

func jobTimes(k *Block, r *msg.JobRecord) {
	s := r.GetSpec()
	k.line()
	k.put("RunTime", timespec.Clock(max(UsedSeconds(k.c, r), 0)))
	k.put(" TimeLimit", clockLimit(r.GetTimeLimitS(), "Partition_Limit"))
	k.put(" TimeMin", clockLimit(s.GetTimeMinS(), "N/A"))
	k.line()
	k.when("SubmitTime", r.GetSubmitNs(), "Unknown")
	k.when(" EligibleTime", r.GetEligibleNs(), "Unknown")
	k.line()
	k.when("AccrueTime", r.GetAccrueNs(), "Unknown")
	k.line()
	k.when("StartTime", Started(r), "Unknown")
	if end, unlimited := Ends(r); unlimited && r.GetState() != msg.JobState_JOB_PENDING {
		k.put(" EndTime", "Unlimited")
	} else {
		k.when(" EndTime", end, "Unknown")
	}
	k.when(" Deadline", s.GetDeadlineNs(), "N/A")
	k.line()
	k.when("SuspendTime", r.GetSuspendNs(), "None")
	k.put(" SecsPreSuspend", strconv.FormatInt(r.GetPreSuspendNs()/int64(time.Second), 10))
	k.when(" LastSchedEval", r.GetLastSchedNs(), "Unknown")
	k.put(" Scheduler", Or(r.GetScheduler(), "Main"))
}

func clockLimit(s uint32, unset string) string {
	switch s {
	case 0:
		return unset
	case msg.Unlimited:
		return "UNLIMITED"
	}
	return timespec.Clock(LimitSeconds(s))
}

func jobPlace(k *Block, r *msg.JobRecord) {
	s := r.GetSpec()
	k.line()
	k.put("Partition", Job{JobRecord: r}.ShownPartition())
	k.put(" AllocNode:Sid", Or(s.GetAllocNode(), null)+":"+strconv.FormatUint(uint64(s.GetAllocSid()), 10))
	k.line()
	k.put("ReqNodeList", Or(s.GetReqNodes(), null))
	k.put(" ExcNodeList", Or(s.GetExcNodes(), null))
	k.line()
	k.put("NodeList", r.GetNodeList())
	if r.GetExpectedNodes() != "" && r.GetState() == msg.JobState_JOB_PENDING {
		k.put(" SchedNodeList", r.GetExpectedNodes())
	}
	switch features, host := s.GetBatchFeatures(), r.GetBatchHost(); {
	case features != "" && host != "":
		k.line()
		k.put("BatchFeatures", features)
		k.put(" BatchHost", host)
	case features != "":
		k.line()
		k.put("BatchFeatures", features)
	case host != "":
		k.line()
		k.put("BatchHost", host)
	}
}

// star formats a count that was not requested as '*'.
func star(n uint32) string {
	if n == 0 {
		return "*"
	}
	return strconv.FormatUint(uint64(n), 10)
}

func jobShape(k *Block, r *msg.JobRecord, details int) {
	s := r.GetSpec()
	k.line()
	k.num("NumNodes", uint64(NodeCount(r)))
	if r.GetState() == msg.JobState_JOB_PENDING && s.GetMaxNodes() != 0 {
		k.b = strconv.AppendUint(append(k.b, '-'), uint64(s.GetMaxNodes()), 10)
	}
	k.num(" NumCPUs", uint64(r.GetNumCpus()))
	k.num(" NumTasks", uint64(max(r.GetNumTasks(), 1)))
	k.num(" CPUs/Task", uint64(max(s.GetCpusPerTask(), 1)))
	k.put(" ReqB:S:C:T", "0:0:"+star(s.GetCoresPerSocket())+":"+star(s.GetThreadsPerCore()))
	k.line()
	k.put("ReqTRES", Or(r.GetReqTres(), null))
	k.line()
	k.put("AllocTRES", Or(r.GetAllocTres(), null))
	k.line()
	k.put("Socks/Node", star(s.GetSocketsPerNode()))
	k.put(" NtasksPerN:B:S:C", strconv.FormatUint(uint64(s.GetNtasksPerNode()), 10)+":0:"+star(s.GetNtasksPerSocket())+":"+
		star(s.GetNtasksPerCore()))
	if core := string(appendCoreSpec(nil, k.c, Job{JobRecord: r})); core == "N/A" {
		k.put(" CoreSpec", "*")
	} else {
		k.put(" CoreSpec", core)
	}
	if details > 0 {
		jobAllocation(k, r)
	}
	k.line()
	k.num("MinCPUsNode", uint64(MinCPUs(s)))
	mib, perCPU := Memory(s)
	key := " MinMemoryNode"
	if perCPU {
		key = " MinMemoryCPU"
	}
	k.put(key, string(appendMiB(nil, k.c, mib)))
	k.put(" MinTmpDiskNode", string(appendMiB(nil, k.c, s.GetTmpDiskMib())))
	k.line()
	k.put("Features", Or(s.GetFeatures(), null))
	k.put(" DelayBoot", timespec.Clock(int64(s.GetDelayBootS())))
	if s.GetPrefer() != "" {
		k.line()
		k.put("Prefer", s.GetPrefer())
	}
	if in := Or(r.GetResvName(), s.GetReservation()); in != "" {
		k.line()
		k.put("Reservation", in)
	}
	k.line()
	k.put("OverSubscribe", oversubscribe(r))
	k.bit(" Contiguous", s.GetContiguous())
	k.put(" Licenses", Or(s.GetLicenses(), null))
	k.put(" Network", Or(s.GetNetwork(), null))
}

// jobAllocation adds the share of each node for -d; nodes with the same share are on one line.
func jobAllocation(k *Block, r *msg.JobRecord) {
	if len(r.GetAlloc()) == 0 {
		return
	}
	k.line()
	k.put("JOB_GRES", Or(jobGres(r.GetAlloc()), null))
	for i := 0; i < len(r.GetAlloc()); {
		first := r.GetAlloc()[i]
		var nodes []string
		for ; i < len(r.GetAlloc()) && sameShare(first, r.GetAlloc()[i]); i++ {
			nodes = append(nodes, r.GetAlloc()[i].GetNode())
		}
		k.line()
		k.put("  Nodes", foldNodes(nodes))
		k.put(" CPU_IDs", first.GetCpuIds())
		k.num(" Mem", first.GetMemMib())
		k.put(" GRES", first.GetGres())
	}
}

// jobGres is the job's total of generic resources: "gpu:a100:4,shard:2".
func jobGres(alloc []*msg.NodeAlloc) string {
	total := map[string]uint64{}
	var order []string
	for _, a := range alloc {
		text := a.GetGres()
		for text != "" {
			var one string
			if open := strings.IndexByte(text, '('); open >= 0 && !strings.Contains(text[:open], ",") {
				var inside string
				one, inside = text[:open], text[open:]
				_, text, _ = strings.Cut(inside, ")")
				text = strings.TrimPrefix(text, ",")
			} else {
				one, text, _ = strings.Cut(text, ",")
			}
			at := strings.LastIndexByte(one, ':')
			n, err := strconv.ParseUint(one[at+1:], 10, 64)
			if at < 0 || err != nil {
				continue
			}
			if _, known := total[one[:at]]; !known {
				order = append(order, one[:at])
			}
			total[one[:at]] += n
		}
	}
	for i, name := range order {
		order[i] = name + ":" + strconv.FormatUint(total[name], 10)
	}
	return strings.Join(order, ",")
}

func sameShare(a, b *msg.NodeAlloc) bool {
	return a.GetCpuIds() == b.GetCpuIds() && a.GetCpus() == b.GetCpus() && a.GetMemMib() == b.GetMemMib() && a.GetGres() == b.GetGres()
}

func jobFiles(k *Block, r *msg.JobRecord) {
	s := r.GetSpec()
	k.line()
	k.put("Command", Or(CommandLine(s), null))
	k.line()
	k.put("WorkDir", s.GetWorkDir())
	comments := [...][2]string{{"AdminComment", s.GetAdminComment()}, {"SystemComment", r.GetSystemComment()}, {"Comment", s.GetComment()}}
	for _, pair := range comments {
		if pair[1] != "" {
			k.line()
			k.put(pair[0], pair[1])
			k.b = append(k.b, ' ')
		}
	}
	if !s.GetInteractive() {
		k.line()
		k.put("StdErr", StdErr(r))
		k.line()
		k.put("StdIn", StdIn(r))
		k.line()
		k.put("StdOut", StdOut(r))
	}
	if s.GetSwitches() != "" {
		k.line()
		count, wait := ParseSwitches(s.GetSwitches())
		k.put("Switches", fmt.Sprintf("%d@%s", count, timespec.Clock(wait)))
	}
}

// ParseSwitches splits "2@60:00" into the maximum number of leaf switches, 0 = any, and how many seconds to wait for it.
func ParseSwitches(text string) (count, waitS int64) {
	number, wait, _ := strings.Cut(text, "@")
	count, _ = strconv.ParseInt(number, 10, 32)
	for _, part := range strings.FieldsFunc(wait, func(r rune) bool { return r == ':' }) {
		n, _ := strconv.ParseInt(part, 10, 32)
		waitS = waitS*60 + n
	}
	if !strings.Contains(wait, ":") {
		waitS *= 60
	}
	return count, waitS
}

func switchCount(s *msg.JobSpec) string {
	if s.GetSwitches() == "" {
		return ""
	}
	n, _ := ParseSwitches(s.GetSwitches())
	return strconv.FormatInt(n, 10)
}

func switchWait(s *msg.JobSpec) string {
	if s.GetSwitches() == "" {
		return ""
	}
	_, wait := ParseSwitches(s.GetSwitches())
	return timespec.Elapsed(wait)
}

func jobTresRequests(k *Block, r *msg.JobRecord) {
	s := r.GetSpec()
	if s.GetContainer() != "" {
		k.line()
		k.put("Container", s.GetContainer())
	}
	switch flags := s.GetGresFlags(); {
	case strings.Contains(flags, "enforce-binding"):
		k.line()
		k.put("GresEnforceBind", "Yes")
	case strings.Contains(flags, "disable-binding"):
		k.line()
		k.put("GresEnforceBind", "No")
	}
	if s.GetCron() != "" {
		k.line()
		k.put("CronJob", "Yes CrontabSpec=\""+s.GetCron()+"\"")
	}
	if s.GetKillOnInvalidDep() != 0 {
		k.line()
		k.put("KillOInInvalidDependent", map[bool]string{true: "Yes", false: "No"}[s.GetKillOnInvalidDep() == msg.Yes])
	}
	if s.GetSpread() {
		k.line()
		k.put("SpreadJob", "Yes")
	}
	pairs := [...][2]string{
		{"CpusPerTres", s.GetCpusPerTres()}, {"MemPerTres", s.GetMemPerTres()}, {"TresBind", s.GetTresBind()},
		{"TresFreq", s.GetTresFreq()},
		{"TresPerJob", s.GetTresPerJob()}, {"TresPerNode", s.GetTresPerNode()}, {"TresPerSocket", s.GetTresPerSocket()},
		{"TresPerTask", s.GetTresPerTask()},
	}
	for _, pair := range pairs {
		if pair[1] != "" {
			k.line()
			k.put(pair[0], pair[1])
		}
	}
	if s.GetMailType() != 0 {
		k.line()
		k.put("MailUser", Or(s.GetMailUser(), s.GetUser()))
		k.put(" MailType", mailTypes(s.GetMailType()))
	}
	if s.GetNtasksPerTres() != 0 {
		k.line()
		k.num("NtasksPerTRES", uint64(s.GetNtasksPerTres()))
	}
}

// mailTypes names the events of --mail-type in scontrol's order.
func mailTypes(set uint32) string {
	names := [...]struct {
		bit  uint32
		name string
	}{
		{msg.MailArrayTasks, "ARRAY_TASKS"}, {msg.MailInvalidDepend, "INVALID_DEPEND"}, {msg.MailBegin, "BEGIN"}, {msg.MailEnd, "END"},
		{msg.MailFail, "FAIL"}, {msg.MailRequeue, "REQUEUE"},
		{msg.MailStageOut, "STAGE_OUT"}, {msg.MailTime50, "TIME_LIMIT_50"}, {msg.MailTime80, "TIME_LIMIT_80"},
		{msg.MailTime90, "TIME_LIMIT_90"},
		{msg.MailTime100, "TIME_LIMIT"},
	}
	var out []string
	for _, n := range names {
		if set&n.bit != 0 {
			out = append(out, n.name)
		}
	}
	return strings.Join(out, ",")
}
