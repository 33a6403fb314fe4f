package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// dirLock is the right to write to a state directory. The kernel releases it when the process dies.
type dirLock struct{ f *os.File }

// lockDir takes the lock at once or names its holder. The lock is not on the database itself: a restore replaces that file.
func lockDir(dir string) (*dirLock, error) {
	path := filepath.Join(dir, "sluice.lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the state directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("cannot lock %s: %w", path, err)
		}
		return nil, fmt.Errorf("cannot open %s: %s is using it: stop that one first, or give this one its own StateSaveLocation: %w",
			dir, holder(f), ErrLocked)
	}
	// The pid is only for the error message of a second controller; a full disk must not keep a controller from starting.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return &dirLock{f}, nil
}

func holder(f *os.File) string {
	var b [32]byte
	n, _ := f.ReadAt(b[:], 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		return "another sluice-ctld"
	}
	return fmt.Sprintf("another sluice-ctld (pid %d)", pid)
}

func (l *dirLock) release() error { return l.f.Close() }
