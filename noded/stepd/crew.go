package stepd

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// crew is what an srun step adds to a batch job: a connection to srun, which tells what to execute, and several tasks. The fields
// above mu belong to the run's loop, or do not change once there is a wire.
type crew struct {
	b       *pb.Bundle
	cancel  context.CancelFunc // ends the attempts to reach srun
	events  chan wireEvent
	over    chan struct{} // closed when the loop listens no more
	wire    *wire
	tell    *teller // to srun's standard error
	work    *pb.StepWork
	members []*member // by local id
	in      input
	pmi     *meeting // of MPI programs with --mpi=pmi2; else nil
	pmix    *pmix    // the same with --mpi=pmix
	streams []*stream
	term    *os.File // of pty
	left    int      // tasks that have not ended
	drained chan struct{}
	watched uint32            // number of the last watcher
	early   []*pb.StepWatcher // watchers from before there was a wire
	hurried bool
	// lingered: all tasks have ended, and their leftover processes were allowed to continue.
	lingered bool
	// answered: the launcher has answered, and its results belong to the loop. A hung launcher may still be writing them.
	answered bool
	began    bool // Started has been sent, or is about to be

	mu      sync.Mutex
	exits   []exit // not sent yet
	exiting bool   // tellExits is sending them
	moved   chan struct{}
}

// member is one task.
type member struct {
	rank  uint32
	local int
	b     *pb.Bundle // the bundle as if the task were a job of its own
	files stdio
	found bool // its program was found; else there is nothing to execute
	// receives: it executes nothing, but receives a file (sbcast).
	receives bool
	cpus     string
	setctty  bool
	pmi      int   // its end of the PMI socket, until the task has it; -1: none
	in       *feed // its part of srun's standard input; nil: none
	pid      int
	pidfd    int
	status   syscall.WaitStatus
	ended    bool
	streams  []*stream
}

// exit is the end of a task.
type exit struct {
	m   *member
	oom bool
}

type wireKind int

const (
	wireUp wireKind = iota
	wireFailed
	wireLost
	wireSignal
	wireStop
	wireForce // by srun
)

// wireEvent is an event of the connection for the step's loop.
type wireEvent struct {
	kind wireKind
	wire *wire
	work *pb.StepWork
	err  error
	sig  uint32
}

func newCrew(b *pb.Bundle) *crew {
	return &crew{b: b, events: make(chan wireEvent), over: make(chan struct{}), moved: make(chan struct{}, 1),
		in: input{freed: make(chan struct{}, 1)}}
}

// say sends the loop an event; false: nobody listens any more.
func (c *crew) say(ev wireEvent) bool {
	select {
	case c.events <- ev:
		return true
	case <-c.over:
		return false
	}
}

// reach connects to srun beside the loop.
func (c *crew) reach() {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	t, hello := c.b.Step, c.hello()
	meets := meets(t) && nodesOf(c.b.Env) > 1
	go func() {
		defer cancel()
		w, work, err := reach(ctx, t, hello, meets, reachFor)
		if err != nil {
			c.say(wireEvent{kind: wireFailed, err: err})
			return
		}
		if !c.say(wireEvent{kind: wireUp, wire: w, work: work}) {
			w.cut()
		}
	}()
}

func (c *crew) hello() *pb.StepHello {
	hello := &pb.StepHello{NodeIndex: c.b.Step.NodeIndex}
	for _, task := range c.b.Step.Tasks {
		hello.Tasks = append(hello.Tasks, task.Rank)
	}
	return hello
}

