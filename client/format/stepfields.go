package format

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/jobid"
)

// Step is one row of squeue -s: a step created by srun, or the batch script of a running job.
type Step struct {
	Job    *msg.JobRecord
	ID     uint32
	Record *msg.StepRecord // nil: the batch script
}

// Number is the step as in "12.batch".
func (s Step) Number() string { return jobid.StepName(s.ID) }

// Name is the name of the step, or its number if it has none.
func (s Step) Name() string { return Or(s.Record.GetSpec().GetName(), s.Number()) }

// StepsOf returns the steps of a running job; made are those created by srun.
func StepsOf(r *msg.JobRecord, made []*msg.StepRecord) []Step {
	live := r.GetState() == msg.JobState_JOB_RUNNING || r.GetState() == msg.JobState_JOB_SUSPENDED
	if !live {
		return nil
	}
	var list []Step
	if !r.GetSpec().GetInteractive() {
		list = append(list, Step{Job: r, ID: msg.BatchStep})
	}
	for _, s := range made {
		list = append(list, Step{Job: r, ID: s.GetStepId(), Record: s})
	}
	return list
}

// NodeList is where a step runs; the batch script runs on the first node of its job.
func (s Step) NodeList() string {
	if s.Record != nil {
		return s.Record.GetNodeList()
	}
	return Or(s.Job.GetBatchHost(), s.Job.GetNodeList())
}

// On reports whether the step runs on one of the nodes.
func (s Step) On(nodes []string) bool {
	have, _ := hostlist.Expand(s.NodeList())
	return slices.ContainsFunc(have, func(n string) bool { return slices.Contains(nodes, n) })
}

// StartNs is the start of the step.
func (s Step) StartNs() int64 {
	if s.Record != nil {
		return s.Record.GetStartNs()
	}
	return s.Job.GetStartNs()
}

// UsedSeconds is the run time of the step without suspensions.
func (s Step) UsedSeconds(c *Context) int64 {
	if s.Record == nil {
		return UsedSeconds(c, s.Job)
	}
	until := c.Now.UnixNano()
	if s.Job.GetState() == msg.JobState_JOB_SUSPENDED && s.Job.GetSuspendNs() != 0 {
		until = s.Job.GetSuspendNs()
	}
	return max(0, until/1e9-s.Record.GetStartNs()/1e9-s.Record.GetSuspendedNs()/1e9)
}

// limit is the step's own time limit in seconds, msg.Unlimited if it has only the job's.
func (s Step) limit() uint32 {
	if s.Record == nil || s.Record.GetTimeLimitS() == 0 {
		return msg.Unlimited
	}
	return s.Record.GetTimeLimitS()
}

// Tasks is the number of tasks; the batch script has one and requests nothing of its own.
func (s Step) Tasks() uint32 {
	if s.Record == nil {
		return 1
	}
	return s.Record.GetNumTasks()
}

// CPUs is the number of CPUs of the step. The batch script has those of its job; Slurm shows none.
func (s Step) CPUs() uint32 { return s.Record.GetNumCpus() }

// Nodes is the number of nodes of the step.
func (s Step) Nodes() int {
	if s.Record == nil {
		return 1
	}
	return len(s.Record.GetNodes())
}

// StepLayout is the distribution of a step's tasks in Slurm's words: as requested, by default cyclic for up to one task per node,
// else block.
func StepLayout(s *msg.StepRecord) string {
	first, _, _ := strings.Cut(s.GetSpec().GetDistribution(), ":")
	name, _, _ := strings.Cut(strings.ToLower(first), "=")
	switch name {
	case "block", "cyclic", "plane", "arbitrary":
		return strings.ToUpper(name[:1]) + name[1:]
	}
	if int(s.GetNumTasks()) <= len(s.GetNodes()) {
		return "Cyclic"
	}
	return "Block"
}

// ofStep is a field of the request.
func ofStep(get func(*msg.StepSpec) string) func(b []byte, _ *Context, s Step) []byte {
	return func(b []byte, _ *Context, s Step) []byte { return append(b, Or(get(s.Record.GetSpec()), null)...) }
}

// tresPerNode is the request per node: a step without one has that of its job.
func (s Step) tresPerNode() string {
	spec := s.Record.GetSpec()
	if s.Record == nil || spec.GetNoGres() || spec.GetTresPerStep()+spec.GetTresPerSocket()+spec.GetTresPerTask() != "" {
		return ""
	}
	return Or(spec.GetTresPerNode(), s.Job.GetSpec().GetTresPerNode())
}

// inOrder sorts resources by name, as steps show them.
func inOrder(tres string) string {
	list := strings.Split(tres, ",")
	slices.Sort(list)
	return strings.Join(list, ",")
}

func figure(get func(Step) uint32) func(b []byte, _ *Context, s Step) []byte {
	return func(b []byte, _ *Context, s Step) []byte { return strconv.AppendUint(b, uint64(get(s)), 10) }
}

