package loop

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/sluice-hpc/sluice/ctld/state"
)

// told logs what has happened, in a goroutine of its own: a line costs the writer more than most commands, and a log whose reader stands
// still (the journal, a pipe) would stop it. When the log is far behind, batches are left out, and their number is logged.
type told struct {
	log     *slog.Logger
	batches chan tellable
	left    atomic.Int64 // events that were left out
}

type tellable struct {
	events []state.Event
	seq    uint64
}

// maxTold is how many batches may wait to be logged.
const maxTold = 4096

func newTold(log *slog.Logger) *told { return &told{log: log, batches: make(chan tellable, maxTold)} }

// tell is for the writer. It does not block.
func (t *told) tell(events []state.Event, seq uint64) {
	if len(events) == 0 {
		return
	}
	select {
	case t.batches <- tellable{events, seq}:
	default:
		t.left.Add(int64(len(events)))
	}
}

// start logs until stop is called, and what is left then. The writer has ended by then.
func (t *told) start() (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b := range t.batches {
			if n := t.left.Swap(0); n > 0 {
				t.log.Warn("the log is too slow: events are left out", "events", n)
			}
			for _, e := range b.events {
				t.say(e, b.seq)
			}
		}
	}()
	return func() { close(t.batches); <-done }
}

func (t *told) say(e state.Event, seq uint64) {
	level := state.EventLevel(e)
	if !t.log.Enabled(context.Background(), level) {
		return
	}
	if attrs := e.Attrs(); attrs != nil {
		t.log.Log(context.Background(), level, eventName(e), append(attrs, "seq", seq)...)
	}
}

// eventName is the type's name: "JobStarted".
func eventName(e state.Event) string {
	s := fmt.Sprintf("%T", e)
	return s[len("state."):]
}
