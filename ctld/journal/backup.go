package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// Backups are named by epoch, sequence number and time, so that they sort by age: a sequence number alone goes back with a restore.
const backupFormat = "e%08d-s%016d-%s.db"

func backupDir(dir string) string { return filepath.Join(dir, "backup") }

// backupFiles lists the backups by name, oldest first.
func backupFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(backupDir(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list the backups: %w", err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "e") && strings.HasSuffix(e.Name(), ".db") {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// BackupNow writes a backup file, reads it back from the disk in full, and only then gives it its name. It returns its path, or that of the
// newest backup if nothing was committed since. It returns ErrNoSpace rather than take space that the database's reserve may need. Commits
// go on meanwhile.
func (s *Bolt) BackupNow() (path string, err error) {
	s.backups.Lock()
	defer s.backups.Unlock()
	defer func() {
		if err == nil {
			s.backed.Store(time.Now().UnixNano())
		}
	}()
	dir := backupDir(s.dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", noSpace(fmt.Errorf("cannot back up: %w", err))
	}
	if path := s.unchanged(); path != "" {
		return path, nil
	}
	if err := s.roomForBackup(dir); err != nil {
		return "", err
	}
	tmp := filepath.Join(dir, "new.tmp")
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return "", noSpace(fmt.Errorf("cannot back up: %w", err))
	}
	var r report
	if err = s.copyTo(f); err == nil {
		if err = f.Sync(); err == nil {
			_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) // so that the check reads from the disk
			r, err = verify(tmp, nil)
		}
	}
	if err != nil {
		return "", publish(f, filepath.Join(dir, "new.db"), err)
	}
	path = filepath.Join(dir, fmt.Sprintf(backupFormat, r.head.epoch, r.head.seq, s.opts.Now().UTC().Format("20060102T150405Z")))
	if err := publish(f, path, nil); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newSegment()
	return path, nil
}

// copyTo writes a copy: normally page by page, but row by row where much of the database is free.
func (s *Bolt) copyTo(f *os.File) error {
	if s.byPage() {
		_, err := s.Backup(f)
		return err
	}
	if err := s.usable(); err != nil {
		return err
	}
	if err := guard(func() error { return compact(f.Name(), s.db.Load()) }); err != nil {
		return noSpace(fmt.Errorf("cannot back up %s: %w", s.path, err))
	}
	return nil
}

func (s *Bolt) byPage() bool { return s.live.Load() > s.Size()/3*2 }

// copySlack bounds the free pages in a copy. Each of its transactions may rewrite the last four rows of the previous one.
const copySlack = 4 * 4 << 20

// backupBytes is the maximum size of a backup made now: a copy by page includes the free pages.
func (s *Bolt) backupBytes() int64 {
	if s.byPage() {
		return s.Size()
	}
	live := s.live.Load()
	return live + min(live, copySlack)
}

// compact writes a consistent copy of the rows of src into the empty file at path. It does not sync it.
func compact(path string, src *bbolt.DB) error {
	dst, _, err := openBolt(path, 0)
	if err != nil {
		return err
	}
	dst.NoSync, dst.NoGrowSync, dst.AllocSize = true, true, 1<<20
	return errors.Join(src.View(func(tx *bbolt.Tx) error { return copyRows(dst, tx) }), dst.Close())
}

