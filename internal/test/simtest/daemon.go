package simtest

import (
	"context"
	"log/slog"
	"time"

	"github.com/sluice-hpc/sluice/noded/lifecycle"
	"github.com/sluice-hpc/sluice/noded/taskenv"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// daemon is one life of noded-link: the real lifecycle of steps on a host of simulated time and a simulated noded-root (root.go).
type daemon struct {
	m       *machine
	ctx     context.Context
	end     context.CancelFunc
	dead    bool
	steps   *lifecycle.Steps
	turning bool // a turn is planned
	stream  *stream
	greeted bool
	startNS int64
	wordNS  int64 // when noded-root's last message arrives
}

// start starts the daemon: it learns of the steps of earlier ones.
func (m *machine) start() {
	if m.d != nil || m.off || m.dark {
		return
	}
	m.s.logf("%s: daemon starts, %d steps in the spool", m.name, len(m.spool))
	ended, have := m.welcome()
	d := &daemon{m: m, startNS: m.s.now}
	d.ctx, d.end = context.WithCancel(context.Background())
	d.steps = lifecycle.New(d, slog.New(slog.DiscardHandler), m.name, m.bootID(), ended, have)
	m.d = d
	d.steps.Resume(d.ctx)
	d.dial()
}

// die ends the daemon. notice bounds how long the controller takes to notice.
func (d *daemon) die(notice time.Duration) {
	d.dead, d.m.d = true, nil
	d.end()
	if d.stream != nil {
		d.stream.cut(0, notice)
	}
}

func (d *daemon) after(t time.Duration, f func()) {
	d.m.s.after(t, func() {
		if !d.dead {
			f()
		}
	})
}

// dial opens a stream if possible.
func (d *daemon) dial() {
	if d.stream != nil {
		return
	}
	s := d.m.s
	if d.m.away || s.ctl == nil {
		d.after(s.between(100*time.Millisecond, 5*time.Second), d.dial)
		return
	}
	d.stream, d.greeted = s.openStream(d), false
	d.steps.NewStream()
	d.wake()
}

// lost is when the daemon notices that its stream is broken.
func (d *daemon) lost(st *stream) {
	if d.dead || d.stream != st {
		return
	}
	d.stream = nil
	d.after(d.m.s.between(50*time.Millisecond, 5*time.Second), d.dial)
}

func (d *daemon) ordered(m *pb.NodeOrders) {
	if m.Settings != nil {
		d.m.settings = m.Settings
	}
	if m.History != nil {
		d.steps.Recall(d.ctx, m.History)
	}
	d.steps.Order(m)
	d.wake()
}

// told delivers noded-root's message about a step to the running daemon, if any. Messages keep their order.
func (m *machine) told(sh *shim) {
	d := m.d
	if d == nil {
		return
	}
	r := sh.report()
	d.wordNS = max(d.wordNS, m.s.now+int64(m.s.short(time.Second)))
	d.after(time.Duration(d.wordNS-m.s.now), func() {
		d.steps.Report(d.ctx, r)
		d.wake()
	})
}

// wake schedules a turn of the daemon's loop.
func (d *daemon) wake() {
	if d.turning {
		return
	}
	d.turning = true
	d.after(d.m.s.short(20*time.Millisecond), func() {
		d.turning = false
		d.steps.Reconcile(d.ctx)
		d.flush()
	})
}

func (d *daemon) hasSteps() bool {
	for range d.steps.All() {
		return true
	}
	return false
}

// flush sends the pending messages one by one.
func (d *daemon) flush() {
	if d.stream == nil {
		return
	}
	if !d.greeted {
		d.greeted = true
		d.stream.up(&pb.NodeReport{Steps: d.steps.Reports(), Hello: &pb.NodeHello{Node: d.m.name, BootId: d.m.bootID(),
			ClusterId: clusterID, NowNs: d.m.wall(), NodedStartNs: d.startNS, HighestJob: d.steps.HighestJob(),
			Hardware: &pb.Hardware{Cpus: nodeCPUs, Sockets: 1, Cores: nodeCPUs, Threads: 1, RealMemoryMib: nodeMiB}}})
	}
	for h := d.steps.History(); h != nil; h = d.steps.History() {
		if n := len(h.Ended) / 2; n > 0 && !h.More { // in parts; a real history has hundreds
			d.stream.up(&pb.NodeReport{History: &pb.NodeHistory{Restored: h.Restored, Ended: h.Ended[:n], More: true}})
			h.Ended = h.Ended[n:]
		}
		d.stream.up(&pb.NodeReport{History: h})
	}
	for d.steps.Dirty() {
		d.stream.up(&pb.NodeReport{Steps: d.steps.Changes()})
	}
}

// The methods below implement lifecycle.Host. A function in Work runs at one moment, and the loop learns its result at another.

// Work takes time, as programs and disks do.
func (d *daemon) Work(ctx context.Context, f func() func()) { d.beside(3*time.Second, f) }

// Signal is usually quicker.
func (d *daemon) Signal(ctx context.Context, f func() func()) { d.beside(2*time.Second, f) }

func (d *daemon) beside(longest time.Duration, f func() func()) {
	d.after(d.m.s.short(longest), func() {
		then := f()
		d.after(d.m.s.short(20*time.Millisecond), func() {
			then()
			d.wake()
		})
	})
}

// Later is an event.
func (d *daemon) Later(_ context.Context, t time.Duration, f func()) {
	d.after(t, func() {
		f()
		d.wake()
	})
}

// Pause takes no time: a function in Work runs at one moment.
func (d *daemon) Pause(context.Context, time.Duration) {}

// Now returns the time on the machine's clock.
func (d *daemon) Now() time.Time { return time.Unix(0, d.m.wall()).UTC() }

// Boot returns the simulated time, which no one sets.
func (d *daemon) Boot() int64 { return d.m.s.now }

// Settings returns the controller's settings.
func (d *daemon) Settings() *pb.NodeSettings { return d.m.settings }

// Bundle describes a launch as far as simulated shims use it. The simulated noded-root finds the launch itself in the machine.
func (d *daemon) Bundle(l *pb.LaunchSpec) *pb.Bundle { return d.m.bundle(l) }

// Daemon is for environments, which nothing reads here.
func (d *daemon) Daemon() taskenv.Daemon { return taskenv.Daemon{Node: d.m.name} }

// Fault is not reported: no simulated node has one.
func (d *daemon) Fault(string) {}

// Call sends a request to the simulated noded-root.
func (d *daemon) Call(_ context.Context, r *nodepb.Request) (*nodepb.Answer, error) {
	return d.m.answer(r)
}