// Steps is the table of the fields of squeue -s.
var Steps = sync.OnceValue(func() *Table[Step] {
	id := func(b []byte, c *Context, s Step) []byte {
		return append(append(AppendJobID(b, c, Job{JobRecord: s.Job}), '.'), s.Number()...)
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
			Text: func(b []byte, c *Context, s Step) []byte { return appendElapsed(b, s.UsedSeconds(c)) },
			Key:  func(b []byte, c *Context, s Step) []byte { return appendNumberKey(b, s.UsedSeconds(c)) }},
		{Letter: 'l', Whole: true, Names: []string{"timelimit"}, Header: "TIME_LIMIT",
			Text: func(b []byte, _ *Context, s Step) []byte { return appendLimit(b, s.limit()) },
			Key:  func(b []byte, _ *Context, s Step) []byte { return appendNumberKey(b, int64(s.limit())) }},
		{Letter: 'N', Names: []string{"nodes"}, Header: "NODELIST", Text: func(b []byte, _ *Context,
			s Step) []byte {
			return append(b, s.NodeList()...)
		}, Key: func(b []byte, _ *Context, s Step) []byte { return appendHostsKey(b, s.NodeList()) }},
		{Letter: 'S', Names: []string{"starttime"}, Header: "START_TIME",
			Text: func(b []byte, c *Context, s Step) []byte { return c.AppendTime(b, s.StartNs(), "N/A") }},
		{Names: []string{"stepstate"}, Header: "STATE", Text: job(fixed("RUNNING"))}, // even for a suspended job
		{Names: []string{"cluster"}, Header: "CLUSTER", Text: func(b []byte, c *Context, _ Step) []byte { return append(b, c.Cluster...) }},
		{Letter: 'A', Names: []string{"numtasks"}, Header: "TASKS", Text: figure(Step.Tasks)},
		{Names: []string{"numcpus"}, Header: "NUM_CPUS", Text: figure(Step.CPUs)},
		{Names: []string{"cpufreq"}, Header: "CPU_FREQ", Text: func(b []byte, _ *Context, s Step) []byte {
			if s.Record != nil {
				return append(b, "Unknown-Unknown:Unknown"...) // left to the kernel
			}
			return append(b, "0-0:0"...)
		}},
		{Names: []string{"network"}, Header: "NETWORK", Text: job(fixed(null))},
		{Names: []string{"resvports"}, Header: "RESERVED_PORTS", Text: job(fixed(null))},
		{Names: []string{"container", "containerid"}, Header: "CONTAINER", Text: ofStep((*msg.StepSpec).GetContainer)},
		{Names: []string{"cpus-per-tres"}, Header: "CPUS_PER_TRES", Text: job(fixed(null))},
		{Names: []string{"mem-per-tres"}, Header: "MEM_PER_TRES", Text: job(fixed(null))},
		{Names: []string{"tres-bind"}, Header: "TRES_BIND", Text: ofStep((*msg.StepSpec).GetTresBind)},
		{Names: []string{"tres-freq"}, Header: "TRES_FREQ", Text: job(fixed(null))},
		// Slurm's headers are like that
		{Letter: 'b', Names: []string{"tres-per-node", "gres"}, Header: "TRES_PER_JOB", Text: func(b []byte, _ *Context, s Step) []byte {
			return append(b, Or(s.tresPerNode(), null)...)
		}},
		{Names: []string{"tres-per-job", "tres-per-step"}, Header: "TRES_PER_STEP", Text: ofStep((*msg.StepSpec).GetTresPerStep)},
		{Names: []string{"tres-per-socket"}, Header: "TRES_PER_SOCKET", Text: ofStep((*msg.StepSpec).GetTresPerSocket)},
		{Names: []string{"tres-per-task"}, Header: "TRES_PER_TASK", Text: ofStep((*msg.StepSpec).GetTresPerTask)},
	})
})

// AppendStep writes a step as `scontrol show step` does.
func AppendStep(b []byte, c *Context, s Step, oneLine bool) []byte {
	k := newBlock(b, c, oneLine)
	k.put("StepId", string(AppendJobID(nil, c, Job{JobRecord: s.Job}))+"."+s.Number())
	k.num(" UserId", uint64(s.Job.GetSpec().GetUid()))
	k.when(" StartTime", s.StartNs(), "Unknown")
	k.put(" TimeLimit", clockLimit(s.limit(), "UNLIMITED"))
	k.line()
	k.put("State", "RUNNING")
	k.put(" Partition", Job{JobRecord: s.Job}.ShownPartition())
	k.put(" NodeList", s.NodeList())
	k.line()
	k.num("Nodes", uint64(s.Nodes()))
	k.num(" CPUs", uint64(s.CPUs()))
	k.num(" Tasks", uint64(s.Tasks()))
	k.put(" Name", s.Name())
	k.put(" Network", null)
	k.line()
	k.put("TRES", Or(inOrder(s.Record.GetAllocTres()), null))
	k.line()
	k.put("ResvPorts", null)
	k.line()
	k.put("CPUFreqReq", "Default")
	if s.Record != nil {
		k.put(" Dist", StepLayout(s.Record))
	}
	k.line()
	spec := s.Record.GetSpec()
	k.put("SrunHost:Pid", Or(spec.GetHost(), null)+":"+strconv.FormatUint(uint64(spec.GetPid()), 10))
	for _, it := range []struct{ key, value string }{{"Container", spec.GetContainer()}, {"TresBind", spec.GetTresBind()},
		{"TresPerStep", spec.GetTresPerStep()}, {"TresPerNode", s.tresPerNode()}, {"TresPerSocket", spec.GetTresPerSocket()},
		{"TresPerTask", spec.GetTresPerTask()}} {
		if it.value != "" {
			k.line()
			k.put(it.key, it.value)
		}
	}
	if oneLine {
		return append(k.b, '\n')
	}
	return append(k.b, "\n\n"...)
}
