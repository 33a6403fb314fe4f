package rpc

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"github.com/sluice-hpc/sluice/ctld/frames"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/ctld/turns"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// TestRefusalsAreAnsweredOnce: a call refused for lack of room has one answer, which names the limit, for any request and after any number
// of calls. The connection then carries the next call.
func TestRefusalsAreAnsweredOnce(t *testing.T) {
	s := serve(t)
	conn := s.connect(nobody)
	defer conn.Close()
	l := s.local.loadOf(nobody)
	stream := uint32(1)
	call := func(method string, message proto.Message, pieces int) (code codes.Code, text string) {
		t.Helper()
		flags, payload := byte(frames.LastMessage), []byte(nil)
		if message != nil {
			payload, _ = proto.Marshal(message)
		}
		if pieces > 0 {
			flags = frames.MoreMessages
		}
		body, _ := proto.Marshal(&ttrpc.Request{Service: controllerAPI, Method: method, Payload: payload})
		sent := frame(stream, frames.KindRequest, flags, len(body))
		copy(sent[frames.HeaderBytes:], body)
		for range pieces {
			sent = append(sent, frame(stream, frames.KindMessage, 0, 0)...)
		}
		if pieces > 0 {
			sent = append(sent, frame(stream, frames.KindMessage, frames.LastMessage|frames.NoMessage, 0)...)
		}
		if _, err := conn.Write(sent); err != nil {
			t.Fatal(err)
		}
		for {
			head := make([]byte, frames.HeaderBytes)
			if _, err := io.ReadFull(conn, head); err != nil {
				t.Fatal(err)
			}
			body := make([]byte, binary.BigEndian.Uint32(head))
			if _, err := io.ReadFull(conn, body); err != nil {
				t.Fatal(err)
			}
			if of := binary.BigEndian.Uint32(head[4:]); of != stream {
				t.Fatalf("%s, stream %d: a second answer on stream %d: %q", method, stream, of, body)
			}
			if head[8] != frames.KindAnswer {
				if head[9]&frames.LastMessage == 0 {
					continue
				}
				body = nil
			}
			stream += 2
			var r ttrpc.Response
			if err := proto.Unmarshal(body, &r); err != nil {
				t.Fatal(err)
			}
			return codes.Code(r.Status.GetCode()), r.Status.GetMessage()
		}
	}
	for _, of := range []struct {
		method  string
		message proto.Message
		pieces  int
	}{{"Ping", &pb.PingRequest{}, 0}, {"WaitJob", &pb.WaitJobRequest{JobId: 1}, 0}, {"Jobs", &pb.JobsRequest{}, 0},
		{"Submit", request("#!/bin/sh\n"), 0}, {"SubmitLarge", nil, 3}} {
		l.calls.Add(maxUserCalls)
		for range 100 {
			if code, text := call(of.method, of.message, of.pieces); code != codes.ResourceExhausted ||
				!strings.Contains(text, fmt.Sprint(maxUserCalls)) {
				t.Fatalf("%s: %v %s", of.method, code, text)
			}
		}
		l.calls.Add(-maxUserCalls)
		if code, text := call("Ping", &pb.PingRequest{}, 0); code != codes.OK {
			t.Fatalf("a call after refused ones: %v %s", code, text)
		}
	}
}

