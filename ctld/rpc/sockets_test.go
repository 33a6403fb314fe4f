package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/loop"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/logfile"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// A socket on which a controller answers is not taken over; one that is left over is.
func TestListen(t *testing.T) {
	s := serve(t)
	if l, err := Listen(s.socket); err == nil {
		_ = l.Close()
		t.Error("two controllers listen on one socket")
	}
	old := filepath.Join(t.TempDir(), "old")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: old, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	again, err := Listen(old)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}

// TestConnectionsTooManyAreForgotten: a user who had too many connections and closed them can connect again. A connection that this side
// closes ends its server too.
func TestConnectionsTooManyAreForgotten(t *testing.T) {
	t.Parallel()
	local := NewLocal(&Service{}, func(uint32) bool { return false }, slog.New(slog.DiscardHandler))
	listener, err := Listen(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	uid := uint32(os.Getuid())
	client, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); local.serveConn(t.Context(), conn, &Peer{UID: uid, crowded: true}) }()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("a connection that was closed for being one too many is served on")
	}
}

// endingWriter is in the middle of a command for as long as the caller waits, or has ended.
type endingWriter struct {
	*loop.Loop
	began chan struct{}
	err   error
}

func (w endingWriter) Do(ctx context.Context, _ reactor.Command) (any, error) {
	close(w.began)
	if w.err != nil {
		return nil, w.err
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestEndIsNoAnswer: calls in flight when the controller ends get no answer, because their outcome is unknown: the connection breaks, and
// commands ask the next controller.
func TestEndIsNoAnswer(t *testing.T) {
	for name, failed := range map[string]error{"told to": nil, "the writer failed": loop.ErrEnded} {
		l := loop.New(journal.NewMemory(), state.New(stateConfig(), "c", 1), time.Now, slog.New(slog.DiscardHandler))
		w := endingWriter{l, make(chan struct{}), failed}
		local := NewLocal(&Service{Writer: w, Users: NewUsers()}, func(uint32) bool { return true }, slog.New(slog.DiscardHandler))
		listener, err := Listen(filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		served := make(chan error)
		go func() { served <- local.Serve(ctx, listener) }()
		conn, err := net.Dial("unix", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		client := ttrpc.NewClient(conn)
		answer := make(chan error)
		go func() {
			_, err := pb.NewControllerAPIClient(client).CancelJobs(t.Context(), &pb.CancelJobsRequest{Ids: []string{"1"}})
			answer <- err
		}()
		<-w.began
		end()
		if err := <-answer; !errors.Is(err, ttrpc.ErrClosed) {
			t.Errorf("%s: answered with %v", name, err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		_ = client.Close()
	}
}

// TestDataOnACall: a peer that sends data on a unary call while it is being answered ends at most its own connection.
func TestDataOnACall(t *testing.T) {
	s := serve(t)
	root := s.as(0, 0)
	id := submit(t, root, request("#!/bin/sh\n"))
	for _, flags := range []byte{0, 1, 4, 5} { // data, the end of the stream, nothing, nothing more
		conn, err := net.Dial("unix", s.socket)
		if err != nil {
			t.Fatal(err)
		}
		payload, _ := proto.Marshal(&pb.WaitJobRequest{JobId: id})
		call, _ := proto.Marshal(&ttrpc.Request{Service: controllerAPI, Method: "WaitJob", Payload: payload})
		frame := func(kind, flags byte, body []byte) []byte {
			return append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(len(body))), 1),
				append([]byte{kind, flags}, body...)...)
		}
		// In one piece: the second frame may end the connection, and the third would find it closed.
		frames := slices.Concat(frame(1, 0, call), frame(3, flags, []byte("x")), frame(3, flags, nil))
		if _, err := conn.Write(frames); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, conn) // until the other side has seen all of it
		_ = conn.Close()
	}
	if err := calls["Ping"](root, 0); err != nil {
		t.Error(err)
	}
}

// TestPanicEndsItsCall and no other.
func TestPanicEndsItsCall(t *testing.T) {
	var log bytes.Buffer // one call after another writes to it
	s := serve(t, func(l *Local) {
		l.service.Figures = func(bool) map[string]float64 { panic("a fault") }
		l.log, l.said = slog.New(slog.NewTextHandler(&log, nil)), logfile.NewSeldom(time.Hour)
	})
	c := s.as(alice, alice)
	for range 30 { // one after another, and all of them with the same line
		if _, err := c.Stats(ctx, &pb.StatsRequest{}); status.Code(err) != codes.Internal {
			t.Error(err)
		}
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
		t.Errorf("30 broken calls make %d lines", n)
	}
	if err := calls["Ping"](c, 0); err != nil {
		t.Error(err)
	}
}

// TestOneUserDoesNotTakeAllPlaces: connections beyond those that are told why are closed at once.
func TestOneUserDoesNotTakeAllPlaces(t *testing.T) {
	s := serve(t)
	s.local.hold(nobody, maxUserConns+maxCrowded)
	if _, err := s.as(nobody, nobody).Ping(ctx, &pb.PingRequest{}); err == nil || status.Code(err) == codes.ResourceExhausted {
		t.Errorf("a connection far too many was answered: %v", err)
	}
	if n := s.local.hold(nobody, 0); n != maxUserConns+maxCrowded {
		t.Errorf("%d connections are counted", n)
	}
}

// TestSelectionsAtATime: a user who reads slowly cannot hold all places for reading accounting; other lists go on.
func TestSelectionsAtATime(t *testing.T) {
	s := serve(t)
	c, l := s.as(nobody, nobody), s.local.loadOf(nobody)
	for range maxUserSelections {
		l.selections <- struct{}{}
	}
	selected := make(chan error, 1)
	go func() { selected <- calls["Accounting"](c, 0) }()
	if err := calls["Jobs"](c, 0); err != nil {
		t.Errorf("a list of jobs: %v", err)
	}
	select {
	case err := <-selected:
		t.Fatalf("one selection more was sent, or refused: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	<-l.selections
	if err := <-selected; err != nil {
		t.Error(err)
	}
}

// TestCallsAtATime: beyond the limit on concurrent calls, a user's calls are refused, and lists wait for their turn.
func TestCallsAtATime(t *testing.T) {
	s := serve(t)
	c, l := s.as(nobody, nobody), s.local.loadOf(nobody)
	for range maxUserStreams {
		l.streams <- struct{}{}
	}
	listed := make(chan error, 1)
	go func() { listed <- calls["Jobs"](c, 0) }()
	if err := calls["Ping"](c, 0); err != nil {
		t.Errorf("a call beside the lists: %v", err)
	}
	select {
	case err := <-listed:
		t.Fatalf("one list more was sent, or refused: %v", err)
	default:
	}
	<-l.streams
	if err := <-listed; err != nil {
		t.Error(err)
	}
	l.calls.Add(maxUserCalls)
	if p, _ := problemOf(calls["Ping"](c, 0)); p.GetCode() != uint32(pb.CodeRateLimited) {
		t.Errorf("a call too many: %v", p)
	}
	l.calls.Add(-maxUserCalls)
	if err := calls["Ping"](c, 0); err != nil {
		t.Error(err)
	}
}

// TestLongLists: the entries of a request's lists are counted before anything is done with them.
func TestLongLists(t *testing.T) {
	s := serve(t)
	c := s.as(alice, alice)
	many := slices.Repeat([]string{"1"}, maxIDs+1)
	wide := make([]string, 100)
	for i := range wide {
		wide[i] = fmt.Sprintf("x%d_[0-65535]", i)
	}
	jobs := func(r *pb.JobsRequest) error {
		return drain(c.Jobs(ctx, r))(func(j pb.ControllerAPI_JobsClient) error { _, err := j.Recv(); return err })
	}
	_, cancel := c.CancelJobs(ctx, &pb.CancelJobsRequest{Ids: many})
	_, filter := c.CancelJobs(ctx, &pb.CancelJobsRequest{ByFilter: true, Filter: &pb.JobsRequest{Names: many}})
	_, hold := c.ControlJobs(ctx, &pb.ControlJobsRequest{Verb: "hold", Names: many[:maxNames+1]})
	_, update := c.UpdateJob(ctx, &pb.UpdateJobRequest{Ids: []string{"1"}, Set: slices.Repeat([]*pb.KeyValue{{Key: "Name"}}, maxSet+1)})
	for what, err := range map[string]error{"CancelJobs": cancel, "CancelJobs by filter": filter, "ControlJobs": hold, "UpdateJob": update,
		"Jobs": jobs(&pb.JobsRequest{Ids: many}), "Jobs on nodes": jobs(&pb.JobsRequest{Nodes: wide})} {
		if p, _ := problemOf(err); p.GetCode() != uint32(pb.CodeInvalidSpec) && p.GetCode() != uint32(pb.CodeInvalidNodeName) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestOperatorsHavePlacesOfTheirOwn: ordinary users, however many, leave room for root.
func TestOperatorsHavePlacesOfTheirOwn(t *testing.T) {
	var operator atomic.Bool
	local := NewLocal(&Service{}, func(uint32) bool { return operator.Load() }, slog.New(slog.DiscardHandler))
	local.slots[false], local.patience = make(chan struct{}, 2), time.Hour
	listener, err := Listen(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = local.Serve(ctx, listener) })
	defer wg.Wait()
	defer cancel()
	// connect says whether the connection has been closed by the other side.
	connect := func(patience time.Duration) (closed bool) {
		c, err := net.Dial("unix", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetReadDeadline(time.Now().Add(patience))
		_, err = c.Read(make([]byte, 1))
		return !errors.Is(err, os.ErrDeadlineExceeded)
	}
	for range cap(local.slots[false]) {
		if connect(50 * time.Millisecond) {
			t.Fatal("a connection within the bound was closed")
		}
	}
	if !connect(patience) {
		t.Error("a connection too many was taken")
	}
	operator.Store(true)
	if connect(50 * time.Millisecond) {
		t.Error("an operator was shut out by ordinary users")
	}
}

// TestReconfigureWithFaults says which, and that nothing has changed.
func TestReconfigureWithFaults(t *testing.T) {
	s := serve(t)
	s.local.service.Reload = func(bool, bool) (reactor.Command, []string, error) {
		return nil, nil, errors.New("slurm.conf:3: unknown key X")
	}
	_, err := s.as(0, 0).Reconfigure(t.Context(), &pb.ReconfigureRequest{})
	p, _ := problemOf(err)
	if p.GetCode() != uint32(pb.CodeConfig) || p.Phrase != "The configuration has faults" ||
		!strings.Contains(p.Error(), "stays in effect:\nslurm.conf:3: unknown key X") {
		t.Errorf("%v: %v", err, p)
	}
}
