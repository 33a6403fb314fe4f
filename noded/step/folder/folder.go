// Package folder is the layout of one step attempt's directory in the node's spool. The node daemon (package step) and
// the shim (package stepd) share it and must agree on it across versions: a shim may be older than the node daemon that
// finds it.
package folder

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Names inside the spool and inside a step's directory.
const (
	Steps  = "steps"
	Shims  = "shims"
	New    = ".new-"  // prefix of a directory that no shim has accepted
	Free   = ".free-" // prefix of a directory that waits for the next step of the same user
	Bundle = "bundle.pb"
	Script = "slurm_script" // Slurm's name, which scripts look for in $0
	Exit   = "exit.pb"
	tmp    = ".exit.tmp"
)

// maxFile bounds the files read back: script and environment are limited to 5 MiB together at submission.
const maxFile = 64 << 20

// Name is "<job>.<attempt>.<step>", the directory name of a step attempt. It omits the epoch, which tells who may give orders,
// not what runs.
func Name(k *pb.StepKey) string {
	return fmt.Sprintf("%d.%d.%d", k.GetJobId(), k.GetAttempt(), k.GetStep())
}

// OfContainer is the directory name of a step's container (package container), in a form that package private deletes.
func OfContainer(k *pb.StepKey) string { return "job_" + Name(k) }

// Socket is the path of a shim's socket, named by the shim's pid. The node daemon creates the name; the shim removes it at its
// end.
func Socket(spool string, pid int) string { return filepath.Join(spool, Shims, strconv.Itoa(pid)) }

// ParseName is the reverse of Name, with epoch 0.
func ParseName(s string) (*pb.StepKey, error) {
	f := strings.Split(s, ".")
	var n [3]uint32
	for i := range f {
		v, err := strconv.ParseUint(f[i], 10, 32)
		if len(f) != 3 || err != nil || strconv.FormatUint(v, 10) != f[i] {
			return nil, fmt.Errorf("cannot read %q as a step directory: want job.attempt.step", s)
		}
		n[i] = uint32(v)
	}
	return &pb.StepKey{JobId: n[0], Attempt: n[1], Step: n[2]}, nil
}

// Write creates dir with the bundle and the script, which the job's user may read; chown: the user is another one (owner.go).
// Nothing is synced: after a power cut nothing of the step runs, and a lost or torn bundle belongs to a step that never ended.
func Write(dir string, b *pb.Bundle, script []byte, chown bool) error {
	raw, err := proto.Marshal(b)
	if err != nil {
		return fmt.Errorf("cannot encode bundle: %w", err)
	}
	if err := unix.Mkdir(dir, 0o711); err != nil {
		return &os.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	if err := unix.Chmod(dir, 0o711); err != nil { // whatever the umask: the user's shell must reach the script
		return &os.PathError{Op: "chmod", Path: dir, Err: err}
	}
	if err := put(filepath.Join(dir, Bundle), raw, 0o600, nil); err != nil {
		return err
	}
	if script == nil {
		return nil
	}
	return put(filepath.Join(dir, Script), script, 0o500, readerOf(b, chown))
}

// reader is a user who may read a root-owned file.
type reader struct{ uid, gid uint32 }

func readerOf(b *pb.Bundle, chown bool) *reader {
	if !chown || b.Uid == 0 {
		return nil
	}
	return &reader{b.Uid, b.Gid}
}

// put creates a file; the mode is exact, whatever the umask.
func put(path string, data []byte, mode uint32, to *reader) (err error) {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, mode)
	if err != nil {
		return &os.PathError{Op: "create", Path: path, Err: err}
	}
	defer func() {
		if cerr := unix.Close(fd); err == nil && cerr != nil {
			err = &os.PathError{Op: "close", Path: path, Err: cerr}
		}
	}()
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		if err != nil && err != unix.EINTR {
			return &os.PathError{Op: "write", Path: path, Err: err}
		}
		data = data[max(n, 0):]
	}
	if to != nil {
		if err := give(fd, to.uid, to.gid); err != nil {
			return &os.PathError{Op: "give to its user", Path: path, Err: err}
		}
	}
	return nil
}

