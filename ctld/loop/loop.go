// Package loop is the single writer. It takes commands, lets the reactor turn them into events, commits their changes with one fsync,
// publishes the new View, and only then answers. So nothing is acknowledged or sent before it is durable, and readers never wait.
//
// Commands that arrive during a commit form the next batch. bbolt's own Batch is not used: it waits 10 ms and may run a function twice.
//
// Senders take turns by the cost of their commands (mailbox.go). Filters and names are resolved in the View before a command is queued; the
// writer gets ids.
//
// A failed commit ends the process: no code rolls a state back, and only reading the disk shows its contents. The exceptions are a full
// disk and an oversized batch, which the journal refuses with nothing changed. From then on every command is a batch by itself, until a
// commit succeeds without the journal's reserve. So new submissions are refused while ends of running jobs are recorded from the reserve,
// and one user's command does not fail another's.
package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/failpoint"
	"github.com/sluice-hpc/sluice/internal/logfile"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// A full mailbox refuses (RESOURCE_EXHAUSTED) rather than grow. A batch ends with the command that takes it to batchUnits, so the next
// sender waits for at most that plus one slice.
const (
	mailboxSize = 16384
	batchSize   = 1024
	batchUnits  = 4 * reactor.SliceUnits
)

// ErrBusy means that the mailbox is full.
var ErrBusy = fmt.Errorf("too many requests wait for the controller's writer, the limit is %d", laneSize)

// ErrEnded means that the writer has ended; the command may or may not have been carried out.
var ErrEnded = errors.New("the controller is shutting down")

// Loop is the writer. Create with New, run with Run.
type Loop struct {
	// Committed is called by the writer with the duration of each journal commit; nil is allowed. Set before Run.
	Committed func(took time.Duration)

	store     journal.Store
	clock     func() time.Time
	log       *slog.Logger
	told      *told
	box       *mailbox
	view      atomic.Pointer[state.View]
	observers []func(state.Change)
	done      chan struct{}
	stats     Stats
	said      *logfile.Seldom
	unstored  func() map[uint32]struct{}
	boot      string
	both      func() (wall time.Time, bootNS int64)
	alone     bool // each command is a batch by itself, because a commit was refused
	following bool // a reactor.FollowUp is queued
}

// Committer is a command with an effect outside the state. The writer calls Committed once the command was carried out, not refused, and
// its View is published, before the answer and the observers. It must not block.
type Committer interface{ Committed() }

// Stats are counters since the start.
type Stats struct {
	Commands, Batches, Commits, Events atomic.Uint64
	CommitNS                           atomic.Int64 // time spent in journal commits
}

type request struct {
	cmd   reactor.Command
	reply chan any
	from  sender
	begun bool // some of its slices have been carried out
}

// New makes a loop on a loaded view. The writer calls the observers after each publication, in order; they must not block.
func New(store journal.Store, v *state.View, clock func() time.Time, log *slog.Logger, observers ...func(state.Change)) *Loop {
	l := &Loop{store: store, clock: clock, log: log, box: newMailbox(), said: logfile.NewSeldom(time.Minute),
		done: make(chan struct{}), observers: observers,
		told: newTold(log)}
	l.view.Store(v)
	return l
}

// View returns the last published state.
func (l *Loop) View() *state.View { return l.view.Load() }

// Stats returns the loop's counters.
func (l *Loop) Stats() *Stats { return &l.stats }

// Observe adds an observer; only before Run.
func (l *Loop) Observe(f func(state.Change)) { l.observers = append(l.observers, f) }

