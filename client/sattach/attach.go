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
	// connectWithin is how long nodes may take to connect: they give up earlier.
	connectWithin = 30 * time.Second
	// lastWords is how long they may take to say what the controller knows already.
	lastWords = 3 * time.Second
)

// attached follows a step that one is attached to (stepio.Watcher).
type attached struct {
	env     *command.Env
	o       *options
	step    *msg.StepRecord
	session *stepio.Session
	restore func() // of the terminal

	mu      sync.Mutex
	here    int    // nodes that have connected
	away    []bool // nodes of which nothing more is to come
	left    int    // those of which something is
	worst   int    // exit code so far
	failed  bool
	all     chan struct{} // nodes that are to come have connected
	allOnce sync.Once
	over    chan struct{} // nothing more is to come
}

// attach shows what a step prints until it ends.
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
		if !signal.Ignored(s) { // as the shell has it for what runs in the background, and nohup
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

// denied prints why one may not attach. Of the step of another user Slurm says that its nodes have no tasks.
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

// terminal has what is typed go to the task as it is, with --pty. A step that has no terminal would neither show what is typed nor end
// for Ctrl-C: with it the user's stays as it is.
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

// feed passes standard input on, from when all nodes are there. Its end is not that of the tasks' input, which is srun's.
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

// follow waits for the end of the step, or for who wants to leave it.
//
// A signal is for sattach only, which it ends as if it were not caught: what stands between is the terminal that --pty has changed.
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

// missing names the nodes that have not connected, and gives up when there are none at all.
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
		a.env.Errorf("not connected within %s: %s; what runs there is not shown", connectWithin, strings.Join(names, ", "))
	}
	return none
}

// late is for a step that ended before its nodes had heard of who attaches.
func (a *attached) late() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.here == 0 {
		a.failed = true
		refused(a.env, &noStep{msg.CodeAlreadyDone, "StepId=" + a.o.id + " has ended"})
	}
}

// leave notes that nothing more is to come from a node. The lock is held.
func (a *attached) leave(node int) {
	if a.away[node] {
		return
	}
	a.away[node] = true
	if a.left--; a.left == 0 {
		close(a.over)
	}
}

// Connected is of stepio.Watcher, as are those below.
func (a *attached) Connected(int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.here++; a.here == a.expected() {
		a.allOnce.Do(func() { close(a.all) })
	}
}

// expected is the number of nodes that connect.
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
	news := !a.away[node] && !errors.Is(err, net.ErrClosed) // what this process has closed itself
	a.failed = a.failed || news
	a.mu.Unlock()
	if news {
		name := a.step.GetNodes()[node].GetNode()
		a.env.Errorf("the connection to %s has ended: %v; what its tasks print is not shown any more", name, err)
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
