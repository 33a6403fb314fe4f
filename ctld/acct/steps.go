package acct

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/failpoint"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// Steps have a table of their own, written like that of jobs: the newest records of changed steps, about once a second, and those that only
// the outbox has until they are on disk. A version that does not know the table ignores it.
const stepTable = `
CREATE TABLE IF NOT EXISTS steps (
	job INTEGER NOT NULL,
	attempt INTEGER NOT NULL,
	step INTEGER NOT NULL,
	end INTEGER NOT NULL,
	record BLOB NOT NULL,
	PRIMARY KEY (job, attempt, step)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS steps_by_end ON steps (end);
`

const upsertStep = `INSERT INTO steps (job, attempt, step, end, record) VALUES (?,?,?,?,?)
ON CONFLICT (job, attempt, step) DO UPDATE SET end=excluded.end, record=excluded.record`

// JobAttempt names the steps of one attempt of a job.
type JobAttempt struct{ Job, Attempt uint32 }

// stepsDue holds the steps whose present record is not in the database. It belongs to Accounting, under its lock.
type stepsDue struct {
	dirty, kept map[state.StepKey]struct{} // of the state, and only in the outbox
	flying      map[state.StepKey]struct{} // of those, the ones being stored
	sent        map[state.StepKey]struct{}
	ever        bool // any steps exist
}

func newStepsDue(v *state.View) stepsDue {
	s := stepsDue{dirty: map[state.StepKey]struct{}{}, kept: map[state.StepKey]struct{}{}, flying: map[state.StepKey]struct{}{},
		sent: map[state.StepKey]struct{}{}}
	for _, k := range v.StepOutbox {
		s.kept[k] = struct{}{}
	}
	s.all(v)
	return s
}

// all marks every step of the state.
func (s *stepsDue) all(v *state.View) {
	for list := range v.AllSteps() {
		for _, one := range list.List {
			s.dirty[state.KeyOf(one)] = struct{}{}
		}
	}
	s.ever = s.ever || len(s.dirty)+len(s.kept) > 0
}

func (s *stepsDue) changed(c state.Change) {
	for _, k := range c.StepsStored {
		s.dirty[k] = struct{}{}
	}
	for _, k := range c.StepsKept {
		delete(s.dirty, k)
		s.kept[k] = struct{}{}
	}
	s.ever = s.ever || len(c.StepsStored) > 0
}

func (s *stepsDue) count() int { return len(s.dirty) + len(s.kept) + len(s.flying) + len(s.sent) }

// take chooses the steps to store next.
func (s *stepsDue) take() (fresh, kept []state.StepKey, more bool) {
	move := func(from, to map[state.StepKey]struct{}) (list []state.StepKey) {
		for k := range from {
			if len(fresh)+len(list) == batchRows {
				more = true
				break
			}
			list = append(list, k)
			to[k] = struct{}{}
		}
		for _, k := range list {
			delete(from, k)
		}
		slices.SortFunc(list, compareSteps)
		return list
	}
	fresh = move(s.dirty, s.flying)
	kept = move(s.kept, s.sent)
	return fresh, kept, more
}

func compareSteps(a, b state.StepKey) int {
	return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.Step, b.Step))
}

// done notes whether the chosen steps were stored, or have to be stored again.
func (s *stepsDue) done(stored bool) {
	if !stored {
		for k := range s.flying {
			if _, kept := s.kept[k]; !kept { // it may have left the state meanwhile
				s.dirty[k] = struct{}{}
			}
		}
		for k := range s.sent {
			s.kept[k] = struct{}{}
		}
	}
	clear(s.flying)
	clear(s.sent)
}

