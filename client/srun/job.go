package srun

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/submission"
	"github.com/sluice-hpc/sluice/conf/timespec"
)

func itoa(n int) string { return strconv.Itoa(n) }

func umaskText() string { return fmt.Sprintf("%04o", submission.Umask()) }

const noResources = "Unable to allocate resources"

// testOnly prints when the job would start.
func (r *run) testOnly(ctx context.Context) int {
	a := r.allocation()
	reply, err := a.Request(ctx, nil)
	if err != nil {
		text, more := command.Phrase(err)
		a.SayLead(err)
		fmt.Fprintf(r.env.Stderr, "allocation failure: %s\n", text)
		if more != "" {
			r.env.Errorf("%s", more)
		}
		return r.env.ErrorExit()
	}
	defer a.Client.Close()
	at := time.Unix(0, reply.StartNs).In(r.req.Now.Location()).Format(timespec.Layout)
	r.env.Infof("Job %d to start at %s using %d processors on nodes %s in partition %s", reply.JobId, at, reply.Cpus, reply.Nodes,
		reply.Partition)
	return 0
}

func (r *run) allocation() *submission.Allocation {
	submission.Describe(r.env, r.req, r.req.Spec.Name)
	r.req.Spec.SubmitLine = words(r.env.Args)
	r.req.Spec.StdOut, r.req.Spec.StdErr, r.req.Spec.StdIn = "", "", ""
	return &submission.Allocation{Env: r.env, Req: r.req, Sender: r.sender}
}

// foreseen reports whether the step's specification does not depend on the job's allocation, so that it can be submitted with the
// job.
func (r *run) foreseen() bool {
	s := r.req.Spec
	return !r.req.Run.Bcast && (s.NtasksPerTres == 0 || s.NumTasks != 0 || r.req.TasksOfGPUs(s.NtasksPerTres) != 0)
}

// runJob creates a job for the step and ends it afterwards in any case.
func (r *run) runJob(ctx context.Context) (exit int) {
	a := r.allocation()
	r.alloc = a
	if r.foreseen() {
		if err := r.want(); err != nil {
			return r.env.Refuse(err)
		}
		defer r.listen.Close()
		a.First = &msg.FirstStep{RequestId: r.wanted.RequestId, Spec: r.wanted.Spec}
	}
	reply, err := a.Request(ctx, nil)
	if err != nil {
		return a.Refused(err, noResources)
	}
	r.client = a.Client
	defer a.Client.Close()
	if reply.Warning != "" {
		r.infof("%s", reply.Warning)
	}
	ended := false
	defer func() {
		if !ended { // after a panic, too
			_ = a.End(ctx, 1)
		}
	}()
	waited := false
	err = a.Wait(ctx, r.sig.c, func() {
		waited = true
		r.infof("job %d queued and waiting for resources", a.ID)
	})
	if err != nil {
		ended = true
		return r.notAllocated(ctx, err)
	}
	if waited {
		r.infof("job %d has been allocated resources", a.ID)
	}
	r.job, r.step = a.Job, a.Step
	exit = r.runStep(ctx)
	ended = true
	const byte8 = 8
	if err := a.End(ctx, uint32(exit)<<byte8); err != nil {
		r.env.Errorf("cannot end job %d: %v", a.ID, err)
	}
	return exit
}

// notAllocated reports that the job has not started.
func (r *run) notAllocated(ctx context.Context, err error) int {
	a := r.alloc
	var i *submission.Interrupted
	switch {
	case errors.As(err, &i):
		_ = a.Cancel(ctx)
		r.infof("Job allocation %d has been revoked", a.ID)
		r.infof("Force Terminated JobId=%d", a.ID)
		return r.env.ErrorExit()
	case errors.Is(err, submission.ErrNotNow):
		_ = a.Cancel(ctx)
		r.env.Errorf("%s: %s", noResources, a.NotNow())
		if n, bad := strconv.Atoi(r.env.Getenv("SLURM_EXIT_IMMEDIATE")); bad == nil && n > 0 && n < 256 {
			return n
		}
		return r.env.ErrorExit()
	case errors.Is(err, submission.ErrRevoked):
		r.infof("Job has been cancelled")
		r.env.Errorf("%s: Job/step already completing or completed", noResources)
		return r.env.ErrorExit()
	}
	_ = a.End(ctx, 1)
	return a.Refused(err, noResources)
}
