package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"go.etcd.io/bbolt"

	"github.com/sluice-hpc/sluice/internal/failpoint"
)

// bbolt never shrinks its file: deletions leave free pages inside it. When they are most of it, Shrink replaces the database with a copy
// that has none. Commits go on while the copy is made. Their batches are kept in memory, and committed to the copy while new commits wait;
// so commits wait for that and for two syncs, not for the copy.
//
// A crash leaves either database, complete: the copy is on disk before it gets the name, and no commit is acknowledged before the name is
// durable. Rejected: shrinking only at startup, when nobody commits. A full disk would then need a restart, and nobody would know.

// maxMissed bounds the memory for batches; a copy that takes longer is abandoned.
const maxMissed = 64 << 20

// missed are batches that a copy of the database may lack.
type missed struct {
	batches []Batch
	bytes   int
}

func (m *missed) keep(b Batch) {
	if m == nil || m.bytes > maxMissed {
		return
	}
	c := Batch{Seq: b.Seq, Rows: make([]Row, len(b.Rows))}
	for i, r := range b.Rows {
		c.Rows[i] = Row{r.Bucket, bytes.Clone(r.Key), cloneValue(r.Value)}
		m.bytes += len(r.Key) + len(r.Value)
	}
	m.batches = append(m.batches, c)
}

// sparse reports whether free pages are most of the database, and more than two steps of growth.
func (s *Bolt) sparse() bool {
	used, live := s.used.Load(), s.live.Load()
	return live < used/2 && used-live > 2*s.opts.StepBytes
}

// Shrink rewrites the database where most of it is free pages, and reports whether it did. After an error that Is ErrNoSpace, or when there
// were too many commits, nothing has changed.
func (s *Bolt) Shrink() (done bool, err error) {
	s.backups.Lock()
	defer s.backups.Unlock()
	if !s.sparse() {
		return false, nil
	}
	if free, err := available(s.dir); err == nil && free < s.backupBytes() {
		return false, fmt.Errorf("cannot shrink %s: %d MiB are free, %d are needed: %w", s.path, free>>20, s.backupBytes()>>20, ErrNoSpace)
	}
	s.mu.Lock()
	s.missed = &missed{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.missed = nil
		s.mu.Unlock()
	}()
	tmp := s.path + ".new"
	was := s.Size()
	h, err := s.copyShrunk(tmp)
	if err == nil {
		failpoint.Hit("shrink.copied")
		err = s.adoptShrunk(tmp, h)
	}
	if err != nil {
		_ = os.Remove(tmp)
		return false, noSpace(fmt.Errorf("cannot shrink %s: %w", s.path, err))
	}
	s.opts.Log.Info("the state database has been rewritten without its free pages", "path", s.path, "was_mib", was>>20,
		"is_mib", s.Size()>>20)
	return true, nil
}

// copyShrunk makes a copy of the rows of some moment from now on, on disk and read back, and returns its head. Both its meta pages are the
// same.
func (s *Bolt) copyShrunk(tmp string) (*head, error) {
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := s.usable(); err != nil {
		return nil, err
	}
	if err := guard(func() error { return compact(tmp, s.db.Load()) }); err != nil {
		return nil, err
	}
	r, err := verify(tmp, nil)
	if err != nil {
		return nil, err
	}
	return r.head, rewrite(tmp, r.head)
}

// adoptShrunk brings the copy, whose head is h, up to the last commit and replaces the database with it.
func (s *Bolt) adoptShrunk(tmp string, h *head) error {
	db, f, err := openBolt(tmp, s.opts.MapBytes)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err = s.catchUp(db, h); err == nil {
		err = os.Rename(tmp, s.path)
	}
	if err != nil {
		return errors.Join(err, db.Close())
	}
	failpoint.Hit("shrink.renamed")
	if err := syncDir(s.dir); err != nil { // a power cut could leave either of the two
		return errors.Join(s.breakDown(fmt.Errorf("cannot replace %s: %w", s.path, err)), letGo(f))
	}
	old := s.db.Swap(db)
	s.file, s.tight = f, tight{}
	info, err := f.Stat()
	if err != nil {
		return s.breakDown(err)
	}
	s.space = space{f: f, taken: min(info.Size(), blocks(info)), step: s.opts.StepBytes, reserve: s.opts.ReserveBytes}
	s.settle()
	s.space.taken = max(s.space.taken, s.used.Load())
	if err := guard(old.Close); err != nil {
		s.opts.Log.Warn("cannot close the state database that was replaced", "path", s.path, "error", err)
	}
	if err := s.space.ensure(s.used.Load() + s.opts.ReserveBytes); err != nil {
		s.opts.Log.Warn("the reserved disk space of the state database is missing", "path", s.path, "error", err)
	}
	return nil
}

// catchUp commits to the copy, whose head is h, the batches that it lacks.
func (s *Bolt) catchUp(db *bbolt.DB, h *head) error {
	if s.missed.bytes > maxMissed {
		return fmt.Errorf("more than %d MiB were committed meanwhile", maxMissed>>20)
	}
	if err := s.usable(); err != nil {
		return err
	}
	for _, b := range s.missed.batches {
		if b.Seq <= h.seq {
			continue
		}
		if err := replayBatch(db, h, b); err != nil {
			return err
		}
	}
	db.NoSync = false
	if !bytes.Equal(h.encode(), s.head.encode()) {
		return fmt.Errorf("the copy ends with batch %d, not %d", h.seq, s.head.seq)
	}
	return db.Sync()
}