// stepBatch stores waiting steps, at most batchRows, in one transaction.
func (a *Accounting) stepBatch(ctx context.Context, db *store) (more bool, err error) {
	a.mu.Lock()
	v := a.view
	fresh, kept, more := a.steps.take()
	a.mu.Unlock()
	if len(fresh)+len(kept) == 0 {
		return false, nil
	}
	rows, err := a.stepRows(v, fresh, kept)
	if err == nil {
		failpoint.Hit("acct.before")
		err = explain(db.putSteps(ctx, rows))
	}
	a.mu.Lock()
	a.steps.done(err == nil)
	if err == nil {
		a.written += uint64(len(rows))
	}
	a.mu.Unlock()
	if err != nil {
		return false, err
	}
	failpoint.Hit("acct.after")
	if len(kept) > 0 {
		if err := a.o.Stored(ctx, reactor.Stored{Steps: kept}); err != nil { // stored again after the next start
			a.o.Log.Warn("cannot remove stored steps from the outbox", "err", err, "steps", len(kept))
		}
	}
	return more, nil
}

// stepRows returns the records of steps from v, and from the outbox.
func (a *Accounting) stepRows(v *state.View, fresh, kept []state.StepKey) (rows []*pb.StepRecord, err error) {
	for _, k := range fresh {
		if all := v.Steps(k.Job); all != nil && all.Attempt == k.Attempt {
			if s := all.Get(k.Step); s != nil && !pb.IsCopy(k.Step) {
				rows = append(rows, slimStep(s))
			}
		}
	}
	for _, k := range kept {
		s, err := a.keptStep(k)
		if err != nil {
			return nil, err
		}
		if s != nil && !pb.IsCopy(k.Step) {
			rows = append(rows, s)
		}
	}
	return rows, nil
}

// keptStep reads a step of the outbox, nil: it is gone.
func (a *Accounting) keptStep(k state.StepKey) (*pb.StepRecord, error) {
	b, err := a.o.StepOutbox(k)
	if err != nil || b == nil {
		return nil, err
	}
	s := &pb.StepRecord{}
	if err := proto.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("cannot decode step %d of job %d: %w", k.Step, k.Job, err)
	}
	return slimStep(s), nil
}

// slimStep returns a record as it is stored and sent to sacct: without the fields that only the controller and the nodes need.
func slimStep(s *pb.StepRecord) *pb.StepRecord {
	n := state.CloneStep(s)
	n.Key, n.Certificate, n.Watchers, n.Signals, n.RequestId, n.Epoch, n.ClockNs, n.ClockBoot = nil, nil, nil, nil, "", 0, 0, 0
	if n.Spec != nil {
		n.Spec = pb.ShallowCopy(n.Spec)
		n.Spec.Addresses, n.Spec.Hosts = nil, nil
	}
	return n
}

// putSteps stores rows in one transaction.
func (s *store) putSteps(ctx context.Context, rows []*pb.StepRecord) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	stmt, err := tx.PrepareContext(ctx, upsertStep)
	if err != nil {
		return err
	}
	defer func() { _ = stmt.Close() }()
	for _, r := range rows {
		b, err := proto.Marshal(r)
		if err != nil {
			return err
		}
		end := r.EndNs
		if state.StepLive(r) {
			end = math.MaxInt64
		}
		if _, err := stmt.ExecContext(ctx, r.JobId, r.Attempt, r.StepId, end, b); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// purgeSteps deletes steps that ended before a time, like their jobs.
func (s *store) purgeSteps(ctx context.Context, before time.Time) error {
	for ctx.Err() == nil {
		res, err := s.write.ExecContext(ctx, `DELETE FROM steps WHERE (job, attempt, step) IN
(SELECT job, attempt, step FROM steps INDEXED BY steps_by_end WHERE end < ? LIMIT ?)`, before.UnixNano(), purgeRows)
		if err != nil {
			return explain(err)
		}
		if n, err := res.RowsAffected(); err != nil || n < purgeRows {
			return err
		}
	}
	return nil
}

// hasSteps reports whether there may be steps at all: queries of the many clusters without steps should not be slower.
func (a *Accounting) hasSteps(ctx context.Context, db *store) (bool, error) {
	a.mu.Lock()
	ever := a.steps.ever
	a.mu.Unlock()
	if ever || db == nil {
		return ever, nil
	}
	var one int
	if err := db.read.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM steps)").Scan(&one); err != nil {
		return false, explain(err)
	}
	if one != 0 {
		a.mu.Lock()
		a.steps.ever = true
		a.mu.Unlock()
	}
	return one != 0, nil
}

