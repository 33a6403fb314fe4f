// Package pidfile writes the pid file that slurm.conf(5) may name (SlurmctldPidFile, SlurmdPidFile), for watchdogs and
// scripts written for Slurm. Sluice itself never reads it.
package pidfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/sluice-hpc/sluice/internal/trusted"
	"golang.org/x/sys/unix"
)

// maxSize bounds how much of an existing file is read: it holds one number.
const maxSize = 64

// File is this process's pid file. It stays locked for the life of the process (F_OFD_SETLK of fcntl(2), a write lock, which
// requires write access), and the process can write it after changing its user. Remove may be called on nil.
type File struct {
	dir  *os.File
	name string
	file *os.File
}

// Write writes this process's id as a line into the file at path, which must be absolute. Only root and owners may be able to
// change the directory or own the file. A file that is locked belongs to a running daemon; Write then fails and leaves it alone.
// Slurm's daemons lock theirs, too (with F_SETLK, which conflicts with our lock). A file without a lock is replaced, whichever
// process now has its number. A file with other content than a number is also an error and left alone.
func Write(path string, owners ...uint32) (*File, error) {
	dir, err := trusted.Path(filepath.Dir(path), owners...)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	f := &File{dir: os.NewFile(uintptr(fd), dir), name: filepath.Base(path)}
	if err := f.write(owners); err != nil {
		f.close()
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, f.name), err)
	}
	return f, nil
}

// tries bounds how often the file is reopened because its owner has just removed it.
const tries = 100

func (f *File) write(owners []uint32) error {
	for range tries {
		err := f.take(owners)
		if err == nil {
			return f.fill()
		}
		if !errors.Is(err, errGone) {
			return err
		}
	}
	return errGone
}

var errGone = errors.New("it keeps being removed")

// take opens the file and locks it.
func (f *File) take(owners []uint32) error {
	const flags = unix.O_RDWR | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	fd, err := unix.Openat(int(f.dir.Fd()), f.name, flags, 0o644)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), f.name)
	if err := f.lock(file, append([]uint32{0}, owners...)); err != nil {
		_ = file.Close()
		return err
	}
	f.file = file
	return nil
}

func (f *File) lock(file *os.File, owners []uint32) error {
	fi, err := file.Stat()
	if err != nil {
		return err
	}
	st := fi.Sys().(*syscall.Stat_t)
	switch {
	case !fi.Mode().IsRegular() || st.Nlink > 1:
		return errors.New("it is not a plain file with one name")
	case !slices.Contains(owners, st.Uid):
		return fmt.Errorf("it belongs to uid %d", st.Uid)
	}
	locked := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart})
	pid, err := idIn(file)
	switch {
	case errors.Is(locked, unix.EAGAIN) && err == nil && pid > 0:
		return fmt.Errorf("it is that of process %d, which is running", pid)
	case errors.Is(locked, unix.EAGAIN): // it may be writing the file
		return errors.New("it is that of another process, which is running")
	case locked != nil:
		return locked
	case !f.is(file):
		return errGone
	case err != nil:
		return err
	}
	return nil
}

// idIn reads the number in a file, 0 if it is empty.
func idIn(file *os.File) (int, error) {
	content, err := io.ReadAll(io.LimitReader(file, maxSize))
	if err != nil {
		return 0, err
	}
	text := strings.TrimSpace(string(content))
	if text == "" && len(content) < maxSize {
		return 0, nil
	}
	pid, err := strconv.ParseUint(text, 10, 31)
	if err != nil || len(content) == maxSize {
		return 0, errors.New("it is no pid file: it has something else in it than the number of a process")
	}
	return int(pid), nil
}

// is reports whether the name still refers to the open file.
func (f *File) is(file *os.File) bool {
	var named, open unix.Stat_t
	return unix.Fstatat(int(f.dir.Fd()), f.name, &named, unix.AT_SYMLINK_NOFOLLOW) == nil && unix.Fstat(int(file.Fd()), &open) == nil &&
		named.Dev == open.Dev && named.Ino == open.Ino
}

// fill writes the number before truncating the rest, so that a reader never finds the file empty, unless it is new.
func (f *File) fill() error {
	line := strconv.Itoa(os.Getpid()) + "\n"
	if _, err := f.file.WriteAt([]byte(line), 0); err != nil {
		return err
	}
	return f.file.Truncate(int64(len(line)))
}

// Remove is called at the end of the daemon. It removes the file, or empties it if the user may not change the directory (any
// more). If the file has been replaced, it leaves the new one alone.
func (f *File) Remove() error {
	if f == nil {
		return nil
	}
	defer f.close()
	if !f.is(f.file) {
		return nil
	}
	if unix.Unlinkat(int(f.dir.Fd()), f.name, 0) == nil {
		return nil
	}
	return f.file.Truncate(0)
}

func (f *File) close() {
	_ = f.dir.Close()
	if f.file != nil {
		_ = f.file.Close()
	}
}
