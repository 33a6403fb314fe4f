package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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

// BackupNow writes a backup file, reads it back from the disk in full, and only then gives it its name. It returns its path, or that
// of the newest backup if nothing was committed since. It refuses with ErrNoSpace to take what the reserve of the database may need.
// Commits go on meanwhile.
func (s *Bolt) BackupNow() (string, error) {
	s.backups.Lock()
	defer s.backups.Unlock()
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
	if _, err = s.Backup(f); err == nil {
		if err = f.Sync(); err == nil {
			_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) // what is read back should come from the disk
			r, err = verify(tmp, nil)
		}
	}
	if err != nil {
		return "", publish(f, filepath.Join(dir, "new.db"), err)
	}
	path := filepath.Join(dir, fmt.Sprintf(backupFormat, r.head.epoch, r.head.seq, s.opts.Now().UTC().Format("20060102T150405Z")))
	if err := publish(f, path, nil); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newSegment()
	return path, nil
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
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return nil // writing will tell
	}
	free, need := int64(st.Bavail)*st.Bsize, s.Size()+s.opts.ReserveBytes
	if free < need {
		return fmt.Errorf("cannot back up %s: %d MiB are free, %d are needed: %w", s.path, free>>20, need>>20, ErrNoSpace)
	}
	return nil
}

// RotateBackups deletes the oldest backups, and what interrupted ones left, so that keep (at least 1) remain.
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
	for _, name := range names[:max(0, len(names)-max(keep, 1))] {
		if err := os.Remove(filepath.Join(backupDir(s.dir), name)); err != nil {
			errs = append(errs, fmt.Errorf("cannot delete an old backup: %w", err))
		}
	}
	if keep = max(keep, 1); len(names) > 0 {
		errs = append(errs, s.dropSegments(names[max(0, len(names)-min(keep, 2))]))
	}
	return errors.Join(errs...)
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

// Backuper makes backups from time to time. Its Run is the one goroutine it needs.
type Backuper struct {
	Store *Bolt
	Every time.Duration // one hour if 0
	// First is how long after Run begins the first one is due: a new cluster is soon covered, and a gap that a power cut left in the
	// redo log soon closed. One minute if 0.
	First time.Duration
	Keep  int // 8 if 0
	Log   *slog.Logger
	// Done, if not nil, is told of every attempt; tests wait for it.
	Done func(path string, err error)
}

// Run makes backups until ctx ends. It logs what fails and goes on.
func (b *Backuper) Run(ctx context.Context) {
	every, first := cmpOr(b.Every, time.Hour), cmpOr(b.First, time.Minute)
	timer := time.NewTimer(min(first, every))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-b.Store.wanted:
		}
		b.once()
		timer.Reset(every)
	}
}

func cmpOr(d, def time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return def
}

// once makes a backup; on a full disk it gives up the oldest one first.
func (b *Backuper) once() {
	keep := b.Keep
	if keep <= 0 {
		keep = 8
	}
	path, err := b.Store.BackupNow()
	if errors.Is(err, ErrNoSpace) {
		if names, _ := backupFiles(b.Store.dir); len(names) > 1 {
			_ = b.Store.RotateBackups(len(names) - 1)
			path, err = b.Store.BackupNow()
		}
	}
	if err == nil {
		err = b.Store.RotateBackups(keep)
	}
	if err != nil && b.Log != nil {
		b.Log.Error("cannot back up the state database", "error", err)
	}
	if b.Done != nil {
		b.Done(path, err)
	}
}