// listen reads srun's frames until the connection ends.
func (c *crew) listen() {
	for {
		h, err := stepwire.ReadHeader(c.wire.conn)
		var b []byte
		if err == nil {
			b, err = c.wire.read(h)
		}
		if err != nil {
			c.say(wireEvent{kind: wireLost, err: err})
			return
		}
		switch h.Kind {
		case stepwire.In:
			c.in.put(h.Task, b)
			if !c.room(c.wire) {
				c.say(wireEvent{kind: wireLost, err: errors.New("srun has gone")})
				return
			}
		case stepwire.Signal:
			s := &pb.StepSignal{}
			if proto.Unmarshal(b, s) == nil {
				c.say(wireEvent{kind: wireSignal, sig: s.Signal})
			}
		case stepwire.Window:
			s := &pb.StepWindow{}
			if proto.Unmarshal(b, s) == nil {
				c.resize(s)
			}
		case stepwire.Stop:
			c.say(wireEvent{kind: wireForce})
		}
	}
}

// room waits until there is room for input to the tasks. False: srun has closed the connection meanwhile, or the step is over.
func (c *crew) room(from *wire) bool {
	for c.in.full() {
		select {
		case <-c.in.freed: // wakes one of the waiting goroutines
		case <-c.over:
			return false
		case <-time.After(lookForSrun):
			if from.gone() {
				return false
			}
		}
	}
	return true
}

// lookForSrun is how often to check that srun is there while nothing is read from it.
const lookForSrun = 100 * time.Millisecond

// begin starts the streams: all tasks have been started.
func (c *crew) begin() {
	c.began = true
	started := &pb.StepStarted{}
	for _, m := range c.members {
		started.Pids = append(started.Pids, uint32(max(m.pid, 0)))
	}
	for _, f := range c.in.tasks {
		go c.in.pump(f)
	}
	c.pmi.begin()
	c.pmix.begin()
	go func() {
		_ = c.wire.message(stepwire.Started, started)
		for _, s := range c.streams {
			go func() {
				s.pump(c.wire)
				c.nudge()
			}()
		}
		c.nudge()
	}()
}

// ended notes the end of a task.
func (c *crew) ended(m *member, oom bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exits = append(c.exits, exit{m, oom})
	if !c.exiting {
		c.exiting = true
		go c.tellExits()
	}
	c.nudge()
}

// nudge makes tellExits check for ended tasks.
func (c *crew) nudge() {
	select {
	case c.moved <- struct{}{}:
	default:
	}
}

// lingers reports whether processes that the tasks left behind may still write to srun: they continue for as long, as in Slurm.
// Another evFirst follows when none of them can any more.
func (c *crew) lingers(events chan<- event) bool {
	if c.lingered || c.b.Step.Pty || !slices.ContainsFunc(c.streams, func(s *stream) bool { return !s.ended() }) {
		return false
	}
	c.lingered = true
	go func() {
		for _, s := range c.streams {
			select {
			case <-s.done:
			case <-c.over:
				return
			}
		}
		select {
		case events <- event{kind: evFirst}:
		case <-c.over:
		}
	}()
	return true
}

// settling is the pause before another look at a pipe that a task has left to another process.
const settling = 20 * time.Millisecond

// tellExits sends the exits of tasks, each after the task's output, those with the same status together.
func (c *crew) tellExits() {
	for {
		select {
		case <-c.moved:
		case <-time.After(settling):
		}
		if len(c.members) > 1 {
			time.Sleep(time.Millisecond) // more may be about to end
		}
		c.mu.Lock()
		var now []exit
		c.exits = slices.DeleteFunc(c.exits, func(x exit) bool {
			for _, s := range x.m.streams {
				if !s.settled() {
					return false
				}
			}
			now = append(now, x)
			return true
		})
		c.mu.Unlock()
		for len(now) > 0 {
			first, msg := now[0], &pb.StepExit{WaitStatus: uint32(now[0].m.status), Oom: now[0].oom}
			now = slices.DeleteFunc(now, func(x exit) bool {
				same := x.m.status == first.m.status && x.oom == first.oom
				if same {
					msg.Tasks = append(msg.Tasks, x.m.rank)
				}
				return same
			})
			_ = c.wire.message(stepwire.Exit, msg)
		}
		c.mu.Lock()
		c.exiting = len(c.exits) > 0 // now that all have been sent: drain waits for it
		done := !c.exiting
		c.mu.Unlock()
		if done {
			return
		}
	}
}

