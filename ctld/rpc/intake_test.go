package rpc

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-hpc/sluice/ctld/dispatch"
	"github.com/sluice-hpc/sluice/ctld/loop"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/grpc"
)

// committing is a Writer each of whose commits waits for one value of next.
type committing struct {
	Writer
	next chan error
	got  []int // steps of each commit that was begun
}

func (c *committing) Do(ctx context.Context, cmd reactor.Command) (any, error) {
	c.got = append(c.got, len(cmd.(reactor.StepReports).Steps))
	select {
	case err := <-c.next:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// newIntake is an intake of a stream to n1.
func newIntake(ctx context.Context) (*intake, *committing) {
	log := slog.New(slog.DiscardHandler)
	w := &committing{next: make(chan error)}
	v := state.New(stateConfig(), "cluster-1", 1)
	d := dispatch.New(func() *state.View { return v }, nil, nil, log)
	return &intake{s: &NodeServer{Writer: w, Log: log}, ctx: ctx, link: d.Open("n1", nil), name: "n1"}, w
}

// reports are those of n steps, of different jobs.
func reports(n int) (all []*pb.StepReport) {
	for i := range n {
		all = append(all, &pb.StepReport{Key: &pb.StepKey{JobId: uint32(i + 1)}})
	}
	return all
}

// TestReportsGather: all reports that arrive during a commit go into the next one. Reports for which the writer has no room are sent again.
// When none are left, nothing runs.
func TestReportsGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, w := newIntake(t.Context())
		put := func(n int) {
			t.Helper()
			if err := in.put(reports(n)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		for range 2 {
			put(1)
			put(2)
			put(3)
			w.next <- loop.ErrBusy
			w.next <- nil // of the first
			w.next <- nil // of both others
			synctest.Wait()
			if in.busy || in.steps != nil {
				t.Fatalf("busy %v with %d steps", in.busy, len(in.steps))
			}
		}
		if want := []int{1, 1, 5, 1, 1, 5}; len(w.got) != len(want) || w.got[2] != 5 || w.got[5] != 5 {
			t.Errorf("commits of %v steps, want %v", w.got, want)
		}
		in.end()
	})
}

// TestReportsWaitForRoom: a node that reports faster than the writer takes it in waits, and is not waited for when its stream ends.
func TestReportsWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		in, w := newIntake(ctx)
		put := make(chan error, 10)
		go func() {
			for range 4 {
				put <- in.put(reports(maxReports))
			}
		}()
		synctest.Wait()
		if len(put) != 2 { // one with the writer, one that waits
			t.Fatalf("%d messages were taken over", len(put))
		}
		w.next <- nil
		synctest.Wait()
		if len(put) != 3 {
			t.Fatalf("%d messages were taken over once one was committed", len(put))
		}
		cancel()
		in.end()
		synctest.Wait()
		if len(put) != 4 {
			t.Fatalf("%d have got an answer, want all", len(put))
		}
		for i := range 4 {
			if err := <-put; (err != nil) != (i == 3) {
				t.Errorf("message %d: %v", i+1, err)
			}
		}
		if err := in.put(reports(1)); err == nil {
			t.Error("taken over after the end")
		}
	})
}

// reporting is a stream on which a node has a number of messages to send, with one step in each.
type reporting struct {
	grpc.BidiStreamingServer[pb.NodeReport, pb.NodeOrders]
	left int
}

func (r *reporting) Recv() (*pb.NodeReport, error) {
	if r.left--; r.left < 0 {
		return nil, io.EOF
	}
	return &pb.NodeReport{Steps: reports(1)}, nil
}

// TestANodeIsNotHeldUp: reports are taken in as fast as the writer takes them, however many messages a node has. The clock of this test
// advances only when a goroutine waits for it.
func TestANodeIsNotHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages = 20000
		in, w := newIntake(t.Context())
		go func() {
			for {
				select {
				case w.next <- nil:
				case <-t.Context().Done():
					return
				}
			}
		}()
		began := time.Now()
		if err := in.s.receive(t.Context(), &reporting{left: messages}, in, in.link, in.name); err != io.EOF {
			t.Fatal(err)
		}
		in.end()
		if took := time.Since(began); took != 0 {
			t.Errorf("the node has waited for %v", took)
		}
		all := 0
		for _, n := range w.got {
			all += n
		}
		if all != messages {
			t.Errorf("%d steps came through, want %d", all, messages)
		}
	})
}