// Do hands a command to the writer and waits until its changes are durable. The reply is the command's own; a *pb.Problem is returned as an
// error. The context names the sender (For).
func (l *Loop) Do(ctx context.Context, cmd reactor.Command) (any, error) {
	r := request{cmd: cmd, reply: make(chan any, 1)}
	if !l.box.put(senderOf(ctx), r) {
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
	stop := l.told.start()
	defer stop(lastWords)
	defer close(l.done) // before waiting for the log: no caller should wait for a writer that has ended
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	ticks := 0
	var batch []request
	for {
		batch = batch[:0]
		select {
		case <-ctx.Done():
			return nil
		case <-l.box.wake:
			r, ok := l.box.next()
			if !ok {
				continue
			}
			batch = append(batch, r)
		case <-tick.C:
			ticks++
			batch = append(batch, request{cmd: l.tick(ticks), reply: make(chan any, 1)})
		}
		rest, err := l.process(batch, l.box.next)
		if err != nil {
			return err
		}
		for i := len(rest) - 1; i >= 0; i-- { // each goes before its sender's other requests
			if _, ok := rest[i].cmd.(reactor.FollowUp); ok { // but this one behind the planner's
				l.following = l.box.put(rest[i].from, rest[i])
			} else {
				l.box.back(rest[i])
			}
		}
		if l.box.waiting() > 0 {
			l.box.ring()
		}
	}
}

// KeepTime sets the boot id of the machine and a function that reads its clock together with CLOCK_BOOTTIME, so that the writer notices
// when somebody sets the clock. Without it the writer trusts the clock. Only before Run.
func (l *Loop) KeepTime(boot string, both func() (wall time.Time, bootNS int64)) {
	l.boot, l.both = boot, both
}

// begin opens the transaction of a batch at the current time.
func (l *Loop) begin() (tx *state.Tx) {
	if l.both == nil || l.boot == "" {
		tx = state.Begin(l.View(), l.clock().UnixNano())
	} else {
		wall, bootNS := l.both()
		tx = state.Begin(l.View(), wall.UnixNano())
		reactor.KeepTime(tx, l.boot, bootNS)
	}
	tx.Room = l.store.Room()
	return tx
}

// Unstored sets the function that returns the jobs whose current record accounting has not stored. Only before Run.
func (l *Loop) Unstored(f func() map[uint32]struct{}) { l.unstored = f }

func (l *Loop) tick(n int) reactor.Tick {
	t := reactor.Tick{Purge: n%2 == 0}
	if t.Purge && l.unstored != nil {
		t.Unstored = l.unstored()
	}
	return t
}

// Turn runs one batch of commands on the caller's goroutine and returns their replies, as Run does for the mailbox. For simulations, which
// have no goroutines; never while Run runs. An error means that Run would have ended.
func (l *Loop) Turn(cmds ...reactor.Command) ([]any, error) {
	batch := make([]request, len(cmds))
	for i, c := range cmds {
		batch[i] = request{cmd: c, reply: make(chan any, 1)}
	}
	for rest := batch; len(rest) > 0; {
		var err error
		if rest, err = l.process(rest, nothing); err != nil {
			return nil, err
		}
	}
	replies := make([]any, len(batch))
	for i, r := range batch {
		replies[i] = <-r.reply
	}
	return replies, nil
}

// process is one turn: events, commit, publish, replies. It takes the batch, then more requests while there is time. It returns the rest of
// unfinished commands, and commands that need a batch of their own.
func (l *Loop) process(batch []request, more func() (request, bool)) (rest []request, err error) {
	if l.alone {
		rest, err = l.single(batch[0])
		return append(rest, batch[1:]...), err
	}
	batch, rest, err = l.turn(batch, more)
	if refusal(err, false) == nil {
		return rest, err
	}
	if l.alone = true; len(batch) > 1 {
		l.View().Reindex()
		rest, err = l.single(batch[0])
		return append(rest, batch[1:]...), err
	}
	l.refuse(batch[0], err)
	return nil, nil
}

func (l *Loop) single(r request) (rest []request, err error) {
	_, rest, err = l.turn([]request{r}, nothing)
	if refusal(err, false) == nil {
		return rest, err
	}
	l.refuse(r, err)
	return nil, nil
}

// refuse answers a command whose commit was refused. The cost of rebuilding the index is charged to its sender.
func (l *Loop) refuse(r request, err error) {
	v := l.View()
	l.ended(r)
	v.Reindex() // drops the refused command's entries
	l.box.charge(r.from, v.Jobs.Len())
	command := fmt.Sprintf("%T", r.cmd)
	if due, left := l.said.Says(command); due { // a full disk refuses every command
		l.log.Error("cannot write the state: request refused", "command", command, "err", err, "left_out", left)
	}
	r.reply <- refusal(err, r.begun)
}

// nothing adds no request to a batch.
func nothing() (r request, ok bool) { return r, false }

// refusal returns the answer to a command whose commit failed with nothing changed; nil after any other error, and after none. begun:
// earlier slices of the command were carried out.
func refusal(err error, begun bool) *pb.Problem {
	done := "this request changed nothing"
	if begun {
		done = "part of this request was carried out before"
	}
	switch {
	case errors.Is(err, journal.ErrNoSpace):
		return pb.NewProblem(pb.CodeNoSpace,
			"the disk of StateSaveLocation is full; running jobs still end").WithHint("free space there; %s", done)
	case errors.Is(err, journal.ErrBatch):
		return pb.NewProblem(pb.CodeInvalidSpec,
			"this request would change more than one commit can hold; %s", done).WithHint("split it into smaller requests")
	}
	return nil
}

func (l *Loop) turn(batch []request, more func() (request, bool)) (all, rest []request, err error) {
	tx := l.begin()
	var replies []any
	for i := 0; ; i++ {
		if i == len(batch) {
			if i >= batchSize || tx.Spent() >= batchUnits {
				break
			}
			r, ok := more()
			if !ok {
				break
			}
			batch = append(batch, r)
		}
		from, before := len(tx.Events()), tx.Spent()
		replies = append(replies, batch[i].cmd.Handle(tx))
		reactor.Follow(tx, from)
		l.box.charge(batch[i].from, tx.Spent()-before)
	}
	// Only a command by itself may use the journal's reserve: other commands in the batch would use it up for changes that can wait.
	if err := l.commit(tx, tx.Must() && len(batch) == 1); err != nil {
		return batch, nil, err
	}
	v, change := tx.Freeze()
	l.view.Store(v)
	for i, r := range batch {
		if m, ok := replies[i].(reactor.More); ok {
			r.cmd, r.begun = m.Next, true
			rest = append(rest, r)
			continue
		}
		l.ended(r)
		if c, ok := r.cmd.(Committer); ok {
			if _, refused := replies[i].(*pb.Problem); !refused {
				c.Committed()
			}
		}
		r.reply <- replies[i]
	}
	done := len(batch) - len(rest)
	if !l.following && !l.alone && v.Owing() {
		l.following = true
		rest = append(rest, request{cmd: reactor.FollowUp{}, reply: make(chan any, 1)})
	}
	for _, f := range l.observers {
		f(change)
	}
	l.account(tx, done)
	return batch, rest, nil
}

// ended notes that a command is finished.
func (l *Loop) ended(r request) {
	if _, ok := r.cmd.(reactor.FollowUp); ok {
		l.following = false
	}
}

func (l *Loop) commit(tx *state.Tx, must bool) error {
	if !tx.Durable() && !tx.ClockUnsaved() {
		return nil
	}
	rows, err := tx.Rows()
	if err != nil {
		return err
	}
	start := time.Now()
	failpoint.Hit("commit.before")
	switch err := l.store.Commit(journal.Batch{Seq: tx.Seq, Rows: rows, Must: must}); {
	case err != nil && !tx.Durable() && refusal(err, false) != nil: // only the clock was to be written, which can wait
		return nil
	case err != nil:
		return fmt.Errorf("cannot commit batch %d: %w", tx.Seq, err)
	}
	tx.ClockSaved()
	l.alone = l.alone && must
	failpoint.Hit("commit.after")
	took := time.Since(start)
	l.stats.Commits.Add(1)
	l.stats.CommitNS.Add(int64(took))
	if l.Committed != nil {
		l.Committed(took)
	}
	return nil
}

func (l *Loop) account(tx *state.Tx, commands int) {
	l.stats.Batches.Add(1)
	l.stats.Commands.Add(uint64(commands))
	l.stats.Events.Add(uint64(len(tx.Events())))
	l.told.tell(tx.Events(), tx.Seq)
}
