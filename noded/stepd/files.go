package stepd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/noded/cgroup"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// stdio are descriptors 0, 1 and 2 of the first process.
type stdio struct {
	in, out, err int // err may equal out
}

func (s *stdio) close() {
	if s.err == s.out {
		s.err = -1
	}
	for _, fd := range []int{s.in, s.out, s.err} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	*s = stdio{-1, -1, -1}
}

// fileError is a file of the user's that cannot be opened: the job's fault, never the node's.
type fileError struct {
	what, path string
	err        error
}

func (e *fileError) Error() string {
	return fmt.Sprintf("cannot open %s file %s: %v", e.what, e.path, e.err)
}

// openStdio runs as the user. An open may block for ever (a FIFO without a reader, a dead NFS server): the step's run goroutine
// continues without it. Error and output of the same path share one open file, as in Slurm: two would overwrite each other.
// missing is the working directory if it cannot be entered: it is not created.
func openStdio(b *pb.Bundle, missing string) (stdio, error) {
	s := stdio{-1, -1, -1}
	var err error
	rules := b.Limits.GetDevices()
	if s.in, err = openIn(b.StdIn, rules); err != nil {
		return s, err
	}
	if s.out, err = openOut("output", b.StdOut, missing, rules); err != nil {
		s.close()
		return s, err
	}
	if b.StdErr.GetPath() == "" || b.StdErr.GetPath() == b.StdOut.GetPath() {
		s.err = s.out
		return s, nil
	}
	if s.err, err = openOut("error", b.StdErr, missing, rules); err != nil {
		s.close()
	}
	return s, err
}

func openIn(f *pb.StdFile, rules []*pb.DeviceRule) (int, error) {
	path := named(f)
	fd, err := open(path, unix.O_RDONLY|unix.O_NOCTTY, 0, rules)
	if err != nil {
		return -1, notOpened("input", path, err)
	}
	return fd, nil
}

// openOut creates missing parent directories, as Slurm does since 23.02.
func openOut(what string, f *pb.StdFile, missing string, rules []*pb.DeviceRule) (int, error) {
	path := named(f)
	flags := unix.O_CREAT | unix.O_WRONLY | unix.O_NOCTTY | unix.O_TRUNC
	if f.GetAppend() {
		flags = unix.O_CREAT | unix.O_WRONLY | unix.O_NOCTTY | unix.O_APPEND
	}
	fd, err := open(path, flags, 0o666, rules)
	if err == unix.ENOENT && missing != "" && within(path, missing) {
		return -1, &fileError{what, path, fmt.Errorf("the working directory %s does not exist on this node", missing)}
	}
	if err == unix.ENOENT {
		if merr := mkdirParents(filepath.Dir(path)); merr != nil {
			return -1, &fileError{what, path, merr}
		}
		fd, err = open(path, flags, 0o666, rules)
	}
	if err != nil {
		return -1, notOpened(what, path, err)
	}
	return fd, nil
}

// notOpened decides whose fault a failed open is. A lack of descriptors or memory is the node's fault. But a user's own file
// system may report it at will, and must not drain nodes, so it counts only if a file of the node cannot be opened either.
func notOpened(what, path string, err error) error {
	if scarceFiles(err) {
		fd, oerr := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if scarceFiles(oerr) {
			return fmt.Errorf("cannot open %s file %s: %w", what, path, err)
		}
		unix.Close(fd)
	}
	return &fileError{what, path, err}
}

func scarceFiles(err error) bool {
	return err == unix.EMFILE || err == unix.ENFILE || err == unix.ENOMEM
}

// open avoids descriptors 0–2, with which the child's dup would collide, and refuses paths that are not absolute and devices that
// are closed to the step: this thread is not in the step's cgroup, so the kernel would allow them.
func open(path string, flags int, mode uint32, rules []*pb.DeviceRule) (int, error) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return -1, unix.EINVAL
	}
	var st unix.Stat_t
	if len(rules) > 0 && unix.Stat(path, &st) == nil && closed(&st, rules) {
		return -1, errNotYours // before anything happens to the device
	}
	for {
		fd, err := openPath(path, flags, mode)
		if err == unix.EINTR {
			continue
		}
		if err == nil && len(rules) > 0 && (unix.Fstat(fd, &st) != nil || closed(&st, rules)) {
			unix.Close(fd) // the path leads to another file meanwhile
			return -1, errNotYours
		}
		if err == nil && inProc(fd) {
			unix.Close(fd)
			return -1, errInProc
		}
		return fd, err
	}
}

// errNotYours is the device controller's error, with the reason.
var errNotYours = fmt.Errorf("%w: a device of this node that is not allocated to the job", unix.EPERM)

func closed(st *unix.Stat_t, rules []*pb.DeviceRule) bool {
	block, major, minor, device := cgroup.Device(st)
	return device && !cgroup.Allowed(rules, block, major, minor)
}

func within(path, dir string) bool {
	return strings.HasPrefix(path, strings.TrimSuffix(filepath.Clean(dir), "/")+"/")
}

func mkdirParents(dir string) error {
	err := unix.Mkdir(dir, 0o755)
	if err == unix.ENOENT && dir != "/" {
		if err := mkdirParents(filepath.Dir(dir)); err != nil {
			return err
		}
		err = unix.Mkdir(dir, 0o755)
	}
	if err == nil || err == unix.EEXIST {
		return nil
	}
	return fmt.Errorf("cannot create directory %s: %w", dir, err)
}

// chdirOrTmp changes the thread's working directory to dir, else to /tmp; note is Slurm's line about that.
func chdirOrTmp(dir string) (note string, err error) {
	why := chdir(dir)
	if why == nil {
		return "", nil
	}
	note = fmt.Sprintf("couldn't chdir to `%s': %s: going to /tmp instead", dir, sentence(why))
	if err := unix.Chdir("/tmp"); err != nil {
		return note, fmt.Errorf("cannot enter working directory %s (%v), nor /tmp: %w", dir, why, err)
	}
	return note, nil
}

// sentence spells an errno as the C library does: "No such file or directory".
func sentence(err error) string {
	var e unix.Errno
	if !errors.As(err, &e) {
		return err.Error()
	}
	s := e.Error()
	return strings.ToUpper(s[:1]) + s[1:]
}

// regular reports whether fd is a regular file: writes neither block nor wake a reader that waits for the end.
func regular(fd int) bool {
	var st unix.Stat_t
	return fd >= 0 && unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
}
