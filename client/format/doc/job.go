// Package doc writes records as the elements of --json and --yaml documents (data_parser v0.0.42).
package doc

import (
	"cmp"
	"math/bits"
	"strconv"
	"strings"
	"syscall"

	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/jsonout"
	"github.com/sluice-hpc/sluice/client/msg"
)

// WriteJob writes a job as an element of "jobs" (data_parser v0.0.42, job_info): names, order and shapes are Slurm's. Features that
// Sluice lacks are written as by a Slurm without them.
func WriteJob(w *jsonout.Writer, c *format.Context, j format.Job) {
	w.Object("")
	jobHead(w, c, j)
	jobRequests(w, c, j)
	jobResources(w, c, j.JobRecord)
	jobSizes(w, j)
	jobTail(w, c, j)
	w.End()
}

func jobHead(w *jsonout.Writer, c *format.Context, j format.Job) {
	r, s := j.JobRecord, j.GetSpec()
	w.Str("account", s.GetAccount())
	w.Seconds("accrue_time", r.GetAccrueNs())
	w.Str("admin_comment", s.GetAdminComment())
	w.Str("allocating_node", s.GetAllocNode())
	w.Number("array_job_id", uint64(r.GetArrayJobId()))
	tasks := r.GetArrayTasks()
	switch {
	case j.IsTask:
		tasks = ""
		w.Number("array_task_id", uint64(j.Task))
	case r.GetArrayJobId() != 0 && tasks == "":
		w.Number("array_task_id", uint64(r.GetArrayTaskId()))
	default:
		w.Unset("array_task_id")
	}
	w.Number("array_max_tasks", uint64(r.GetArrayThrottle()))
	w.Str("array_task_string", tasks)
	w.Int("association_id", 0)
	w.Str("batch_features", s.GetBatchFeatures())
	w.Bool("batch_flag", !s.GetInteractive())
	w.Str("batch_host", r.GetBatchHost())
	w.Strs("flags", jobFlags(r)...)
	w.Str("burst_buffer", "")
	w.Str("burst_buffer_state", "")
	w.Str("cluster", c.Cluster)
	w.Str("cluster_features", s.GetClusterFeatures())
	w.Str("command", format.CommandLine(s))
	w.Str("comment", s.GetComment())
	w.Str("container", s.GetContainer())
	w.Str("container_id", "")
	w.Bool("contiguous", s.GetContiguous())
	w.Int("core_spec", int64(s.GetCoreSpec()))
	if s.GetThreadSpec() != 0 {
		w.Int("thread_spec", int64(s.GetThreadSpec()))
	} else {
		w.Int("thread_spec", 32766) // Slurm's "not set", as it prints it
	}
	w.Optional("cores_per_socket", uint64(s.GetCoresPerSocket()))
	w.FloatNumber("billable_tres", true, billing(r.GetAllocTres()))
}

func jobRequests(w *jsonout.Writer, c *format.Context, j format.Job) {
	r, s := j.JobRecord, j.GetSpec()
	w.Number("cpus_per_task", uint64(max(s.GetCpusPerTask(), 1)))
	w.Unset("cpu_frequency_minimum")
	w.Unset("cpu_frequency_maximum")
	w.Unset("cpu_frequency_governor")
	w.Str("cpus_per_tres", s.GetCpusPerTres())
	w.Str("cron", s.GetCron())
	w.Seconds("deadline", s.GetDeadlineNs())
	w.Number("delay_boot", uint64(s.GetDelayBootS()))
	w.Str("dependency", r.GetDependencyShown())
	exitCode(w, "derived_exit_code", r.GetDerivedStatus())
	w.Seconds("eligible_time", r.GetEligibleNs())
	end, _ := format.Ends(r)
	w.Seconds("end_time", end)
	w.Str("excluded_nodes", s.GetExcNodes())
	exitCode(w, "exit_code", r.GetExitStatus())
	w.Str("extra", s.GetExtra())
	w.Str("failed_node", r.GetFailedNode())
	w.Str("features", s.GetFeatures())
	w.Str("federation_origin", "")
	w.Str("federation_siblings_active", "")
	w.Str("federation_siblings_viable", "")
	w.List("gres_detail")
	for _, a := range r.GetAlloc() {
		if a.GetGres() != "" {
			w.Str("", a.GetGres())
		}
	}
	w.End()
	w.Int("group_id", int64(s.GetGid()))
	w.Str("group_name", string(format.AppendGroup(nil, c, j)))
	w.Number("het_job_id", 0)
	w.Str("het_job_id_set", "")
	w.Number("het_job_offset", 0)
	w.Int("job_id", int64(r.GetId()))
}

