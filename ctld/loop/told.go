package loop

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluice-hpc/sluice/ctld/state"
)

// told logs events in a goroutine of its own: a line costs the writer more than most commands, and a stalled log reader (the journal, a
// pipe) would stop the writer. When the log is far behind, batches are dropped and the number of dropped events is logged.
type told struct {
	log     *slog.Logger
	batches chan tellable
	queued  atomic.Int64 // events that wait, including the whole batch being logged
	left    atomic.Int64 // events that were dropped
}

type tellable struct {
	events []state.Event
	seq    uint64
}

// The number of waiting events bounds memory: each may hold a job's record of some kilobytes. The writer makes fewer than maxBatches while
// a log only stutters.
const (
	maxTold    = 50_000
	maxBatches = 4096
)

// lastWords is the time that the log gets at shutdown.
const lastWords = 2 * time.Second

func newTold(log *slog.Logger) *told {
	return &told{log: log, batches: make(chan tellable, maxBatches)}
}

// tell queues events for the log. It is for the writer and does not block. Events that make no line are not queued.
func (t *told) tell(events []state.Event, seq uint64) {
	var said []state.Event
	for _, e := range events {
		if t.says(e) {
			said = append(said, e)
		}
	}
	n := int64(len(said))
	if n == 0 {
		return
	}
	if t.queued.Add(n) <= maxTold {
		select {
		case t.batches <- tellable{said, seq}:
			return
		default:
		}
	}
	t.queued.Add(-n)
	t.left.Add(n)
}

// says reports whether an event may make a line. Most do not: heartbeats, and fields of pending jobs that are only displayed.
func (t *told) says(e state.Event) bool {
	switch e := e.(type) {
	case state.NodeChanged:
		if e.What == "" {
			return false
		}
	case state.JobShown, state.ArraySplit, state.AttemptsStored:
		return false
	}
	return t.log.Enabled(context.Background(), state.EventLevel(e))
}

// start logs until stop is called. stop then logs the remaining events, for at most the given time. The writer must have ended.
func (t *told) start() (stop func(patience time.Duration)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b := range t.batches {
			if n := t.left.Swap(0); n > 0 {
				t.log.Warn("the log is too slow: events were dropped", "events", n)
			}
			for _, e := range b.events {
				t.say(e, b.seq)
			}
			t.queued.Add(-int64(len(b.events)))
		}
	}()
	return func(patience time.Duration) {
		close(t.batches)
		late := time.NewTimer(patience)
		defer late.Stop()
		select {
		case <-done:
		case <-late.C:
		}
	}
}

func (t *told) say(e state.Event, seq uint64) {
	level := state.EventLevel(e)
	if attrs := e.Attrs(); attrs != nil && t.log.Enabled(context.Background(), level) {
		t.log.Log(context.Background(), level, eventName(e), append(attrs, "seq", seq)...)
	}
}

// eventName is the type's name: "JobStarted".
func eventName(e state.Event) string {
	s := fmt.Sprintf("%T", e)
	return s[len("state."):]
}
