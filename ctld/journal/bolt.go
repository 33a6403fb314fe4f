package journal

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-hpc/sluice/internal/failpoint"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

// Options says how to open a state directory. The zero value is what the controller uses, but for Schema.
type Options struct {
	// Schema is the version of the values that this program writes; 0 is 1. A database with another one is refused.
	Schema uint32
	// ReserveBytes of the disk are kept for Must commits, and StepBytes taken at a time when the database grows: 8 MiB each if 0.
	ReserveBytes, StepBytes int64
	// MapBytes of address space are mapped from the start, so that a long backup never stops a commit that grows the database beyond
	// its mapping; 16 GiB if 0. Address space is not memory.
	MapBytes int
	// RedoBytes is the length of the redo log at which it asks for an early backup; 64 MiB if 0, and at least four times the database. At
	// twice that length the log stops until the next backup. Negative: no redo log, so a restore ends with the last backup.
	RedoBytes int64
	// RestoreCommand is the command that messages suggest to the administrator; "sluice-ctld restore --dir DIR" if empty.
	RestoreCommand string
	Log            *slog.Logger
	Now            func() time.Time // for the names of backups; time.Now if nil
}

func (o Options) withDefaults(dir string) Options {
	if o.Schema == 0 {
		o.Schema = 1
	}
	if o.ReserveBytes == 0 {
		o.ReserveBytes = 8 << 20
	}
	if o.StepBytes == 0 {
		o.StepBytes = 8 << 20
	}
	if o.RedoBytes == 0 {
		o.RedoBytes = 64 << 20
	}
	if o.MapBytes == 0 {
		o.MapBytes = 16 << 30
	}
	if o.RestoreCommand == "" {
		o.RestoreCommand = "sluice-ctld restore --dir " + dir
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Bolt is the Store on disk. It also is an IDs.
type Bolt struct {
	dir, path string
	cluster   string
	opts      Options
	lock      *dirLock
	ids       *idFile
	db        atomic.Pointer[bbolt.DB] // Shrink changes it under mu

	mu      sync.Mutex // one commit at a time; guards the fields below
	file    *os.File   // bbolt's descriptor
	head    head
	space   space
	tight   tight
	commits uint64
	redo    redo
	missed  *missed // batches committed while the database is copied; nil: no copy is under way
	most    atMost

	wanted  chan struct{} // requests for an early backup
	short   atomic.Bool   // a commit found no room since the last backup
	backups sync.Mutex    // one backup or rotation at a time
	used    atomic.Int64  // bytes
	live    atomic.Int64  // of them, those not in free pages
	backed  atomic.Int64  // when a backup was last made or found complete: nanoseconds since 1970
	broken  atomic.Pointer[error]
	closed  atomic.Bool
}

var (
	_ Store = (*Bolt)(nil)
	_ IDs   = (*Bolt)(nil)
)

// ClusterID returns the random id that the cluster got when its state was first created.
func (s *Bolt) ClusterID() string { return s.cluster }

// Epoch counts the openings of this state. It never goes back, not even with a restore, so it distinguishes the attempts of one
// controller's life from another's.
func (s *Bolt) Epoch() uint64 { return s.ids.epoch }

// Generation implements Store.
func (s *Bolt) Generation() (number uint64, lost []Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.head.generation, s.head.lost
}

// IDFloor implements IDs.
func (s *Bolt) IDFloor() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.head.floor
}

// ReserveIDs implements IDs.
func (s *Bolt) ReserveIDs(atLeast uint32) (uint32, error) { return s.ids.reserve(atLeast) }

// Size implements Store.
func (s *Bolt) Size() int64 { return s.used.Load() }

// Commit implements Store.
func (s *Bolt) Commit(b Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	if err := b.check(s.head.seq); err != nil {
		return err
	}
	next := s.head
	next.seq, next.floor = b.Seq, max(next.floor, highestID(b.Rows))
	if _, err := s.ids.reserve(next.floor); err != nil {
		return err
	}
	undo := s.log(b)
	failpoint.Hit("commit.redo")
	txid, err := s.update(b, &next)
	if err != nil {
		undo()
		return s.failed(b, txid, err)
	}
	s.head, s.tight = next, tight{}
	s.missed.keep(b)
	s.settle()
	return nil
}

// log repeats the batch in the redo log. A batch is not refused because the log failed.
func (s *Bolt) log(b Batch) (undo func()) {
	undo, err := s.redo.append(point{s.head.timeline, s.head.seq}, b, s.used.Load())
	if err != nil {
		s.opts.Log.Warn("the redo log stops until the next backup: until then a restore would lose everything newer", "error", err)
	}
	return undo
}

// update writes the batch and the head in one transaction, whose number it returns.
func (s *Bolt) update(b Batch, next *head) (txid int, err error) {
	rows := b.sorted()
	err = transact(s.db.Load(), func(tx *bbolt.Tx) error {
		txid = tx.ID()
		if err := s.room(tx, rows, b.Must); err != nil {
			return err
		}
		if err := apply(tx, rows, next); err != nil {
			return err
		}
		return putHead(tx, next)
	})
	return txid, err
}

// transact is bbolt's Update without its rollback after a panic: the rollback reads every page from an unguarded goroutine.
func transact(db *bbolt.DB, fn func(*bbolt.Tx) error) error {
	return guard(func() error {
		tx, err := db.Begin(true)
		if err != nil {
			return err
		}
		if err := fn(tx); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	})
}

// apply changes the rows and keeps the tallies of next in step.
func apply(tx *bbolt.Tx, rows []Row, next *head) error {
	var bucket *bbolt.Bucket
	for i, r := range rows {
		if i == 0 || r.Bucket != rows[i-1].Bucket {
			bucket = tx.Bucket([]byte(r.Bucket.String()))
			bucket.FillPercent = buckets[r.Bucket].fill
		}
		old := bucket.Get(r.Key)
		var was, is uint64
		var err error
		if old != nil {
			if was, err = storedDigest(r.Bucket, old); err != nil {
				return fmt.Errorf("cannot replace %s: %w", describe(r.Bucket, r.Key), err)
			}
		}
		if r.Value == nil {
			err = bucket.Delete(r.Key)
		} else {
			var stored []byte
			stored, is = seal(r.Bucket, r.Key, r.Value)
			err = bucket.Put(r.Key, stored)
		}
		if err != nil {
			return fmt.Errorf("cannot write %s: %w", describe(r.Bucket, r.Key), err)
		}
		next.tally[r.Bucket].replace(was, is, old != nil, r.Value != nil)
	}
	return nil
}

func putHead(tx *bbolt.Tx, h *head) error {
	stored, _ := seal(0, []byte(headName), h.encode())
	return tx.Bucket([]byte(headName)).Put([]byte(headName), stored)
}

// failed decides what a failed commit means. A full disk before the meta page was written changed nothing. After any other failure the
// contents of the disk are unknown, and only opening it anew can tell.
func (s *Bolt) failed(b Batch, txid int, err error) error {
	err = noSpace(err)
	if errors.Is(err, ErrNoSpace) && !s.metaMoved(txid) {
		if gerr := s.space.giveBack(err); !errors.Is(gerr, ErrNoSpace) {
			return s.breakDown(gerr)
		}
		if !b.Must {
			s.noRoom()
		}
		return fmt.Errorf("cannot commit batch %d: %w", b.Seq, err)
	}
	return s.breakDown(fmt.Errorf("cannot commit batch %d: %w", b.Seq, err))
}

func (s *Bolt) metaMoved(txid int) bool {
	info, err := s.file.Stat()
	if err != nil {
		return true
	}
	m, _, err := readMetas(s.file, info.Size(), true)
	return err != nil || m.txid >= uint64(txid)
}

// settle follows a commit: it notes the bytes in use and now and then unmaps pages, which count as this process's memory.
func (s *Bolt) settle() {
	s.commits++
	if m, _, err := s.metas(); err == nil {
		used := int64(m.pages) * int64(m.pageSize)
		s.used.Store(used)
		s.live.Store(used - freePages(s.db.Load())*int64(m.pageSize))
		if used > s.space.taken {
			if err := s.space.adopt(used); err != nil {
				s.opts.Log.Warn("cannot trim the state database", "path", s.path, "error", err)
			}
		}
	}
	if s.commits%1024 == 0 {
		s.dropPages()
	}
}

func (s *Bolt) metas() (meta, int, error) {
	info, err := s.file.Stat()
	if err != nil {
		return meta{}, -1, err
	}
	return readMetas(s.file, info.Size(), true)
}

// dropPages unmaps pages that were read; the kernel's cache keeps them. The caller holds mu, so the mapping stays where it is.
func (s *Bolt) dropPages() {
	if n := s.used.Load(); n > 0 {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, s.db.Load().Info().Data, uintptr(n), unix.MADV_DONTNEED)
	}
}

