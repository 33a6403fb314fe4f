package loop

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluice-hpc/sluice/ctld/state"
)

// told logs what has happened, in a goroutine of its own: a line costs the writer more than most commands, and a log whose reader stands
// still (the journal, a pipe) would stop it. When the log is far behind, batches are left out, and the number of their events is logged.
type told struct {
	log     *slog.Logger
	batches chan tellable
	queued  atomic.Int64 // events that wait; of a batch that is being logged all
	left    atomic.Int64 // events that were left out
}

type tellable struct {
	events []state.Event
	seq    uint64
}

// What waits is bounded by its events, each of which may hold a job's record of some kilobytes; maxBatches is more than the writer makes
// while a log only stutters.
const (
	maxTold    = 50_000
	maxBatches = 4096
)

// lastWords is how long an end waits for the log.
const lastWords = 2 * time.Second

func newTold(log *slog.Logger) *told {
	return &told{log: log, batches: make(chan tellable, maxBatches)}
}

// tell is for the writer. It does not block. Events of which nothing is said do not wait.
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

// says reports whether an event may make a line. Most do not: heartbeats, and what is shown of pending jobs.
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

// start logs until stop is called, and what is left then: stop waits for that as long as it is told. The writer has ended by then.
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