// jobResources writes the job's allocation, node by node.
func jobResources(w *jsonout.Writer, c *format.Context, r *msg.JobRecord) {
	w.Object("job_resources")
	alloc := r.GetAlloc()
	if len(alloc) == 0 {
		w.Strs("select_type")
	} else {
		w.Strs("select_type", "CORE", "MEMORY")
	}
	w.Object("nodes")
	w.Int("count", int64(len(alloc)))
	if len(alloc) == 0 {
		w.Strs("select_type")
	} else {
		w.Strs("select_type", "AVAILABLE")
	}
	w.Str("list", r.GetNodeList())
	w.Bool("whole", r.GetSpec().GetSharing() == "exclusive")
	w.List("allocation")
	cpus := int64(0)
	for i, a := range alloc {
		cpus += int64(a.GetCpus())
		w.Object("")
		w.Int("index", int64(i))
		w.Str("name", a.GetNode())
		w.Object("cpus")
		w.Int("count", int64(a.GetCpus()))
		w.Int("used", 0)
		w.End()
		w.Object("memory")
		w.Int("used", 0)
		w.Int("allocated", int64(a.GetMemMib()))
		w.End()
		cores(w, c, a)
		w.End()
	}
	w.End()
	w.End()
	w.Int("cpus", cpus)
	w.Optional("threads_per_core", uint64(r.GetSpec().GetThreadsPerCore()))
	w.End()
}

// cores lists every core of the node by socket, and marks the job's. If the node is unknown, the job's cores are listed under one
// socket.
func cores(w *jsonout.Writer, c *format.Context, a *msg.NodeAlloc) {
	taken := map[uint32]bool{}
	most := uint32(0)
	if a.GetCpuIds() != "" {
		format.ExpandTasks(a.GetCpuIds(), func(core uint32) bool {
			taken[core] = true
			most = max(most, core)
			return true
		})
	}
	sockets, perSocket := uint32(1), most+1
	if n := c.Nodes[a.GetNode()]; n.GetCores() > 0 && n.GetSockets()*n.GetCores() > most {
		sockets, perSocket = n.GetSockets(), n.GetCores()
	} else if len(taken) == 0 {
		sockets = 0
	}
	w.List("sockets")
	for socket := range sockets {
		w.Object("")
		w.Int("index", int64(socket))
		w.List("cores")
		for core := range perSocket {
			w.Object("")
			w.Int("index", int64(core))
			if taken[socket*perSocket+core] {
				w.Strs("status", "ALLOCATED")
			} else {
				w.Strs("status", "UNALLOCATED")
			}
			w.End()
		}
		w.End()
		w.End()
	}
	w.End()
}

func jobSizes(w *jsonout.Writer, j format.Job) {
	r, s := j.JobRecord, j.GetSpec()
	w.Strs("job_size_str")
	w.Strs("job_state", JobStateList(r)...)
	w.Seconds("last_sched_evaluation", r.GetLastSchedNs())
	w.Str("licenses", s.GetLicenses())
	w.Strs("mail_type", mailTypes(s.GetMailType())...)
	w.Str("mail_user", format.Or(s.GetMailUser(), s.GetUser()))
	w.Number("max_cpus", 0)
	w.Number("max_nodes", uint64(s.GetMaxNodes()))
	w.Str("mcs_label", s.GetMcsLabel())
	w.Str("memory_per_tres", s.GetMemPerTres())
	w.Str("name", s.GetName())
	w.Str("network", s.GetNetwork())
	w.Str("nodes", r.GetNodeList())
	w.Int("nice", int64(s.GetNice()))
	orInfinite(w, "tasks_per_core", s.GetNtasksPerCore())
	w.Number("tasks_per_tres", uint64(s.GetNtasksPerTres()))
	w.Number("tasks_per_node", uint64(s.GetNtasksPerNode()))
	orInfinite(w, "tasks_per_socket", s.GetNtasksPerSocket())
	w.Number("tasks_per_board", 0)
	w.Number("cpus", uint64(r.GetNumCpus()))
	w.Number("node_count", uint64(format.NodeCount(r)))
	w.Number("tasks", uint64(max(r.GetNumTasks(), 1)))
	w.Str("partition", j.ShownPartition())
	w.Str("prefer", s.GetPrefer())
	mib, perCPU := format.Memory(s)
	if perCPU {
		w.Number("memory_per_cpu", mib)
		w.Unset("memory_per_node")
	} else {
		w.Unset("memory_per_cpu")
		w.Number("memory_per_node", mib)
	}
	w.Number("minimum_cpus_per_node", uint64(format.MinCPUs(s)))
	w.Number("minimum_tmp_disk_per_node", s.GetTmpDiskMib())
	w.Object("power")
	w.Strs("flags")
	w.End()
}

