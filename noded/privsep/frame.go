// Package privsep is the protocol between the two halves of a node daemon: protobuf messages (sluice/node/v1/privsep.proto) on a
// stream socket, each preceded by its length in four bytes, little-endian. A length is checked before anything is allocated.
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

// Bounds of a message. A request holds at most a script of 4 MiB and an environment of 1 MiB. A message from noded-root may
// describe all steps.
const (
	MaxRequest = 8 << 20
	MaxWord    = 256 << 20
)

// ErrTooLong reports a message beyond its bound.
var ErrTooLong = errors.New("the message is too long")

// MaxUnread bounds the queue for a peer that does not read. One message may exceed it, and the one being written does not count.
const MaxUnread = 64 << 20

// ErrUnread reports that the peer does not read.
var ErrUnread = errors.New("the other half of the node daemon does not read its messages")

// Pair returns a connected pair of sockets; ours is for this process, theirs for another one.
func Pair() (ours net.Conn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot create a socket pair: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "requests")
	if ours, err = FromFD(fds[0]); err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// FromFD returns the connection of an inherited descriptor, which it takes over.
func FromFD(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "requests")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("cannot use descriptor %d as a socket: %w", fd, err)
	}
	return c, nil
}

// Append appends a message, preceded by its length, to b.
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

// Read returns the next message. io.EOF is the orderly end of the stream.
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
		return nil, fmt.Errorf("a message is truncated: %w", err)
	}
	return b, nil
}

// Outbox queues messages for a connection. Put never waits for the peer.
type Outbox struct {
	mu   sync.Mutex
	buf  []byte
	wake chan struct{}
}

// NewOutbox returns an empty Outbox; Run writes its messages.
func NewOutbox() *Outbox { return &Outbox{wake: make(chan struct{}, 1)} }

// Put queues a message. After ErrUnread the message is lost and the connection must be closed.
func (o *Outbox) Put(m proto.Message) error {
	return o.add(func(b []byte) ([]byte, error) { return Append(b, m) })
}

// put is Put for an encoded message of at most MaxRequest bytes.
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

// Wake makes Run check for more messages.
func (o *Outbox) Wake() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// keepBytes is the largest buffer kept for the next messages: one large message must not hold its memory for ever.
const keepBytes = 64 << 10

// Run writes to w until end is closed or a write fails. When it has written everything queued, it asks more (may be nil) for
// messages, so that a state that changes faster than the peer reads is sent once.
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
