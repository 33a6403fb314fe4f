package srun

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/joboptions"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// spec builds the request for the step.
func (r *run) spec(addresses []string) *msg.StepSpec {
	j, o := r.req.Spec, &r.req.Run
	s := &msg.StepSpec{Name: j.Name, NumTasks: j.NumTasks, MinNodes: j.MinNodes, MaxNodes: j.MaxNodes, CpusPerTask: j.CpusPerTask,
		NtasksPerNode: j.NtasksPerNode, ThreadsPerCore: j.ThreadsPerCore, MemPerNodeMib: j.MemPerNodeMib, MemPerCpuMib: j.MemPerCpuMib,
		MemPerGpuMib: j.MemPerGpuMib, TresPerStep: j.TresPerJob, TresPerNode: j.TresPerNode, TresPerSocket: j.TresPerSocket,
		SocketsPerNode: j.SocketsPerNode,
		TresPerTask:    j.TresPerTask, TresBind: j.TresBind,
		Exact: o.Exact || r.exclusiveStep() || j.CpusPerTask > 0 || j.ThreadsPerCore > 0, Overlap: o.Overlap,
		Overcommit: j.Overcommit, ReqNodes: j.ReqNodes, ExcNodes: j.ExcNodes, Relative: -1, Distribution: j.Distribution,
		CpuBind: o.CPUBind, NoKill: j.NoKill, Interactive: o.Interactive, SubmitLine: words(r.env.Args),
		Container: j.Container, RunIn: j.RunIn,
		Pty: o.Pty, Mpi: o.MPI, Addresses: addresses, Host: command.ShortHostname(), Pid: uint32(os.Getpid())}
	if j.TimeLimitS != 0 && (r.alloc == nil || r.req.GivenBy("time") == joboptions.CommandLine) {
		s.TimeLimitS = j.TimeLimitS
	}
	s.NoGres = s.TresPerNode == "" && r.req.GivenBy("gres") == joboptions.CommandLine // --gres=none
	if o.RelativeGiven {
		s.Relative = int32(o.Relative)
	}
	if o.ImmediateGiven && r.alloc == nil {
		s.Immediate = true
	}
	if k := j.NtasksPerTres; k > 0 {
		r.perGPU(s, k)
	}
	if r.alloc != nil { // the allocation was made for the step, which uses all of it
		s.ReqNodes, s.ExcNodes, s.MemPerNodeMib, s.MemPerCpuMib, s.MemPerGpuMib = "", "", 0, 0, 0
		s.TimeLimitS = 0
		if !strings.HasPrefix(s.Distribution, "arbitrary") {
			s.Distribution = j.Distribution
		}
	}
	if strings.HasPrefix(s.Distribution, "arbitrary") {
		s.Hosts = command.List(j.ReqNodes)
	}
	return s
}

// exclusiveStep reports whether the step gets only the CPUs that its tasks need. Outside an allocation --exclusive makes the job
// the only one on its nodes, and as in Slurm a step without a number of tasks gets all of it.
func (r *run) exclusiveStep() bool {
	return r.req.Spec.Sharing == "exclusive" && (r.alloc == nil || r.req.Given("ntasks"))
}

// perGPU implements --ntasks-per-gpu: k tasks per GPU, each of which sees only that GPU.
func (r *run) perGPU(s *msg.StepSpec, k uint32) {
	if s.NumTasks == 0 {
		s.NumTasks = r.req.TasksOfGPUs(k)
	}
	if s.NumTasks == 0 && r.job != nil { // the controller has derived the number
		s.NumTasks = r.job.GetSpec().GetNumTasks()
	}
	if s.TresBind == "" {
		s.TresBind = fmt.Sprintf("gres/gpu:single:%d", k)
	}
}

// nodesAreTasks runs one task on each node of -w if neither the number of nodes nor of tasks is given, as in Slurm.
func (r *run) nodesAreTasks() {
	s := r.req.Spec
	if s.NumTasks != 0 || s.MinNodes != 0 || s.NtasksPerNode != 0 || strings.HasPrefix(s.Distribution, "arbitrary") {
		return
	}
	if names, err := hostlist.Expand(s.ReqNodes); err == nil && len(names) > 1 {
		n := uint32(len(names))
		s.MinNodes, s.MaxNodes, s.NumTasks = n, n, n
	}
}

// nodesOfJob gives a step without a number of nodes all nodes of its job, but at most one per task. In a batch script the
// environment has the number; with --jobid the job must be queried.
func (r *run) nodesOfJob(ctx context.Context) {
	s, o := r.req.Spec, &r.req.Run
	if r.alloc != nil || o.Interactive || o.Pty || o.RelativeGiven ||
		s.MinNodes != 0 || s.ReqNodes != "" || s.ExcNodes != "" || s.NumTasks == 1 {
		return
	}
	reply, err := r.client.WaitAllocation(ctx, &msg.WaitAllocationRequest{JobId: r.jobID()})
	if err != nil {
		return // creating the step will report the error
	}
	for _, a := range reply.GetJob().GetAlloc() {
		if !a.GetEnded() { // ended: a failed node (--no-kill)
			s.MinNodes++
		}
	}
	if s.NumTasks > 0 {
		s.MinNodes = min(s.MinNodes, s.NumTasks)
	}
}
