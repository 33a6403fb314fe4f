// Package privsep is the protocol between the two halves of a node daemon: protobuf messages
// (sluice/node/v1/privsep.proto) on a stream socket, each preceded by its length in four bytes, little-endian. Nothing is
// allocated before a length has been judged.
package privsep

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

// Bounds of a message. A request holds at most a script of 4 MiB and an environment of 1 MiB; what the root half says may hold all steps.
const (
	MaxRequest = 8 << 20
	MaxWord    = 256 << 20
)

// ErrTooLong is a message beyond its bound.
var ErrTooLong = errors.New("the message is too long")

// MaxUnread is how much may wait for a reader that does not read, but for one message and the one that is being written.
const MaxUnread = 64 << 20

// ErrUnread is what is told to somebody who does not listen.
var ErrUnread = errors.New("too much has been said that the other half of the node daemon does not read")

// Pair is a connected pair of sockets; ours is for this process, theirs to be given to another one.
func Pair() (ours net.Conn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a pair of sockets: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "requests")
	if ours, err = FromFD(fds[0]); err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// FromFD is the connection of an inherited descriptor, which it takes over.
func FromFD(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "requests")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("cannot use descriptor %d as a socket: %w", fd, err)
	}
	return c, nil
}

// Append puts a message with its length behind what is in b.
func Append(b []byte, m proto.Message) ([]byte, error) {
	at := len(b)
	b = append(b, 0, 0, 0, 0)
	b, err := proto.MarshalOptions{}.MarshalAppend(b, m)
	if err != nil {
		return b[:at], fmt.Errorf("cannot encode a message: %w", err)
	}
	n := len(b) - at - 4
	if n > MaxWord {
		return b[:at], ErrTooLong
	}
	binary.LittleEndian.PutUint32(b[at:], uint32(n))
	return b, nil
}

// Read gives the next message's bytes. io.EOF is the orderly end of the stream.
func Read(r io.Reader, limit int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if uint64(n) > uint64(limit) {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLong, n, limit)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, fmt.Errorf("a message is cut short: %w", err)
	}
	return b, nil
}

// Outbox is what is to be written to a connection. Whoever puts something in never waits for the other side.
type Outbox struct {
	mu   sync.Mutex
	buf  []byte
	wake chan struct{}
}

// NewOutbox makes one; Run writes.
func NewOutbox() *Outbox { return &Outbox{wake: make(chan struct{}, 1)} }

// Put queues a message. With ErrUnread it has not been queued, and the connection is of no more use.
func (o *Outbox) Put(m proto.Message) error {
	return o.add(func(b []byte) ([]byte, error) { return Append(b, m) })
}

// put is Put of a message that has been encoded, of at most MaxRequest.
func (o *Outbox) put(raw []byte) error {
	return o.add(func(b []byte) ([]byte, error) {
		return append(binary.LittleEndian.AppendUint32(b, uint32(len(raw))), raw...), nil
	})
}

func (o *Outbox) add(put func([]byte) ([]byte, error)) error {
	o.mu.Lock()
	defer o.Wake()
	defer o.mu.Unlock()
	if len(o.buf) > MaxUnread {
		return ErrUnread
	}
	b, err := put(o.buf)
	o.buf = b
	return err
}

// Wake has Run look whether there is more.
func (o *Outbox) Wake() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// keepBytes is the buffer that is kept for the next messages: one large message must not hold its memory for ever.
const keepBytes = 64 << 10

// Run writes to w until end is closed or a write fails. more, which may be nil, is asked for messages when there is nothing else to write,
// so that what changes faster than the other side reads is told once.
func (o *Outbox) Run(w io.Writer, end <-chan struct{}, more func() []proto.Message) error {
	var out []byte
	for {
		select {
		case <-o.wake:
		case <-end:
			return nil
		}
		o.mu.Lock()
		out, o.buf = o.buf, out[:0]
		o.mu.Unlock()
		if more != nil {
			for _, m := range more() {
				var err error
				if out, err = Append(out, m); err != nil {
					return err
				}
			}
		}
		if len(out) == 0 {
			continue
		}
		if _, err := w.Write(out); err != nil {
			return err
		}
		if cap(out) > keepBytes {
			out = nil
		}
	}
}
