// Package frames reads a connection's frames before ttrpc does, and admits as much as the connection and its user have room for.
//
// ttrpc starts a goroutine for each call as soon as it has read the request, keeps a call's memory until the client reads the answer, and
// waits for ever: for the rest of a frame, for the next request, for its peer to read. So a connection without progress is closed here.
package frames

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// maxConnCalls bounds the open calls of a connection. The next request is not read before one of them has been answered. A command has
	// one call; a program that sends several at once is not delayed by this, unless it does not read its answers.
	maxConnCalls = 64
	// maxPieces bounds the messages of one submission. Commands send a mebibyte with each. ttrpc keeps 64 that no handler has asked for.
	maxPieces = 60
	// Patience is the time that a connection may be idle, and that the rest of a frame, the next piece of a submission, or a write to the
	// peer may take.
	Patience = 30 * time.Second
	// clearLag is the number of calls of a user that are admitted here beyond the limit in ctld/rpc, so that most excess calls are refused
	// with a message, and only those beyond wait.
	clearLag = 64
)

// The framing of ttrpc (PROTOCOL.md): length, stream, type and flags, then the content.
const (
	HeaderBytes  = 10
	maxBytes     = 4 << 20 // ttrpc reads and discards longer ones
	KindRequest  = 1
	KindAnswer   = 2
	KindMessage  = 3
	LastMessage  = 1 // flag of a stream's last message
	MoreMessages = 2 // flag of a request that more messages will follow
	NoMessage    = 4 // flag of a frame without a message
)

var (
	errTooMuch  = errors.New("this user's calls and messages have waited too long to be read")
	errConfused = errors.New("the frames do not follow the protocol")
)

// Conn admits as much as its user and the connection itself have room for. It looks at the frames of both directions and changes nothing.
type Conn struct {
	net.Conn
	user     *User         // nil: an operator, who has no limits
	Wait     time.Duration // MaxWait, unless it is changed before the connection is used
	Patience time.Duration // Patience, likewise

	in   *bufio.Reader
	left int // bytes left of the frame being read
	late bool

	head []byte // header of the frame being written, as far as it has come
	rest int    // of its content

	places  chan struct{} // maxConnCalls
	reading *budget       // connReading

	mu      sync.Mutex
	last    uint32 // the newest stream
	open    map[uint32]*openCall
	uploads int       // of them, calls that have not sent their last message
	active  time.Time // when a frame last came, or a call ended
	done    bool
	ended   chan struct{} // closed with done
}

// openCall is a call whose answer has not been written. held is its part of the budgets, left the part that has not come yet.
type openCall struct {
	held, left int64
	upload     bool
	pieces     int  // messages after the request
	over       bool // no longer open
}

// mayFollow reports whether ttrpc accepts a message for an open call, and counts it. ttrpc answers any other message itself, which looks
// like the end of the call although its handler continues: a message for a call that takes none, or no more; one that is too long; one that
// is marked as the last and has content; and one too many that no handler has read.
func (o *openCall) mayFollow(flags byte, length int64) bool {
	if flags&NoMessage == 0 {
		o.pieces++
	}
	return o.upload && length <= maxBytes && o.pieces <= maxPieces && (flags&LastMessage == 0 || length == 0)
}

// User holds the limits of one ordinary user on all connections.
type User struct {
	calls   chan struct{} // held until their answers have been written
	reading *budget       // for large messages, in bytes
}

// NewUser makes the limits of a user with calls calls. Some more are admitted here, so that most excess calls are refused with a message.
func NewUser(calls int) *User {
	return &User{calls: make(chan struct{}, calls+clearLag), reading: newBudget(UserReading)}
}

// NewConn makes a connection with its limits; user is nil for an operator, who has no user's limits.
func NewConn(c net.Conn, user *User) *Conn {
	_ = c.SetReadDeadline(time.Now().Add(Patience))
	return &Conn{Conn: c, user: user, Wait: MaxWait, Patience: Patience, in: bufio.NewReader(c),
		places: make(chan struct{}, maxConnCalls), reading: newBudget(connReading),
		open: map[uint32]*openCall{}, active: time.Now(), ended: make(chan struct{})}
}

// Read returns at most the rest of one frame, so that the next one is not read before it is wanted.
func (c *Conn) Read(b []byte) (int, error) {
	if c.left == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	n, err := c.in.Read(b[:min(len(b), c.left)])
	c.left -= n
	if c.left == 0 && c.late {
		c.late, err = false, errors.Join(err, c.SetReadDeadline(time.Now().Add(c.Patience)))
	}
	return n, err
}

// next waits for the next frame and, when its header has come, for room for it.
func (c *Conn) next() error {
	if c.in.Buffered() == 0 {
		if err := c.await(); err != nil {
			return err
		}
	}
	if c.in.Buffered() < HeaderBytes {
		if err := c.hurry(); err != nil {
			return err
		}
	}
	h, err := c.in.Peek(HeaderBytes)
	if err != nil {
		return err
	}
	length := int(binary.BigEndian.Uint32(h))
	if err := c.admitFrame(binary.BigEndian.Uint32(h[4:]), h[8], h[9], int64(length)); err != nil {
		return err
	}
	c.left = HeaderBytes + length
	if c.in.Buffered() < c.left { // its time begins when there is room for it
		return c.hurry()
	}
	return nil
}

// hurry starts the time for the rest of a frame.
func (c *Conn) hurry() error {
	c.late = true
	return c.SetReadDeadline(time.Now().Add(c.Patience))
}

