package rpc

import (
	"bufio"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"
)

// How much of large messages one ordinary user may have in this process, from the moment that a message is read until its call is
// answered. ttrpc reads a message whole before anybody can ask whose it is and how many there are: the rate and the number of calls
// (local.go) are looked at with the message in hand, so that hundreds of connections could hold 4 MiB each while they wait for their turn.
//
// Messages below smallMessage are not counted: of these the bounds of calls and connections are enough. A stream that sends large messages
// takes what a submission may have (maxStream) with the first, so that no two submissions wait for each other half read.
const (
	smallMessage = 64 << 10
	maxStream    = 6 << 20
	userReading  = 64 << 20
	// maxReadWait bounds how long a message waits to be read; then its connection ends. Commands that submit try again.
	maxReadWait = time.Minute
)

// The framing of ttrpc (PROTOCOL.md): length, stream, type and flags, then so many bytes.
const (
	frameHeader  = 10
	frameMax     = 4 << 20 // what is longer is read and thrown away by ttrpc
	frameAnswer  = 2
	frameMessage = 3
	lastMessage  = 1 // the flag of a stream's last one
)

// budget is bytes that may be taken and are given back.
type budget struct {
	mu    sync.Mutex
	left  int64
	freed chan struct{} // closed when some are given back
}

func newBudget(n int64) *budget { return &budget{left: n, freed: make(chan struct{})} }

// take waits until there are n; false when that takes too long.
func (b *budget) take(n int64, patience time.Duration) bool {
	var late <-chan time.Time
	for {
		b.mu.Lock()
		if b.left >= n {
			b.left -= n
			b.mu.Unlock()
			return true
		}
		freed := b.freed
		b.mu.Unlock()
		if late == nil {
			t := time.NewTimer(patience)
			defer t.Stop()
			late = t.C
		}
		select {
		case <-freed:
		case <-late:
			return false
		}
	}
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += n
	close(b.freed)
	b.freed = make(chan struct{})
}

var errTooMuch = errors.New("too much of this user's is being read")

// meteredConn lets a connection's large messages in as its user's budget has room. It looks at the frames of both directions and changes
// nothing.
type meteredConn struct {
	net.Conn
	budget *budget
	wait   time.Duration

	in   *bufio.Reader
	left int // of the frame that is being read

	head []byte // of the frame that is being written, as far as it has come
	rest int    // of its content

	mu      sync.Mutex
	streams map[uint32]*room
	done    bool
}

// room is what a stream has of the budget, and how much of it has not come yet.
type room struct{ held, left int64 }

func newMeteredConn(c net.Conn, b *budget) *meteredConn {
	return &meteredConn{Conn: c, budget: b, wait: maxReadWait, in: bufio.NewReader(c), streams: map[uint32]*room{}}
}

// Read gives at most the rest of one frame, so that the next one is not taken in before it has been asked for.
func (c *meteredConn) Read(b []byte) (int, error) {
	if c.left == 0 {
		h, err := c.in.Peek(frameHeader)
		if err != nil {
			if n := c.in.Buffered(); n > 0 { // an unfinished header: ttrpc is to see it
				return c.in.Read(b[:min(len(b), n)])
			}
			return 0, err
		}
		length := int(binary.BigEndian.Uint32(h))
		if length > smallMessage && length <= frameMax {
			if err := c.take(binary.BigEndian.Uint32(h[4:]), int64(length), h[8] == frameMessage); err != nil {
				return 0, err
			}
		}
		c.left = frameHeader + length
	}
	n, err := c.in.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

// take reserves room for a message of a stream: as much as it is long, or, when it is one of several, what a submission may have.
func (c *meteredConn) take(stream uint32, length int64, several bool) error {
	c.mu.Lock()
	r := c.streams[stream]
	if r == nil {
		r = &room{}
	}
	if several && r.left >= length {
		r.left -= length
		c.mu.Unlock()
		return nil
	}
	c.mu.Unlock()
	need := length
	if several {
		need = maxStream
	}
	if !c.budget.take(need, c.wait) {
		return errTooMuch
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		c.budget.give(need)
		return net.ErrClosed
	}
	r.held, r.left = r.held+need, need-length
	c.streams[stream] = r
	return nil
}

// Write looks for the answers, which end their streams.
func (c *meteredConn) Write(b []byte) (int, error) {
	for p := b; len(p) > 0; {
		if c.rest > 0 {
			n := min(c.rest, len(p))
			c.rest, p = c.rest-n, p[n:]
			continue
		}
		n := min(frameHeader-len(c.head), len(p))
		c.head, p = append(c.head, p[:n]...), p[n:]
		if len(c.head) < frameHeader {
			break
		}
		c.rest = int(binary.BigEndian.Uint32(c.head))
		if c.head[8] == frameAnswer || c.head[8] == frameMessage && c.head[9]&lastMessage != 0 {
			c.give(binary.BigEndian.Uint32(c.head[4:]))
		}
		c.head = c.head[:0]
	}
	return c.Conn.Write(b)
}

func (c *meteredConn) give(stream uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.streams[stream]; r != nil {
		c.budget.give(r.held)
		delete(c.streams, stream)
	}
}

// release gives back what is left when the connection has ended and its calls are over.
func (c *meteredConn) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done = true
	for stream, r := range c.streams {
		c.budget.give(r.held)
		delete(c.streams, stream)
	}
}
