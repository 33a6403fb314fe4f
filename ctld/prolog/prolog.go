// Package prolog runs PrologSlurmctld and EpilogSlurmctld (slurm.conf(5)).
//
// It is level-triggered: the programs to run follow from the published state alone (reactor.Configuring, reactor.CleaningUp), which is
// durable, so a killed controller omits none. A program that is running when the controller ends is killed and runs again under the next,
// as with Slurm. One that outlived a killed controller is found by the record of its process group and ended first. A program whose job is
// cancelled, requeued or lost is killed.
//
// Both run as SlurmUser, with an environment built from nothing, within PrologEpilogTimeout (without it: without limit, as with Slurm), at
// most atOnce at a time.
package prolog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/failpoint"
	"github.com/sluice-hpc/sluice/internal/program"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// atOnce bounds the concurrent programs; the rest wait.
const atOnce = 64

// retryAfter is the pause when the writer accepts no command.
const retryAfter = 100 * time.Millisecond

// Settings are settings of slurm.conf, read for each program.
type Settings struct {
	Prolog, Epilog string // programs, "" for none
	Timeout        time.Duration
	Cluster        string
	Env            []string // so that commands find the controller
	UID, GID       uint32   // SlurmUser
}

// Runner runs the programs. Make it with New; Changed is a loop observer, Run works until its context ends.
type Runner struct {
	dir      string
	settings func() Settings
	view     func() *state.View
	do       func(context.Context, reactor.Command) (any, error)
	log      *slog.Logger

	wake chan struct{}
	mu   sync.Mutex
	all  bool            // look at every job
	due  map[uint32]bool // jobs to look at

	running map[uint32]*run // only for Run
	ended   chan *run
	slots   chan struct{}
	wg      sync.WaitGroup
}

// run is one program.
type run struct {
	what
	cancel context.CancelCauseFunc
}

// what identifies the program that has to run for a job.
type what struct {
	epilog       bool
	job, attempt uint32
	epoch        uint64
}

var errStale = errors.New("the job no longer waits for it")

// New makes a Runner; dir, which it creates, is for its records.
func New(dir string, settings func() Settings, view func() *state.View, do func(context.Context, reactor.Command) (any, error),
	log *slog.Logger) *Runner {
	return &Runner{dir: dir, settings: settings, view: view, do: do, log: log, wake: make(chan struct{}, 1), all: true,
		due:     map[uint32]bool{},
		running: map[uint32]*run{}, ended: make(chan *run), slots: make(chan struct{}, atOnce)}
}

