package acct

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/failpoint"
	"golang.org/x/sys/unix"
)

// The writer collects for gather, stores at most batchRows in a transaction, and pauses after a failure.
const (
	gather     = time.Second
	batchRows  = 2000
	retryFirst = time.Second
	retryMost  = time.Minute
	purgeEvery = 10 * time.Minute
)

// Run stores pending records until ctx ends, and then once more. It never fails: it logs errors and tries again.
//
// It has a thread of its own with a lower priority, so that the loop and the planner come first on a busy machine. The thread ends with it,
// as it stays locked.
func (a *Accounting) Run(ctx context.Context) {
	runtime.LockOSThread()
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 10)
	defer a.shut()
	retry, purged := retryFirst, time.Time{}
	for {
		err := a.store(ctx)
		wait := gather
		if err != nil && ctx.Err() == nil {
			a.o.Log.Error("cannot store finished jobs for sacct; they are kept in the state; trying again", "err", err, "waiting",
				a.waiting(), "again_in", retry)
			wait, retry = retry, min(2*retry, retryMost)
		} else {
			retry = retryFirst
		}
		if now := a.o.Now(); err == nil && now.Sub(purged) >= purgeEvery {
			purged = now
			a.purge(ctx)
		}
		if ctx.Err() != nil || !a.pause(ctx, wait, err == nil) {
			last, cancel := context.WithTimeout(context.Background(), lastTry)
			defer cancel()
			if err := a.store(last); err != nil {
				a.o.Log.Warn("accounting stopped with jobs not yet stored; they will be stored at the next start", "err", err, "waiting",
					a.waiting())
			}
			return
		}
	}
}

// lastTry bounds the time for accounting at shutdown: everything is in the state too.
const lastTry = 2 * time.Second

// pause waits, or until Flush asks for haste; false = ctx has ended.
func (a *Accounting) pause(ctx context.Context, d time.Duration, hasten bool) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	kick := a.kick
	if !hasten {
		kick = nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
	case <-kick:
	}
	return true
}

func (a *Accounting) waiting() int { n, _, _ := a.Figures(); return n }

func (a *Accounting) shut() {
	if db := a.db.Swap(nil); db != nil {
		db.close()
	}
}

// store writes all pending records, batch by batch.
func (a *Accounting) store(ctx context.Context) (err error) {
	defer func() {
		a.mu.Lock()
		a.failed = err
		a.mu.Unlock()
	}()
	a.mu.Lock()
	broken := a.broken
	a.broken = nil
	a.mu.Unlock()
	if broken != nil {
		if err := a.replace(broken); err != nil {
			return err
		}
	}
	if a.waiting() == 0 && a.db.Load() != nil {
		return nil
	}
	for {
		db, err := a.open()
		if err != nil {
			return err
		}
		more, err := a.batch(ctx, db)
		if err == nil {
			var steps bool
			steps, err = a.stepBatch(ctx, db)
			more = more || steps
		}
		if errors.Is(err, errDamaged) {
			if err = a.replace(err); err == nil {
				continue
			}
		}
		if err != nil || !more {
			return err
		}
	}
}

// open returns the open database. A damaged one is moved aside, and a new one gets everything in the state.
func (a *Accounting) open() (*store, error) {
	if db := a.db.Load(); db != nil {
		return db, nil
	}
	db, err := openStore(a.path, a.o.Cluster)
	if errors.Is(err, errDamaged) {
		if err = a.replace(err); err != nil {
			return nil, err
		}
		db, err = openStore(a.path, a.o.Cluster)
	}
	if err != nil {
		return nil, err
	}
	a.db.Store(db)
	return db, nil
}

// replace gives up a damaged database: it is closed and moved aside, and everything in the state has to be stored again.
func (a *Accounting) replace(why error) error {
	a.shut()
	bad, err := moveAside(a.path, a.o.Now())
	if err != nil {
		return err
	}
	a.o.Log.Error(
		"the accounting database is damaged: it has been moved aside and a new one created; sacct shows only jobs that the controller "+
			"still holds, until the old file is repaired (sqlite3 FILE .recover)",
		"err", why, "file", bad)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all(a.view)
	return nil
}