// copyRows commits a few MiB at a time. bbolt.Compact does too, but ends its read transaction before it writes the last rows, whose pages
// may be reused by then.
func copyRows(dst *bbolt.DB, src *bbolt.Tx) error {
	return src.ForEach(func(name []byte, from *bbolt.Bucket) error {
		rows := from.Cursor()
		k, v := rows.First()
		for begun := false; !begun || k != nil; begun = true {
			if err := dst.Update(func(tx *bbolt.Tx) error {
				to, err := tx.CreateBucketIfNotExists(name)
				if err != nil {
					return err
				}
				to.FillPercent = 1
				for size := 0; k != nil && size < 8<<20; k, v = rows.Next() {
					if err := to.Put(k, v); err != nil {
						return err
					}
					size += len(k) + len(v)
				}
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

// LastBackup returns the time when a backup was last found complete; before the first one of this process, the time when the newest file
// was written. It is the zero time when there is none.
func (s *Bolt) LastBackup() time.Time {
	if at := s.backed.Load(); at != 0 {
		return time.Unix(0, at)
	}
	names, err := backupFiles(s.dir)
	if err != nil || len(names) == 0 {
		return time.Time{}
	}
	fi, err := os.Stat(filepath.Join(backupDir(s.dir), names[len(names)-1]))
	if err != nil {
		return time.Time{}
	}
	return fi.ModTime()
}

// unchanged returns the newest backup if it already holds the last commit.
func (s *Bolt) unchanged() string {
	s.mu.Lock()
	prefix := fmt.Sprintf("e%08d-s%016d-", s.head.epoch, s.head.seq)
	s.mu.Unlock()
	names, err := backupFiles(s.dir)
	if err != nil || len(names) == 0 || !strings.HasPrefix(names[len(names)-1], prefix) {
		return ""
	}
	return filepath.Join(backupDir(s.dir), names[len(names)-1])
}

func (s *Bolt) roomForBackup(dir string) error {
	free, err := available(dir)
	if err != nil {
		return nil // writing will show it
	}
	if need := s.backupBytes() + s.opts.ReserveBytes; free < need {
		return fmt.Errorf("cannot back up %s: %d MiB are free, %d are needed: %w", s.path, free>>20, need>>20, ErrNoSpace)
	}
	return nil
}

// RotateBackups deletes the oldest backups and the leftovers of interrupted ones, so that keep (at least 1) remain; fewer where the older
// ones take more than their share of the disk (withinShare).
func (s *Bolt) RotateBackups(keep int) error {
	s.backups.Lock()
	defer s.backups.Unlock()
	names, err := backupFiles(s.dir)
	if err != nil {
		return err
	}
	var errs []error
	if err := os.Remove(filepath.Join(backupDir(s.dir), "new.tmp")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	keep = s.withinShare(names, max(keep, 1))
	for _, name := range names[:max(0, len(names)-keep)] {
		if err := os.Remove(filepath.Join(backupDir(s.dir), name)); err != nil {
			errs = append(errs, fmt.Errorf("cannot delete an old backup: %w", err))
		}
	}
	if len(names) > 0 {
		errs = append(errs, s.dropSegments(names[max(0, len(names)-min(keep, 2))]))
	}
	return errors.Join(errs...)
}

// Limits of the disk space of backups.
const (
	backupShare = 8         // times the newest of them,
	backupFloor = 256 << 20 // or this if it is more
)

// withinShare returns how many of the newest backups, at most keep, fit in their share of the disk. The newest always does.
func (s *Bolt) withinShare(names []string, keep int) int {
	left := int64(backupFloor)
	for i := range min(keep, len(names)) {
		info, err := os.Stat(filepath.Join(backupDir(s.dir), names[len(names)-1-i]))
		if err != nil {
			continue
		}
		size := info.Size()
		if i == 0 {
			left = max(left, backupShare*size)
		}
		if left -= size; left < 0 && i > 0 {
			return i
		}
	}
	return keep
}

// dropSegments deletes the segments of the redo log that end before the named backup: those that have a successor not newer than it.
func (s *Bolt) dropSegments(oldest string) error {
	logs, err := redoFiles(s.dir)
	if err != nil {
		return err
	}
	var errs []error
	for i := 0; i+1 < len(logs) && backupKey(logs[i+1]) <= backupKey(oldest); i++ {
		errs = append(errs, os.Remove(filepath.Join(backupDir(s.dir), logs[i])))
	}
	return errors.Join(errs...)
}

// backupKey is the part of a name by which backups and segments sort: epoch and sequence number.
func backupKey(name string) string { return name[:min(len(name), len("e00000000-s0000000000000000"))] }
