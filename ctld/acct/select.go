package acct

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// selectLimit is how long one selection may take, its reader included.
const selectLimit = 10 * time.Minute

// lookedAt is after how many records of the state a selection looks whether its caller is still there.
const lookedAt = 256

// Select calls each with the encoded records of a selection, by id, the tasks of an array at the
// id of the array, the first attempt first. What the state holds comes from it, what
// is still in the outbox from there, everything else from the database: nothing that was acknowledged before is missing, and nothing
// comes twice.
func (a *Accounting) Select(ctx context.Context, r *pb.AccountingRequest, view func() *state.View, each func(record []byte) error) error {
	// A reader that stalls keeps SQLite's log from being folded into the file: it is not waited for for ever.
	ctx, cancel := context.WithTimeout(ctx, selectLimit)
	defer cancel()
	q, p := newSelection(r, a.o.Now().UnixNano())
	if p != nil {
		return p
	}
	out := &merge{ctx: ctx, q: q, each: each, newer: map[state.Attempt]bool{}}
	var v *state.View
	if !r.Runaway {
		// The outbox first: what leaves it meanwhile is in the database by then. A job that is forgotten meanwhile is in v.
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

// suspect has the writer replace a database that could not be read because it is damaged.
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

// fromOutbox takes in the attempts that are not stored yet.
func (a *Accounting) fromOutbox(out *merge) error {
	a.mu.Lock()
	var list []state.Attempt
	for _, set := range []map[state.Attempt]struct{}{a.kept, a.sent} {
		for at := range set {
			if at.Node == "" { // else it is a part, which the database puts together
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

// fresh is an attempt that does not come from the database.
type fresh struct {
	at  place
	job *pb.JobRecord
}

// merge puts fresh and stored attempts in order and leaves out those that are not asked for: the last attempt of each job is shown,
// or with -D every one. So each is held back until the next shows whether it was the last.
type merge struct {
	ctx   context.Context // of the caller
	q     *selection
	fresh []fresh
	each  func([]byte) error
	newer map[state.Attempt]bool // of the outbox: what the database has of them is from before they ended
	held  []byte                 // nil = nothing yet
	last  place                  // its own
}

// sort orders the fresh ones; of two with one place, the state's and the outbox's, the first stays.
func (m *merge) sort() {
	slices.SortStableFunc(m.fresh, func(x, y fresh) int { return x.at.compare(y.at) })
	m.fresh = slices.CompactFunc(m.fresh, func(x, y fresh) bool { return x.at == y.at })
}

// stored takes the next one of the database, in order of places.
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
		return nil // it was there already
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

// take holds the next one, and lets go the one before unless this is a later attempt of the same job and only that is asked for.
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
