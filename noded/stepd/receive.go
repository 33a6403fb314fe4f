package stepd

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/klauspost/compress/s2"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// A step that copies a file (sbcast) has one task on each node, the trampoline: it executes no program, but reads the file from
// its standard input. So the user's paths are accessed by the user's own process, within the step's cgroup and namespaces, and a
// file system or srun that hangs blocks nobody else. Its exit code, an errno, tells how it ended.
//
// The content goes into an unnamed file, which gets its name once it is complete and its checksum is right. A transfer that ends
// before leaves nothing. On a file system without unnamed files its name begins with a dot, and it is removed.

// receiver returns the arguments of a task that receives a file.
func receiver(f *pb.StepFile) ([]string, error) {
	raw, err := proto.Marshal(f)
	return []string{"sbcast", base64.StdEncoding.EncodeToString(raw)}, err
}

// receive is the task. args are those of receiver.
func receive(args []string, in io.Reader) int {
	f := &pb.StepFile{}
	raw, err := base64.StdEncoding.DecodeString(args[len(args)-1])
	if err == nil {
		err = proto.Unmarshal(raw, f)
	}
	if err == nil {
		err = (&arrival{StepFile: f}).take(in)
	}
	if err != nil {
		complain(os.Stderr, err.Error())
		return errnoOf(err)
	}
	return 0
}

// errnoOf returns the errno of an error, EIO if it has none.
func errnoOf(err error) int {
	var errno syscall.Errno
	if errors.As(err, &errno) && errno > 0 && errno < 256 {
		return int(errno)
	}
	return int(unix.EIO)
}

// Errors of a transfer.
var (
	errIncomplete = fmt.Errorf("the sender has gone before the file was complete: %w", unix.ECONNABORTED)
	errChecksum   = fmt.Errorf("what has arrived is not what was sent: %w", unix.EBADMSG)
)

// arrival is a file that is being received.
type arrival struct {
	*pb.StepFile
	out  *os.File
	mu   sync.Mutex
	name string // its name until it is complete; "" = none
}

