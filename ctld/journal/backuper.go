package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// Backuper makes backups periodically, and early when the journal asks for one: because the redo log has become long, or a commit found no
// room. On a full disk a small fresh backup replaces the old ones and the redo log. Run is its only goroutine.
type Backuper struct {
	Store *Bolt
	Every time.Duration // one hour if 0
	// First is the delay of the first backup after Run begins: it covers a new cluster soon, and closes a gap that a power cut left in the
	// redo log. One minute if 0.
	First time.Duration
	// Retry is the pause after a full disk before another request is heard. Five seconds if 0: each refused submission makes a request.
	Retry time.Duration
	Keep  int // 8 if 0
	Log   *slog.Logger
	// Done, if not nil, is called after every attempt; tests wait for it.
	Done func(path string, err error)
}

// Run makes backups until ctx ends. It logs failures and goes on.
func (b *Backuper) Run(ctx context.Context) {
	every, first, retry := cmpOr(b.Every, time.Hour), cmpOr(b.First, time.Minute), cmpOr(b.Retry, 5*time.Second)
	timer, lull := time.NewTimer(min(first, every)), time.NewTimer(retry)
	defer timer.Stop()
	defer lull.Stop()
	wanted := b.Store.wanted
	for {
		select {
		case <-ctx.Done():
			return
		case <-lull.C:
			wanted = b.Store.wanted
			continue
		case <-timer.C:
		case <-wanted:
		}
		roomy, err := b.once()
		next := every
		if err != nil {
			next = min(every, 12*retry)
		}
		timer.Reset(next)
		if !roomy {
			wanted = nil
			lull.Reset(retry)
		}
	}
}

func cmpOr(d, def time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return def
}

// once makes a backup, and reports whether the disk has room for it, for another one and for the database.
func (b *Backuper) once() (roomy bool, err error) {
	keep := b.Keep
	if keep <= 0 {
		keep = 8
	}
	roomy = !b.Store.short.Swap(false)
	if _, err := b.Store.Shrink(); err != nil && b.Log != nil {
		b.Log.Warn("the state database keeps its free pages for now", "error", err)
	}
	path, err := b.Store.BackupNow()
	if errors.Is(err, ErrNoSpace) {
		roomy = false
		path, err = b.Store.squeeze()
	}
	if err == nil {
		roomy = roomy && b.Store.roomForBackup(backupDir(b.Store.dir)) == nil
		if !roomy {
			keep = 1
		}
		err = b.Store.RotateBackups(keep)
	}
	if b.Log != nil {
		switch {
		case err != nil:
			b.Log.Error("cannot back up the state database", "error", err)
		case !roomy:
			b.Log.Warn("the disk of the state database is nearly full: only the newest backup is kept, and a new redo log is started",
				"backup", path)
		default:
			b.Log.Info("state backed up", "backup", path)
		}
	}
	if b.Done != nil {
		b.Done(path, err)
	}
	return roomy, err
}

// squeeze makes a backup where there is no room for one. It deletes the older backups first, then the redo log, which guards against damage
// to the database only; with their room the database may shrink. The newest backup stays until there is another.
func (s *Bolt) squeeze() (path string, err error) {
	if err := s.RotateBackups(1); err != nil {
		return "", err
	}
	if path, err = s.BackupNow(); !errors.Is(err, ErrNoSpace) {
		return path, err
	}
	if lerr := s.dropLog(); lerr != nil {
		return "", errors.Join(err, lerr)
	}
	_, serr := s.Shrink()
	if path, err = s.BackupNow(); err != nil {
		err = errors.Join(err, serr)
	}
	return path, err
}

// dropLog deletes the redo log. It begins again with the next backup.
func (s *Bolt) dropLog() error {
	s.backups.Lock()
	defer s.backups.Unlock()
	s.mu.Lock()
	s.redo.stop()
	s.mu.Unlock()
	logs, err := redoFiles(s.dir)
	if err != nil || len(logs) == 0 {
		return err
	}
	s.opts.Log.Warn("the disk of the state database is full: the redo log is deleted; a restore would recover only the last backup",
		"segments", len(logs))
	var errs []error
	for _, name := range logs {
		if err := os.Remove(filepath.Join(backupDir(s.dir), name)); err != nil {
			errs = append(errs, fmt.Errorf("cannot delete the redo log: %w", err))
		}
	}
	return errors.Join(errs...)
}
