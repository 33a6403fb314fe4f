// Package stepio is srun's side of the connections with the nodes of a step (package stepwire). It accepts them, sends the tasks'
// command when all nodes are connected, forwards standard input, and writes the tasks' output.
//
// Nothing is queued: data that cannot be written is not read, so a slow reader of srun's output slows the tasks down and memory
// does not grow. Each node has a reading goroutine. Signals go in the other direction and wait only for standard input.
package stepio

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

const (
	// helloWithin bounds how long a connection may take to identify itself; strangers is the maximum number of unidentified
	// connections.
	helloWithin = 20 * time.Second
	strangers   = 64
	// controlWithin is how long a signal waits for standard input that a node is not reading.
	controlWithin = 200 * time.Millisecond
	// keepAlive detects hosts that vanished.
	keepAlive = 15 * time.Second
)

// Watcher is notified of events of a step. Calls for one node are sequential, those for different nodes concurrent.
type Watcher interface {
	Connected(node int)
	Started(node int)
	Failed(node int, f *msg.StepFailed)
	Exit(node int, e *msg.StepExit)
	// Abort: a task requests the end of the step.
	Abort(task uint32)
	// Closed: a task has closed one of its streams.
	Closed(task uint32, stderr bool)
	Say(node int, line string)
	Ended(node int, e *msg.StepEnded)
	// Lost: the connection has ended without Ended.
	Lost(node int, err error)
	// Unwritable: the tasks' output cannot be written.
	Unwritable(err error)
}

// Session has the connections of one step.
type Session struct {
	step   *msg.StepRecord
	work   []byte // StepWork, encoded
	out    *Output
	watch  Watcher
	listen *Listener
	config *tls.Config
	// attached: another process controls the step; this one also receives the output.
	attached bool

	nodes   []*peer
	meeting *meeting     // for MPI programs on several nodes, else nil
	missing atomic.Int32 // connections still to be made
	begun   atomic.Bool  // all have been made
	pending chan struct{}
	all     sync.WaitGroup
	mu      sync.Mutex
	closed  bool
	early   map[net.Conn]bool // connections that have not identified themselves
}

// peer is a node of the step.
type peer struct {
	index int
	mu    sync.Mutex // guards writes
	conn  *tls.Conn
	told  bool // it has been sent the work; guarded by mu
	ended atomic.Bool
}

// New returns a session that accepts no node yet: the watcher needs the session first.
func New(l *Listener, step *msg.StepRecord, work *msg.StepWork, out *Output, watch Watcher) (*Session, error) {
	config, err := stepwire.Config(step.GetCertificate(), step.GetKey())
	if err != nil {
		return nil, err
	}
	s := &Session{step: step, work: work.AppendTo(nil), out: out, watch: watch, listen: l, config: config,
		pending: make(chan struct{}, strangers), early: map[net.Conn]bool{}}
	if len(s.work) > stepwire.MaxWork {
		return nil, fmt.Errorf("command and environment have %d bytes, the limit is %d", len(s.work), stepwire.MaxWork)
	}
	for i := range step.GetNodes() {
		s.nodes = append(s.nodes, &peer{index: i})
	}
	s.missing.Store(int32(len(s.nodes)))
	if (work.GetPmiMapping() != "" || len(work.GetPlaces()) > 0) && len(s.nodes) > 1 {
		s.meeting = newMeeting(len(s.nodes))
		s.missing.Add(int32(len(s.nodes)))
	}
	return s, nil
}

// Attach returns a session for a step with an srun of its own. Nodes connect when they learn of it, and are sent only what an
// sattach may send.
func Attach(l *Listener, step *msg.StepRecord, out *Output, watch Watcher) (*Session, error) {
	s, err := New(l, step, nil, out, watch)
	if err == nil {
		s.attached = true
	}
	return s, err
}

// Accept starts accepting the step's nodes.
func (s *Session) Accept() {
	s.all.Add(1)
	go s.accept()
}

func (s *Session) accept() {
	defer s.all.Done()
	for {
		conn, err := s.listen.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(keepAlive / 1000) // perhaps a temporary lack of descriptors
			continue
		}
		select {
		case s.pending <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		if !s.admit(conn) {
			_ = conn.Close()
			return
		}
		s.all.Add(1)
		go s.serve(conn, s.config)
	}
}