// batch stores pending records, at most batchRows, in one transaction.
func (a *Accounting) batch(ctx context.Context, db *store) (more bool, err error) {
	v, ids, attempts, more := a.take()
	if len(ids)+len(attempts) == 0 {
		return false, nil
	}
	rows, err := a.rows(v, ids, attempts)
	if err == nil {
		failpoint.Hit("acct.before")
		var left int
		left, err = db.put(ctx, rows, a.o.Policy().TextBytes)
		err = explain(err)
		a.warnLeft(left)
	}
	if err != nil {
		a.giveBack()
		return false, err
	}
	failpoint.Hit("acct.after")
	a.done(len(rows))
	if len(attempts) > 0 {
		// Attempts that cannot be removed from the outbox now are stored again after the next start.
		if err := a.o.Stored(ctx, reactor.Stored{Attempts: attempts}); err != nil {
			a.o.Log.Warn("cannot remove stored attempts from the outbox", "err", err, "attempts", len(attempts))
		}
		failpoint.Hit("acct.taken")
	}
	return more, nil
}

// warnLeft logs, once a minute, that scripts and environments were not kept.
func (a *Accounting) warnLeft(left int) {
	now := a.o.Now()
	if left == 0 || now.Sub(a.warned) < time.Minute && now.After(a.warned) {
		return
	}
	a.warned = now
	a.o.Log.Warn("scripts or environments are not stored in the accounting database: their users have reached the limit "+
		"(max_user_accounting of SlurmctldParameters)", "texts", left)
}

// take chooses the records to store next.
func (a *Accounting) take() (v *state.View, ids []uint32, attempts []state.Attempt, more bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for at := range a.kept {
		if len(attempts) == batchRows/2 {
			more = true
			break
		}
		attempts = append(attempts, at)
		a.sent[at] = struct{}{}
	}
	for _, at := range attempts {
		delete(a.kept, at)
	}
	ids = slices.Sorted(maps.Keys(a.dirty))
	if room := batchRows - len(attempts); len(ids) > room {
		ids, more = ids[:room], true
	}
	for _, id := range ids {
		delete(a.dirty, id)
		a.flying[id] = struct{}{}
	}
	slices.SortFunc(attempts, func(x, y state.Attempt) int {
		return cmp.Or(cmp.Compare(x.Job, y.Job), cmp.Compare(x.Restarts, y.Restarts))
	})
	return a.view, ids, attempts, more
}

// giveBack notes that the chosen records have still to be stored.
func (a *Accounting) giveBack() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id := range a.flying {
		if a.view.Jobs.Get(id) != nil { // a job that was forgotten meanwhile went into the outbox
			a.dirty[id] = struct{}{}
		}
	}
	for at := range a.sent {
		a.kept[at] = struct{}{}
	}
	clear(a.flying)
	clear(a.sent)
}

func (a *Accounting) done(rows int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.written += uint64(rows)
	clear(a.flying)
	clear(a.sent)
}

// rows makes the rows of jobs from v and of attempts from the outbox.
func (a *Accounting) rows(v *state.View, ids []uint32, attempts []state.Attempt) ([]row, error) {
	rows := make([]row, 0, len(ids)+len(attempts))
	known := map[uint32]jobTexts{}
	for _, at := range attempts {
		b, err := a.o.Outbox(at)
		if err != nil {
			return nil, fmt.Errorf("cannot read attempt %d of job %d from the outbox: %w", at.Restarts, at.Job, err)
		}
		if b == nil {
			continue // stored before a crash, and removed after it
		}
		j, err := decoded(b)
		if err != nil {
			return nil, err
		}
		r, err := rowOf(j)
		if err != nil {
			return nil, err
		}
		if at.Node != "" {
			r.lost = j
		} else {
			r.jobTexts = a.textsOf(j, known)
		}
		rows = append(rows, r)
	}
	for _, id := range ids {
		j := v.Jobs.Get(id)
		if j == nil {
			continue
		}
		r, err := rowOf(j)
		if err != nil {
			return nil, err
		}
		r.jobTexts = a.textsOf(j, known)
		rows = append(rows, r)
	}
	return rows, nil
}