// orInfinite writes 0 as infinite: in these two, Slurm uses that for "as many as fit".
func orInfinite(w *jsonout.Writer, key string, n uint32) { w.Limit(key, uint64(n), n == 0) }

func jobTail(w *jsonout.Writer, c *format.Context, j format.Job) {
	r, s := j.JobRecord, j.GetSpec()
	w.Seconds("preempt_time", r.GetPreemptNs())
	w.Seconds("preemptable_time", 0)
	w.Seconds("pre_sus_time", r.GetPreSuspendNs())
	w.Bool("hold", r.GetPriority() == 0 && r.GetState() == msg.JobState_JOB_PENDING)
	w.Number("priority", uint64(r.GetPriority()))
	w.List("priority_by_partition")
	w.End()
	w.Strs("profile", profile(s.GetProfile())...)
	w.Str("qos", s.GetQos())
	w.Bool("reboot", s.GetReboot())
	w.Str("required_nodes", s.GetReqNodes())
	switches, wait := format.ParseSwitches(s.GetSwitches())
	w.Int("required_switches", switches)
	w.Bool("requeue", s.GetRequeue() != msg.No)
	w.Seconds("resize_time", 0)
	w.Int("restart_cnt", int64(r.GetRestarts()))
	w.Str("resv_name", s.GetReservation())
	w.Str("scheduled_nodes", scheduled(r))
	w.Str("selinux_context", "")
	w.Strs("shared", shared(s.GetSharing())...)
	w.Int("sockets_per_board", 0)
	w.Optional("sockets_per_node", uint64(s.GetSocketsPerNode()))
	w.Seconds("start_time", format.Started(r))
	w.Str("state_description", r.GetReasonDetail())
	w.Str("state_reason", format.Reason(r))
	w.Str("standard_error", format.StdErr(r))
	w.Str("standard_input", format.StdIn(r))
	w.Str("standard_output", format.StdOut(r))
	w.Seconds("submit_time", r.GetSubmitNs())
	w.Seconds("suspend_time", r.GetSuspendNs())
	w.Str("system_comment", r.GetSystemComment())
	minutes(w, "time_limit", r.GetTimeLimitS())
	w.Number("time_minimum", uint64(format.LimitSeconds(s.GetTimeMinS())/60))
	w.Optional("threads_per_core", uint64(s.GetThreadsPerCore()))
	w.Str("tres_bind", s.GetTresBind())
	w.Str("tres_freq", s.GetTresFreq())
	w.Str("tres_per_job", s.GetTresPerJob())
	w.Str("tres_per_node", s.GetTresPerNode())
	w.Str("tres_per_socket", s.GetTresPerSocket())
	w.Str("tres_per_task", s.GetTresPerTask())
	w.Str("tres_req_str", r.GetReqTres())
	w.Str("tres_alloc_str", r.GetAllocTres())
	w.Int("user_id", int64(s.GetUid()))
	w.Str("user_name", string(format.AppendUser(nil, c, j)))
	w.Int("maximum_switch_wait_time", wait)
	w.Str("wckey", s.GetWckey())
	w.Str("current_working_directory", s.GetWorkDir())
}

// minutes writes a limit in minutes; 0 is unset.
func minutes(w *jsonout.Writer, key string, s uint32) {
	switch s {
	case 0:
		w.Unset(key)
	case msg.Unlimited:
		w.Infinite(key)
	default:
		w.Number(key, uint64(format.LimitSeconds(s)/60))
	}
}

func scheduled(r *msg.JobRecord) string {
	if r.GetState() == msg.JobState_JOB_PENDING {
		return r.GetExpectedNodes()
	}
	return ""
}

// JobStateList returns a job's base state and flags, as in JSON.
func JobStateList(r *msg.JobRecord) []string {
	list := []string{"?"}
	if s := int(r.GetState()); s >= 0 && s < len(format.JobStates) {
		list[0] = format.JobStates[s][0]
	}
	for flags := r.GetStateFlags(); flags != 0; flags &= flags - 1 {
		if i := bits.TrailingZeros32(flags); i < len(format.JobFlags) {
			list = append(list, format.JobFlags[i][0])
		}
	}
	return list
}

