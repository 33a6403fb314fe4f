// Package loop is the single writer: it takes commands, lets the reactor turn them into events, commits what they changed with
// one fsync, publishes the new View, and only then answers. So nothing is acknowledged or sent before it is durable, and readers
// never wait.
//
// While a commit is being written the next commands gather; they become the next batch. Group commit by this loop and not by
// bbolt's Batch, which waits 10 ms and may run a function twice.
//
// A commit that fails ends the process: what is on disk is then found out by reading it, there is no code that takes a state
// back. The exceptions are a full disk, and a batch that is more than the journal takes, which it reports with nothing changed: then the
// commands of the batch are tried one by one, so that new submissions are refused while ends of running jobs are recorded from the
// journal's reserve, and nobody's command takes others with it.
package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluice-hpc/sluice/conf/failpoint"
	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Mailbox and batch sizes: a full mailbox refuses (RESOURCE_EXHAUSTED) rather than grow.
const (
	mailboxSize = 16384
	batchSize   = 1024
)

// ErrBusy: the mailbox is full.
var ErrBusy = errors.New("the controller has too many requests waiting")

// ErrEnded: the writer has ended, and nobody knows whether the command was carried out.
var ErrEnded = errors.New("the controller is ending")

// Loop is the writer. Create with New, run with Run.
type Loop struct {
	store     journal.Store
	clock     func() time.Time
	log       *slog.Logger
	box       chan request
	view      atomic.Pointer[state.View]
	observers []func(state.Change)
	done      chan struct{}
	stats     Stats
	unstored  func() map[uint32]struct{}
}

// Committer is a command that concerns more than the state. The writer calls Committed once the command is carried out, not refused,
// and its View published, before the answer and the observers. It must not block.
type Committer interface{ Committed() }

// Stats are counters since the start.
type Stats struct {
	Commands, Batches, Commits, Events atomic.Uint64
	CommitNS                           atomic.Int64 // time spent in journal commits
}

type request struct {
	cmd   reactor.Command
	reply chan any
}

// New makes a loop on a loaded view. Observers are called by the writer after each publication, in order; they must not block.
func New(store journal.Store, v *state.View, clock func() time.Time, log *slog.Logger, observers ...func(state.Change)) *Loop {
	l := &Loop{store: store, clock: clock, log: log, box: make(chan request, mailboxSize), done: make(chan struct{}), observers: observers}
	l.view.Store(v)
	return l
}

// View is the last published state.
func (l *Loop) View() *state.View { return l.view.Load() }

// Stats are the loop's counters.
func (l *Loop) Stats() *Stats { return &l.stats }

// Observe adds an observer; only before Run.
func (l *Loop) Observe(f func(state.Change)) { l.observers = append(l.observers, f) }

// Do hands a command to the writer and waits until what it changed is durable. The reply is the command's own; a *pb.Problem is
// returned as error.
func (l *Loop) Do(ctx context.Context, cmd reactor.Command) (any, error) {
	r := request{cmd: cmd, reply: make(chan any, 1)}
	select {
	case l.box <- r:
	default:
		return nil, ErrBusy
	}
	select {
	case out := <-r.reply:
		if p, ok := out.(*pb.Problem); ok {
			return nil, p
		}
		return out, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.done:
		return nil, ErrEnded
	}
}

// Run writes until ctx ends or a commit fails.
func (l *Loop) Run(ctx context.Context) error {
	defer close(l.done)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	ticks := 0
	batch := make([]request, 0, batchSize)
	for {
		batch = batch[:0]
		select {
		case <-ctx.Done():
			return nil
		case r := <-l.box:
			batch = append(batch, r)
		case <-tick.C:
			ticks++
			batch = append(batch, request{cmd: l.tick(ticks), reply: make(chan any, 1)})
		}
		batch = l.drain(batch)
		if err := l.process(batch); err != nil {
			return err
		}
	}
}

// Unstored says, before Run, how to learn which jobs accounting has not stored as they are now.
func (l *Loop) Unstored(f func() map[uint32]struct{}) { l.unstored = f }

func (l *Loop) tick(n int) reactor.Tick {
	t := reactor.Tick{Purge: n%2 == 0}
	if t.Purge && l.unstored != nil {
		t.Unstored = l.unstored()
	}
	return t
}

