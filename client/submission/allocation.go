package submission

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/joboptions"
	"github.com/sluice-hpc/sluice/client/msg"
)

// Allocation is a job without a batch script, for salloc or srun.
type Allocation struct {
	Env    *command.Env
	Req    *joboptions.Request
	Sender *Sender
	Client *client.Client
	Job    *msg.JobRecord
	ID     uint32
	// First is the step to create when the job starts; Step is that step after Wait, nil if it was not created.
	First  *msg.FirstStep
	Step   *msg.StepRecord
	Waited time.Duration // for resources
	why    waiting
}

const (
	// firstWait is how long waiting for a job is not reported.
	firstWait = 400 * time.Millisecond
	// pollWait is how long the controller may hold a request.
	pollWait = 20 * time.Second
	// reasonWait is how long the controller may hold it while the reason for waiting is unknown; reasonTries is how often that is
	// tried.
	reasonWait  = time.Second
	reasonTries = 10
)

// Interrupted is a signal that ended the wait.
type Interrupted struct{ Signal syscall.Signal }

func (i *Interrupted) Error() string { return "interrupted by " + i.Signal.String() }

// ErrRevoked means that the allocation ended before it was granted.
var ErrRevoked = errors.New("the allocation has been revoked")

// ErrNotNow means that --immediate was given and there are no resources.
var ErrNotNow = errors.New("there are no resources within the time of --immediate")

// Describe adds properties of this process to the specification.
func Describe(env *command.Env, req *joboptions.Request, name string) {
	spec := req.Spec
	if spec.Name == "" {
		spec.Name = name
	}
	spec.Command = "(null)"
	spec.Interactive, spec.Attended = true, !req.Run.NoShell
	spec.Umask = Umask()
	spec.AllocNode = command.ShortHostname()
	spec.AllocSid = SessionID()
	spec.Rlimits = Limits(req.Propagated(), req.PropagateGiven)
}

// Request submits the job.
func (a *Allocation) Request(ctx context.Context, environ []string) (*msg.SubmitReply, error) {
	id, err := RandomID()
	if err != nil {
		return nil, err
	}
	c, reply, err := a.Sender.Submit(ctx, &msg.SubmitRequest{RequestId: id, Spec: a.Req.Spec, Env: environ, TestOnly: a.Req.TestOnly,
		FirstStep: a.First})
	if err != nil {
		return nil, err
	}
	a.Client, a.ID = c, reply.JobId
	return reply, nil
}

// Wait returns when the job has its nodes. It calls queued once if the job has to wait.
func (a *Allocation) Wait(ctx context.Context, signals <-chan os.Signal, queued func()) error {
	started := a.Env.Now()
	wait, told, tries := firstWait, false, 0
	for {
		limit := time.Duration(-1)
		if run := a.Req.Run; run.ImmediateGiven {
			if limit = max(time.Duration(run.Immediate)*time.Second-a.Env.Now().Sub(started), 0); limit < wait {
				wait = limit
			}
		}
		reply, err := a.ask(ctx, wait, signals)
		if err != nil {
			return err
		}
		job := reply.GetJob()
		a.Job, a.Step, a.Waited = job, reply.GetStep(), a.Env.Now().Sub(started)
		switch {
		case Ready(job):
			return nil
		case Over(job):
			return ErrRevoked
		case limit >= 0 && a.Waited >= time.Duration(a.Req.Run.Immediate)*time.Second:
			return ErrNotNow
		case !told && (limit < 0 || a.Req.Run.Immediate > 1):
			told = true
			a.sayUnavailable(job)
			queued()
		}
		wait = pollWait
		if told {
			a.sayUnavailable(job)
			a.sayWhy(ctx, job)
			if tries++; !known(job) && tries <= reasonTries { // the scheduler has not considered it yet
				wait = reasonWait
			}
		}
	}
}

// ask makes one call, which a signal interrupts.
func (a *Allocation) ask(ctx context.Context, wait time.Duration, signals <-chan os.Signal) (*msg.WaitAllocationReply, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		reply *msg.WaitAllocationReply
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		r, err := Patiently(ctx, a.Sender, func() (*msg.WaitAllocationReply, error) {
			return a.Client.WaitAllocation(ctx, &msg.WaitAllocationRequest{JobId: a.ID, WaitMs: uint32(wait.Milliseconds()),
				FirstStep: a.First.GetRequestId()})
		})
		answers <- answer{r, err}
	}()
	for {
		select {
		case got := <-answers:
			return got.reply, got.err
		case s := <-signals:
			switch n, ok := s.(syscall.Signal); n {
			case syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGCHLD, syscall.SIGTSTP:
			case syscall.SIGPIPE: // from a broken connection
			default:
				if ok {
					return nil, &Interrupted{n}
				}
			}
		}
	}
}

// Ready reports whether the job has its nodes, and they are ready.
func Ready(job *msg.JobRecord) bool {
	return job.GetState() == msg.JobState_JOB_RUNNING && job.GetStateFlags()&uint32(msg.JobConfiguring) == 0
}

// Over reports whether the job has ended, or is about to.
func Over(job *msg.JobRecord) bool {
	return job.GetState() != msg.JobState_JOB_PENDING && job.GetState() != msg.JobState_JOB_RUNNING &&
		job.GetState() != msg.JobState_JOB_SUSPENDED
}

// End releases the allocation.
func (a *Allocation) End(ctx context.Context, waitStatus uint32) error {
	if a.Client == nil || a.ID == 0 {
		return nil
	}
	_, err := Patiently(ctx, a.Sender, func() (*msg.UpdateReply, error) {
		return a.Client.EndAllocation(ctx, &msg.EndAllocationRequest{JobId: a.ID, ExitStatus: waitStatus})
	})
	if code := msg.Code(client.ProblemOf(err).GetCode()); code == msg.CodeFinished || code == msg.CodeAlreadyDone ||
		code == msg.CodeInvalidJobID {
		return nil // it has already ended
	}
	return err
}

// Cancel ends a job that has not started.
func (a *Allocation) Cancel(ctx context.Context) error {
	_, err := a.Client.CancelJobs(ctx, &msg.CancelJobsRequest{Ids: []string{fmt.Sprint(a.ID)}})
	return err
}

// Done sends the job's record when the job has ended.
func (a *Allocation) Done(ctx context.Context) <-chan *msg.JobRecord {
	ended := make(chan *msg.JobRecord, 1)
	go func() {
		r, err := Patiently(ctx, a.Sender, func() (*msg.WaitJobReply, error) {
			return a.Client.WaitJob(ctx, &msg.WaitJobRequest{JobId: a.ID})
		})
		if err == nil {
			ended <- r.GetJob()
		}
	}()
	return ended
}

// SayLead prints Slurm's text before an error.
func (a *Allocation) SayLead(err error) {
	problem := client.ProblemOf(err)
	if problem.GetCode() == uint32(msg.CodeInvalidPartition) && a.Req.Spec.Partition != "" && problem.GetLead() == "" {
		a.Env.Errorf("invalid partition specified: %s", a.Req.Spec.Partition)
	} else if problem.GetLead() != "" {
		a.Env.Errorf("%s", problem.GetLead())
	}
}

// Refused reports why there is no allocation; lead is the command's phrase, "Unable to allocate resources" or the like.
func (a *Allocation) Refused(err error, lead string) int {
	text, more := command.Phrase(err)
	a.SayLead(err)
	a.Env.Errorf("%s: %s", lead, text)
	if more != "" {
		a.Env.Errorf("%s", more)
	}
	return a.Env.ErrorExit()
}