// lose handles the end of the connection: output of tasks is discarded from now on, and their input ends.
func (c *crew) lose() {
	c.wire.cut()
	go c.wire.lose() // after the current writer
	c.in.end()
}

// drain makes the streams end with the output written so far, and then closes drained: no process of the step is left.
func (c *crew) drain() {
	c.drained = make(chan struct{})
	if !c.answered {
		close(c.drained)
		return
	}
	c.in.stop()
	go func() {
		defer close(c.drained)
		for _, s := range c.streams {
			s.finish()
		}
		if c.began {
			for _, s := range c.streams {
				<-s.done
			}
		}
		for {
			c.mu.Lock()
			left := c.exiting
			c.mu.Unlock()
			if !left {
				return
			}
			c.nudge()
			time.Sleep(time.Millisecond)
		}
	}()
}

// lastWords bounds the last messages: a srun that does not read must not keep the shim.
const lastWords = 2 * time.Second

// partingFor is how long the connection stays open for a srun that has not read everything yet, unless the shim ends before. Each
// such connection has delayed the shim by lastWords, so there are a few hundred at most.
const partingFor = 10 * time.Minute

// close reports the end of the step, and closes everything.
func (c *crew) close(rec *pb.ExitRecord, failed bool) {
	defer close(c.over)
	if c.cancel != nil {
		c.cancel()
	}
	if c.wire != nil {
		c.part(rec, failed)
	}
	if !c.answered {
		return
	}
	c.pmi.close()
	c.pmix.close()
	for _, s := range c.streams {
		_ = s.file.Close()
	}
	if c.term != nil {
		_ = c.term.Close()
	}
	for _, m := range c.members {
		if m.pidfd >= 0 {
			_ = syscall.Close(m.pidfd)
		}
	}
}

// part reports the end of the step, and waits for srun to close the connection. If this side closed it with unread data, the
// kernel would reset it, and output that has not arrived would be lost.
func (c *crew) part(rec *pb.ExitRecord, failed bool) {
	_ = c.wire.conn.NetConn().SetDeadline(time.Now().Add(lastWords))
	if failed {
		f := &pb.StepFailed{Verdict: rec.Verdict, Detail: rec.Detail}
		if syscall.WaitStatus(rec.WaitStatus).Exited() && rec.Verdict == pb.VerdictExited {
			f.Errno = uint32(syscall.WaitStatus(rec.WaitStatus).ExitStatus())
		}
		_ = c.wire.message(stepwire.Failed, f)
	}
	ended := &pb.StepEnded{Verdict: rec.Verdict, Detail: rec.Detail, WaitStatus: rec.WaitStatus}
	if failed && rec.Verdict == pb.VerdictLaunchFailed {
		ended.Detail = "" // it was reported already
	}
	_ = c.wire.message(stepwire.Ended, ended)
	c.wire.settle()
	_ = c.wire.conn.CloseWrite()
	_ = c.wire.conn.NetConn().SetReadDeadline(time.Now().Add(partingFor))
	parted := make(chan struct{})
	go func() {
		defer close(parted)
		defer c.wire.cut()
		_, _ = io.Copy(io.Discard, c.wire.conn.NetConn())
	}()
	select {
	case <-parted:
	case <-time.After(lastWords):
	}
}

// lines sends the shim's own lines to srun's standard error (teller).
type lines struct{ w *wire }

func (l lines) WriteString(s string) (int, error) {
	return len(s), l.w.frame(stepwire.Say, stepwire.All, []byte(strings.TrimSuffix(s, "\n")))
}

func (lines) Close() error { return nil }

// failedExec is the end of a task whose program could not be executed.
func (m *member) failedExec(errno syscall.Errno) {
	m.status, m.ended = syscall.WaitStatus(uint32(errno)<<8), true
}
