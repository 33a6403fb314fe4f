package rpc

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/containerd/log"
	"github.com/containerd/ttrpc"
	"github.com/sirupsen/logrus"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// working takes the places of a call whose answer is being made: one of its connection, one of its user. They are returned when ttrpc has
// taken the answer to write it, one answer after another: it then cancels the call's context.
//
// A call whose deadline passes meanwhile keeps its places until its connection ends, because nothing tells when ttrpc has finished with it.
// That only affects clients that do not read their answers.
func (s *Local) working(ctx context.Context, p *Peer) error {
	if p.Operator {
		return nil
	}
	l := s.loadOf(p.owner)
	late := time.NewTimer(p.conn.Wait)
	defer late.Stop()
	taken := func(places chan struct{}) error {
		select {
		case places <- struct{}{}:
			return nil
		default:
		}
		select {
		case places <- struct{}{}:
			return nil
		case <-late.C:
			return problem(pb.NewProblem(pb.CodeRateLimited, "%d of your calls are already being answered",
				cap(places)).WithHint("read the answers, and wait until some of your commands have finished"))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := taken(p.answers); err != nil {
		return err
	}
	if err := taken(l.answers); err != nil {
		<-p.answers
		return err
	}
	context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			<-p.conn.Ended()
		}
		<-p.answers
		<-l.answers
	})
	return nil
}

// aliveKey is the metadata key by which a command requests a sign of life for its call, every so many milliseconds. A stopped controller
// sends none, and the command gives up after MessageTimeout.
const aliveKey = "alive"

// Bounds of the requested interval.
const (
	minAlive = time.Second
	maxAlive = time.Minute
)

// aliveEvery returns the interval that a request asks for; 0: none.
func aliveEvery(ctx context.Context) time.Duration {
	md, ok := ttrpc.GetMetadata(ctx)
	if !ok {
		return 0
	}
	words, _ := md.Get(aliveKey)
	if len(words) != 1 {
		return 0
	}
	ms, err := strconv.ParseUint(words[0], 10, 32)
	if err != nil || ms == 0 {
		return 0
	}
	return min(max(time.Duration(ms)*time.Millisecond, minAlive), maxAlive)
}

// keepAlive sends an empty frame at that interval until the call is answered.
func keepAlive(ctx context.Context, out ttrpc.StreamServer) (stop func()) {
	every := aliveEvery(ctx)
	if every == 0 {
		return func() {}
	}
	var mu sync.Mutex // prevents a message after the answer
	over := false
	var t *time.Timer
	mu.Lock()
	t = time.AfterFunc(every, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over && out.SendMsg((*pb.PingReply)(nil)) == nil { // a nil message is an empty frame
			t.Reset(every)
		}
	})
	mu.Unlock()
	return func() {
		t.Stop()
		mu.Lock()
		defer mu.Unlock()
		over = true
		t.Stop()
	}
}

// silent discards ttrpc's log. It has a line for each connection that ends during a write, which any user can cause at any rate.
var silent = &log.Entry{Logger: &logrus.Logger{Out: io.Discard, Formatter: &logrus.TextFormatter{}, Level: logrus.PanicLevel}}

func quiet(ctx context.Context) context.Context { return log.WithLogger(ctx, silent) }
