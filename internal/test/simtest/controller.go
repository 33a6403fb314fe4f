package simtest

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sluice-hpc/sluice/ctld/dispatch"
	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/loop"
	"github.com/sluice-hpc/sluice/ctld/planner"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// controller is one life of the controller: its real parts, and substitutes for its goroutines.
type controller struct {
	s     *sim
	dead  bool
	store *journal.Failing
	loop  *loop.Loop
	plan  *planner.Planner
	disp  *dispatch.Dispatcher

	box      []mail // the mailbox
	turning  bool
	planning bool
	resume   record.Cursor
	alarm    int // number of the planner's current timer
	sessions []*session
	running  map[string]bool // nodes for which a program runs
}

type mail struct {
	cmd   reactor.Command
	reply func(any)
}

// startController starts a controller on the disk's contents.
func (s *sim) startController() {
	store := journal.NewFailing(s.disk, s.commitFault)
	v, err := state.Load(s.cfg, store, clusterID, max(1, s.disk.IDFloor()+1))
	if err != nil {
		s.fail("cannot load the state: %v", err)
		return
	}
	s.logf("ctld starts: seq %d, %d jobs", v.Seq, v.Jobs.Len())
	s.witness.loaded(v)
	log := slog.New(slog.DiscardHandler)
	c := &controller{s: s, store: store, running: map[string]bool{}}
	c.loop = loop.New(store, v, s.clock, log)
	c.loop.KeepTime(s.bootID(), s.both)
	c.plan = planner.New(c, s.params, s.clock, log)
	c.disp = dispatch.New(c.loop.View, c.script, s.settings, log)
	c.loop.Observe(s.witness.committed)
	c.loop.Observe(c.disp.Changed)
	c.loop.Observe(c.plan.Changed)
	c.loop.Observe(c.programs)
	s.ctl = c
	for _, n := range v.Nodes() { // unfinished by the previous controller
		c.program(n.Name)
	}
	c.tick()
}

// crash ends this life at any point.
func (c *controller) crash(why string) {
	if c.dead {
		return
	}
	c.s.logf("ctld dies: %s", why)
	c.dead, c.s.ctl = true, nil
	for _, n := range c.s.nodes {
		for _, st := range n.streams {
			if st.c == c {
				st.cut(2*time.Second, 0)
			}
		}
	}
	c.s.after(c.s.between(100*time.Millisecond, c.s.faults.downtime), c.s.startController)
}

func (c *controller) after(d time.Duration, f func()) {
	c.s.after(d, func() {
		if !c.dead {
			f()
		}
	})
}

// View and Do make it the planner's Writer; planned sends the plans.
func (c *controller) View() *state.View { return c.loop.View() }
func (c *controller) Do(context.Context, reactor.Command) (any, error) {
	return nil, errors.New("not in a simulation")
}

func (c *controller) script(j *pb.JobRecord) ([]byte, []string, error) {
	script, env, err := state.ReadTexts(c.store.Get, j)
	if err != nil {
		c.s.fail("%w", err)
	}
	return script, env, err
}

func (s *sim) settings(*state.View, *state.Node) *pb.NodeSettings {
	set := &pb.NodeSettings{ClusterId: clusterID, KillWaitS: killWaitS, Prolog: "/prolog"}
	if s.epilog {
		set.Epilog = "/epilog"
	}
	return set
}

// send puts a command into the mailbox.
func (c *controller) send(cmd reactor.Command, reply func(any)) {
	c.box = append(c.box, mail{cmd, reply})
	c.wake()
}

func (c *controller) wake() {
	if c.turning || len(c.box) == 0 {
		return
	}
	c.turning = true
	c.after(c.s.short(c.s.faults.fsync), c.turn)
}

// turn is one turn of the writer. Meanwhile others see the state before it.
func (c *controller) turn() {
	c.turning = false
	n := min(len(c.box), 1+c.s.rng.IntN(32))
	batch := c.box[:n:n]
	c.box = c.box[n:]
	cmds := make([]reactor.Command, n)
	for i, m := range batch {
		cmds[i] = m.cmd
	}
	replies, err := c.loop.Turn(cmds...)
	if err != nil {
		if !errors.Is(err, journal.ErrCrashed) {
			c.s.fail("a turn failed: %v", err)
		}
		c.crash(err.Error())
		return
	}
	for i, m := range batch {
		if p, ok := replies[i].(*pb.Problem); ok {
			c.s.logf("refused %T: %v", m.cmd, p)
		}
		if m.reply != nil {
			m.reply(replies[i])
		}
	}
	c.pump()
	c.wake()
}

// pump runs everything that a turn or a report has woken.
func (c *controller) pump() {
	open := c.sessions[:0]
	for _, ss := range c.sessions {
		select {
		case <-ss.link.Closed():
			ss.st.cut(time.Second, 0)
			continue
		default:
		}
		if ss.ended {
			continue
		}
		open = append(open, ss)
		select {
		case <-ss.link.Woken():
			ss.sendAll()
		default:
		}
	}
	c.sessions = open
	if c.planning {
		return
	}
	select {
	case <-c.plan.Woken():
		c.pass()
	default:
	}
}