func (l *Loop) drain(batch []request) []request {
	for len(batch) < batchSize {
		select {
		case r := <-l.box:
			batch = append(batch, r)
		default:
			return batch
		}
	}
	return batch
}

// Turn takes one batch of commands through on the caller's goroutine and returns their replies: what Run does with what waits in
// the mailbox. For simulations, which have no goroutines; never while Run runs. An error means that Run would have ended.
func (l *Loop) Turn(cmds ...reactor.Command) ([]any, error) {
	batch := make([]request, len(cmds))
	for i, c := range cmds {
		batch[i] = request{cmd: c, reply: make(chan any, 1)}
	}
	if err := l.process(batch); err != nil {
		return nil, err
	}
	replies := make([]any, len(batch))
	for i, r := range batch {
		replies[i] = <-r.reply
	}
	return replies, nil
}

// process is one turn: events, commit, publish, replies.
func (l *Loop) process(batch []request) error {
	err := l.turn(batch)
	p := refusal(err)
	if p == nil {
		return err
	}
	l.View().Reindex() // of what the refused commands had put in
	if len(batch) > 1 {
		for i := range batch {
			if err := l.process(batch[i : i+1]); err != nil {
				return err
			}
		}
		return nil
	}
	l.log.Error("cannot write the state: a command is refused", "command", fmt.Sprintf("%T", batch[0].cmd), "err", err)
	batch[0].reply <- p
	return nil
}

// refusal is the answer to a command whose commit failed with nothing changed; nil after any other error, and after none.
func refusal(err error) *pb.Problem {
	switch {
	case errors.Is(err, journal.ErrNoSpace):
		return pb.NewProblem(pb.CodeNoSpace, "the disk of StateSaveLocation is full; running jobs still end").WithHint("free some space there; nothing was changed by this request")
	case errors.Is(err, journal.ErrBatch):
		return pb.NewProblem(pb.CodeInvalidSpec, "this request alone would change more than one commit can hold; nothing was changed").WithHint("ask for less at a time")
	}
	return nil
}

func (l *Loop) turn(batch []request) error {
	base := l.View()
	tx := state.Begin(base, max(base.NowNS, l.clock().UnixNano()))
	replies := make([]any, len(batch))
	for i, r := range batch {
		from := len(tx.Events())
		replies[i] = r.cmd.Handle(tx)
		reactor.Follow(tx, from)
	}
	// Only a command by itself may use the journal's reserve: in company, what need not be written would use it up as well.
	if err := l.commit(tx, tx.Must() && len(batch) == 1); err != nil {
		return err
	}
	v, change := tx.Freeze()
	l.view.Store(v)
	for i, r := range batch {
		if c, ok := r.cmd.(Committer); ok {
			if _, refused := replies[i].(*pb.Problem); !refused {
				c.Committed()
			}
		}
		r.reply <- replies[i]
	}
	for _, f := range l.observers {
		f(change)
	}
	l.account(tx, len(batch))
	return nil
}

func (l *Loop) commit(tx *state.Tx, must bool) error {
	if !tx.Durable() {
		return nil
	}
	rows, err := tx.Rows()
	if err != nil {
		return err
	}
	start := time.Now()
	failpoint.Hit("commit.before")
	if err := l.store.Commit(journal.Batch{Seq: tx.Seq, Rows: rows, Must: must}); err != nil {
		return fmt.Errorf("cannot commit batch %d: %w", tx.Seq, err)
	}
	failpoint.Hit("commit.after")
	l.stats.Commits.Add(1)
	l.stats.CommitNS.Add(int64(time.Since(start)))
	return nil
}

func (l *Loop) account(tx *state.Tx, commands int) {
	l.stats.Batches.Add(1)
	l.stats.Commands.Add(uint64(commands))
	l.stats.Events.Add(uint64(len(tx.Events())))
	for _, e := range tx.Events() {
		if attrs := e.Attrs(); attrs != nil {
			l.log.Info(eventName(e), append(attrs, "seq", tx.Seq)...)
		}
	}
}

// eventName is the type's name: "JobStarted".
func eventName(e state.Event) string {
	s := fmt.Sprintf("%T", e)
	return s[len("state."):]
}
