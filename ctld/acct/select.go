package acct

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// selectLimit is the maximum time of one selection, its reader included.
const selectLimit = 10 * time.Minute

// lookedAt is the number of records after which a selection checks whether its caller is still connected.
const lookedAt = 256

// Select calls each with the encoded records of a selection, by id, the tasks of an array at the id of the array, the first attempt first.
// Records come from the state, then from the outbox, and all others from the database: nothing acknowledged before is missing, and nothing
// comes twice.
func (a *Accounting) Select(ctx context.Context, r *pb.AccountingRequest, view func() *state.View, each func(record []byte) error) error {
	// A reader that stalls keeps SQLite from checkpointing its log, so there is a limit.
	ctx, cancel := context.WithTimeout(ctx, selectLimit)
	defer cancel()
	q, p := newSelection(r, a.o.Now().UnixNano())
	if p != nil {
		return p
	}
	out := &merge{ctx: ctx, q: q, each: each, newer: map[state.Attempt]bool{}}
	var v *state.View
	if !r.Runaway {
		// The outbox first: an attempt that leaves it meanwhile is already in the database. A job that is forgotten meanwhile is in v.
		if err := a.fromOutbox(out); err != nil {
			return err
		}
		v = view()
		looked := 0
		for j := range v.Jobs.All() {
			if looked++; looked%lookedAt == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			if q.match(j) {
				out.fresh = append(out.fresh, fresh{placeOf(j), j})
			}
		}
	} else {
		v = view()
	}
	out.sort()
	if db := a.db.Load(); db != nil {
		err := db.each(ctx, q, func(p place, record []byte) error {
			at := attempt(p.key)
			if j := v.Jobs.Get(at.Job); j != nil && (j.Restarts == at.Restarts || r.Runaway) || out.newer[at] {
				return nil
			}
			return out.stored(p, record)
		})
		if err != nil {
			a.suspect(err)
			return err
		}
	}
	return out.rest()
}

// suspect has the writer replace a database that proved damaged when it was read.
func (a *Accounting) suspect(err error) {
	if !errors.Is(err, errDamaged) {
		return
	}
	a.mu.Lock()
	a.broken = err
	a.mu.Unlock()
	select {
	case a.kick <- struct{}{}:
	default:
	}
}

// fromOutbox adds the attempts that are not stored yet.
func (a *Accounting) fromOutbox(out *merge) error {
	a.mu.Lock()
	var list []state.Attempt
	for _, set := range []map[state.Attempt]struct{}{a.kept, a.sent} {
		for at := range set {
			if at.Node == "" { // otherwise it is a part, which the database merges
				list = append(list, at)
			}
		}
	}
	a.mu.Unlock()
	for _, at := range list {
		if err := out.ctx.Err(); err != nil {
			return err
		}
		b, err := a.o.Outbox(at)
		if err != nil {
			return err
		}
		if b == nil {
			continue
		}
		j, err := decoded(b)
		if err != nil {
			return err
		}
		out.newer[at] = true
		if out.q.match(j) {
			out.fresh = append(out.fresh, fresh{placeOf(j), j})
		}
	}
	return nil
}

// fresh is an attempt from outside the database.
type fresh struct {
	at  place
	job *pb.JobRecord
}

// merge puts fresh and stored attempts in order and leaves out unwanted ones: the last attempt of each job is shown, or with -D every one.
// So each is held back until the next shows whether it was the last.
type merge struct {
	ctx   context.Context // of the caller
	q     *selection
	fresh []fresh
	each  func([]byte) error
	newer map[state.Attempt]bool // in the outbox: the database's versions are older
	held  []byte                 // nil = nothing yet
	last  place                  // place of held
}

// sort orders the fresh ones; of two with one place, the state's and the outbox's, the first stays.
func (m *merge) sort() {
	slices.SortStableFunc(m.fresh, func(x, y fresh) int { return x.at.compare(y.at) })
	m.fresh = slices.CompactFunc(m.fresh, func(x, y fresh) bool { return x.at == y.at })
}

// stored takes the next attempt from the database, in order of places.
func (m *merge) stored(at place, record []byte) error {
	for len(m.fresh) > 0 && m.fresh[0].at.compare(at) <= 0 {
		if err := m.first(); err != nil {
			return err
		}
	}
	if err := m.ctx.Err(); err != nil {
		return err
	}
	if m.held != nil && at == m.last {
		return nil // a newer version was there already
	}
	if !m.q.sqlOnly {
		j, err := decoded(record)
		if err != nil {
			return err
		}
		if !m.q.match(j) {
			return nil
		}
	}
	return m.take(at, record)
}

// take holds the next attempt, and emits the previous one unless this is a later attempt of the same job and only the last is wanted.
func (m *merge) take(at place, record []byte) error {
	if m.held != nil && (m.q.r.Duplicates || at.key>>attemptBits != m.last.key>>attemptBits) {
		if err := m.each(m.held); err != nil {
			return err
		}
	}
	m.held, m.last = record, at
	return nil
}

func (m *merge) first() error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
	f := m.fresh[0]
	m.fresh = m.fresh[1:]
	b, err := encoded(f.job)
	if err != nil {
		return err
	}
	return m.take(f.at, b)
}

func (m *merge) rest() error {
	for len(m.fresh) > 0 {
		if err := m.first(); err != nil {
			return err
		}
	}
	if m.held == nil {
		return nil
	}
	return m.each(m.held)
}
