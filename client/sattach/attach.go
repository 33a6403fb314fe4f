package sattach

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/stepio"
	"github.com/sluice-hpc/sluice/client/terminal"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

const (
	// connectWithin is how long nodes may take to connect; they give up earlier.
	connectWithin = 30 * time.Second
	// lastWords is how long nodes may take to report an end that the controller already knows.
	lastWords = 3 * time.Second
)

// attached follows a step after attaching to it (stepio.Watcher).
type attached struct {
	env     *command.Env
	o       *options
	step    *msg.StepRecord
	session *stepio.Session
	restore func() // restores the terminal

	mu      sync.Mutex
	here    int    // nodes that have connected
	away    []bool // nodes that will send nothing more
	left    int    // number of the others
	worst   int    // highest exit code so far
	failed  bool
	all     chan struct{} // all expected nodes have connected
	allOnce sync.Once
	over    chan struct{} // nothing more will come
}

// attach shows a step's output until it ends.
func attach(ctx context.Context, env *command.Env, c *client.Client, o *options, step *msg.StepRecord) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listen, err := stepio.Listen(strings.Trim(client.Settings(env.Getenv, "SrunPortRange")[0], "\""))
	if err != nil {
		return env.Refuse(err)
	}
	defer listen.Close()
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(s) { // ignored by the shell for background processes, or by nohup
			signal.Notify(signals, s)
		}
	}
	defer signal.Stop(signals)
	reply, err := c.AttachStep(ctx, &msg.AttachStepRequest{JobId: step.GetJobId(), StepId: step.GetStepId(), Addresses: listen.Addresses()})
	if err != nil {
		return denied(env, step, err)
	}
	a := &attached{env: env, o: o, step: reply.GetStep(), restore: func() {}, all: make(chan struct{}), over: make(chan struct{})}
	a.away = make([]bool, len(a.step.GetNodes()))
	for i, n := range a.step.GetNodes() {
		if a.away[i] = n.GetEnded(); !n.GetEnded() {
			a.left++
		}
	}
	if a.left == 0 {
		return refused(env, &noStep{msg.CodeAlreadyDone, "StepId=" + o.id + " has ended"})
	}
	out := a.output()
	if a.session, err = stepio.Attach(listen, a.step, out, a); err != nil {
		return env.Refuse(err)
	}
	a.terminal()
	defer func() { a.restore() }()
	a.session.Accept()
	defer a.session.Close()
	go a.feed(ctx)
	a.follow(ctx, c, signals)
	_ = out.Flush()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed && a.worst == 0 {
		return env.ErrorExit()
	}
	return min(a.worst, 255)
}

// denied reports why attaching is not allowed. For another user's step Slurm says that its nodes have no tasks.
func denied(env *command.Env, step *msg.StepRecord, err error) int {
	if msg.Code(client.ProblemOf(err).GetCode()) != msg.CodeAccessDenied {
		return refused(env, err)
	}
	for _, n := range step.GetNodes() {
		env.Infof("Node %s: no tasks running", n.GetNode())
	}
	return refused(env, err)
}

func (a *attached) output() *stepio.Output {
	tasks := a.step.GetNumTasks()
	return stepio.NewOutput(stepio.NewSink(a.env.Stdout, tasks, a.o.out, a.o.label, false),
		stepio.NewSink(a.env.Stderr, tasks, a.o.err, a.o.label, false))
}

// terminal puts the terminal into raw mode with --pty, so that input reaches the task unchanged. If the step has no terminal, it
// would neither echo input nor react to Ctrl-C, so the user's terminal is left as it is.
func (a *attached) terminal() {
	fd, ok := terminal.Of(a.env.Stdin)
	switch {
	case !a.o.pty || !ok:
		return
	case !a.step.GetSpec().GetPty():
		a.env.Errorf("StepId=%s was started without --pty, disregarding --pty option", a.o.id)
		a.o.pty = false
		return
	}
	back, err := terminal.Raw(fd)
	if err != nil {
		return
	}
	said := &terminal.Lines{W: a.env.Stderr}
	said.Raw.Store(true)
	a.env.Stderr = said
	a.restore = sync.OnceFunc(func() {
		back()
		said.Raw.Store(false)
	})
}

// feed forwards standard input once all nodes are connected. Its end does not end the tasks' input, which belongs to srun.
func (a *attached) feed(ctx context.Context) {
	select {
	case <-a.all:
	case <-a.over:
		return
	case <-ctx.Done():
		return
	}
	task := stepwire.All
	switch {
	case a.o.in >= 0:
		task = uint32(a.o.in)
	case a.o.pty:
		task = 0
	}
	if err := a.session.Input(a.env.Stdin, task, func(int64) {}); err != nil {
		a.env.Errorf("cannot read standard input: %v", err)
	}
}

