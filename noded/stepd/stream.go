package stepd

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// stream carries one output descriptor of a task to srun. It is read only when the previous bytes were written to the connection:
// output that srun does not take stays in the pipe, and blocks only the task that writes it.
type stream struct {
	kind stepwire.Kind
	rank uint32
	file *os.File
	done chan struct{} // closed when its end has been sent

	mu   sync.Mutex
	last bool // no more will be written: the pipe holds the rest
}

func newStream(kind stepwire.Kind, rank uint32, file *os.File) *stream {
	return &stream{kind: kind, rank: rank, file: file, done: make(chan struct{})}
}

// pump sends until the stream ends.
func (s *stream) pump(w *wire) {
	defer close(s.done)
	defer s.file.Close()
	raw, err := s.file.SyscallConn()
	if err != nil {
		return
	}
	for more := false; ; { // more: there is probably something to read
		if !more {
			err := raw.Read(func(fd uintptr) bool { return readable(int(fd)) })
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
		}
		err := w.pass(s.kind, s.rank, func(b []byte) (n int, err error) {
			n, err = readOnce(raw, b)
			more = n > len(b)/2
			return n, err
		})
		if err == unix.EAGAIN && !s.finishing() {
			continue
		}
		if err != nil { // the end, or the pipe is empty and stays so
			break
		}
	}
	_ = w.frame(s.kind, s.rank, nil)
}

// finish makes the stream end with the contents of the pipe: no process of the step is left, but another may hold the pipe open.
func (s *stream) finish() {
	s.mu.Lock()
	s.last = true
	s.mu.Unlock()
	_ = s.file.SetReadDeadline(time.Unix(1, 0))
}

func (s *stream) finishing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *stream) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// settled reports whether the end was sent, or the pipe is empty although it may still be written to.
func (s *stream) settled() bool {
	if s.ended() {
		return true
	}
	raw, err := s.file.SyscallConn()
	if err != nil {
		return false // about to end
	}
	empty := false
	_ = raw.Control(func(fd uintptr) {
		n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		empty = err == nil && n == 0 && !hungUp(int(fd))
	})
	return empty
}

// readOnce reads the available bytes. The end is io.EOF; on a terminal that no process has open any more it is EIO.
func readOnce(raw interface{ Control(func(uintptr)) error }, b []byte) (n int, err error) {
	cerr := raw.Control(func(fd uintptr) {
		for {
			n, err = unix.Read(int(fd), b)
			if err != unix.EINTR {
				return
			}
		}
	})
	switch {
	case cerr != nil:
		return 0, cerr
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func readable(fd int) bool { return polled(fd, unix.POLLIN) != 0 }

func hungUp(fd int) bool {
	return polled(fd, unix.POLLRDHUP)&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
}

func polled(fd int, events int16) int16 {
	for {
		p := []unix.PollFd{{Fd: int32(fd), Events: events}}
		if _, err := unix.Poll(p, 0); err == unix.EINTR {
			continue
		}
		return p[0].Revents
	}
}

// maxIn bounds the input that waits for tasks which do not read. While there is more, the connection is not read, but its end is
// still noticed.
const maxIn = 1 << 20

// input is the standard input for tasks.
type input struct {
	mu    sync.Mutex
	tasks []*feed
	freed chan struct{} // there may be room again
}

// feed is the standard input of one task.
type feed struct {
	rank   uint32
	file   *os.File // nil before it is opened
	term   bool
	queue  [][]byte
	bytes  int
	closed bool // no more input follows
	broken bool // the task has stopped reading
	wake   chan struct{}
}

func (in *input) add(rank uint32, term bool) *feed {
	f := &feed{rank: rank, term: term, wake: make(chan struct{}, 1)}
	in.tasks = append(in.tasks, f)
	return f
}

// put queues a frame for a task or for all; an empty one is the end.
func (in *input) put(rank uint32, b []byte) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, f := range in.tasks {
		if f.rank != rank && rank != stepwire.All || f.closed || f.broken {
			continue
		}
		if len(b) == 0 {
			f.closed = true
		} else {
			f.queue, f.bytes = append(f.queue, b), f.bytes+len(b)
		}
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

// full reports whether some task has so much queued that no more is accepted for any.
func (in *input) full() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, f := range in.tasks {
		if f.bytes >= maxIn {
			return true
		}
	}
	return false
}

// end ends the input of all tasks.
func (in *input) end() { in.put(stepwire.All, nil) }

// stop closes the input of all tasks, even during a write.
func (in *input) stop() {
	in.end()
	for _, f := range in.tasks {
		if !f.term && f.file != nil {
			_ = f.file.SetWriteDeadline(time.Unix(1, 0))
		}
	}
}

// pump writes to one task.
func (in *input) pump(f *feed) {
	if !f.term {
		defer f.file.Close()
	}
	for {
		in.mu.Lock()
		var b []byte
		if len(f.queue) > 0 {
			b = f.queue[0]
		}
		closed := f.closed
		in.mu.Unlock()
		switch {
		case b != nil:
			_, err := f.file.Write(b)
			in.mu.Lock()
			if f.queue, f.bytes = f.queue[1:], f.bytes-len(b); err != nil {
				f.queue, f.bytes, f.broken = nil, 0, true
			}
			broken := f.broken
			in.mu.Unlock()
			select {
			case in.freed <- struct{}{}:
			default:
			}
			if broken {
				return
			}
		case closed && f.term:
			_, _ = f.file.Write([]byte{4}) // ^D
			return
		case closed:
			return
		default:
			<-f.wake
		}
	}
}
