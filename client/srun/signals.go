package srun

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/client/terminal"
)

// signals receives srun's signals.
type signals struct {
	c    chan os.Signal
	last time.Time // of the last SIGINT
	ints int
}

// caught are the signals that srun passes on to the tasks or handles itself. SIGTSTP is ignored (srun(1)), and so are those that
// would stop a background process that uses its terminal.
var caught = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGALRM, syscall.SIGCONT, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGPIPE}

func catch() *signals {
	const room = 64
	s := &signals{c: make(chan os.Signal, room)}
	signal.Ignore(syscall.SIGTTIN, syscall.SIGTTOU)
	signal.Notify(s.c, caught...)
	return s
}

func (s *signals) release() {
	signal.Stop(s.c)
	signal.Reset(syscall.SIGTTIN, syscall.SIGTTOU)
}

// again is the time within which the second Ctrl-C must follow.
const again = time.Second

// handle processes a signal while tasks run.
func (t *tasks) handle(s os.Signal) {
	number, ok := s.(syscall.Signal)
	if !ok {
		return
	}
	switch number {
	case syscall.SIGINT:
		t.interrupt()
	case syscall.SIGQUIT:
		if t.r.req.Run.Pty {
			t.forward(uint32(number))
			return
		}
		t.r.infof("Quit")
		t.force()
	case syscall.SIGTERM, syscall.SIGHUP:
		t.terminated()
	case syscall.SIGWINCH:
		t.resize()
	case syscall.SIGCONT:
		t.r.infof("got SIGCONT")
		t.forward(uint32(number))
	case syscall.SIGTSTP, syscall.SIGPIPE:
	default:
		t.forward(uint32(number))
	}
}

// interrupt handles Ctrl-C: the first one prints the state of the tasks, a second one within a second is passed on, a third one
// ends the step.
func (t *tasks) interrupt() {
	o := &t.r.req.Run
	now := t.r.env.Now()
	soon := now.Sub(t.r.sig.last) <= again
	t.r.sig.last = now
	switch {
	case o.Pty:
		t.forward(uint32(syscall.SIGINT))
	case o.QuitOnInterrupt:
		t.ctrlC()
	case t.r.sig.ints == 0 && !o.DisableStatus, t.r.sig.ints == 1 && !soon:
		t.r.sig.ints = 1
		if t.r.req.Quiet {
			return
		}
		t.r.env.Infof("interrupt (one more within 1 sec to abort)")
		t.report()
	case o.DisableStatus && t.r.sig.ints == 0:
		t.r.sig.ints = 1
		t.r.infof("sending Ctrl-C to StepId=%s", t.id())
		t.forward(uint32(syscall.SIGINT))
	case t.r.sig.ints <= 1:
		t.r.sig.ints = 2
		t.ctrlC()
	case soon:
		t.stop()
		t.abandon()
	}
}

// ctrlC passes SIGINT on and ends the step.
func (t *tasks) ctrlC() {
	t.r.infof("sending Ctrl-C to StepId=%s", t.id())
	t.mu.Lock()
	t.quiet = true
	t.mu.Unlock()
	t.forward(uint32(syscall.SIGINT))
	t.force()
}

// resize sends the size of the terminal to the node.
func (t *tasks) resize() {
	if t.r.req.Run.Pty {
		if fd, ok := terminal.Of(t.r.env.Stdin); ok {
			if w := terminal.WindowSize(fd); w != nil {
				t.session.Resize(w)
			}
		}
	}
}
