package format

import (
	"strconv"
	"sync"

	pb "github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/jobid"
)

// Step is one row of squeue -s. The batch script of a running job is its first step.
type Step struct {
	Job *pb.JobRecord
	ID  uint32
}

// Name is the step as in "12.batch".
func (s Step) Name() string { return jobid.StepName(s.ID) }

// StepsOf are the steps of a job that runs.
func StepsOf(r *pb.JobRecord) []Step {
	live := r.GetState() == pb.JobState_JOB_RUNNING || r.GetState() == pb.JobState_JOB_SUSPENDED
	if !live || r.GetSpec().GetInteractive() {
		return nil
	}
	return []Step{{Job: r, ID: pb.BatchStep}}
}

// stepNode is where a step runs: the batch script on the first node of its job.
func (s Step) node() string { return or(s.Job.GetBatchHost(), s.Job.GetNodeList()) }

// Steps is the table of the fields of squeue -s.
var Steps = sync.OnceValue(func() *Table[Step] {
	id := func(b []byte, c *Context, s Step) []byte {
		return append(append(appendJobID(b, c, Job{JobRecord: s.Job}), '.'), s.Name()...)
	}
	job := func(get jobText) func(b []byte, c *Context, s Step) []byte {
		return func(b []byte, c *Context, s Step) []byte { return get(b, c, Job{JobRecord: s.Job}) }
	}
	return NewTable([]Field[Step]{
		{Letter: 'i', Names: []string{"stepid", "jobid"}, Header: "STEPID", Text: id, Key: func(b []byte, c *Context, s Step) []byte {
			return appendNumberKey(appendIDKey(b, c, Job{JobRecord: s.Job}), int64(s.ID))
		}},
		{Letter: 'j', Names: []string{"stepname", "name"}, Header: "NAME", Text: func(b []byte, _ *Context, s Step) []byte { return append(b, s.Name()...) }},
		{Letter: 'P', Names: []string{"partition"}, Header: "PARTITION", Text: job(text("", func(r *pb.JobRecord) string { return Job{JobRecord: r}.partition() }))},
		{Letter: 'u', Names: []string{"username"}, Header: "USER", Text: job(appendUser)},
		{Letter: 'U', Names: []string{"userid"}, Header: "UID", Text: job(count(func(r *pb.JobRecord) uint64 { return uint64(r.GetSpec().GetUid()) }))},
		{Letter: 'M', Whole: true, Names: []string{"timeused"}, Header: "TIME", Text: func(b []byte, c *Context, s Step) []byte { return appendElapsed(b, usedSeconds(c, s.Job)) },
			Key: func(b []byte, c *Context, s Step) []byte { return appendNumberKey(b, usedSeconds(c, s.Job)) }},
		{Letter: 'l', Names: []string{"timelimit"}, Header: "TIME_LIMIT", Text: job(fixed("UNLIMITED"))},
		{Letter: 'N', Names: []string{"nodes", "nodelist"}, Header: "NODELIST", Text: func(b []byte, _ *Context, s Step) []byte { return append(b, s.node()...) }},
		{Letter: 'S', Names: []string{"starttime"}, Header: "START_TIME", Text: job(moment((*pb.JobRecord).GetStartNs))},
		{Letter: 'A', Names: []string{"numtasks"}, Header: "TASKS", Text: job(fixed("1"))},
		{Names: []string{"stepstate"}, Header: "STATE", Text: job(text("", JobStateName))},
		{Names: []string{"arrayjobid"}, Header: "ARRAY_JOB_ID", Text: job(count(arrayID))},
		{Names: []string{"cluster"}, Header: "CLUSTER", Text: func(b []byte, c *Context, _ Step) []byte { return append(b, c.Cluster...) }},
	})
})

// AppendStep writes a step as `scontrol show step` does.
func AppendStep(b []byte, c *Context, s Step, oneLine bool) []byte {
	k := newBlock(b, c, oneLine)
	k.put("StepId", string(appendJobID(nil, c, Job{JobRecord: s.Job}))+"."+s.Name())
	k.put(" UserId", strconv.FormatUint(uint64(s.Job.GetSpec().GetUid()), 10))
	k.when(" StartTime", s.Job.GetStartNs(), "Unknown")
	k.put(" TimeLimit", "UNLIMITED")
	k.line()
	k.put("State", JobStateName(s.Job))
	k.put(" Partition", Job{JobRecord: s.Job}.partition())
	k.put(" NodeList", s.node())
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
