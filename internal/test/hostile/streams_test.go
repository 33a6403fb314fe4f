package hostile

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"github.com/sluice-hpc/sluice/client/msg"
	"google.golang.org/protobuf/proto"
)

// frame is one of ttrpc's.
func frame(stream uint32, kind, flags byte, body []byte) []byte {
	b := make([]byte, 10, 10+len(body))
	binary.BigEndian.PutUint32(b, uint32(len(body)))
	binary.BigEndian.PutUint32(b[4:], stream)
	b[8], b[9] = kind, flags
	return append(b, body...)
}

// call is the body of a request.
func call(method string, payload []byte) []byte {
	b, _ := proto.Marshal(&ttrpc.Request{Service: "sluice.v1.ControllerAPI", Method: method, Payload: payload})
	return b
}

// pad makes a payload longer, by a field that no message has.
func pad(payload []byte, to int) []byte {
	b := binary.AppendUvarint(append([]byte{}, payload...), 15000<<3|2)
	b = binary.AppendUvarint(b, uint64(to))
	return append(b, make([]byte, to)...)
}

// stalled is how long a write waits before the attacker believes that nobody reads any more.
const stalled = 3 * time.Second

// pour writes frames until so many have been written, or nobody takes more, and gives how many went.
func pour(conn net.Conn, most int, next func(i int) []byte) (n int, err error) {
	for n < most && err == nil {
		_ = conn.SetWriteDeadline(time.Now().Add(stalled))
		if _, err = conn.Write(next(n)); err == nil {
			n++
		}
	}
	return n, err
}

func init() {
	// streams METHOD PAYLOAD BYTES COUNT opens calls on one connection and reads nothing. It says how many went, and when the connection
	// has ended.
	attacks["streams"] = func(a *attacker) {
		conn, err := net.Dial("unix", os.Getenv("SLUICE_SOCKET"))
		a.need(err)
		size, err := strconv.Atoi(a.args[2])
		a.need(err)
		count, err := strconv.Atoi(a.args[3])
		a.need(err)
		body := call(a.args[0], pad([]byte(a.args[1]), size))
		n, err := pour(conn, count, func(i int) []byte { return frame(uint32(2*i+1), 1, 1, body) })
		a.say("%d", n)
		for errors.Is(err, os.ErrDeadlineExceeded) || err == nil { // half a frame may have gone; nobody looks at what follows
			_ = conn.SetWriteDeadline(time.Now().Add(stalled))
			_, err = conn.Write(body)
		}
		a.say("ended")
		a.await()
	}

	// silent WHAT… opens connections, each with some bytes on it, and waits for all of them to be closed.
	attacks["silent"] = func(a *attacker) {
		var conns []net.Conn
		for _, bytes := range [][]byte{
			nil,
			frame(1, 1, 1, call("Ping", nil))[:3], // half a header
			frame(1, 1, 1, pad(nil, 100))[:50],    // half a request
			frame(1, 1, 1, make([]byte, 4<<20))[:1000],                    // a long one that does not come
			frame(1, 1, 2, call("SubmitLarge", nil)),                      // a submission that does not go on
			frame(1, 1, 1, call("Ping", nil)),                             // answered, and then nothing
			append(frame(1, 1, 1, call("Ping", nil)), 0, 0, 0, 1),         // and then half a header
			frame(2, 1, 1, call("Ping", nil)),                             // not a client's stream
			append(frame(3, 1, 1, nil), frame(1, 1, 1, nil)...),           // streams in the wrong order
			append(frame(1, 1, 1, call("Ping", nil)), make([]byte, 7)...), // half a header of nothing
			// A last piece that has content, and a piece that is too long: ttrpc would answer them and go on with the call.
			append(frame(1, 1, 2, call("SubmitLarge", nil)), frame(1, 3, 1, []byte("x"))...),
			append(frame(1, 1, 2, call("SubmitLarge", nil)), frame(1, 3, 0, make([]byte, 4<<20+1))[:50]...),
		} {
			conn, err := net.Dial("unix", os.Getenv("SLUICE_SOCKET"))
			a.need(err)
			_, err = conn.Write(bytes)
			a.need(err)
			conns = append(conns, conn)
		}
		a.say("%d", len(conns))
		for i, conn := range conns {
			_, _ = io.Copy(io.Discard, conn)
			a.say("closed %d", i)
		}
		a.await()
	}

	// uploads opens submissions in pieces on many connections and leaves them there.
	attacks["uploads"] = func(a *attacker) {
		sent := 0
		for range 200 {
			conn, err := net.Dial("unix", os.Getenv("SLUICE_SOCKET"))
			a.need(err)
			piece := (&msg.SubmitChunk{Data: make([]byte, 1<<20)}).AppendTo(nil)
			stream := uint32(1)
			n, _ := pour(conn, 100, func(i int) []byte {
				if i%5 == 0 {
					stream = uint32(2*i + 1)
					return frame(stream, 1, 2, call("SubmitLarge", nil))
				}
				return frame(stream, 3, 0, piece)
			})
			if sent += n; n == 0 {
				break
			}
			if n < 5 {
				break
			}
		}
		a.say("%d", sent)
		a.await()
	}
}

// userBytes are the bytes of large messages that a user may have in the controller.
const userBytes = 64 << 20

// number is the next line of an attacker, which is one.
func (p *process) number() int {
	p.t.Helper()
	l := p.line()
	n, err := strconv.Atoi(l)
	if err != nil {
		p.t.Fatalf("%q is not a number", l)
	}
	return n
}

// TestStreamsThatNobodyReads: one connection opens as many calls as it can and reads no answer. Few of them are taken in, whatever they
// call, their connection is closed in the end, and nothing is left of them.
func TestStreamsThatNobodyReads(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	cl := c.dial()
	held, err := cl.Submit(context.Background(), &msg.SubmitRequest{Script: []byte("#!/bin/sh\n"),
		Spec: &msg.JobSpec{Name: "held", NumTasks: 1, WorkDir: "/", Hold: true}})
	must(t, err)
	wait := string((&msg.WaitJobRequest{JobId: held.JobId}).AppendTo(nil))
	before := c.memory()
	var all []*process
	for _, what := range []struct{ method, payload string }{{"WaitJob", wait}, {"Jobs", ""}, {"Config", ""}, {"None", ""},
		{"SubmitLarge", ""}} {
		a := c.attack(mallory, "streams", what.method, what.payload, "6000", "100000")
		// 64 calls, and what the kernel keeps of a connection that is not read.
		if n := a.number(); n > 400 && what.method != "None" {
			t.Errorf("%s: %d calls of one connection were taken in", what.method, n)
		}
		all = append(all, a)
	}
	c.bystander()
	c.costs(before, 5*16<<20)
	for _, a := range all {
		a.line() // it has been closed
	}
	_ = cl.Close()
	c.unharmed(all...)
}

// TestSilentConnectionsEnd: who connects and does not go on, at any point of a request, is not waited for.
func TestSilentConnectionsEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.attack(mallory, "silent")
	for range a.number() {
		a.line()
	}
	c.unharmed(a)
}

// TestUploadsThatDoNotGoOn: large submissions that are begun and left are bounded by the user's bytes, and end.
func TestUploadsThatDoNotGoOn(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	before := c.memory()
	a := c.attack(mallory, "uploads")
	if n := a.number(); n > 200 {
		t.Errorf("%d pieces of a mebibyte were taken in", n)
	}
	c.bystander()
	c.costs(before, 4*userBytes)
	c.unharmed(a)
}
