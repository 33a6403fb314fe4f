package srun

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/stepio"
	"github.com/sluice-hpc/sluice/client/submission"
)

// tasks tracks the tasks of a step, from reports of the nodes, and of the controller about nodes that are silent.
type tasks struct {
	r       *run
	session *stepio.Session

	mu      sync.Mutex
	state   []taskState
	status  []uint32 // wait statuses
	open    []uint8  // streams that are still open
	nodes   []nodeState
	left    int // tasks that are still running
	busy    int // streams that are still open
	worst   int // highest exit code so far
	failed  bool
	ending  bool // the step is being ended
	awaited bool // a node has connected
	asking  bool // the controller has been asked how the step ended

	untold []*ending // ends of tasks to be reported
	say    *time.Timer
	launch *time.Timer
	kill   *time.Timer   // kills what SIGTERM did not end
	wait   *time.Timer   // until srun says that it is waiting for the end
	begun  chan struct{} // all tasks have begun
	idle   int           // nodes whose tasks have not begun

	first    chan struct{} // a task has ended
	done     chan struct{} // all tasks and their streams have ended
	ended    chan struct{} // and the nodes have reported it
	gone     chan struct{} // srun has given up waiting
	asked    chan struct{} // the controller is to be asked
	silent   chan int      // disconnected nodes
	over     chan *msg.StepRecord
	input    atomic.Int64
	firstOne sync.Once
	doneOne  sync.Once
	endOne   sync.Once
	goneOne  sync.Once

	abortOnce sync.Once
	told      bool // the end has been announced
	quiet     bool // ended by Ctrl-C: the ends of tasks are not reported
	killed    bool // a signal has ended a task
	unread    bool // the reader of the output is gone
}

type taskState uint8

const (
	waiting taskState = iota
	running
	exited
)

type nodeState struct{ ended, lost, failed bool }

const (
	readsOut uint8 = 1
	readsErr uint8 = 2
)

func newTasks(r *run) *tasks {
	n := r.step.GetNumTasks()
	t := &tasks{r: r, state: make([]taskState, n), status: make([]uint32, n), open: make([]uint8, n),
		nodes: make([]nodeState, len(r.step.GetNodes())), left: int(n), first: make(chan struct{}), done: make(chan struct{}),
		begun: make(chan struct{}), idle: len(r.step.GetNodes()), say: time.NewTimer(time.Hour), launch: time.NewTimer(never),
		ended: make(chan struct{}), gone: make(chan struct{}), asked: make(chan struct{}, 1), over: make(chan *msg.StepRecord, 1),
		silent: make(chan int, len(r.step.GetNodes()))}
	for i := range t.open {
		if !r.files.out.node && (i == 0 || !r.req.Run.Pty) {
			t.open[i] |= readsOut
			t.busy++
		}
		if !r.files.err.node && !(r.files.errToOut && r.files.out.node) && !r.req.Run.Pty {
			t.open[i] |= readsErr
			t.busy++
		}
	}
	return t
}

func (t *tasks) id() string { return fmt.Sprintf("%d.%d", t.r.step.GetJobId(), t.r.step.GetStepId()) }

func (t *tasks) node(i int) *msg.StepNode { return t.r.step.GetNodes()[i] }

// never is longer than any step.
const never = 1<<63 - 1

// Connected implements stepio.Watcher, as do the methods below.
func (t *tasks) Connected(int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.awaited {
		t.awaited = true
		t.launch.Reset(launchWithin)
	}
}

// late gives up a step if some of its nodes have not connected.
func (t *tasks) late() {
	if t.session.Begun() {
		return
	}
	t.mu.Lock()
	t.failed = true
	t.mu.Unlock()
	t.r.env.Errorf("timeout waiting for task launch, started 0 of %d tasks", len(t.state))
	t.stop()
}

func (t *tasks) Started(node int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, rank := range t.node(node).GetTasks() {
		if int(rank) < len(t.state) && t.state[rank] == waiting {
			t.state[rank] = running
		}
	}
	if t.idle--; t.idle == 0 {
		close(t.begun)
	}
	if t.r.req.Verbose > 0 {
		t.r.env.Infof("launch/slurm: _task_start: Node %s, %d tasks started", t.node(node).GetNode(), len(t.node(node).GetTasks()))
	}
}

