package stepd

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// pmixProgram is the path of a step's PMIx server, beside the node daemon's binary.
var pmixProgram = func(shim string) string { return filepath.Join(filepath.Dir(shim), "sluice-pmix") }

// Limits of sluice-pmix, which is the user's process, towards the shim.
const (
	pmixBegins   = 30 * time.Second // until it is ready
	maxPMIxLine  = 1 << 10
	maxPMIxLines = 100
	maxPMIxEnv   = 256 // variables for a task
)

// pmix is the shim's end of a sluice-pmix (noded/pmix documents the protocol). It serves the tasks of this node; messages to
// those of other nodes go through srun, as with pmi2. The shim treats its messages as input from a user.
type pmix struct {
	c       *crew
	program string
	wire    *wire // to srun; nil: the step has no other node
	tell    *teller

	conn    *os.File // nil: not started yet
	writing sync.Mutex
	left    sync.Once
	why     atomic.Pointer[string] // why it has left the fences, or is about to
}

// pmixError is the reason why tasks have no PMIx server. It is not the node's fault: the program is the user's process.
type pmixError struct{ error }

func (e *pmixError) Unwrap() error { return e.error }

// meetByPMIx prepares for --mpi=pmix. If that is only MpiDefault and the node has no sluice-pmix, the tasks start without it.
func (c *crew) meetByPMIx() error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find sluice-pmix: %w", err)
	}
	p := &pmix{c: c, program: pmixProgram(exe), wire: c.wire.pmi, tell: c.tell}
	if err := unix.Access(p.program, unix.X_OK); err != nil {
		if c.work.MpiByDefault {
			go p.leave("node " + nodeName(c.b.Env) + " has no sluice-pmix")
			return nil
		}
		return fmt.Errorf("--mpi=pmix: node %s has no %s (%w): it is built where libpmix-dev and pkg-config are; without it there are "+
			"--mpi=pmi2, and mpirun within an allocation", nodeName(c.b.Env), p.program, err)
	}
	c.pmix = p
	return nil
}

// job describes the step to sluice-pmix. Programs of other users may find its port, but do not know the namespace.
func (p *pmix) job() *pb.PmixJob {
	key := p.c.b.Key
	mac := hmac.New(sha256.New, p.c.b.Step.Key)
	fmt.Fprintf(mac, "PMIx namespace of %d.%d", key.GetJobId(), key.GetStep())
	return &pb.PmixJob{Nspace: fmt.Sprintf("sluice.%d.%d.%x", key.GetJobId(), key.GetStep(), mac.Sum(nil)[:16]),
		NodeIndex: p.c.b.Step.NodeIndex, Places: p.c.work.Places}
}

// startPMIx starts sluice-pmix as the user, in the step's cgroup, and adds its variables to the tasks' environment.
func (l *launcher) startPMIx(t *task) error {
	c := t.crew
	if c.pmix == nil {
		return nil
	}
	err := c.pmix.start(l, t)
	var own *pmixError
	if c.work.MpiByDefault && errors.As(err, &own) {
		t.tell.say("MpiDefault=pmix, but the tasks start without: " + own.Error())
		go c.pmix.leave(own.Error())
		c.pmix.close()
		return nil
	}
	return err
}