// pass is a pass of the planner: it plans for one state, and its plan meets a later one.
func (c *controller) pass() {
	c.planning = true
	c.after(c.s.short(200*time.Millisecond), func() {
		plan, cmd := c.plan.Prepare(c.resume)
		c.resume = record.Cursor{}
		if plan.Truncated {
			c.resume = plan.Resume
		}
		c.setAlarm(plan)
		if cmd == nil {
			c.planned(plan.Truncated)
			return
		}
		c.after(c.s.short(500*time.Millisecond), func() {
			c.send(*cmd, func(r any) {
				_, failed := r.(*pb.Problem)
				if failed {
					c.after(time.Second, func() { c.planned(true) })
					return
				}
				c.planned(plan.Truncated)
			})
		})
	})
}

// planned ends a pass.
func (c *controller) planned(again bool) {
	c.planning = false
	if again {
		c.pass()
		return
	}
	c.pump()
}

// setAlarm schedules the next pass that is due by time alone.
func (c *controller) setAlarm(p *record.Plan) {
	c.alarm++
	n := c.alarm
	if p.Wake == record.Forever {
		return // Run looks every hour anyway; that must not hide a missed wake
	}
	c.s.at(p.Wake*1e9-c.s.clocks.ahead+1e6, func() { // Run reads the clock once for the delay
		if !c.dead && c.alarm == n && !c.planning {
			c.pass()
		}
	})
}

func (c *controller) tick() {
	c.send(reactor.Tick{Purge: true}, nil)
	c.after(2*time.Second, c.tick)
}

// session is the controller's end of a stream, like rpc.NodeServer.Sync.
type session struct {
	c       *controller
	st      *stream
	node    string
	link    *dispatch.Link
	ended   bool
	inbox   []*pb.StepReport
	taking  bool
	sending bool
}

// heard handles a message from a node.
func (c *controller) heard(st *stream, m *pb.NodeReport) {
	ss := st.session
	if m.Hello == nil {
		if ss != nil && !ss.ended {
			if m.History != nil {
				c.send(reactor.NodeHistory{Node: ss.node, History: m.History}, nil)
			}
			ss.inbox = append(ss.inbox, m.Steps...)
			ss.takeIn()
		}
		return
	}
	ss = &session{c: c, st: st, node: m.Hello.Node}
	st.session = ss
	c.send(reactor.NodeHello{Hello: m.Hello, Steps: m.Steps, Stream: uint64(st.id), OffNS: m.Hello.NowNs - c.s.clock().UnixNano()},
		func(r any) {
			if p, refused := r.(*pb.Problem); refused {
				c.s.fail("%s was refused: %v", ss.node, p)
			}
			if ss.ended {
				return
			}
			ss.link = c.disp.Open(ss.node, m.Steps)
			c.sessions = append(c.sessions, ss)
			c.after(0, c.pump)
			ss.takeIn()
		})
}

// close is when the controller notices that the stream is broken.
func (ss *session) close() {
	if ss.ended || ss.c.dead {
		return
	}
	ss.ended = true
	if ss.link != nil {
		ss.c.disp.Close(ss.link)
	}
	ss.c.s.logf("ctld: stream %d of %s has ended", ss.st.id, ss.node)
	ss.c.after(ss.c.s.short(time.Second), func() {
		ss.c.send(reactor.NodeGone{Node: ss.node, Stream: uint64(ss.st.id)}, nil)
	})
}

func (ss *session) takeIn() {
	if ss.taking || ss.link == nil || len(ss.inbox) == 0 {
		return
	}
	ss.taking = true
	steps := ss.inbox
	ss.inbox = nil
	ss.link.Saw(steps)
	ss.commit(steps)
}

func (ss *session) commit(steps []*pb.StepReport) {
	ss.c.send(reactor.StepReports{Node: ss.node, Steps: steps}, func(r any) {
		if p, failed := r.(*pb.Problem); failed {
			ss.c.s.fail("reports of %s were refused: %v", ss.node, p) // not even because of a full disk
		}
		ss.taking = false
		ss.link.Wake()
		if !ss.ended {
			ss.takeIn()
		}
	})
}

// sendAll sends the pending messages one by one; the controller may die before and after each.
func (ss *session) sendAll() {
	if ss.sending {
		ss.link.Wake()
		return
	}
	ss.sending = true
	ss.sendNext()
}

func (ss *session) sendNext() {
	s := ss.c.s
	ss.c.after(s.short(50*time.Millisecond), func() {
		if ss.ended {
			return
		}
		msg, more := ss.link.Next()
		if msg != nil {
			if s.faulty(s.faults.crashSend) {
				ss.c.crash("before a send")
				return
			}
			ss.st.down(msg)
			if s.faulty(s.faults.crashSend) {
				ss.c.crash("after a send")
				return
			}
		}
		if more {
			ss.sendNext()
			return
		}
		ss.sending = false
		ss.c.pump()
	})
}