func (t *tasks) Failed(node int, f *msg.StepFailed) {
	t.mu.Lock()
	t.failed = true
	t.mu.Unlock()
	text := f.Detail
	if text == "" {
		text = strings.ReplaceAll(f.Verdict, "_", " ")
	}
	if f.Errno != 0 && !strings.Contains(text, syscall.Errno(f.Errno).Error()) {
		text += ": " + syscall.Errno(f.Errno).Error()
	}
	t.r.env.Errorf("task %d launch failed: %s", f.Task, text)
	if len(t.nodes) > 1 {
		t.stop()
	}
}

func (t *tasks) Say(_ int, line string) {
	if strings.Contains(line, "*** STEP ") {
		t.mu.Lock()
		unread := t.unread
		t.mu.Unlock()
		if unread {
			return
		}
		t.aborted()
	}
	_, _ = t.r.env.Stderr.Write([]byte(line + "\n"))
}

// Exit records the end of tasks of a node, all with the same status.
func (t *tasks) Exit(node int, e *msg.StepExit) {
	t.mu.Lock()
	var ranks []uint32
	for _, rank := range e.Tasks {
		if int(rank) < len(t.state) && t.state[rank] != exited {
			ranks = append(ranks, rank)
			t.finish(rank, e.WaitStatus)
		}
	}
	kill := t.r.killOnBadExit() && !t.r.req.Spec.NoKill && e.WaitStatus != 0 && !t.ending && t.kill == nil && t.left > 0
	t.mu.Unlock()
	if len(ranks) > 0 {
		if t.r.req.Verbose > 0 {
			t.r.env.Infof("launch/slurm: _task_finish: Received task exit notification for %d task of StepId=%s (status=0x%04x).",
				len(ranks), t.id(), e.WaitStatus)
		}
		t.note(node, ranks, e)
	}
	if kill {
		t.tellAll()
		t.r.infof("launch/slurm: _step_signal: Terminating StepId=%s", t.id())
		t.abortOnce.Do(func() {}) // the message above says it
		t.terminate()
	}
	if len(ranks) > 0 { // report this before the consequences of the step's end
		t.firstOne.Do(func() { close(t.first) })
		t.mu.Lock()
		t.check()
		t.mu.Unlock()
	}
}

// Abort handles MPI_Abort in a task. Its node is already ending its own tasks.
func (t *tasks) Abort(uint32) { t.stop() }

// finish records the end of a task. The lock is held.
func (t *tasks) finish(rank, status uint32) {
	t.state[rank], t.status[rank] = exited, status
	t.left--
	t.worst = max(t.worst, stepio.ExitCode(status))
}

// together delays the report of a task's end, so that tasks with the same end share a line.
const together = 10 * time.Millisecond

// ending are tasks of a node with the same end.
type ending struct {
	node   int
	ranks  []uint32
	status uint32
	oom    bool
}

// note schedules the report of the end of tasks.
func (t *tasks) note(node int, ranks []uint32, e *msg.StepExit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, u := range t.untold {
		if u.node == node && u.status == e.WaitStatus && u.oom == e.Oom {
			u.ranks = append(u.ranks, ranks...)
			return
		}
	}
	if len(t.untold) == 0 {
		t.say.Reset(together)
	}
	t.untold = append(t.untold, &ending{node, ranks, e.WaitStatus, e.Oom})
}

func (t *tasks) tellAll() {
	t.mu.Lock()
	list := t.untold
	t.untold = nil
	t.mu.Unlock()
	for _, u := range list {
		t.tell(u.node, u.ranks, &msg.StepExit{WaitStatus: u.status, Oom: u.oom})
	}
}

// tell reports tasks that failed; with -v, all tasks.
func (t *tasks) tell(node int, ranks []uint32, e *msg.StepExit) {
	ws := syscall.WaitStatus(e.WaitStatus)
	name := t.node(node).GetNode()
	t.mu.Lock()
	quiet := t.quiet
	t.killed = t.killed || ws.Signaled() && (ws.Signal() == syscall.SIGKILL || ws.Signal() == syscall.SIGTERM)
	t.mu.Unlock()
	if quiet {
		return
	}
	which := "task " + stepio.Ranges(ranks)
	if len(ranks) > 1 {
		which = "tasks " + stepio.Ranges(ranks)
	}
	switch {
	case e.Oom:
		t.r.env.Errorf("%s: %s: Out Of Memory", name, which)
	case ws.Signaled():
		core := ""
		if ws.CoreDump() {
			core = " (core dumped)"
		}
		t.r.env.Errorf("%s: %s: %s%s", name, which, stepio.SignalText(ws.Signal()), core)
	case ws.ExitStatus() != 0:
		t.r.env.Errorf("%s: %s: Exited with exit code %d", name, which, ws.ExitStatus())
	case t.r.req.Verbose > 0:
		t.r.env.Infof("launch/slurm: _task_finish: %s: %s: Completed", name, which)
	}
}