// await waits for the first byte of a frame. The deadline is only set once in a while, not for each call, so activity since then is
// checked: a connection may be silent while its calls are being answered, unless they wait for its messages.
func (c *Conn) await() error {
	for {
		_, err := c.in.Peek(1)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		c.mu.Lock()
		now := time.Now()
		until := c.active.Add(c.Patience)
		if len(c.open) > 0 && c.uploads == 0 {
			until = now.Add(c.Patience)
		}
		c.mu.Unlock()
		if !until.After(now) {
			return io.EOF
		}
		if err := c.SetReadDeadline(until); err != nil {
			return err
		}
	}
}

// admitFrame counts a frame, and waits until there is room for it.
func (c *Conn) admitFrame(stream uint32, kind, flags byte, length int64) error {
	if kind == KindRequest {
		return c.begin(stream, flags&MoreMessages != 0, length)
	}
	c.mu.Lock()
	c.active = time.Now()
	call := c.open[stream]
	confused := call != nil && !call.mayFollow(flags, length)
	if kind == KindMessage && call != nil && flags&LastMessage != 0 && call.upload {
		call.upload = false
		c.uploads--
	}
	c.mu.Unlock()
	switch {
	case kind != KindMessage || call == nil: // for an answered call: ttrpc reports it
		return nil
	case confused: // ttrpc would answer the call while its handler continues
		return errConfused
	}
	return c.more(call, length)
}

// begin counts a call and reserves the bytes of its request.
func (c *Conn) begin(stream uint32, upload bool, length int64) error {
	if stream%2 != 1 || stream <= c.last { // ttrpc would answer on a stream that may be another call's
		return errConfused
	}
	c.last = stream
	if !c.place(c.places) {
		return errTooMuch
	}
	if c.user != nil && !c.place(c.user.calls) {
		<-c.places
		return errTooMuch
	}
	c.mu.Lock()
	c.active = time.Now()
	if c.done {
		c.mu.Unlock()
		c.leave()
		return net.ErrClosed
	}
	call := &openCall{upload: upload}
	c.open[stream] = call
	if upload {
		c.uploads++
	}
	c.mu.Unlock()
	switch {
	case upload:
		return c.reserve(call, maxStream, 0)
	case length > smallMessage && length <= maxBytes:
		return c.reserve(call, length, length)
	}
	return nil
}

// place takes a place within the time that a message may wait.
func (c *Conn) place(places chan<- struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
	}
	t := time.NewTimer(c.Wait)
	defer t.Stop()
	select {
	case places <- struct{}{}:
		return true
	case <-t.C:
	case <-c.ended:
	}
	return false
}

// leave returns the places of a call.
func (c *Conn) leave() {
	<-c.places
	if c.user != nil {
		<-c.user.calls
	}
}

// more admits one of several messages: from the call's reservation, or with an equal new one.
func (c *Conn) more(call *openCall, length int64) error {
	c.mu.Lock()
	room := call.left >= length
	if room {
		call.left -= length
	}
	c.mu.Unlock()
	if room {
		return nil
	}
	return c.reserve(call, maxStream, length)
}

// reserve takes n bytes for a call, of which come have arrived.
func (c *Conn) reserve(call *openCall, n, come int64) error {
	if !c.reading.take(n, c.Wait, c.ended) {
		return errTooMuch
	}
	if c.user != nil && !c.user.reading.take(n, c.Wait, c.ended) {
		c.reading.give(n)
		return errTooMuch
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done || call.over {
		c.giveBytes(n)
		if c.done {
			return net.ErrClosed
		}
		return nil
	}
	call.held, call.left = call.held+n, call.left+n-come
	return nil
}

func (c *Conn) giveBytes(n int64) {
	c.reading.give(n)
	if c.user != nil {
		c.user.reading.give(n)
	}
}

// Write looks for the answers, which end their calls once written.
func (c *Conn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.Patience)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(b)
	for p := b[:n]; len(p) > 0; {
		if c.rest == 0 {
			k := min(HeaderBytes-len(c.head), len(p))
			c.head, p = append(c.head, p[:k]...), p[k:]
			if len(c.head) < HeaderBytes {
				break
			}
			c.rest = int(binary.BigEndian.Uint32(c.head))
		}
		k := min(c.rest, len(p))
		c.rest, p = c.rest-k, p[k:]
		if c.rest == 0 {
			if c.head[8] == KindAnswer || c.head[8] == KindMessage && c.head[9]&LastMessage != 0 {
				c.end(binary.BigEndian.Uint32(c.head[4:]))
			}
			c.head = c.head[:0]
		}
	}
	return n, err
}

// end handles a call that has been answered.
func (c *Conn) end(stream uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active = time.Now()
	if call := c.open[stream]; call != nil {
		delete(c.open, stream)
		c.over(call)
	}
}

// over handles a call that is no longer open.
func (c *Conn) over(call *openCall) {
	call.over = true
	if call.upload {
		c.uploads--
	}
	if call.held > 0 {
		c.giveBytes(call.held)
	}
	c.leave()
}

// Ended is closed when the connection has ended.
func (c *Conn) Ended() <-chan struct{} { return c.ended }

// Close also wakes waiters for room.
func (c *Conn) Close() error {
	c.Release()
	return c.Conn.Close()
}

// Release returns the reservations of a connection that has ended.
func (c *Conn) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.done {
		c.done = true
		close(c.ended)
	}
	for stream, call := range c.open {
		delete(c.open, stream)
		c.over(call)
	}
}