// TestSubmissionsTakeTurns: a submission is worked on in its user's turn, and gives it up for the writer.
func TestSubmissionsTakeTurns(t *testing.T) {
	s := serve(t)
	c := s.as(alice, alice)
	var held []*turns.Turn
	for range runtime.GOMAXPROCS(0) { // all places
		held = append(held, s.local.gates.Call(nobody))
		if err := held[len(held)-1].Take(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { _, err := c.Submit(ctx, request("#!/bin/sh\n")); done <- err }()
	for s.local.loadOf(alice).calls.Load() == 0 { // until it has been read
		runtime.Gosched()
	}
	for range 50 { // an operator waits for no turn
		if _, err := s.as(0, 0).Ping(ctx, &pb.PingRequest{}); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			t.Fatalf("a submission did not wait for its turn: %v", err)
		default:
		}
	}
	held[0].Give()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, h := range held {
		h.Give()
	}
}

// TestSlowScriptsOfOneUser: eight submissions that job_submit.lua is slow with leave a place to the one of another user.
func TestSlowScriptsOfOneUser(t *testing.T) {
	s := serve(t)
	begun, end := make(chan bool, 8), make(chan bool)
	s.local.service.SubmitScript = func(ctx context.Context, _ *state.View, r *pb.SubmitRequest) ([]string, *pb.Problem) {
		leave, err := turns.Script(ctx)
		if err != nil {
			return nil, pb.NewProblem(pb.CodeRateLimited, "%v", err)
		}
		defer leave()
		if r.Spec.Uid == alice {
			begun <- true
			<-end
		}
		return nil, nil
	}
	done := make(chan error, 8)
	for range 8 {
		go func() { _, err := s.as(alice, alice).Submit(ctx, request("#!/bin/sh\n")); done <- err }()
	}
	for range turns.ScriptPlaces - 1 {
		<-begun
	}
	for s.local.loadOf(alice).calls.Load() < 8 { // until the others have come
		select {
		case err := <-done:
			t.Fatal(err)
		default:
		}
	}
	if _, err := s.as(nobody, nobody).Submit(ctx, request("#!/bin/sh\n")); err != nil || len(begun) > 0 {
		t.Errorf("another user's submission: %v; %d more of the first", err, len(begun))
	}
	close(end)
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestScriptsAreBoundedByTheSite: max_script_size of SchedulerParameters.
func TestScriptsAreBoundedByTheSite(t *testing.T) {
	s := serve(t)
	cfg := stateConfig()
	cfg.Settings.MaxScriptBytes = 100
	if _, err := s.loop.Do(ctx, reactor.Reconfigure{Config: cfg}); err != nil {
		t.Fatal(err)
	}
	c := s.as(alice, alice)
	for n, refused := range map[int]bool{100: false, 101: true} {
		_, err := c.Submit(ctx, request("#!"+strings.Repeat("x", n-2)))
		p, _ := problemOf(err)
		if (p != nil) != refused || refused && !strings.Contains(p.Error(), "101 bytes, the limit is 100 (max_script_size") {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func frame(stream uint32, kind, flags byte, length int) []byte {
	b := make([]byte, frames.HeaderBytes+length)
	binary.BigEndian.PutUint32(b, uint32(length))
	binary.BigEndian.PutUint32(b[4:], stream)
	b[8], b[9] = kind, flags
	return b
}

// silentStream is a call whose messages are empty.
type silentStream struct{ ttrpc.StreamServer }

func (silentStream) RecvMsg(any) error { return nil }

// TestAcceptedStaysAccepted: a submission that was collected and accepted is answered so, however many answers of its user wait.
func TestAcceptedStaysAccepted(t *testing.T) {
	s := serve(t)
	far, near := net.Pipe()
	defer far.Close()
	conn := frames.NewConn(near, nil)
	conn.Wait = time.Millisecond
	m := s.local.guard("SubmitLarge", method{collects: true, first: newOf[pb.SubmitChunk],
		handle: func(context.Context, proto.Message, ttrpc.StreamServer) (any, error) { return "accepted", nil }})
	peer := &Peer{UID: alice, GID: alice, owner: alice, conn: conn, answers: make(chan struct{})}
	out, err := m.Handler(context.WithValue(t.Context(), peerKey{}, peer), silentStream{})
	if out != "accepted" || err != nil {
		t.Errorf("%v, %v", out, err)
	}
}

// TestLargeSubmissionsOfOneUser: more large submissions at once than the budget holds all come through, one after another.
func TestLargeSubmissionsOfOneUser(t *testing.T) {
	s := serve(t)
	script := "#!/bin/sh\n" + strings.Repeat("#\n", 1<<20)
	done := make(chan struct{})
	const all = frames.UserReading/(2<<20) + 8
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