func (a *arrival) take(in io.Reader) error {
	if a.Folder {
		if err := os.Mkdir(filepath.Dir(a.Path), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if err := a.refuse(); err != nil {
		return err
	}
	if err := a.open(); err != nil {
		return &os.PathError{Op: "create", Path: a.Path, Err: err}
	}
	defer a.out.Close()
	defer a.remove()
	a.heed()
	if err := a.fill(in); err != nil {
		return err
	}
	if err := a.describe(); err != nil {
		return err
	}
	if err := a.place(); err != nil {
		return &os.PathError{Op: "put in place", Path: a.Path, Err: err}
	}
	return nil
}

// refuse checks the destination before anything is read. The target of a link is replaced, not the link.
func (a *arrival) refuse() error {
	if a.Force {
		if at, err := filepath.EvalSymlinks(a.Path); err == nil {
			a.Path = at
		}
	}
	var st unix.Stat_t
	err := unix.Lstat(a.Path, &st)
	switch {
	case err == unix.ENOENT:
		return nil
	case err != nil:
		return &os.PathError{Op: "look at", Path: a.Path, Err: err}
	case !a.Force:
		return &os.PathError{Op: "create", Path: a.Path, Err: unix.EEXIST}
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return &os.PathError{Op: "replace", Path: a.Path, Err: unix.EISDIR}
	}
	return nil
}

// heed makes sure that a named file is removed when the step is ended: SIGKILL follows only later.
func (a *arrival) heed() {
	if a.name == "" {
		return
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	go func() {
		<-c
		a.remove()
		os.Exit(int(unix.EINTR))
	}()
}

// open creates the file, with permissions for its owner alone.
func (a *arrival) open() error {
	if a.name == "" {
		if done, err := a.unnamed(); done || err != nil {
			return err
		}
		a.name = a.hidden()
	}
	var err error
	a.out, err = os.OpenFile(a.name, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	return err
}

// unnamed creates it without a name; false: not possible here.
func (a *arrival) unnamed() (done bool, err error) {
	fd, err := unix.Open(filepath.Dir(a.Path), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	switch err {
	case nil:
	case unix.ENOENT, unix.EACCES, unix.ENOTDIR, unix.EROFS, unix.ENOSPC, unix.EDQUOT:
		return false, err
	default:
		return false, nil
	}
	var st unix.Stat_t
	if unix.Stat(own(fd), &st) != nil { // it could not be linked later
		unix.Close(fd)
		return false, nil
	}
	a.out = os.NewFile(uintptr(fd), a.Path)
	return true, nil
}

// own returns a path of an open file.
func own(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// hidden returns a temporary name beside that of the file.
func (a *arrival) hidden() string {
	dir, name := filepath.Split(a.Path)
	const most = 200 // of 255
	return dir + "." + name[:min(len(name), most)] + ".sbcast-" + rand.Text()
}

func (a *arrival) remove() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.name != "" {
		_ = unix.Unlink(a.name)
		a.name = ""
	}
}

// receiveBuffer is large enough that the checksum rarely waits for the disk.
const receiveBuffer = 256 << 10

// fill reads the content, and compares its checksum with the one that follows it.
func (a *arrival) fill(in io.Reader) error {
	if a.Size > 0 { // report a lack of space at once where the file system knows
		if err := unix.Fallocate(int(a.out.Fd()), 0, 0, int64(a.Size)); err == unix.ENOSPC || err == unix.EDQUOT || err == unix.EFBIG {
			return &os.PathError{Op: "write", Path: a.Path, Err: err}
		}
	}
	source := &toEnd{Reader: in}
	if in = source; a.Compressed {
		in = s2.NewReader(source)
	}
	sum := sha256.New()
	n, err := io.CopyBuffer(io.MultiWriter(plainWriter{a.out}, sum), io.LimitReader(in, int64(a.Size)), make([]byte, receiveBuffer))
	var want [sha256.Size]byte
	if err == nil && n == int64(a.Size) {
		_, err = io.ReadFull(in, want[:])
	} else if err == nil {
		err = io.ErrUnexpectedEOF
	}
	switch {
	case err != nil && source.ended:
		return errIncomplete
	case errors.Is(err, s2.ErrCorrupt), errors.Is(err, s2.ErrCRC):
		return errChecksum
	case err != nil:
		return err
	case subtle.ConstantTimeCompare(sum.Sum(nil), want[:]) != 1:
		return errChecksum
	}
	return nil
}

// toEnd notes the end of its reader.
type toEnd struct {
	io.Reader
	ended bool
}

func (r *toEnd) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.ended = r.ended || err == io.EOF
	return n, err
}

// plainWriter hides the file's ReadFrom.
type plainWriter struct{ io.Writer }

// describe sets the file's permissions and times.
func (a *arrival) describe() error {
	if err := unix.Fchmod(int(a.out.Fd()), a.Mode&0o777); err != nil {
		return &os.PathError{Op: "set the permissions of", Path: a.Path, Err: err}
	}
	if !a.Preserve {
		return nil
	}
	err := os.Chtimes(own(int(a.out.Fd())), time.Unix(0, a.AtimeNs), time.Unix(0, a.MtimeNs))
	if err != nil && a.name != "" {
		err = os.Chtimes(a.name, time.Unix(0, a.AtimeNs), time.Unix(0, a.MtimeNs))
	}
	if err != nil {
		return &os.PathError{Op: "set the times of", Path: a.Path, Err: err}
	}
	return nil
}

// place gives the file its name.
func (a *arrival) place() error {
	if a.name == "" {
		err := a.link(a.Path)
		if err != unix.EEXIST || !a.Force {
			return err
		}
		name := a.hidden()
		if err := a.link(name); err != nil {
			return err
		}
		a.name = name
	}
	if a.Force {
		return a.moved(unix.Rename(a.name, a.Path))
	}
	err := unix.Renameat2(unix.AT_FDCWD, a.name, unix.AT_FDCWD, a.Path, unix.RENAME_NOREPLACE)
	if err == unix.EINVAL || err == unix.ENOSYS { // not supported by this file system
		return unix.Link(a.name, a.Path) // the other name is removed at the end
	}
	return a.moved(err)
}

func (a *arrival) link(to string) error {
	return unix.Linkat(unix.AT_FDCWD, own(int(a.out.Fd())), unix.AT_FDCWD, to, unix.AT_SYMLINK_FOLLOW)
}

// moved notes that the temporary name is gone.
func (a *arrival) moved(err error) error {
	if err == nil {
		a.mu.Lock()
		a.name = ""
		a.mu.Unlock()
	}
	return err
}