// Load implements Store.
func (s *Bolt) Load(row func(b Bucket, key, value []byte) error) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return 0, err
	}
	var stop error // returned by row, passed on as it is
	err := guard(func() error {
		return s.db.Load().View(func(tx *bbolt.Tx) error {
			for b := Bucket(1); b <= lastBucket; b++ {
				var err error
				if err, stop = loadBucket(tx, b, s.head.tally[b], row); err != nil || stop != nil {
					return err
				}
			}
			return nil
		})
	})
	s.dropPages()
	switch {
	case stop != nil:
		return 0, stop
	case err != nil:
		return 0, s.breakDown(s.opts.damaged(s.path, err))
	}
	return s.head.seq, nil
}

func loadBucket(tx *bbolt.Tx, b Bucket, want tally, row func(b Bucket, key, value []byte) error) (err, stop error) {
	var got tally
	c := tx.Bucket([]byte(b.String())).Cursor()
	for key, stored := c.First(); key != nil; key, stored = c.Next() {
		value, digest, err := unseal(b, key, stored)
		if err != nil {
			return fmt.Errorf("cannot read %s: %w", describe(b, key), err), nil
		}
		got.replace(0, digest, false, true)
		if stop := row(b, key, value); stop != nil {
			return nil, stop
		}
	}
	if got != want {
		return fmt.Errorf("cannot read %v: found %d rows, expected the %d that were committed last", b, got.rows, want.rows), nil
	}
	return nil, nil
}

