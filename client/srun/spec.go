package srun

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// spec is what is asked of the controller for the step.
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
	if j.TimeLimitS != 0 && (r.alloc == nil || r.req.GivenBy("time") == opt.CommandLine) {
		s.TimeLimitS = j.TimeLimitS
	}
	s.NoGres = s.TresPerNode == "" && r.req.GivenBy("gres") == opt.CommandLine // --gres=none
	if o.RelativeGiven {
		s.Relative = int32(o.Relative)
	}
	if o.ImmediateGiven && r.alloc == nil {
		s.Immediate = true
	}
	if k := j.NtasksPerTres; k > 0 {
		r.perGPU(s, k)
	}
	if r.alloc != nil { // the allocation was made for the step: it is all of it
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

// exclusiveStep: --exclusive keeps the step to the CPUs that its tasks need. Outside of an allocation the job is what has its nodes to
// itself, and a step that does not say how many tasks it has gets all of it, as in Slurm.
func (r *run) exclusiveStep() bool {
	return r.req.Spec.Sharing == "exclusive" && (r.alloc == nil || r.req.Given("ntasks"))
}

// perGPU is --ntasks-per-gpu: so many tasks for each GPU, and each of them sees that one.
func (r *run) perGPU(s *msg.StepSpec, k uint32) {
	if s.NumTasks == 0 {
		s.NumTasks = r.req.TasksOfGPUs(k)
	}
	if s.NumTasks == 0 && r.job != nil { // the controller has counted
		s.NumTasks = r.job.GetSpec().GetNumTasks()
	}
	if s.TresBind == "" {
		s.TresBind = fmt.Sprintf("gres/gpu:single:%d", k)
	}
}

// nodesAreTasks: without a number of nodes or tasks, each node that -w names runs a task, as in Slurm.
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

// nodesOfJob has a step that does not say how many nodes it wants take those of its job, one at most for each task. In a batch script the
// environment says so; with --jobid the job has to be asked.
func (r *run) nodesOfJob(ctx context.Context) {
	s, o := r.req.Spec, &r.req.Run
	if r.alloc != nil || o.Interactive || o.Pty || o.RelativeGiven ||
		s.MinNodes != 0 || s.ReqNodes != "" || s.ExcNodes != "" || s.NumTasks == 1 {
		return
	}
	reply, err := r.client.WaitAllocation(ctx, &msg.WaitAllocationRequest{JobId: r.jobID()})
	if err != nil {
		return // the answer about the step says it
	}
	for _, a := range reply.GetJob().GetAlloc() {
		if !a.GetEnded() { // of a node that has failed (--no-kill)
			s.MinNodes++
		}
	}
	if s.NumTasks > 0 {
		s.MinNodes = min(s.MinNodes, s.NumTasks)
	}
}
