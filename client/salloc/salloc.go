// Package salloc is the command that obtains an allocation and runs a command in it here, or a shell on its first node.
package salloc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/joboptions"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/client/submission"
	"github.com/sluice-hpc/sluice/internal/passwd"
)

// Main gets an allocation, runs a command in it, and releases it.
func Main(env *command.Env, args []string) int {
	hits, rest, err := env.Scan(joboptions.Names(joboptions.Salloc), args, false)
	if err != nil {
		return env.UsageError(err, command.ExitUsage)
	}
	if text := joboptions.Info(hits, func() string { return Page().Help() }, usage); text != "" {
		_, _ = io.WriteString(env.Stdout, text)
		return 0
	}
	s := &session{env: env, argv: rest}
	if err := s.prepare(hits); err != nil {
		return env.Refuse(err)
	}
	s.explain()
	return s.run(context.Background())
}

// session is one invocation of salloc.
type session struct {
	env         *command.Env
	req         *joboptions.Request
	argv        []string
	interactive bool // the command is a shell on the first node
	alloc       *submission.Allocation
	signals     chan os.Signal
}

func (s *session) prepare(hits []opt.Hit) error {
	dir, err := s.env.Getwd()
	if err != nil {
		return fmt.Errorf("cannot find the current directory: %w", err)
	}
	s.req = joboptions.New(joboptions.Salloc, dir, s.env.Now(), os.ReadFile)
	if err := s.req.FromEnvironment(s.env.LookupEnv); err != nil {
		return err
	}
	for _, h := range hits {
		if err := s.req.Apply(joboptions.CommandLine, h); err != nil {
			return err
		}
	}
	if err := s.req.Finish(); err != nil {
		return err
	}
	if err := s.env.CheckClusters(s.req.Clusters); err != nil {
		return err
	}
	if err := joboptions.OneComponent(s.argv); err != nil {
		return err
	}
	if s.req.Run.NoShell && len(s.argv) > 0 {
		return &opt.ValueError{Lines: []string{"--no-shell option and command are mutually exclusive"}, Exit: 1,
			Hint: "give one of them"}
	}
	if s.req.Given("chdir") {
		if err := os.Chdir(s.req.Spec.WorkDir); err != nil {
			return &opt.ValueError{Lines: []string{fmt.Sprintf("chdir(%s): %s", s.req.Spec.WorkDir, reason(err))}, Exit: 1}
		}
	}
	return s.command()
}

// reason is the system's text for an error.
func reason(err error) string {
	var p *os.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:]
}

// command determines what runs in the allocation.
func (s *session) command() error {
	v := client.Settings(s.env.Getenv, "LaunchParameters", "InteractiveStepOptions")
	switch {
	case s.req.Run.NoShell, len(s.argv) > 0:
	default:
		shell := s.env.Getenv("SHELL")
		if shell == "" {
			shell = passwd.Self().Shell
		}
		if shell == "" {
			shell = "/bin/sh"
		}
		s.argv = []string{shell}
		if uses(v[0], "use_interactive_step") {
			options := v[1]
			if options == "" {
				options = "--interactive --preserve-env --pty $SHELL"
			}
			s.argv, s.interactive = append([]string{"srun"}, fields(options, shell)...), true
		}
	}
	if err := s.contain(); err != nil {
		return err
	}
	name := "interactive"
	if s.req.Run.NoShell {
		name = "no-shell"
	}
	submission.Describe(s.env, s.req, name)
	s.req.Spec.SubmitLine = strings.Join(s.env.Args, " ")
	return nil
}

// contain runs the shell on the node in the container; a command on this host cannot run in it.
func (s *session) contain() error {
	c := s.req.Spec.RunIn
	if c == nil {
		return nil
	}
	if !s.interactive {
		return &opt.ValueError{Lines: []string{"salloc takes no container options: its command runs on this host, not in a " +
			"container"}, Hint: "give them to srun in the allocation", Exit: 1}
	}
	s.argv = slices.Insert(s.argv, 1, joboptions.ContainerOptions(c)...)
	s.req.Spec.RunIn = nil // it belongs to the step
	return nil
}

func uses(list, word string) bool {
	for _, w := range command.List(list) {
		if strings.EqualFold(strings.TrimSpace(w), word) {
			return true
		}
	}
	return false
}

// fields splits InteractiveStepOptions at blanks; $SHELL is the user's.
func fields(options, shell string) []string {
	words := strings.Fields(options)
	for i, w := range words {
		words[i] = strings.NewReplacer("$SHELL", shell, "${SHELL}", shell).Replace(w)
	}
	return words
}

func (s *session) infof(format string, args ...any) {
	if !s.req.Quiet {
		s.env.Infof(format, args...)
	}
}

