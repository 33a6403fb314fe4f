package stepio

import (
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/client/terminal"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// unreadBytes is how much input nodes buffer before the tasks read it. Up to this amount, input cannot delay a signal.
const unreadBytes = 1 << 20

// Input sends r to a task, or to all, until r or the step ends; it cannot interrupt a read. read is called with the total number of
// bytes read.
func (s *Session) Input(r io.Reader, task uint32, read func(total int64)) error {
	buf := make([]byte, stepwire.HeaderLen+stepwire.MaxPayload/2)
	total := int64(0)
	for {
		n, err := r.Read(buf[stepwire.HeaderLen:])
		if n > 0 {
			total += int64(n)
			read(total)
			stepwire.Header{Kind: stepwire.In, Task: task, Len: uint32(n)}.Put(buf)
			if !s.input(task, buf[:stepwire.HeaderLen+n]) {
				return nil
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, syscall.EIO) && inBackground(r):
			time.Sleep(backgroundPause) // another process group has the terminal
		default:
			s.input(task, stepwire.Append(nil, stepwire.In, 0, task, nil))
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		}
	}
}

// backgroundPause is how often a background process checks whether it has its terminal back.
const backgroundPause = 200 * time.Millisecond

// inBackground reports whether a read failed because the process is in the background: SIGTTIN is ignored, so reads of the terminal
// fail instead of stopping the process.
func inBackground(r io.Reader) bool {
	fd, ok := terminal.Of(r)
	if !ok {
		return false
	}
	group, err := terminal.Foreground(fd)
	return err == nil && group != syscall.Getpgrp()
}

// input sends a frame of standard input to its nodes. It returns false if none of them is left.
func (s *Session) input(task uint32, frame []byte) bool {
	left := false
	for i, p := range s.nodes {
		if task != stepwire.All && !slices.Contains(s.step.GetNodes()[i].GetTasks(), task) {
			continue
		}
		s.mu.Lock()
		conn, closed := p.conn, s.closed
		s.mu.Unlock()
		if conn == nil || closed || p.ended.Load() {
			continue
		}
		p.mu.Lock()
		_, err := conn.Write(frame)
		p.mu.Unlock()
		left = left || err == nil
	}
	return left
}

// InTheWay reports whether this amount of input may block signals to tasks that do not read it.
func InTheWay(total int64) bool { return total > unreadBytes }

// Feed returns a writer to the standard input of one task, for callers with different data for each node. Writes go no faster than
// the task reads; Close signals the end. A write without progress for within ends the connection; 0 disables the timeout.
func (s *Session) Feed(node int, task uint32, within time.Duration) io.WriteCloser {
	return &feed{s: s, node: node, task: task, within: within, buf: make([]byte, stepwire.HeaderLen+stepwire.MaxPayload)}
}

type feed struct {
	s      *Session
	node   int
	task   uint32
	within time.Duration
	buf    []byte
}

func (f *feed) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		k := copy(f.buf[stepwire.HeaderLen:], b)
		if err = f.send(k); err == nil {
			n, b = n+k, b[k:]
		}
	}
	return n, err
}

func (f *feed) Close() error { return f.send(0) }

func (f *feed) send(k int) error {
	p := f.s.nodes[f.node]
	f.s.mu.Lock()
	conn, closed := p.conn, f.s.closed
	f.s.mu.Unlock()
	if conn == nil || closed || p.ended.Load() {
		return net.ErrClosed
	}
	stepwire.Header{Kind: stepwire.In, Task: f.task, Len: uint32(k)}.Put(f.buf)
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.within > 0 {
		_ = conn.SetWriteDeadline(time.Now().Add(f.within))
		defer func() { _ = conn.SetWriteDeadline(time.Time{}) }()
	}
	_, err := conn.Write(f.buf[:stepwire.HeaderLen+k])
	return err
}
