package frames

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"testing"
	"time"
)

func frame(stream uint32, kind, flags byte, length int) []byte {
	b := make([]byte, HeaderBytes+length)
	binary.BigEndian.PutUint32(b, uint32(length))
	binary.BigEndian.PutUint32(b[4:], stream)
	b[8], b[9] = kind, flags
	return b
}

// bounded returns a connection whose user is limited to budget b. The limits on calls and on bytes per connection are too high to matter.
func bounded(c net.Conn, b *budget) *Conn {
	bc := NewConn(c, &User{reading: b, calls: make(chan struct{}, 100)})
	bc.reading = newBudget(1 << 30)
	return bc
}

// TestLargeMessagesWaitToBeRead: a user's large messages are read until they fill the budget, over all connections; each answer lets one
// more in. The test counts messages whose header has reached the reader.
func TestLargeMessagesWaitToBeRead(t *testing.T) {
	const size, room, all = 4 << 20, 3, 8
	b := newBudget(room*size + 100)
	read, conns := make(chan *Conn, all), make([]*Conn, all)
	for i := range conns {
		far, near := net.Pipe()
		t.Cleanup(func() { _, _ = far.Close(), near.Close() })
		conns[i] = bounded(near, b)
		go func() { _, _ = far.Write(frame(1, 1, 0, size)) }()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		go func() {
			var head [HeaderBytes]byte
			if _, err := io.ReadFull(conns[i], head[:]); err != nil {
				return
			}
			read <- conns[i]
			_, _ = io.CopyN(io.Discard, conns[i], size)
		}()
	}
	var in []*Conn
	for range room {
		in = append(in, <-read)
	}
	for len(in) < all {
		b.mu.Lock()
		left := b.left
		b.mu.Unlock()
		if left != 100 || len(read) > 0 {
			t.Fatalf("%d bytes are left after %d messages, %d more were read", left, room, len(read))
		}
		if _, err := in[len(in)-room].Write(frame(1, KindAnswer, 0, 5)); err != nil {
			t.Fatal(err)
		}
		in = append(in, <-read)
	}
	for _, c := range conns {
		c.Release()
	}
	if b.left != room*size+100 {
		t.Errorf("%d bytes are left when all is over, want %d", b.left, room*size+100)
	}
}

// TestStreamsReserveOnce: pieces of one submission use what the first has reserved; a stream that sends more takes more, and its last
// message gives all of it back. Small messages are not counted.
func TestStreamsReserveOnce(t *testing.T) {
	b := newBudget(3 * maxStream)
	far, near := net.Pipe()
	defer far.Close()
	c := bounded(near, b)
	go func() { _, _ = io.Copy(io.Discard, far) }()
	step := func(what string, sent []byte, want int64) {
		t.Helper()
		go func() { _, _ = far.Write(sent) }()
		if _, err := io.ReadFull(c, make([]byte, len(sent))); err != nil {
			t.Fatal(err)
		}
		if b.left != want {
			t.Errorf("%s: %d bytes are left, want %d", what, b.left, want)
		}
	}
	step("a small request", frame(1, 1, 0, smallMessage), 3*maxStream)
	step("the beginning of several", frame(3, KindRequest, MoreMessages, 0), 2*maxStream)
	for range 6 {
		step("pieces", frame(3, KindMessage, 0, 1<<20), 2*maxStream)
	}
	step("a seventh", frame(3, KindMessage, 0, 1<<20), maxStream)
	step("one that ttrpc throws away", frame(5, 1, 0, maxBytes+1), maxStream)
	for _, piece := range [][]byte{frame(3, KindMessage, 0, 70)[:4], frame(3, KindMessage, 0, 70)[4:], frame(1, KindAnswer, 0, 3),
		frame(3, KindMessage, LastMessage, 0)} {
		if b.left != maxStream {
			t.Errorf("given back too early: %d", b.left)
		}
		if _, err := c.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	if b.left != 3*maxStream {
		t.Errorf("%d bytes are left after the last message, want all", b.left)
	}
}

// TestFramesThatLookLikeTheEnd: a message that ttrpc would answer while the call goes on ends the connection, and gives nothing back.
func TestFramesThatLookLikeTheEnd(t *testing.T) {
	for what, last := range map[string][]byte{"the last, with content": frame(1, KindMessage, LastMessage, 3),
		"the last, with content and without": frame(1, KindMessage, LastMessage|NoMessage, 3),
		"too long":                           frame(1, KindMessage, 0, maxBytes+1),
		"too many":                           bytes.Repeat(frame(1, KindMessage, 0, 0), maxPieces+1)} {
		b := newBudget(3 * maxStream)
		far, near := net.Pipe()
		c := bounded(near, b)
		over := make(chan struct{})
		go func() {
			defer close(over)
			_, _ = far.Write(frame(1, KindRequest, MoreMessages, 0))
			_, _ = far.Write(last)
			_ = far.Close()
		}()
		n, err := io.Copy(io.Discard, c)
		if err != errConfused || b.left != 2*maxStream || len(c.places) != 1 {
			t.Errorf("%s: %d bytes were read, then %v; %d bytes are left, %d calls open", what, n, err, b.left, len(c.places))
		}
		_ = c.Close()
		<-over
		if b.left != 3*maxStream || len(c.places) != 0 {
			t.Errorf("%s: %d bytes are left, %d calls open at the end", what, b.left, len(c.places))
		}
	}
	far, near := net.Pipe()
	defer far.Close()
	c := bounded(near, newBudget(3*maxStream))
	all := slices.Concat(frame(1, KindRequest, MoreMessages, 0), bytes.Repeat(frame(1, KindMessage, 0, 9), maxPieces),
		frame(1, KindMessage, LastMessage|NoMessage, 0))
	go func() { _, _ = far.Write(all); _ = far.Close() }()
	if n, err := io.Copy(io.Discard, c); err != nil || n != int64(len(all)) {
		t.Errorf("a submission as commands make it: %d bytes of %d were read, then %v", n, len(all), err)
	}
}

// TestUnreadConnectionsEnd: a message for which there is no room for too long ends its connection.
func TestUnreadConnectionsEnd(t *testing.T) {
	far, near := net.Pipe()
	defer far.Close()
	c := bounded(near, newBudget(smallMessage))
	c.Wait = time.Millisecond
	go func() { _, _ = far.Write(frame(1, 1, 0, smallMessage+1)) }()
	if _, err := c.Read(make([]byte, 100)); err != errTooMuch {
		t.Errorf("%v, want %v", err, errTooMuch)
	}
}