// follow waits for the end of the step, or for the user to detach.
//
// Signals are for sattach alone. They are caught only to restore the terminal that --pty has changed; sattach then ends as if they
// were not.
func (a *attached) follow(ctx context.Context, c *client.Client, signals <-chan os.Signal) {
	ended := make(chan struct{})
	go func() {
		reply, err := c.WaitStep(ctx, &msg.WaitStepRequest{JobId: a.step.GetJobId(), StepId: a.step.GetStepId()})
		if err == nil {
			a.mu.Lock()
			a.worst = max(a.worst, stepio.ExitCode(reply.GetStep().GetExitStatus()))
			a.mu.Unlock()
			close(ended)
		}
	}()
	connect := time.NewTimer(connectWithin)
	defer connect.Stop()
	for {
		select {
		case <-a.over:
			return
		case <-ended:
			ended = nil
			connect.Reset(lastWords)
		case <-connect.C:
			if ended == nil {
				a.late()
				return
			}
			if a.missing() {
				return
			}
		case s := <-signals:
			number, _ := s.(syscall.Signal)
			a.mu.Lock()
			a.worst = max(a.worst, stepio.ExitCode(uint32(number)))
			a.mu.Unlock()
			return
		}
	}
}

// missing reports the nodes that have not connected; it returns true if none has.
func (a *attached) missing() (none bool) {
	var names []string
	a.mu.Lock()
	for i, n := range a.step.GetNodes() {
		if !a.away[i] && !a.session.Connected(i) {
			names = append(names, n.GetNode())
			a.leave(i)
		}
	}
	a.failed = a.failed || len(names) > 0
	none = a.here == 0
	a.mu.Unlock()
	a.allOnce.Do(func() { close(a.all) })
	if len(names) > 0 {
		a.env.Errorf("not connected within %s: %s; the output of tasks there is not shown", connectWithin, strings.Join(names, ", "))
	}
	return none
}

// late handles a step that ended before its nodes learned of the attachment.
func (a *attached) late() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.here == 0 {
		a.failed = true
		refused(a.env, &noStep{msg.CodeAlreadyDone, "StepId=" + a.o.id + " has ended"})
	}
}

// leave records that a node will send nothing more. The lock is held.
func (a *attached) leave(node int) {
	if a.away[node] {
		return
	}
	a.away[node] = true
	if a.left--; a.left == 0 {
		close(a.over)
	}
}

// Connected implements stepio.Watcher, as do the methods below.
func (a *attached) Connected(int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.here++; a.here == a.expected() {
		a.allOnce.Do(func() { close(a.all) })
	}
}

// expected is the number of nodes that will connect.
func (a *attached) expected() (n int) {
	for _, node := range a.step.GetNodes() {
		if !node.GetEnded() {
			n++
		}
	}
	return n
}

func (a *attached) Started(int) {}

func (a *attached) Closed(uint32, bool) {}

func (a *attached) Abort(uint32) {}

func (a *attached) Failed(int, *msg.StepFailed) {}

func (a *attached) Say(_ int, line string) { _, _ = io.WriteString(a.env.Stderr, line+"\n") }

func (a *attached) Exit(node int, e *msg.StepExit) {
	a.mu.Lock()
	a.worst = max(a.worst, stepio.ExitCode(e.GetWaitStatus()))
	a.mu.Unlock()
	name, which := a.step.GetNodes()[node].GetNode(), "task "+stepio.Ranges(e.GetTasks())
	if len(e.GetTasks()) > 1 {
		which = "tasks " + stepio.Ranges(e.GetTasks())
	}
	switch ws := syscall.WaitStatus(e.GetWaitStatus()); {
	case e.GetOom():
		a.env.Errorf("%s: %s: Out Of Memory", name, which)
	case ws.Signaled():
		core := ""
		if ws.CoreDump() {
			core = " (core dumped)"
		}
		a.env.Errorf("%s: %s: %s%s", name, which, stepio.SignalText(ws.Signal()), core)
	case ws.ExitStatus() != 0:
		for _, task := range e.GetTasks() {
			a.env.Errorf("task %d exited with exit code %d", task, ws.ExitStatus())
		}
	case a.o.verbose > 0:
		a.env.Infof("%s: %s: Completed", name, which)
	}
}

func (a *attached) Ended(node int, e *msg.StepEnded) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.worst = max(a.worst, stepio.ExitCode(e.GetWaitStatus()))
	a.leave(node)
}

func (a *attached) Lost(node int, err error) {
	a.mu.Lock()
	news := !a.away[node] && !errors.Is(err, net.ErrClosed) // unless this process has closed the connection itself
	a.failed = a.failed || news
	a.mu.Unlock()
	if news {
		name := a.step.GetNodes()[node].GetNode()
		a.env.Errorf("the connection to %s has ended: %v; the output of its tasks is no longer shown", name, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leave(node)
}

func (a *attached) Unwritable(error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = true
	for i := range a.away {
		a.leave(i)
	}
}