// Changed notes the jobs of a commit. It does not block.
func (r *Runner) Changed(c state.Change) {
	s := c.View.Settings
	if !s.PrologSlurmctld && !s.EpilogSlurmctld && !c.Structure {
		return // the usual case; the change that removed the programs from slurm.conf was seen
	}
	r.mu.Lock()
	r.all = r.all || c.Structure
	for _, id := range c.Jobs {
		r.due[id] = true
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// take returns the jobs to look at.
func (r *Runner) take() []*pb.JobRecord {
	r.mu.Lock()
	all, due := r.all, r.due
	r.all, r.due = false, map[uint32]bool{}
	r.mu.Unlock()
	v := r.view()
	var jobs []*pb.JobRecord
	if all {
		for j := range v.Jobs.All() {
			due[j.Id] = true
		}
	}
	for id := range due {
		j := v.Jobs.Get(id)
		if j == nil {
			j = &pb.JobRecord{Id: id} // forgotten
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// Run starts and ends programs until ctx ends.
func (r *Runner) Run(ctx context.Context) error {
	if err := program.Records(r.dir, "PrologSlurmctld and EpilogSlurmctld", r.log); err != nil {
		return err
	}
	for {
		for _, j := range r.take() {
			r.look(ctx, j)
		}
		select {
		case <-ctx.Done():
			for range r.running {
				<-r.ended
			}
			r.wg.Wait()
			return nil
		case <-r.wake:
		case done := <-r.ended:
			delete(r.running, done.job)
			if j := r.view().Jobs.Get(done.job); j != nil {
				r.look(ctx, j)
			}
		}
	}
}

// look starts the program that a job needs, and ends one that it no longer needs. The next one follows when that has ended.
func (r *Runner) look(ctx context.Context, j *pb.JobRecord) {
	w := what{job: j.Id, attempt: j.Attempt, epoch: j.Epoch}
	needs := reactor.Configuring(j)
	if reactor.CleaningUp(j) {
		needs, w.epilog = true, true
	}
	if now := r.running[j.Id]; now != nil {
		if !needs || now.what != w {
			now.cancel(errStale)
		}
		return
	}
	if !needs || ctx.Err() != nil {
		return
	}
	jctx, cancel := context.WithCancelCause(ctx)
	started := &run{what: w, cancel: cancel}
	r.running[j.Id] = started
	r.wg.Go(func() {
		defer cancel(nil)
		r.one(ctx, jctx, w, j)
		r.ended <- started
	})
}

// one runs a program to its end and reports to the writer; it reports nothing when the controller ends first, or the job no longer needs
// it.
func (r *Runner) one(ctx, jctx context.Context, w what, j *pb.JobRecord) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-jctx.Done():
		return
	}
	err := r.program(jctx, w, j)
	if scarce(err) {
		r.log.Warn("cannot start PrologSlurmctld or EpilogSlurmctld yet: trying again", "job", w.job, "err", err)
	}
	for scarce(err) && jctx.Err() == nil { // it did not run: this tells nothing about the job
		select {
		case <-time.After(retryAfter):
			err = r.program(jctx, w, j)
		case <-jctx.Done():
		}
	}
	if jctx.Err() != nil {
		return
	}
	var cmd reactor.Command = reactor.EpilogDone{Job: w.job, Attempt: w.attempt, Epoch: w.epoch}
	if !w.epilog {
		done := reactor.PrologDone{Job: w.job, Attempt: w.attempt, Epoch: w.epoch}
		if err != nil {
			done.Failed = err.Error()
		}
		cmd = done
	}
	for {
		_, err := r.do(ctx, cmd)
		var p *pb.Problem
		if err == nil || ctx.Err() != nil {
			return
		}
		if errors.As(err, &p) {
			r.log.Error("cannot record the end of PrologSlurmctld or EpilogSlurmctld: trying again", "job", w.job, "err", err)
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
		}
	}
}

// scarce reports whether the controller's host lacked a resource to start a program. That is temporary, and not the job's fault.
func scarce(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) ||
		errors.Is(err, syscall.EAGAIN)
}

func (r *Runner) program(ctx context.Context, w what, j *pb.JobRecord) error {
	s := r.settings()
	path, name := s.Prolog, "PrologSlurmctld"
	if w.epilog {
		path, name = s.Epilog, "EpilogSlurmctld"
	}
	if path == "" { // removed from slurm.conf meanwhile
		return nil
	}
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.Timeout, fmt.Errorf("it ran longer than PrologEpilogTimeout, %v", s.Timeout))
		defer cancel()
	}
	p := program.Program{Path: path, Env: environment(w.epilog, j, s),
		Record: filepath.Join(r.dir, fmt.Sprintf("%d.%d.pid", w.job, w.attempt))}
	if os.Geteuid() == 0 && s.UID != 0 {
		p.Credential = &syscall.Credential{Uid: s.UID, Gid: s.GID}
	}
	failpoint.Hit("prolog.start")
	out, err := program.Run(ctx, p)
	failpoint.Hit("prolog.end")
	if err != nil && !errors.Is(err, errStale) && !scarce(err) {
		r.log.Error(name+" failed", "job", w.job, "program", path, "err", err, "output", out)
	}
	return err
}
