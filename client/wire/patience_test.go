package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// peer is the other end of a connection: it reads the request and answers with these bytes, and then says nothing.
func peer(t *testing.T, answer ...[]byte) *Conn {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Read(make([]byte, 1000))
		for _, b := range answer {
			_, _ = conn.Write(b)
		}
		_, _ = io.Copy(io.Discard, conn)
	}()
	c, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(); <-ended })
	c.patience = func() time.Duration { return 10 * time.Millisecond }
	return c
}

func answerFrame(kind, flags byte, body string) []byte {
	return append([]byte{0, 0, 0, byte(len(body)), 0, 0, 0, 1, kind, flags}, body...)
}

// TestSilenceEndsACall, at any point of it.
func TestSilenceEndsACall(t *testing.T) {
	alive, data := answerFrame(typeData, flagNoData, ""), answerFrame(typeData, 0, "page")
	for what, sent := range map[string][][]byte{"nothing": nil, "half a header": {data[:4]}, "half a body": {data[:12]},
		"signs of life": {alive, alive}, "one of several pages": {data}} {
		x, err := peer(t, sent...).Open(context.Background(), "Jobs", nil)
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = x.Next()
		}
		var late *TimeoutError
		if !errors.As(err, &late) || !Broken(err) || !strings.Contains(err.Error(), "Socket timed out on send/recv operation: socket ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	x, err := peer(t).OpenUpload(context.Background(), "SubmitLarge")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = x.Answer(); !errors.As(err, new(*TimeoutError)) {
		t.Errorf("an upload: %v", err)
	}
}

// TestNobodyTakesACall: what does not go because the other side does not read.
func TestNobodyTakesACall(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket) // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.patience = func() time.Duration { return 10 * time.Millisecond }
	if _, err := c.Call(context.Background(), "Submit", make([]byte, 3<<20)); !errors.As(err, new(*TimeoutError)) {
		t.Errorf("%v", err)
	}
	if c.Usable() {
		t.Error("another call can follow")
	}
}

// TestSignsOfLife are no part of an answer.
func TestSignsOfLife(t *testing.T) {
	peer := func(t *testing.T, answer ...[]byte) *Conn { // which answers, however long that takes here
		c := peer(t, answer...)
		c.patience = func() time.Duration { return time.Hour }
		return c
	}
	alive := answerFrame(typeData, flagNoData, "")
	c := peer(t, alive, alive, answerFrame(typeResponse, 0, "\x12\x02ok"))
	if got, err := c.Call(context.Background(), "WaitJob", nil); err != nil || got != "ok" || !c.Usable() {
		t.Errorf("%q, %v", got, err)
	}
	x, err := peer(t, alive, answerFrame(typeData, 0, "one"), alive, answerFrame(typeData, 0, "two"), alive,
		answerFrame(typeData, flagNoData|flagClosed, "")).Open(context.Background(), "Jobs", nil)
	if err != nil {
		t.Fatal(err)
	}
	var pages []string
	for {
		p, err := x.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, p)
	}
	if !slices.Equal(pages, []string{"one", "two"}) {
		t.Errorf("%q", pages)
	}
}
