package format

import (
	"strconv"

	"github.com/sluice-hpc/sluice/client/msg"
)

// jobNames returns the fields that only -O has (squeue(1), --Format). Fields of features that Sluice lacks (federations, burst
// buffers, cluster-wide association ids) print the output of a Slurm without them, because portals request every name.
func jobNames() []Field[Job] {
	na, nil0 := fixed("N/A"), fixed("0")
	return []Field[Job]{
		{Names: []string{"accruetime"}, Header: "ACCRUE_TIME", Text: moment((*msg.JobRecord).GetAccrueNs)},
		{Names: []string{"admin_comment", "admincomment"}, Header: "ADMIN_COMMENT", Text: text(null, spec((*msg.JobSpec).GetAdminComment))},
		{Names: []string{"allocnodes"}, Header: "ALLOC_NODES", Text: text(null, spec((*msg.JobSpec).GetAllocNode))},
		{Names: []string{"allocsid"}, Header: "ALLOC_SID",
			Text: count(func(r *msg.JobRecord) uint64 { return uint64(r.GetSpec().GetAllocSid()) })},
		{Names: []string{"associd"}, Header: "ASSOC_ID", Text: nil0},
		{Names: []string{"batchflag"}, Header: "BATCH_FLAG",
			Text: flag(func(r *msg.JobRecord) bool { return !r.GetSpec().GetInteractive() })},
		{Names: []string{"boardspernode"}, Header: "BOARDS_PER_NODE", Text: nil0},
		{Names: []string{"burstbuffer"}, Header: "BURST_BUFFER", Text: fixed(null)},
		{Names: []string{"burstbufferstate"}, Header: "BURST_BUFFER_STATE", Text: fixed(null)},
		{Names: []string{"cluster"}, Header: "CLUSTER", Text: func(b []byte, c *Context, _ Job) []byte { return append(b, c.Cluster...) }},
		{Names: []string{"clusterfeature"}, Header: "CLUSTER_FEATURES", Text: text(null, spec((*msg.JobSpec).GetClusterFeatures))},
		{Names: []string{"container"}, Header: "CONTAINER", Text: text(null, spec((*msg.JobSpec).GetContainer))},
		{Names: []string{"cpus-per-task"}, Header: "CPUS_PER_TASK",
			Text: count(func(r *msg.JobRecord) uint64 { return uint64(max(r.GetSpec().GetCpusPerTask(), 1)) })},
		{Names: []string{"cpus-per-tres"}, Header: "CPUS_PER_TRES", Text: text("N/A", spec((*msg.JobSpec).GetCpusPerTres))},
		{Names: []string{"cronjob"}, Header: "CRON_JOB", Text: func(b []byte, _ *Context, j Job) []byte {
			if j.GetSpec().GetCron() != "" {
				return append(b, "Yes"...)
			}
			return append(b, "No"...)
		}},
		{Names: []string{"deadline"}, Header: "DEADLINE",
			Text: moment(func(r *msg.JobRecord) int64 { return r.GetSpec().GetDeadlineNs() })},
		{Names: []string{"delayboot"}, Header: "DELAY_BOOT", Text: func(b []byte, _ *Context, j Job) []byte {
			return appendElapsed(b, int64(j.GetSpec().GetDelayBootS()))
		}},
		{Names: []string{"derivedec"}, Header: "DERIVED_EC",
			Text: count(func(r *msg.JobRecord) uint64 { return uint64(r.GetDerivedStatus()) })},
		{Names: []string{"eligibletime"}, Header: "ELIGIBLE_TIME", Text: moment((*msg.JobRecord).GetEligibleNs)},
		{Names: []string{"exit_code"}, Header: "EXIT_CODE",
			Text: count(func(r *msg.JobRecord) uint64 { return uint64(r.GetExitStatus()) })},
		{Names: []string{"hetjobid"}, Header: "HET_JOB_ID", Text: na},
		{Names: []string{"hetjobidset"}, Header: "HET_JOB_ID_SET", Text: na},
		{Names: []string{"hetjoboffset"}, Header: "HET_JOB_OFFSET", Text: na},
		{Names: []string{"lastschedeval"}, Header: "LAST_SCHED_EVAL", Text: moment((*msg.JobRecord).GetLastSchedNs)},
		{Names: []string{"maxcpus"}, Header: "MAX_CPUS", Text: count(func(r *msg.JobRecord) uint64 { return uint64(r.GetNumCpus()) })},
		{Names: []string{"maxnodes"}, Header: "MAX_NODES",
			Text: count(func(r *msg.JobRecord) uint64 { return uint64(max(r.GetSpec().GetMaxNodes(), NodeCount(r))) })},
		{Names: []string{"mcslabel"}, Header: "MCSLABEL", Text: text(null, spec((*msg.JobSpec).GetMcsLabel))},
		{Names: []string{"mem-per-tres"}, Header: "MEM_PER_TRES", Text: text("N/A", spec((*msg.JobSpec).GetMemPerTres))},
		{Names: []string{"mintime"}, Header: "TIME_MIN", Text: func(b []byte, _ *Context, j Job) []byte {
			return appendElapsed(b, LimitSeconds(j.GetSpec().GetTimeMinS()))
		}},
		{Names: []string{"network"}, Header: "NETWORK", Text: text(null, spec((*msg.JobSpec).GetNetwork))},
		{Names: []string{"ntperboard"}, Header: "NTASKS_PER_BOARD", Text: nil0},
		{Names: []string{"ntpercore"}, Header: "NTASKS_PER_CORE", Text: orNA((*msg.JobSpec).GetNtasksPerCore)},
		{Names: []string{"ntpernode"}, Header: "NTASKS_PER_NODE",
			Text: count(func(r *msg.JobRecord) uint64 { return uint64(r.GetSpec().GetNtasksPerNode()) })},
		{Names: []string{"ntpersocket"}, Header: "NTASKS_PER_SOCKET", Text: orNA((*msg.JobSpec).GetNtasksPerSocket)},
		{Names: []string{"numtasks"}, Header: "TASKS",
			Text: count(func(r *msg.JobRecord) uint64 { return uint64(max(r.GetNumTasks(), 1)) })},
		{Names: []string{"origin"}, Header: "ORIGIN", Text: fixed("NA")},
		{Names: []string{"originraw"}, Header: "ORIGIN_RAW", Text: fixed("NA")},
		{Names: []string{"pendingtime"}, Header: "PENDING_TIME", Text: appendPendingTime},
		{Names: []string{"preempttime"}, Header: "PREEMPT_TIME", Text: na},
		{Names: []string{"prefer"}, Header: "PREFER", Text: text(null, spec((*msg.JobSpec).GetPrefer))},
		{Names: []string{"profile"}, Header: "PROFILE", Text: text("NotSet", spec((*msg.JobSpec).GetProfile))},
		{Names: []string{"reboot"}, Header: "REBOOT", Text: flag(func(r *msg.JobRecord) bool { return r.GetSpec().GetReboot() })},
		{Names: []string{"reqswitch"}, Header: "REQ_SWITCH", Text: text("0", spec(switchCount))},
		{Names: []string{"requeue"}, Header: "REQUEUE",
			Text: flag(func(r *msg.JobRecord) bool { return r.GetSpec().GetRequeue() != msg.No })},
		{Names: []string{"resizetime"}, Header: "RESIZE_TIME", Text: na},
		{Names: []string{"restartcnt"}, Header: "RESTART_COUNT",
			Text: count(func(r *msg.JobRecord) uint64 { return uint64(r.GetRestarts()) })},
		{Names: []string{"siblingsactive"}, Header: "ACTIVE_SIBLINGS", Text: fixed("NA")},
		{Names: []string{"siblingsactiveraw"}, Header: "ACTIVE_SIBLINGS_RAW", Text: fixed("NA")},
		{Names: []string{"siblingsviable"}, Header: "VIABLE_SIBLINGS", Text: fixed("NA")},
		{Names: []string{"siblingsviableraw"}, Header: "VIALBLE_SIBLINGS_RAW", Text: fixed("NA")}, // spelled as in Slurm
		{Names: []string{"sperboard"}, Header: "SOCKETS_PER_BOARD", Text: nil0},
		{Names: []string{"stderr"}, Header: "STDERR", Text: func(b []byte, c *Context, j Job) []byte {
			return append(b, askedFile(c, j.JobRecord, errPattern, StdErr)...)
		}},
		{Names: []string{"stdin"}, Header: "STDIN", Text: func(b []byte, c *Context, j Job) []byte {
			return append(b, askedFile(c, j.JobRecord, (*msg.JobSpec).GetStdIn, StdIn)...)
		}},
		{Names: []string{"stdout"}, Header: "STDOUT", Text: func(b []byte, c *Context, j Job) []byte {
			return append(b, askedFile(c, j.JobRecord, (*msg.JobSpec).GetStdOut, StdOut)...)
		}},
		{Names: []string{"system_comment", "systemcomment"}, Header: "SYSTEM_COMMENT", Text: text(null, (*msg.JobRecord).GetSystemComment)},
		{Names: []string{"tres-alloc", "tres"}, Header: "TRES_ALLOC", Text: text(null, jobTres)},
		{Names: []string{"tres-bind"}, Header: "TRES_BIND", Text: text("N/A", spec((*msg.JobSpec).GetTresBind))},
		{Names: []string{"tres-freq"}, Header: "TRES_FREQ", Text: text("N/A", spec((*msg.JobSpec).GetTresFreq))},
		{Names: []string{"tres-per-job"}, Header: "TRES_PER_JOB", Text: text("N/A", spec((*msg.JobSpec).GetTresPerJob))},
		{Names: []string{"tres-per-socket"}, Header: "TRES_PER_SOCKET", Text: text("N/A", spec((*msg.JobSpec).GetTresPerSocket))},
		{Names: []string{"tres-per-task"}, Header: "TRES_PER_TASK", Text: text("N/A", spec((*msg.JobSpec).GetTresPerTask))},
		{Names: []string{"wait4switch"}, Header: "WAIT4SWITCH", Text: text("0:00", spec(switchWait))},
	}
}

func orNA(get func(s *msg.JobSpec) uint32) jobText {
	return func(b []byte, _ *Context, j Job) []byte {
		if n := get(j.GetSpec()); n != 0 {
			return strconv.AppendUint(b, uint64(n), 10)
		}
		return append(b, "N/A"...)
	}
}

// jobTres is the job's allocation, or its request if it has none.
func jobTres(r *msg.JobRecord) string {
	if r.GetAllocTres() != "" {
		return r.GetAllocTres()
	}
	return r.GetReqTres()
}

// appendPendingTime is the number of seconds from submission to the start, or until now.
func appendPendingTime(b []byte, c *Context, j Job) []byte {
	until := j.GetStartNs()
	if until == 0 || j.GetState() == msg.JobState_JOB_PENDING {
		until = c.Now.UnixNano()
	}
	return strconv.AppendInt(b, max(until/1e9-j.GetSubmitNs()/1e9, 0), 10)
}
