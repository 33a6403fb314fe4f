package rpc

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func frame(stream uint32, kind, flags byte, length int) []byte {
	b := make([]byte, frameHeader+length)
	binary.BigEndian.PutUint32(b, uint32(length))
	binary.BigEndian.PutUint32(b[4:], stream)
	b[8], b[9] = kind, flags
	return b
}

// TestLargeMessagesWaitToBeRead: of a user's large messages so many are read as the budget holds, over all connections; each answer lets one
// more in. What is counted are messages whose header the reader was given.
func TestLargeMessagesWaitToBeRead(t *testing.T) {
	const size, room, all = 4 << 20, 3, 8
	b := newBudget(room*size + 100)
	read, conns := make(chan *meteredConn, all), make([]*meteredConn, all)
	for i := range conns {
		far, near := net.Pipe()
		t.Cleanup(func() { _, _ = far.Close(), near.Close() })
		conns[i] = newMeteredConn(near, b)
		go func() { _, _ = far.Write(frame(1, 1, 0, size)) }()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		go func() {
			var head [frameHeader]byte
			if _, err := io.ReadFull(conns[i], head[:]); err != nil {
				return
			}
			read <- conns[i]
			_, _ = io.CopyN(io.Discard, conns[i], size)
		}()
	}
	var in []*meteredConn
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
		if _, err := in[len(in)-room].Write(frame(1, frameAnswer, 0, 5)); err != nil {
			t.Fatal(err)
		}
		in = append(in, <-read)
	}
	for _, c := range conns {
		c.release()
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
	c := newMeteredConn(near, b)
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
	for range 6 {
		step("pieces", frame(3, frameMessage, 0, 1<<20), 2*maxStream)
	}
	step("a seventh", frame(3, frameMessage, 0, 1<<20), maxStream)
	step("one that ttrpc throws away", frame(5, 1, 0, frameMax+1), maxStream)
	for _, piece := range [][]byte{frame(3, frameMessage, 0, 70)[:4], frame(3, frameMessage, 0, 70)[4:], frame(1, frameAnswer, 0, 3), frame(3, frameMessage, lastMessage, 0)} {
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

// TestUnreadConnectionsEnd: a message for which there is no room for too long ends its connection.
func TestUnreadConnectionsEnd(t *testing.T) {
	far, near := net.Pipe()
	defer far.Close()
	c := newMeteredConn(near, newBudget(smallMessage))
	c.wait = time.Millisecond
	go func() { _, _ = far.Write(frame(1, 1, 0, smallMessage+1)) }()
	if _, err := c.Read(make([]byte, 100)); err != errTooMuch {
		t.Errorf("%v, want %v", err, errTooMuch)
	}
}

// TestLargeSubmissionsOfOneUser: more large submissions at once than the budget holds all come through, one after another.
func TestLargeSubmissionsOfOneUser(t *testing.T) {
	s := serve(t)
	script := "#!/bin/sh\n" + strings.Repeat("#\n", 1<<20)
	done := make(chan struct{})
	const all = userReading/(2<<20) + 8
	var users [all]pb.ControllerAPIClient
	for i := range users {
		users[i] = s.as(alice, alice)
	}
	for _, user := range users {
		go func() {
			defer func() { done <- struct{}{} }()
			if _, err := user.Submit(ctx, request(script)); err != nil {
				t.Error(err)
			}
		}()
	}
	for range all {
		<-done
	}
}