// view reads without mu. If a smaller database replaces this one meanwhile, it starts again with that one.
func (s *Bolt) view(fn func(*bbolt.Tx) error) error {
	for {
		db := s.db.Load()
		err := guard(func() error { return db.View(fn) })
		if !errors.Is(err, berrors.ErrDatabaseNotOpen) || db == s.db.Load() {
			return err
		}
	}
}

// Get implements Store.
func (s *Bolt) Get(b Bucket, key []byte) (value []byte, err error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	if !b.valid() {
		return nil, fmt.Errorf("cannot read: there is no %v: %w", b, ErrBatch)
	}
	err = s.view(func(tx *bbolt.Tx) error {
		stored := tx.Bucket([]byte(b.String())).Get(key)
		if stored == nil {
			return nil
		}
		v, _, err := unseal(b, key, stored)
		if err != nil {
			return fmt.Errorf("cannot read %s: %w", describe(b, key), err)
		}
		value = append([]byte{}, v...)
		return nil
	})
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return nil, ErrClosed
	}
	if err != nil {
		return nil, s.opts.damaged(s.path, err)
	}
	return value, nil
}

// Backup implements Store.
func (s *Bolt) Backup(w io.Writer) (n int64, err error) {
	if err := s.usable(); err != nil {
		return 0, err
	}
	err = s.view(func(tx *bbolt.Tx) (err error) {
		n, err = tx.WriteTo(w)
		return err
	})
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return n, ErrClosed
	}
	if err != nil {
		return n, noSpace(fmt.Errorf("cannot back up %s: %w", s.path, err))
	}
	return n, nil
}

func (s *Bolt) usable() error {
	if s.closed.Load() {
		return ErrClosed
	}
	if err := s.broken.Load(); err != nil {
		return *err
	}
	return nil
}

func (s *Bolt) breakDown(err error) error {
	s.broken.CompareAndSwap(nil, &err)
	return err
}

// Close implements Store. After a failure bbolt may hold its own locks for ever, so then only the descriptors are closed.
func (s *Bolt) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if s.broken.Load() == nil {
		errs = append(errs, guard(s.db.Load().Close))
	} else {
		errs = append(errs, letGo(s.file))
	}
	s.redo.stop()
	errs = append(errs, s.ids.f.Close(), s.lock.release())
	return errors.Join(errs...)
}

// highestID returns the highest job id among the rows that are written; 0 if there is none.
func highestID(rows []Row) uint32 {
	var high uint32
	for _, r := range rows {
		if r.Bucket == Jobs && r.Value != nil && len(r.Key) >= 4 {
			high = max(high, jobID(r.Key))
		}
	}
	return high
}

func dbPath(dir string) string { return filepath.Join(dir, "sluice.db") }