func (s *session) explain() {
	for _, o := range s.req.NotAllowed {
		s.env.Errorf("Ignoring %s since it's not allowed by configuration (AllowSpecResourcesUsage = No)", o)
	}
	for _, w := range s.req.Warnings {
		s.infof("Warning: %s", w)
	}
	if s.req.Verbose == 0 {
		return
	}
	for _, o := range s.req.Ignored {
		s.env.Infof("--%s is accepted but has no effect on this cluster", o)
	}
	const line = "-------------------- --------------------"
	s.env.Infof("defined options")
	s.env.Infof(line)
	s.req.Settings(func(name, value string) {
		switch {
		case name == "verbose":
			value = strconv.Itoa(s.req.Verbose)
		case value == "":
			value = "set"
		}
		s.env.Infof("%-20s: %s", name, value)
	})
	s.env.Infof(line)
	s.env.Infof("end of defined options")
}

const refused = "Job submit/allocate failed"

// run gets the allocation, and releases it in any case.
func (s *session) run(ctx context.Context) (exit int) {
	const room = 64
	s.signals = make(chan os.Signal, room)
	signal.Notify(s.signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(s.signals)
	s.alloc = &submission.Allocation{Env: s.env, Req: s.req, Sender: &submission.Sender{Env: s.env}}
	reply, err := s.alloc.Request(ctx, nil)
	if err != nil {
		return s.alloc.Refused(err, refused)
	}
	defer s.alloc.Client.Close()
	if reply.Warning != "" {
		s.infof("%s", reply.Warning)
	}
	kept := false
	defer func() {
		if !kept { // after a panic, too
			_ = s.alloc.End(ctx, 1)
		}
	}()
	waited := false
	err = s.alloc.Wait(ctx, s.signals, func() {
		waited = true
		s.infof("Pending job allocation %d", s.alloc.ID)
		s.infof("job %d queued and waiting for resources", s.alloc.ID)
	})
	if err != nil {
		kept = true
		return s.notGranted(ctx, err)
	}
	if waited {
		s.infof("job %d has been allocated resources", s.alloc.ID)
	}
	s.infof("Granted job allocation %d", s.alloc.ID)
	s.bell()
	if s.req.Run.NoShell {
		kept = true
		return 0
	}
	status, revoked := s.execute(ctx)
	kept = true
	if !revoked {
		s.infof("Relinquishing job allocation %d", s.alloc.ID)
		if err := s.alloc.End(ctx, status); err != nil {
			s.env.Errorf("cannot end job %d: %v", s.alloc.ID, err)
		}
	}
	return code(status)
}

// bellAfter is how long a job must have waited to ring the bell.
const bellAfter = 10 * time.Second

func (s *session) bell() {
	o := s.req.Run
	if !o.NoBell && (o.Bell || s.alloc.Waited > bellAfter) && command.IsTerminal(s.env.Stdout) {
		_, _ = io.WriteString(s.env.Stdout, "\a")
	}
}

// notGranted reports that the job has not started.
func (s *session) notGranted(ctx context.Context, err error) int {
	a := s.alloc
	var i *submission.Interrupted
	switch {
	case errors.As(err, &i):
		_ = a.Cancel(ctx)
		s.infof("Job allocation %d has been revoked.", a.ID)
		s.infof("Job aborted due to signal")
	case errors.Is(err, submission.ErrNotNow):
		_ = a.Cancel(ctx)
		why := a.NotNow()
		if s.req.Run.Immediate > 1 {
			why = "Connection timed out"
		}
		s.env.Errorf("Unable to allocate resources: %s", why)
	case errors.Is(err, submission.ErrRevoked):
		s.infof("Job has been cancelled")
		s.env.Errorf("%s: Job/step already completing or completed", refused)
	default:
		_ = a.End(ctx, 1)
		return a.Refused(err, refused)
	}
	return s.env.ErrorExit()
}

func code(status uint32) int {
	const signalled = 128
	ws := syscall.WaitStatus(status)
	if ws.Signaled() {
		return signalled + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// environment returns that of the command.
func (s *session) environment() []string {
	e := submission.NewEnvironment(submission.OuterJobRemoved(s.env.Environ))
	for _, v := range submission.JobVariables(s.alloc.Job, s.req.Spec, s.env.ClusterName()) {
		name, value, _ := strings.Cut(v, "=")
		e.Set(name, value)
	}
	if n := s.req.GPUsPerNode(); n != "" {
		e.Set("SLURM_GPUS_PER_NODE", n)
	}
	e.Set("SLURM_SUBMIT_DIR", s.req.Dir)
	e.Set("SLURM_SUBMIT_HOST", command.ShortHostname())
	return e.Vars
}