// Steps calls each with the encoded records of the steps of some attempts, by job, attempt and number. Records in the state take
// precedence.
func (a *Accounting) Steps(ctx context.Context, of []JobAttempt, view func() *state.View, each func(record []byte) error) error {
	db := a.db.Load()
	if has, err := a.hasSteps(ctx, db); err != nil || !has {
		return err
	}
	found := map[JobAttempt]map[uint32][]byte{}
	for _, at := range of {
		found[at] = map[uint32][]byte{}
	}
	// The outbox first: a step that leaves it meanwhile is already in the database. A step that leaves the state meanwhile is in the view
	// taken then.
	kept, before, err := a.keptOf(found)
	if err != nil {
		return err
	}
	if db != nil {
		if err := db.stepsOf(ctx, of, found); err != nil {
			a.suspect(err)
			return err
		}
	}
	if err := overlay(found, kept, before, view()); err != nil {
		return err
	}
	for _, at := range of {
		if err := eachStep(found[at], each); err != nil {
			return err
		}
		delete(found, at) // answer an attempt that is named twice only once
	}
	return nil
}

// overlay replaces records from the database with newer ones: from the outbox, and from views, the later taking precedence.
func overlay(found map[JobAttempt]map[uint32][]byte, kept []*pb.StepRecord, views ...*state.View) error {
	put := func(s *pb.StepRecord) error {
		if pb.IsCopy(s.StepId) {
			return nil
		}
		b, err := proto.Marshal(s)
		if at := found[JobAttempt{s.JobId, s.Attempt}]; at != nil {
			at[s.StepId] = b
		}
		return err
	}
	for _, s := range kept {
		if err := put(s); err != nil {
			return err
		}
	}
	for _, v := range views {
		for at := range found {
			all := v.Steps(at.Job)
			if all == nil || all.Attempt != at.Attempt {
				continue
			}
			for _, s := range all.List {
				if err := put(slimStep(s)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func eachStep(steps map[uint32][]byte, each func([]byte) error) error {
	numbers := make([]uint32, 0, len(steps))
	for n := range steps {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		if err := each(steps[n]); err != nil {
			return err
		}
	}
	return nil
}

// keptOf returns the steps of some attempts that only the outbox has, and the view of that moment.
func (a *Accounting) keptOf(of map[JobAttempt]map[uint32][]byte) (kept []*pb.StepRecord, v *state.View, err error) {
	a.mu.Lock()
	v = a.view
	var list []state.StepKey
	for _, set := range []map[state.StepKey]struct{}{a.steps.kept, a.steps.sent} {
		for k := range set {
			if of[JobAttempt{k.Job, k.Attempt}] != nil {
				list = append(list, k)
			}
		}
	}
	a.mu.Unlock()
	for _, k := range list {
		s, err := a.keptStep(k)
		if err != nil {
			return nil, nil, err
		}
		if s != nil {
			kept = append(kept, s)
		}
	}
	return kept, v, nil
}

// stepsOf adds the steps of some attempts from the database.
func (s *store) stepsOf(ctx context.Context, of []JobAttempt, found map[JobAttempt]map[uint32][]byte) error {
	jobs := make([]uint32, len(of))
	for i, at := range of {
		jobs[i] = at.Job
	}
	slices.Sort(jobs)
	ids, err := json.Marshal(slices.Compact(jobs))
	if err != nil {
		return err
	}
	rows, err := s.read.QueryContext(ctx,
		"SELECT job, attempt, step, record FROM json_each(?) AS ids CROSS JOIN steps ON steps.job = ids.value", string(ids))
	if err != nil {
		return explain(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var at JobAttempt
		var step uint32
		var record []byte
		if err := rows.Scan(&at.Job, &at.Attempt, &step, &record); err != nil {
			return explain(err)
		}
		if found[at] != nil {
			found[at][step] = record
		}
	}
	return explain(rows.Err())
}
