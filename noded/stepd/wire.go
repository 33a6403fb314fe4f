package stepd

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// Timing of a node's attempts to reach srun at several addresses.
const (
	reachFor  = 20 * time.Second
	nextAfter = 300 * time.Millisecond // the next address is tried beside the earlier ones
	againIn   = time.Second            // all are tried again
	refusals  = 3                      // after so many refusals nobody listens any more
	// workWithin bounds the wait for srun's message. srun waits for all nodes of the step before it sends it, and gives up sooner
	// than this.
	workWithin = 2 * time.Minute
)

// wire is the connection to srun. One goroutine reads it; writers take turns. No decision about the step ever waits for it.
type wire struct {
	conn *tls.Conn

	out *batch // below conn

	waiting atomic.Int32 // how many wait for mu
	mu      sync.Mutex
	buf     []byte // for all output: a pipe is read when it is its turn
	held    int    // unsent bytes of buf
	dead    bool   // output is discarded
	// watchers receive a copy.
	watchers []*watcher
	pmi      *wire // the second connection, to meet the tasks of other nodes
}

// reach connects to the first address that answers with the step's certificate, and reads StepWork. With meets it makes a second
// connection, for tasks that exchange data with other nodes.
func reach(ctx context.Context, t *pb.StepTasks, hello *pb.StepHello, meets bool, within time.Duration) (*wire, *pb.StepWork, error) {
	given := ctx
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	conf, err := stepwire.Config(t.Certificate, t.Key)
	if err != nil {
		return nil, nil, err
	}
	if len(t.Addresses) == 0 {
		return nil, nil, errors.New("srun's address is unknown")
	}
	var conn *tls.Conn
	for try := 1; ; try++ {
		conn, err = anyOf(ctx, t.Addresses, conf)
		if err == nil || ctx.Err() != nil || try >= refusals && onlyRefused(err) {
			break
		}
		pause(ctx, againIn)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot reach srun at %s: %w", strings.Join(t.Addresses, ", "), err)
	}
	w := newWire(conn)
	_ = conn.SetDeadline(time.Now().Add(max(within, workWithin)))
	stop := context.AfterFunc(given, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	if meets {
		if w.pmi, err = meetAt(ctx, conn.RemoteAddr().String(), conf, hello); err != nil {
			stop()
			w.cut()
			return nil, nil, fmt.Errorf("cannot reach srun a second time at %s: %w", conn.RemoteAddr(), err)
		}
	}
	work, err := w.greet(hello)
	if !stop() && err == nil {
		err = context.Cause(given)
	}
	if err != nil {
		w.cut()
		return nil, nil, fmt.Errorf("cannot read from srun at %s what to execute: %w", conn.RemoteAddr(), err)
	}
	_ = conn.SetDeadline(time.Time{})
	return w, work, nil
}

func newWire(conn *tls.Conn) *wire {
	out, _ := conn.NetConn().(*batch)
	return &wire{conn: conn, out: out, buf: make([]byte, 2*frameBytes)}
}

const (
	frameBytes = stepwire.HeaderLen + stepwire.MaxPayload
	// readBytes is the size of a read from a pipe: with its header it fills TLS records.
	readBytes = stepwire.MaxPayload - stepwire.HeaderLen
)

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func onlyRefused(err error) bool {
	many, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	for _, e := range many.Unwrap() {
		if !onlyRefused(e) {
			return false
		}
	}
	return true
}

// anyOf tries the addresses in order, each a little after the one before.
func anyOf(ctx context.Context, addresses []string, conf *tls.Config) (*tls.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		conn *tls.Conn
		err  error
	}
	answers := make(chan answer)
	next := time.NewTimer(0)
	defer next.Stop()
	var errs []error
	for begun, open := 0, 0; ; {
		if open == 0 && begun == len(addresses) {
			return nil, errors.Join(errs...)
		}
		select {
		case <-next.C:
			if begun == len(addresses) {
				continue
			}
			address := addresses[begun]
			begun, open = begun+1, open+1
			go func() {
				conn, err := dial(ctx, address, conf)
				select {
				case answers <- answer{conn, err}:
				case <-ctx.Done():
					if conn != nil {
						_ = conn.NetConn().Close()
					}
				}
			}()
			next.Reset(nextAfter)
		case a := <-answers:
			if a.err == nil {
				return a.conn, nil
			}
			errs, open = append(errs, a.err), open-1
			next.Reset(0)
		case <-ctx.Done():
			return nil, errors.Join(append(errs, ctx.Err())...)
		}
	}
}

func dial(ctx context.Context, address string, conf *tls.Config) (*tls.Conn, error) {
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 6}}
	raw, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(&batch{Conn: raw}, conf)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return conn, nil
}

