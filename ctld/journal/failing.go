package journal

import (
	"errors"
	"io"
	"sync"
)

// ErrCrashed is returned by a Failing store after its crash: the process that used it would be dead.
var ErrCrashed = errors.New("the journal crashed, as planned")

// Fault is the fate of one commit. The zero value lets it pass.
type Fault struct {
	// Err is returned. Without After nothing is written; with it the batch is written, and only the answer is lost.
	Err   error
	After bool
	// Crash makes the store unusable from then on; Err may then be nil, and is ErrCrashed.
	Crash bool
}

// Plan decides on the n-th commit, counted from 1.
type Plan func(n int, b Batch) Fault

// FailAt fails the n-th commit with err, before it is written.
func FailAt(n int, err error) Plan { return at(n, Fault{Err: err}) }

// CrashBefore crashes at the n-th commit, before it is written.
func CrashBefore(n int) Plan { return at(n, Fault{Crash: true}) }

// CrashAfter crashes when the n-th commit is on disk and not yet acknowledged.
func CrashAfter(n int) Plan { return at(n, Fault{Crash: true, After: true}) }

// DiskFull refuses every commit from the n-th on that is not a Must.
func DiskFull(n int) Plan {
	return func(i int, b Batch) Fault {
		if i >= n && !b.Must {
			return Fault{Err: ErrNoSpace}
		}
		return Fault{}
	}
}

func at(n int, f Fault) Plan {
	return func(i int, _ Batch) Fault {
		if i == n {
			return f
		}
		return Fault{}
	}
}

// Failing wraps a Store and makes chosen commits fail. After a crash the inner store is the disk that the next controller opens.
type Failing struct {
	inner   Store
	plan    Plan
	mu      sync.Mutex
	n       int
	crashed bool
}

var (
	_ Store = (*Failing)(nil)
	_ IDs   = (*Failing)(nil)
)

// NewFailing returns a store that passes everything to inner, except for the faults of plan.
func NewFailing(inner Store, plan Plan) *Failing { return &Failing{inner: inner, plan: plan} }

// Commits returns the number of calls of Commit.
func (f *Failing) Commits() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

// Commit implements Store.
func (f *Failing) Commit(b Batch) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed {
		return ErrCrashed
	}
	f.n++
	fault := f.plan(f.n, b)
	if fault.Crash && fault.Err == nil {
		fault.Err = ErrCrashed
	}
	if fault.Err == nil {
		return f.inner.Commit(b)
	}
	f.crashed = fault.Crash
	if fault.After {
		if err := f.inner.Commit(b); err != nil {
			return err
		}
	}
	return fault.Err
}

func (f *Failing) alive() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed {
		return ErrCrashed
	}
	return nil
}

// Load implements Store.
func (f *Failing) Load(row func(b Bucket, key, value []byte) error) (uint64, error) {
	if err := f.alive(); err != nil {
		return 0, err
	}
	return f.inner.Load(row)
}

// Get implements Store.
func (f *Failing) Get(b Bucket, key []byte) ([]byte, error) {
	if err := f.alive(); err != nil {
		return nil, err
	}
	return f.inner.Get(b, key)
}

// Backup implements Store.
func (f *Failing) Backup(w io.Writer) (int64, error) {
	if err := f.alive(); err != nil {
		return 0, err
	}
	return f.inner.Backup(w)
}

// Generation implements Store.
func (f *Failing) Generation() (number uint64, lost []Span) { return f.inner.Generation() }

// Size implements Store.
func (f *Failing) Size() int64 { return f.inner.Size() }

// Room implements Store.
func (f *Failing) Room() int64 { return f.inner.Room() }

// Close implements Store; a crashed store leaves its inner one as it is.
func (f *Failing) Close() error {
	if f.alive() != nil {
		return nil
	}
	return f.inner.Close()
}

// IDFloor implements IDs; it is 0 if the inner store keeps no ids.
func (f *Failing) IDFloor() uint32 {
	if ids, ok := f.inner.(IDs); ok {
		return ids.IDFloor()
	}
	return 0
}

// ReserveIDs implements IDs.
func (f *Failing) ReserveIDs(atLeast uint32) (uint32, error) {
	if err := f.alive(); err != nil {
		return 0, err
	}
	if ids, ok := f.inner.(IDs); ok {
		return ids.ReserveIDs(atLeast)
	}
	return nextMark(atLeast), nil
}