func (t *tasks) Closed(task uint32, stderr bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	bit := readsOut
	if stderr {
		bit = readsErr
	}
	if t.open[task]&bit != 0 {
		t.open[task] &^= bit
		t.busy--
		t.check()
	}
}

func (t *tasks) Ended(node int, e *msg.StepEnded) {
	if e.Detail != "" && e.Verdict != "" && e.Verdict != "exited" {
		t.r.env.Errorf("%s: %s", t.node(node).GetNode(), e.Detail)
	}
	t.endNode(node, e.WaitStatus)
}

// endNode records that a node has nothing of the step left.
func (t *tasks) endNode(node int, status uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.nodes[node].ended {
		return
	}
	t.nodes[node].ended = true
	for _, rank := range t.node(node).GetTasks() {
		if t.state[rank] != exited {
			if status == 0 {
				status = uint32(syscall.SIGKILL)
			}
			t.failed = true
			t.finish(rank, status)
		}
		for _, bit := range []uint8{readsOut, readsErr} {
			if t.open[rank]&bit != 0 {
				t.open[rank] &^= bit
				t.busy--
			}
		}
	}
	t.firstOne.Do(func() { close(t.first) })
	t.check()
}

// check closes done and ended if all tasks or nodes have ended. The lock is held.
func (t *tasks) check() {
	if t.left == 0 && t.busy == 0 {
		t.doneOne.Do(func() { close(t.done) })
	}
	for _, n := range t.nodes {
		if !n.ended {
			return
		}
	}
	t.endOne.Do(func() { close(t.ended) })
}

func (t *tasks) Lost(node int, err error) {
	t.mu.Lock()
	t.nodes[node].lost = true
	finished := t.left == 0
	idle := t.idle == len(t.nodes)
	unbegun := idle && !t.ending && len(t.nodes) > 1 // the other nodes wait for it
	t.failed = t.failed || unbegun
	silent := idle && t.ending
	t.mu.Unlock()
	if !finished && !silent && !errors.Is(err, net.ErrClosed) {
		t.r.infof("the connection to %s has ended: %v", t.node(node).GetNode(), err)
	}
	if unbegun {
		t.stop()
	}
	if !finished && !silent {
		select {
		case t.silent <- node:
		default: // lost before: nodes may reconnect until all are there
		}
	}
	t.ask()
}

func (t *tasks) Unwritable(err error) {
	t.mu.Lock()
	first := !t.failed
	t.failed = true
	t.mu.Unlock()
	if !first {
		return
	}
	if errors.Is(err, syscall.EPIPE) { // a reader that went away is not reported
		t.mu.Lock()
		t.quiet, t.unread = true, true
		t.mu.Unlock()
		t.abortOnce.Do(func() {})
	} else {
		t.r.env.Errorf("cannot write the output of the tasks: %v", err)
	}
	t.stop()
}

// ask makes follow ask the controller about the end of the step.
func (t *tasks) ask() {
	select {
	case t.asked <- struct{}{}:
	default:
	}
}

// inquire waits until the controller reports the end of the step.
func (t *tasks) inquire(ctx context.Context) {
	if t.asking {
		return
	}
	t.asking = true
	go func() {
		r, err := submission.Patiently(ctx, t.r.sender, func() (*msg.WaitStepReply, error) {
			return t.r.client.WaitStep(ctx, &msg.WaitStepRequest{JobId: t.r.step.GetJobId(), StepId: t.r.step.GetStepId()})
		})
		switch {
		case err == nil:
			t.over <- r.GetStep()
		case ctx.Err() == nil:
			t.r.env.Errorf("cannot find out how StepId=%s ended: %v", t.id(), err)
			t.over <- nil
		}
	}()
}