// ReadBundle reads what Write wrote.
func ReadBundle(dir string) (*pb.Bundle, error) {
	b := &pb.Bundle{}
	return b, read(filepath.Join(dir, Bundle), b)
}

func read(path string, m proto.Message) error {
	raw, err := slurp(path)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(raw, m); err != nil {
		return fmt.Errorf("cannot read %s: %w", path, err)
	}
	return nil
}

// slurp is os.ReadFile with a limit and half the system calls: it bypasses the runtime's poller.
func slurp(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Size > maxFile {
		return nil, fmt.Errorf("cannot read %s: %d bytes, more than the limit of %d", path, st.Size, maxFile)
	}
	raw := make([]byte, st.Size)
	for got := 0; got < len(raw); {
		n, err := unix.Pread(fd, raw[got:], int64(got))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return raw[:got], nil
		}
		got += n
	}
	return raw, nil
}

// overwrite replaces a file's contents in place, so that its blocks stay allocated.
func overwrite(fd int, data []byte) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	for off := 0; off < len(data); {
		n, err := unix.Pwrite(fd, data[off:], int64(off))
		if err != nil && err != unix.EINTR {
			return err
		}
		off += max(n, 0)
	}
	if st.Size > int64(len(data)) {
		return unix.Ftruncate(fd, int64(len(data)))
	}
	return nil
}

// Retire moves an ended step's directory away, under the name free, for Reuse by the same user. Creating and deleting files costs
// more than a short job on some file systems. It fails if the directory holds other files; then Remove is due.
func Retire(dir, free string) error {
	d, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(d)
	if err := onlyOurs(d, dir); err != nil {
		return err
	}
	// First the directory, then its contents: a crash in between leaves no step without a record.
	if err := unix.Rename(dir, free); err != nil {
		return err
	}
	return unix.Renameat(d, Exit, d, tmp)
}

// onlyOurs checks that the directory holds only our files. It reads in a loop because one read may return only a part: the kernel
// stops at a signal, and the runtime sends many.
func onlyOurs(d int, dir string) error {
	var buf [1024]byte
	for {
		n, err := unix.ReadDirent(d, buf[:])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return &os.PathError{Op: "read", Path: dir, Err: err}
		case n == 0:
			return nil
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if name != Bundle && name != Script && name != Exit {
				return fmt.Errorf("cannot reuse %s: %s is in it", dir, name)
			}
		}
	}
}

// Reuse is Write into the directory of an earlier step of the same user. Never another user's: whoever holds the old script open
// can read the new one.
func Reuse(dir string, b *pb.Bundle, script []byte, chown bool) error {
	raw, err := proto.Marshal(b)
	if err != nil {
		return fmt.Errorf("cannot encode bundle: %w", err)
	}
	if err := rewrite(filepath.Join(dir, Bundle), raw, 0o600, nil); err != nil {
		return err
	}
	return rewrite(filepath.Join(dir, Script), script, 0o500, readerOf(b, chown))
}

// rewrite refuses anything but the plain file that put made.
func rewrite(path string, data []byte, mode uint32, to *reader) (err error) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	own := st.Mode == unix.S_IFREG|mode && st.Uid == uint32(os.Geteuid())
	if st.Nlink != 1 || to == nil && !own || to != nil && !given(fd, &st, to.uid) {
		return fmt.Errorf("cannot reuse %s: it has been changed", path)
	}
	if err := overwrite(fd, data); err != nil {
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// Remove deletes a step's directory with all contents.
func Remove(dir string) error {
	empty(filepath.Join(dir, Script))
	for _, f := range []string{Script, Bundle, Exit, tmp} {
		_ = unix.Unlink(filepath.Join(dir, f))
	}
	if err := unix.Rmdir(dir); err == nil || err == unix.ENOENT {
		return nil
	}
	return os.RemoveAll(dir)
}