func (p *pmix) start(l *launcher, t *task) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot make a socket: %w", err)
	}
	_ = unix.SetNonblock(pair[0], true)
	p.conn = os.NewFile(uintptr(pair[0]), "sluice-pmix")
	m := &member{rank: stepwire.All, pidfd: -1, pmi: pair[1], files: stdio{-1, -1, -1}}
	defer m.closePMI()
	defer m.files.close()
	said, err := p.silence(m)
	if err != nil {
		return err
	}
	defer said.Close()
	m.b = outside(t.b)
	m.b.Argv, m.b.Env, m.b.TaskProlog, m.b.TaskEpilog = []string{p.program}, []string{"PATH=/usr/bin:/bin"}, nil, ""
	m.b.Rlimits = p.c.members[0].b.Rlimits // the user could attach to the process
	child, err := l.start(&task{b: m.b, dir: t.dir, grp: t.grp, tell: t.tell, member: m, second: true}, &m.files)
	var xe *execError
	var de *diedError
	if errors.As(err, &xe) || errors.As(err, &de) {
		kill(child)
		return &pmixError{fmt.Errorf("cannot start %s: %w", p.program, err)}
	}
	if err != nil {
		kill(child)
		return err
	}
	_ = unix.Close(child.pidfd)
	m.closePMI() // so that its end is noticed
	if err := p.begins(); err != nil {
		if words := lastLine(said); words != "" {
			err = fmt.Errorf("%s: %w", words, err)
		}
		return &pmixError{fmt.Errorf("%s: %w", p.program, err)}
	}
	return nil
}

// silence gives it no input, and as standard error a memory file of the step's, for errors of the dynamic loader.
func (p *pmix) silence(m *member) (said *os.File, err error) {
	if m.files.in, err = unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", os.DevNull, err)
	}
	if m.files.out, err = unix.MemfdCreate("sluice-pmix", unix.MFD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("cannot create a memory file: %w", err)
	}
	m.files.err = m.files.out
	fd, err := unix.FcntlInt(uintptr(m.files.err), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("cannot duplicate a descriptor: %w", err)
	}
	return os.NewFile(uintptr(fd), "words of sluice-pmix"), nil
}

func lastLine(f *os.File) string {
	b, _ := io.ReadAll(io.NewSectionReader(f, 0, 4<<10))
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return presentable(lines[len(lines)-1])
}

// begins sends it the step's description, and reads its answer.
func (p *pmix) begins() error {
	_ = p.conn.SetDeadline(time.Now().Add(pmixBegins))
	defer p.conn.SetDeadline(time.Time{})
	raw, err := proto.Marshal(p.job())
	if err == nil {
		_, err = p.conn.Write(stepwire.AppendPieces(nil, stepwire.PmixJob, raw))
	}
	if err != nil {
		return fmt.Errorf("cannot describe the step to it: %w", err)
	}
	h, raw, err := stepwire.ReadMessage(p.conn, stepwire.MaxFence)
	ready := &pb.PmixReady{}
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("it has ended before it was ready")
	case err != nil:
		return err
	case h.Kind != stepwire.PmixReady:
		return fmt.Errorf("it has sent a frame of kind %d before it was ready", h.Kind)
	}
	if err := proto.Unmarshal(raw, ready); err != nil {
		return err
	}
	if ready.Error != "" {
		return errors.New(presentable(ready.Error))
	}
	return p.spread(ready)
}

// spread gives each task its variables.
func (p *pmix) spread(ready *pb.PmixReady) error {
	env := map[uint32][]string{}
	for _, t := range ready.Tasks {
		env[t.Rank] = t.Env
	}
	for _, m := range p.c.members {
		of := env[m.rank]
		if len(of) == 0 || len(of) > maxPMIxEnv {
			return fmt.Errorf("it has %d variables for task %d", len(of), m.rank)
		}
		for _, kv := range of {
			if !strings.HasPrefix(kv, "PMIX_") && !strings.HasPrefix(kv, "OMPI_") {
				return fmt.Errorf("it has a variable %q for task %d", presentable(kv), m.rank)
			}
		}
		m.b.Env = overlay(m.b.Env, of)
	}
	return nil
}