// settle ends the nodes that have ended according to the controller but have not reported it.
func (t *tasks) settle(step *msg.StepRecord) {
	failed := false
	for i, n := range step.GetNodes() {
		if n.GetLost() && i < len(t.nodes) {
			t.nodeFailed(i)
			failed = true
		}
	}
	if step.GetReason() != "" && !failed && !t.quietEnd() {
		t.r.env.Errorf("StepId=%s: %s", t.id(), step.GetReason())
	}
	for i := range t.nodes {
		t.endNode(i, step.GetExitStatus())
	}
}

func (t *tasks) quietEnd() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.left == 0
}

// report prints the state of the tasks.
func (t *tasks) report() {
	t.mu.Lock()
	defer t.mu.Unlock()
	ranks := map[string][]uint32{}
	for rank, state := range t.state {
		text := "unknown"
		switch {
		case state == running:
			text = "running"
		case state == exited && t.status[rank] == 0:
			text = "exited"
		case state == exited:
			text = "exited abnormally"
		}
		ranks[text] = append(ranks[text], uint32(rank))
	}
	for _, text := range []string{"unknown", "running", "exited", "exited abnormally"} {
		switch list := ranks[text]; {
		case len(list) == 1:
			t.r.env.Infof("StepId=%s task %s: %s", t.id(), stepio.Ranges(list), text)
		case len(list) > 1:
			t.r.env.Infof("StepId=%s tasks %s: %s", t.id(), stepio.Ranges(list), text)
		}
	}
}

// forward passes a signal on to the tasks, over the connections or, if standard input may block these, through the controller.
func (t *tasks) forward(number uint32) {
	if !stepio.InTheWay(t.input.Load()) && t.session.Signal(number) {
		return
	}
	t.byController(number)
}

// aborted announces, once, that the step is being ended.
func (t *tasks) aborted() {
	t.abortOnce.Do(func() {
		const beyond = 2
		t.r.infof("Job step aborted: Waiting up to %d seconds for job step to finish.", t.r.conf.killWaitS+beyond)
		t.mu.Lock()
		t.told = true
		t.mu.Unlock()
	})
}

// force ends the step on the user's request.
func (t *tasks) force() {
	t.forcing()
	t.stop()
}

// forcing announces it. That it may take a while is announced when a node confirms it, or after a second without confirmation.
func (t *tasks) forcing() {
	t.r.infof("forcing job termination")
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wait == nil {
		t.wait = time.AfterFunc(time.Second, t.aborted)
	}
}

// endOfJob is how long the nodes have to signal the tasks at the end of the job before srun ends the step.
const endOfJob = time.Second

// terminated handles a signal to end srun. Inside a job that may be the end of the job, which gives tasks KillWait to save their
// data. srun, itself a process of the job, must not be faster than the nodes and have the tasks killed at once.
func (t *tasks) terminated() {
	if t.r.alloc != nil {
		t.force()
		return
	}
	t.forcing()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kill != nil {
		t.kill.Stop()
	}
	t.kill = time.AfterFunc(endOfJob, t.stop)
}

// terminate ends the step as KillOnBadExit does: SIGTERM first, then SIGKILL after KillWait.
func (t *tasks) terminate() {
	t.mu.Lock()
	again := t.ending || t.kill != nil
	if !again {
		t.kill = time.AfterFunc(time.Duration(t.r.conf.killWaitS)*time.Second, t.stop)
	}
	t.mu.Unlock()
	if !again {
		t.forward(uint32(syscall.SIGTERM))
	}
}

// settled stops the timers: nothing is left to kill or to wait for.
func (t *tasks) settled() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, timer := range []*time.Timer{t.kill, t.wait} {
		if timer != nil {
			timer.Stop()
		}
	}
}

// stop ends the step.
func (t *tasks) stop() {
	t.mu.Lock()
	again := t.ending
	t.ending = true
	t.mu.Unlock()
	if again {
		return
	}
	if stepio.InTheWay(t.input.Load()) || !t.session.Stop() {
		t.byController(0)
	}
	t.ask()
}

func (t *tasks) byController(number uint32) {
	go func() {
		_, err := t.r.client.CancelJobs(context.Background(), &msg.CancelJobsRequest{Ids: []string{t.id()}, Signal: number})
		if err != nil {
			t.r.env.Errorf("cannot signal StepId=%s: %v", t.id(), err)
		}
	}()
}

// abandon gives up waiting.
func (t *tasks) abandon() { t.goneOne.Do(func() { close(t.gone) }) }