// admit registers a connection, so that Close can end it.
func (s *Session) admit(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.early[conn] = true
	}
	return !s.closed
}

// serve identifies the node of a connection and reads from it.
func (s *Session) serve(raw net.Conn, config *tls.Config) {
	defer s.all.Done()
	defer raw.Close()
	conn, r, hello, err := s.greet(raw, config)
	var p *peer
	var g *guest
	s.mu.Lock()
	delete(s.early, raw)
	switch {
	case err != nil:
	case s.closed:
		err = net.ErrClosed
	case hello.Pmi:
		g, err = s.meeting.enter(int(hello.NodeIndex), conn)
	default:
		if p = s.nodes[hello.NodeIndex]; p.conn != nil {
			err = errTwice
		} else {
			p.conn = conn
		}
	}
	s.mu.Unlock()
	if err == nil && s.attached {
		p.mu.Lock()
		p.told = true
		p.mu.Unlock()
	}
	<-s.pending
	if err != nil {
		return // a stranger, or a node that tries again
	}
	_ = raw.SetDeadline(time.Time{})
	if g != nil {
		s.complete()
		s.meeting.flush(g) // another node may already have failed
		s.meet(g, r)
		return
	}
	s.watch.Connected(p.index)
	s.complete()
	err = s.read(p, r)
	if !p.ended.Load() {
		s.missing.Add(1) // the others do not begin without it, unless they already have
		s.watch.Lost(p.index, err)
	}
}

var errTwice = errors.New("the node is connected")

// complete counts a connection; with the last one the tasks begin.
func (s *Session) complete() {
	if s.missing.Add(-1) == 0 && !s.attached {
		s.listen.Close()
		s.begin()
	}
}

// begin sends the work to all nodes. A slow node does not delay others.
func (s *Session) begin() {
	s.begun.Store(true)
	work := stepwire.AppendPieces(nil, stepwire.Work, s.work)
	for _, p := range s.nodes {
		s.all.Go(func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if _, err := p.conn.Write(work); err != nil {
				_ = p.conn.NetConn().Close() // its reader will notice
			}
			p.told = true
		})
	}
}

// Begun reports whether all nodes have connected and are being sent the work.
func (s *Session) Begun() bool { return s.begun.Load() }

// greet does the TLS handshake and reads the first frame.
func (s *Session) greet(raw net.Conn, config *tls.Config) (*tls.Conn, *bufio.Reader, *msg.StepHello, error) {
	if t, ok := raw.(*net.TCPConn); ok {
		_ = t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: keepAlive, Interval: keepAlive / 3, Count: 4})
	}
	_ = raw.SetDeadline(time.Now().Add(helloWithin))
	conn := tls.Server(raw, config)
	if err := conn.HandshakeContext(context.Background()); err != nil {
		return nil, nil, nil, err
	}
	r := bufio.NewReaderSize(conn, stepwire.MaxPayload/2)
	h, err := stepwire.ReadHeader(r)
	if err != nil {
		return nil, nil, nil, err
	}
	hello := &msg.StepHello{}
	payload := make([]byte, h.Len)
	if _, err := io.ReadFull(r, payload); err != nil {
		return nil, nil, nil, err
	}
	if err := hello.Merge(string(payload)); err != nil {
		return nil, nil, nil, err
	}
	strange := h.Kind != stepwire.Hello || int(hello.NodeIndex) >= len(s.nodes)
	if strange || hello.Watcher != s.attached || hello.Pmi && s.meeting == nil {
		return nil, nil, nil, fmt.Errorf("a frame of kind %d of node %d", h.Kind, hello.NodeIndex)
	}
	return conn, r, hello, nil
}

// read handles a node's frames until the connection ends.
func (s *Session) read(p *peer, r *bufio.Reader) error {
	buf := make([]byte, stepwire.MaxPayload)
	for {
		h, err := stepwire.ReadHeader(r)
		if err != nil {
			return err
		}
		payload := buf[:h.Len]
		if _, err := io.ReadFull(r, payload); err != nil {
			return err
		}
		if err := s.frame(p, h, payload); err != nil || p.ended.Load() {
			return err
		}
	}
}