// greet sends this node's hello, and reads StepWork.
func (w *wire) greet(hello *pb.StepHello) (*pb.StepWork, error) {
	if err := w.message(stepwire.Hello, hello); err != nil {
		return nil, err
	}
	if hello.Watcher {
		return nil, nil
	}
	var raw []byte
	for {
		h, err := stepwire.ReadHeader(w.conn)
		switch {
		case err != nil:
			return nil, err
		case h.Kind != stepwire.Work:
			return nil, fmt.Errorf("its first message is of kind %d", h.Kind)
		case len(raw)+int(h.Len) > stepwire.MaxWork:
			return nil, fmt.Errorf("it is more than %d bytes", stepwire.MaxWork)
		}
		piece, err := w.read(h)
		if err != nil {
			return nil, err
		}
		if raw = append(raw, piece...); h.Flags&stepwire.Last != 0 {
			break
		}
	}
	work := &pb.StepWork{}
	if err := proto.Unmarshal(raw, work); err != nil {
		return nil, err
	}
	return work, nil
}

// read reads the payload after a header.
func (w *wire) read(h stepwire.Header) ([]byte, error) {
	b := make([]byte, h.Len)
	for got := 0; got < len(b); {
		n, err := w.conn.Read(b[got:])
		if got += n; err != nil && got < len(b) {
			return nil, err
		}
	}
	return b, nil
}

// message sends a frame for all tasks. An error means that the connection has ended, now or before.
func (w *wire) message(kind stepwire.Kind, m proto.Message) error {
	raw, err := proto.Marshal(m)
	if err != nil || len(raw) > stepwire.MaxPayload {
		return fmt.Errorf("cannot send a message of %d bytes: %w", len(raw), err)
	}
	return w.frame(kind, stepwire.All, raw)
}

var errWireDead = errors.New("the connection to srun has ended")

func (w *wire) frame(kind stepwire.Kind, task uint32, payload []byte) error {
	w.lock()
	w.put(kind, task, copy(w.payload(), payload))
	return w.unlock()
}

func (w *wire) lock() {
	w.waiting.Add(1)
	w.mu.Lock()
	w.waiting.Add(-1)
}

// unlock sends the held bytes, unless another writer waits, who will, and there is room for that one's frame.
func (w *wire) unlock() error {
	defer w.mu.Unlock()
	if w.held > 0 && (w.waiting.Load() == 0 || len(w.buf)-w.held < frameBytes) {
		w.flush()
	}
	if w.dead {
		return errWireDead
	}
	return nil
}

// settle sends the held bytes, whoever waits: the connection is about to be closed.
func (w *wire) settle() {
	w.lock()
	w.flush()
	_ = w.unlock()
}

// flush sends the held bytes in one system call. The caller holds mu.
func (w *wire) flush() {
	b := w.buf[:w.held]
	w.held = 0
	if w.dead || len(b) == 0 {
		return
	}
	w.out.hold()
	_, err := w.conn.Write(b)
	if ferr := w.out.flush(); err != nil || ferr != nil {
		w.dead = true
	}
}

// payload returns the place for the next frame's payload. The caller holds mu.
func (w *wire) payload() []byte { return w.buf[w.held+stepwire.HeaderLen:][:stepwire.MaxPayload] }

// put makes a frame of the first n bytes of payload. The caller holds mu.
func (w *wire) put(kind stepwire.Kind, task uint32, n int) {
	frame := w.buf[w.held:][:stepwire.HeaderLen+n]
	stepwire.Header{Kind: kind, Task: task, Len: uint32(n)}.Put(frame)
	for _, to := range w.watchers {
		to.tell(bytes.Clone(frame))
	}
	w.held += len(frame)
}

// pass reads once from a pipe, and sends the result. It reads even if nobody receives it.
func (w *wire) pass(kind stepwire.Kind, task uint32, read func([]byte) (int, error)) error {
	w.lock()
	n, err := read(w.payload()[:readBytes])
	if n > 0 {
		w.put(kind, task, n)
	}
	_ = w.unlock() // the reader notices the end of the connection
	return err
}

// batch is the layer below TLS: it sends the records of one write in one system call.
type batch struct {
	net.Conn
	mu      sync.Mutex
	holding bool
	buf     []byte
}

// Write sends at once, unless writes are held.
func (b *batch) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.holding {
		b.buf = append(b.buf, p...)
		return len(p), nil
	}
	return b.Conn.Write(p)
}

func (b *batch) hold() {
	b.mu.Lock()
	b.holding = true
	b.mu.Unlock()
}

// flush sends what was held.
func (b *batch) flush() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holding = false
	_, err := b.Conn.Write(b.buf)
	b.buf = b.buf[:0]
	return err
}

// cut ends the connection at once, also for writers.
func (w *wire) cut() {
	_ = w.conn.NetConn().Close()
	if w.pmi != nil {
		w.pmi.cut()
	}
}

// lose makes all later output be discarded.
func (w *wire) lose() {
	w.lock()
	w.dead = true
	_ = w.unlock()
}

// gone asks the kernel whether srun has closed the connection, for use while nobody reads it.
func (w *wire) gone() bool {
	c, ok := w.out.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) { gone = hungUp(int(fd)) })
	return gone || err != nil
}
