package format

import (
	"strconv"
	"sync"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/jobid"
)

// Step is one row of squeue -s. The batch script of a running job is its first step.
type Step struct {
	Job *msg.JobRecord
	ID  uint32
}

// Name is the step as in "12.batch".
func (s Step) Name() string { return jobid.StepName(s.ID) }

// StepsOf are the steps of a job that runs.
func StepsOf(r *msg.JobRecord) []Step {
	live := r.GetState() == msg.JobState_JOB_RUNNING || r.GetState() == msg.JobState_JOB_SUSPENDED
	if !live || r.GetSpec().GetInteractive() {
		return nil
	}
	return []Step{{Job: r, ID: msg.BatchStep}}
}

// stepNode is where a step runs: the batch script on the first node of its job.
func (s Step) Node() string { return Or(s.Job.GetBatchHost(), s.Job.GetNodeList()) }

// Steps is the table of the fields of squeue -s.
var Steps = sync.OnceValue(func() *Table[Step] {
	id := func(b []byte, c *Context, s Step) []byte {
		return append(append(AppendJobID(b, c, Job{JobRecord: s.Job}), '.'), s.Name()...)
	}
	job := func(get jobText) func(b []byte, c *Context, s Step) []byte {
		return func(b []byte, c *Context, s Step) []byte { return get(b, c, Job{JobRecord: s.Job}) }
	}
	return NewTable([]Field[Step]{
		{Letter: 'i', Names: []string{"stepid"}, Header: "STEPID", Text: id, Key: func(b []byte, c *Context, s Step) []byte {
			return appendNumberKey(appendIDKey(b, c, Job{JobRecord: s.Job}), int64(s.ID))
		}},
		{Names: []string{"jobid"}, Header: "JOB_ID", Text: job(count(func(r *msg.JobRecord) uint64 { return uint64(r.GetId()) }))},
		{Names: []string{"arrayjobid"}, Header: "ARRAY_JOB_ID",
			Text: job(count(func(r *msg.JobRecord) uint64 { return uint64(r.GetArrayJobId()) }))},
		{Names: []string{"arraytaskid"}, Header: "ARRAY_TASK_ID", Text: job(appendTaskID)},
		{Letter: 'j', Names: []string{"stepname"}, Header: "NAME", Text: func(b []byte, _ *Context,
			s Step) []byte {
			return append(b, s.Name()...)
		}},
		{Letter: 'P', Names: []string{"partition"}, Header: "PARTITION",
			Text: job(text("", func(r *msg.JobRecord) string { return Job{JobRecord: r}.ShownPartition() }))},
		{Letter: 'u', Names: []string{"username"}, Header: "USER", Text: job(AppendUser)},
		{Letter: 'U', Names: []string{"userid"}, Header: "UID",
			Text: job(count(func(r *msg.JobRecord) uint64 { return uint64(r.GetSpec().GetUid()) }))},
		{Letter: 'M', Whole: true, Names: []string{"timeused"}, Header: "TIME",
			Text: func(b []byte, c *Context, s Step) []byte { return appendElapsed(b, UsedSeconds(c, s.Job)) },
			Key:  func(b []byte, c *Context, s Step) []byte { return appendNumberKey(b, UsedSeconds(c, s.Job)) }},
		{Letter: 'l', Names: []string{"timelimit"}, Header: "TIME_LIMIT", Text: job(fixed("UNLIMITED"))},
		{Letter: 'N', Names: []string{"nodes"}, Header: "NODELIST", Text: func(b []byte, _ *Context,
			s Step) []byte {
			return append(b, s.Node()...)
		}},
		{Letter: 'S', Names: []string{"starttime"}, Header: "START_TIME", Text: job(moment((*msg.JobRecord).GetStartNs))},
		{Names: []string{"stepstate"}, Header: "STATE", Text: job(fixed("RUNNING"))}, // of a suspended job, too
		{Names: []string{"cluster"}, Header: "CLUSTER", Text: func(b []byte, c *Context, _ Step) []byte { return append(b, c.Cluster...) }},
		// The script is one task that asks for nothing of its own.
		{Letter: 'A', Names: []string{"numtasks"}, Header: "TASKS", Text: job(fixed("1"))},
		{Names: []string{"numcpus"}, Header: "NUM_CPUS", Text: job(fixed("0"))},
		{Names: []string{"cpufreq"}, Header: "CPU_FREQ", Text: job(fixed("0-0:0"))},
		{Names: []string{"network"}, Header: "NETWORK", Text: job(fixed(null))},
		{Names: []string{"resvports"}, Header: "RESERVED_PORTS", Text: job(fixed(null))},
		{Names: []string{"container", "containerid"}, Header: "CONTAINER", Text: job(fixed(null))},
		{Names: []string{"cpus-per-tres"}, Header: "CPUS_PER_TRES", Text: job(fixed(null))},
		{Names: []string{"mem-per-tres"}, Header: "MEM_PER_TRES", Text: job(fixed(null))},
		{Names: []string{"tres-bind"}, Header: "TRES_BIND", Text: job(fixed(null))},
		{Names: []string{"tres-freq"}, Header: "TRES_FREQ", Text: job(fixed(null))},
		// so are the headers of Slurm
		{Letter: 'b', Names: []string{"tres-per-node", "gres"}, Header: "TRES_PER_JOB", Text: job(fixed(null))},
		{Names: []string{"tres-per-job", "tres-per-step"}, Header: "TRES_PER_STEP", Text: job(fixed(null))},
		{Names: []string{"tres-per-socket"}, Header: "TRES_PER_SOCKET", Text: job(fixed(null))},
		{Names: []string{"tres-per-task"}, Header: "TRES_PER_TASK", Text: job(fixed(null))},
	})
})

// AppendStep writes a step as `scontrol show step` does.
func AppendStep(b []byte, c *Context, s Step, oneLine bool) []byte {
	k := newBlock(b, c, oneLine)
	k.put("StepId", string(AppendJobID(nil, c, Job{JobRecord: s.Job}))+"."+s.Name())
	k.put(" UserId", strconv.FormatUint(uint64(s.Job.GetSpec().GetUid()), 10))
	k.when(" StartTime", s.Job.GetStartNs(), "Unknown")
	k.put(" TimeLimit", "UNLIMITED")
	k.line()
	k.put("State", "RUNNING")
	k.put(" Partition", Job{JobRecord: s.Job}.ShownPartition())
	k.put(" NodeList", s.Node())
	k.line()
	k.put("Nodes", "1")
	k.put(" CPUs", "0")
	k.put(" Tasks", "1")
	k.put(" Name", s.Name())
	k.put(" Network", null)
	k.line()
	k.put("TRES", null)
	k.line()
	k.put("ResvPorts", null)
	k.line()
	k.put("CPUFreqReq", "Default")
	k.line()
	k.put("SrunHost:Pid", null+":0")
	if oneLine {
		return append(k.b, '\n')
	}
	return append(k.b, "\n\n"...)
}