func (s *Session) frame(p *peer, h stepwire.Header, payload []byte) error {
	decode := func(m interface{ Merge(string) error }) error { return m.Merge(string(payload)) }
	switch h.Kind {
	case stepwire.Out, stepwire.Err:
		return s.print(h, payload)
	case stepwire.Started:
		s.watch.Started(p.index)
	case stepwire.Say:
		s.watch.Say(p.index, string(payload))
	case stepwire.Failed:
		m := &msg.StepFailed{}
		if err := decode(m); err != nil {
			return err
		}
		s.watch.Failed(p.index, m)
	case stepwire.Exit:
		m := &msg.StepExit{}
		if err := decode(m); err != nil {
			return err
		}
		s.watch.Exit(p.index, m)
	case stepwire.Abort:
		s.watch.Abort(h.Task)
	case stepwire.Ended:
		m := &msg.StepEnded{}
		if err := decode(m); err != nil {
			return err
		}
		p.ended.Store(true)
		s.watch.Ended(p.index, m)
	default:
		return fmt.Errorf("a frame of kind %d, which no node sends", h.Kind)
	}
	return nil
}

func (s *Session) print(h stepwire.Header, payload []byte) error {
	stderr := h.Kind == stepwire.Err
	if h.Task >= s.step.GetNumTasks() {
		return fmt.Errorf("output of task %d, but the step has %d tasks", h.Task, s.step.GetNumTasks())
	}
	var err error
	if len(payload) > 0 {
		err = s.out.Write(h.Task, stderr, payload)
	} else {
		err = s.out.End(h.Task, stderr)
		s.watch.Closed(h.Task, stderr)
	}
	if err != nil {
		s.watch.Unwritable(err)
	}
	return nil
}

// each sends a frame to all connected nodes; it returns false if a node did not take it.
func (s *Session) each(frame []byte) bool {
	taken := true
	for i := range s.nodes {
		taken = s.control(i, frame) && taken
	}
	return taken
}

// control sends a frame to a node that has been sent its work. It returns false if standard input blocks the connection: the caller
// can then go through the controller.
func (s *Session) control(node int, frame []byte) bool {
	p := s.nodes[node]
	s.mu.Lock()
	conn := p.conn
	s.mu.Unlock()
	if conn == nil || p.ended.Load() {
		return conn != nil
	}
	for waited := time.Duration(0); !p.mu.TryLock(); waited += time.Millisecond {
		if waited >= controlWithin {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	defer p.mu.Unlock()
	if !p.told {
		return false
	}
	_ = conn.SetWriteDeadline(time.Now().Add(helloWithin))
	_, err := conn.Write(frame)
	_ = conn.SetWriteDeadline(time.Time{})
	return err == nil
}

// Signal sends a signal to all tasks. It returns false if some node did not get it.
func (s *Session) Signal(number uint32) bool {
	m := &msg.StepSignal{Signal: number}
	return s.each(stepwire.Append(nil, stepwire.Signal, 0, stepwire.All, m.AppendTo(nil)))
}

// Resize sends the new size of srun's terminal.
func (s *Session) Resize(w *msg.StepWindow) {
	s.each(stepwire.Append(nil, stepwire.Window, 0, stepwire.All, w.AppendTo(nil)))
}

// Stop ends the step. It returns false if some node did not get the order.
func (s *Session) Stop() bool {
	return s.each(stepwire.Append(nil, stepwire.Stop, 0, stepwire.All, nil))
}

// Connected reports whether a node is or was connected.
func (s *Session) Connected(node int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[node].conn != nil
}

// Close ends all connections and waits for their readers; Input may still be blocked in a read of its own.
func (s *Session) Close() {
	s.mu.Lock()
	s.closed = true
	s.listen.Close()
	for conn := range s.early {
		_ = conn.Close()
	}
	for _, p := range s.nodes {
		if p.conn != nil {
			_ = p.conn.NetConn().Close()
		}
	}
	s.mu.Unlock()
	if s.meeting != nil {
		s.meeting.close()
	}
}
