package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/bbolt"
)

// Migrate turns a value that schema from wrote into one of the current schema. It returns nil to delete the row, and may return value
// itself. It must be a pure function: it runs again if the controller dies meanwhile.
type Migrate func(from uint32, b Bucket, key, value []byte) ([]byte, error)

// migrate brings the rows to the schema of this program, in one transaction, after a backup of what they were.
func (s *Bolt) migrate() error {
	from, to := s.head.schema, s.opts.Schema
	switch {
	case from == to:
		return nil
	case s.opts.Migrate == nil:
		return fmt.Errorf("cannot open %s: there is no migration from schema %d to %d", s.path, from, to)
	}
	if err := s.keepBackup(); err != nil {
		return fmt.Errorf("cannot migrate from schema %d to %d: %w", from, to, err)
	}
	next := s.head
	next.schema = to
	err := transact(s.db.Load(), func(tx *bbolt.Tx) error {
		if err := makeBuckets(tx); err != nil {
			return err
		}
		rows, err := s.migrated(tx, from)
		if err != nil {
			return err
		}
		if err := errors.Join(s.room(tx, rows, false), apply(tx, rows, &next)); err != nil {
			return err
		}
		return putHead(tx, &next)
	})
	if err != nil {
		return noSpace(fmt.Errorf("cannot migrate %s from schema %d to %d: %w", s.path, from, to, err))
	}
	s.head = next
	s.opts.Log.Info("migrated the state database", "from", from, "to", to)
	return nil
}

// Backups of what an older version wrote have names of their own, and are not deleted with the others.
const (
	keptPrefix = "upgrade-"
	keptMost   = 2
)

// keepBackup makes a backup, or takes the newest if that has everything, and gives it a second name. It keeps keptMost of those.
func (s *Bolt) keepBackup() error {
	path, err := s.BackupNow()
	if err != nil {
		return err
	}
	dir := backupDir(s.dir)
	kept := filepath.Join(dir, keptPrefix+filepath.Base(path))
	if err := os.Link(path, kept); err != nil && !errors.Is(err, fs.ErrExist) {
		return noSpace(fmt.Errorf("cannot keep a backup: %w", err))
	}
	if err := syncDir(dir); err != nil {
		return err
	}
	s.opts.Log.Info("an older version wrote the state database: a backup of it is kept", "backup", kept)
	all, err := filepath.Glob(filepath.Join(dir, keptPrefix+"e*.db"))
	for _, old := range all[:max(0, len(all)-keptMost)] { // Glob sorts
		err = errors.Join(err, os.Remove(old))
	}
	return err
}

// wayBack says what to do with a database that a newer version wrote: with the newest of the kept backups that this version can read, if
// there is one.
func (s *Bolt) wayBack() string {
	all, _ := filepath.Glob(filepath.Join(backupDir(s.dir), keptPrefix+"e*.db")) // sorted
	for _, path := range slices.Backward(all) {
		if r, err := verify(path, nil); err == nil && r.head.schema <= s.opts.Schema {
			return fmt.Sprintf("install the newer version again, or return to the state before the upgrade, losing what was submitted "+
				"since: %s --from %s", s.opts.RestoreCommand, path)
		}
	}
	return "install the newer version again, or restore a backup made before it ran"
}

// beforeNewRows keeps a backup before rows of a kind are written that the version which wrote the database does not know. Without room for
// it the controller starts nevertheless: it can record how jobs end.
func (s *Bolt) beforeNewRows() {
	lacking := false
	_ = s.db.Load().View(func(tx *bbolt.Tx) error {
		for b := Bucket(1); b <= lastBucket; b++ {
			lacking = lacking || tx.Bucket([]byte(b.String())) == nil
		}
		return nil
	})
	if !lacking {
		return
	}
	if err := s.keepBackup(); err != nil {
		s.opts.Log.Warn("no backup of what an older version wrote: only a backup made before can be used to go back to that version",
			"error", err)
	}
}

// migrated collects the rows that change; a bolt bucket must not be changed while it is read.
func (s *Bolt) migrated(tx *bbolt.Tx, from uint32) ([]Row, error) {
	var rows []Row
	for b := Bucket(1); b <= lastBucket; b++ {
		err := tx.Bucket([]byte(b.String())).ForEach(func(key, stored []byte) error {
			value, _, err := unseal(b, key, stored)
			if err == nil {
				value, err = s.opts.Migrate(from, b, key, value)
			}
			if err != nil {
				return fmt.Errorf("cannot migrate %s: %w", describe(b, key), err)
			}
			rows = append(rows, Row{b, append([]byte{}, key...), cloneValue(value)})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// cloneValue copies a value; nil stays nil, empty stays empty.
func cloneValue(v []byte) []byte {
	if v == nil {
		return nil
	}
	return append([]byte{}, v...)
}