// jobFlags returns the words of "flags" that apply to Sluice's jobs.
func jobFlags(r *msg.JobRecord) []string {
	s := r.GetSpec()
	var list []string
	for _, f := range [...]struct {
		set  bool
		name string
	}{
		{s.GetKillOnInvalidDep() == msg.Yes, "KILL_INVALID_DEPENDENCY"}, {s.GetKillOnInvalidDep() == msg.No, "NO_KILL_INVALID_DEPENDENCY"},
		{r.GetDependency() != "", "DEPENDENT"},
		{strings.Contains(s.GetGresFlags(), "disable-binding"), "GRES_BINDING_DISABLED"},
		{strings.Contains(s.GetGresFlags(), "enforce-binding"), "GRES_BINDING_ENFORCED"},
		{r.GetScheduler() == "Backfill", "BACKFILL_ATTEMPTED"}, {s.GetSpread(), "SPREAD_JOB"},
		{s.GetUseMinNodes(), "PREFER_MINIMUM_NODE_COUNT"},
		{s.GetCron() != "", "CRON_JOB"}, {s.GetAccount() == "", "USING_DEFAULT_ACCOUNT"}, {s.GetQos() == "", "USING_DEFAULT_QOS"},
		{s.GetWckey() == "", "USING_DEFAULT_WCKEY"},
	} {
		if f.set {
			list = append(list, f.name)
		}
	}
	return list
}

// mailTypes returns the events of --mail-type as spelled in JSON.
func mailTypes(set uint32) []string {
	var list []string
	for _, m := range [...]struct {
		bit  uint32
		name string
	}{
		{msg.MailBegin, "BEGIN"}, {msg.MailEnd, "END"}, {msg.MailFail, "FAIL"}, {msg.MailRequeue, "REQUEUE"},
		{msg.MailTime100, "TIME=100%"},
		{msg.MailTime90, "TIME=90%"}, {msg.MailTime80, "TIME=80%"}, {msg.MailTime50, "TIME=50%"}, {msg.MailStageOut, "STAGE_OUT"},
		{msg.MailArrayTasks, "ARRAY_TASKS"}, {msg.MailInvalidDepend, "INVALID_DEPENDENCY"},
	} {
		if set&m.bit != 0 {
			list = append(list, m.name)
		}
	}
	return list
}

func profile(asked string) []string {
	return strings.Split(strings.ToUpper(cmp.Or(asked, "NOT_SET")), ",")
}

func shared(sharing string) []string {
	switch sharing {
	case "":
		return nil
	case "exclusive":
		return []string{"none"}
	}
	return []string{sharing}
}

// billing returns the billing part of a TRES text.
func billing(tres string) float64 {
	for _, part := range strings.Split(tres, ",") {
		if value, ok := strings.CutPrefix(part, "billing="); ok {
			f, _ := strconv.ParseFloat(value, 64)
			return f
		}
	}
	return 0
}

// AssociationID is the number of a user's association in sacct and sacctmgr, where only the account root exists: 1 is its own, and
// a user's is the uid plus 2, so that root's is 2 as in a new database of Slurm's.
func AssociationID(uid uint32) int64 { return int64(uid) + 2 }

// exitCode writes a wait status: {"status":["SUCCESS"],"return_code":{…},"signal":{"id":{…},"name":""}}.
func exitCode(w *jsonout.Writer, key string, status uint32) {
	code, sig := status>>8&0xff, status&0x7f
	w.Object(key)
	switch {
	case sig != 0 && status&0x80 != 0:
		w.Strs("status", "CORE_DUMPED")
	case sig != 0:
		w.Strs("status", "SIGNALED")
	case code != 0:
		w.Strs("status", "ERROR")
	default:
		w.Strs("status", "SUCCESS")
	}
	w.Number("return_code", uint64(code))
	w.Object("signal")
	w.Optional("id", uint64(sig))
	w.Str("name", signalName(sig))
	w.End()
	w.End()
}

// signalNames are Linux signals by number, without SIG.
var signalNames = [...]string{"", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
	"ALRM", "TERM",
	"STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS"}

func signalName(sig uint32) string {
	if int(sig) < len(signalNames) {
		return signalNames[sig]
	}
	return syscall.Signal(sig).String()
}

// WriteExit is exitCode for other documents.
func WriteExit(w *jsonout.Writer, key string, status uint32) { exitCode(w, key, status) }