// presentable makes a user's text fit for a line that others read.
func presentable(s string) string {
	if len(s) > maxPMIxLine {
		s = s[:maxPMIxLine]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// begin starts the exchange of messages.
func (p *pmix) begin() {
	if p == nil || p.conn == nil {
		return
	}
	go p.hear()
	if p.wire != nil {
		go p.listen()
	}
}

// hear handles messages of sluice-pmix, until it ends or breaks the protocol.
func (p *pmix) hear() {
	defer p.leave("sluice-pmix of node " + nodeName(p.c.b.Env) + " has ended")
	defer p.conn.Close()
	for lines := 0; ; {
		h, raw, err := stepwire.ReadMessage(p.conn, stepwire.MaxFence)
		kind := h.Kind
		if err == nil {
			switch {
			case kind == stepwire.Fence && p.wire != nil:
				err = p.pass(kind, raw, &pb.StepFence{})
			case kind == stepwire.Modex && p.wire != nil && len(raw) <= stepwire.MaxModex:
				err = p.pass(kind, raw, &pb.PmixModex{})
			case kind == stepwire.Abort:
				go func() { _ = p.c.wire.frame(stepwire.Abort, stepwire.All, nil) }() // for the other nodes; srun may be slow
				p.c.say(wireEvent{kind: wireStop})
			case kind == stepwire.Say:
				if lines++; lines <= maxPMIxLines {
					p.tell.say(presentable(string(raw)))
				}
			default:
				err = fmt.Errorf("a message of kind %d with %d bytes", kind, len(raw))
			}
		}
		if err != nil {
			if !over(err) {
				p.tell.say("mpi/pmix: sluice-pmix is not understood: " + presentable(err.Error()))
			}
			return
		}
	}
}

// over reports whether an error means that sluice-pmix or the step has ended.
func over(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) ||
		errors.Is(err, os.ErrClosed) || errors.Is(err, errWireDead)
}

// pass forwards a message to srun, if it is well-formed.
func (p *pmix) pass(kind stepwire.Kind, raw []byte, as proto.Message) error {
	if err := proto.Unmarshal(raw, as); err != nil {
		return err
	}
	p.wire.mu.Lock()
	defer p.wire.mu.Unlock()
	if _, err := p.wire.conn.Write(stepwire.AppendPieces(nil, kind, raw)); err != nil {
		return errWireDead
	}
	return nil
}

// listen passes srun's messages on to it. After the end no fence can succeed.
func (p *pmix) listen() {
	for {
		h, raw, err := stepwire.ReadMessage(p.wire.conn, stepwire.MaxFence)
		kind := h.Kind
		if err != nil || kind != stepwire.Fence && kind != stepwire.Modex {
			raw, _ = proto.Marshal(&pb.StepFence{Error: errWireDead.Error()})
			p.send(stepwire.AppendPieces(nil, stepwire.Fence, raw))
			return
		}
		p.send(stepwire.AppendPieces(nil, kind, raw))
	}
}

func (p *pmix) send(frames []byte) {
	p.writing.Lock()
	defer p.writing.Unlock()
	_, _ = p.conn.Write(frames) // hear notices errors
}

// ended notes the end of a task and never blocks. It decides the reason at once, because whatever ended the step's task here ends
// the server as well.
func (p *pmix) ended(rank uint32) {
	if p == nil || p.conn == nil {
		return
	}
	why, alive := fmt.Sprintf("task %d takes part no more", rank), false
	if c, err := p.conn.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { alive = !hungUp(int(fd)) }) // else hear reports it
	}
	if alive {
		p.decide(why)
	}
	go func() {
		p.send(stepwire.Append(nil, stepwire.PmixEnd, stepwire.Last, rank, nil))
		if alive {
			p.leave(why)
		}
	}()
}

// decide notes why this node can take part in no further fence; the first reason stands.
func (p *pmix) decide(why string) string {
	p.why.CompareAndSwap(nil, &why)
	return *p.why.Load()
}

// leave tells the other nodes that this one takes part in no further fence.
func (p *pmix) leave(why string) {
	if p.wire == nil {
		return
	}
	p.left.Do(func() {
		raw, _ := proto.Marshal(&pb.StepFence{Error: p.decide(why)})
		_ = p.pass(stepwire.Fence, raw, &pb.StepFence{})
	})
}

func (p *pmix) close() {
	if p != nil && p.conn != nil {
		_ = p.conn.Close()
	}
}
