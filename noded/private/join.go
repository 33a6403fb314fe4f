package private

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Join moves the calling thread, and its children, into the namespaces that another shim has made for the same job. As with
// Enter, the thread must share neither working directory nor root with others, be locked to its goroutine, and end with it.
func Join(p *pb.Privacy, of *pb.Room) error {
	doors, err := open(p, of)
	defer func() {
		for _, d := range doors {
			unix.Close(d.fd)
		}
	}()
	if err == nil {
		err = isRoots(of)
	}
	for i := 0; err == nil && i < len(doors); i++ {
		err = doors[i].join()
	}
	if err != nil {
		return fmt.Errorf("cannot join the namespaces of the job: %w", err)
	}
	return nil
}

// door is an open namespace or root directory of another thread.
type door struct {
	fd   int
	kind int // a namespace, as for setns(2); 0: the root directory
}

func (d door) join() error {
	if d.kind != 0 {
		return os.NewSyscallError("setns", unix.Setns(d.fd, d.kind))
	}
	if err := unix.Fchdir(d.fd); err != nil {
		return os.NewSyscallError("fchdir", err)
	}
	return os.NewSyscallError("chroot", unix.Chroot("."))
}

// open opens everything before anything is entered, because /proc changes then. The caller closes the doors, even on an error.
func open(p *pb.Privacy, of *pb.Room) (doors []door, err error) {
	at := func(name string, flags, kind int) {
		if err != nil {
			return
		}
		path := threadOf(of) + "/" + name
		var fd int
		if fd, err = unix.Open(path, flags|unix.O_CLOEXEC, 0); err != nil {
			err = &os.PathError{Op: "open", Path: path, Err: err}
			return
		}
		doors = append(doors, door{fd, kind})
	}
	wanted := spaces(p)
	if wanted&unix.CLONE_NEWIPC != 0 {
		at("ns/ipc", unix.O_RDONLY, unix.CLONE_NEWIPC)
	}
	if wanted&unix.CLONE_NEWNS != 0 {
		at("ns/mnt", unix.O_RDONLY, unix.CLONE_NEWNS)
		at("root", unix.O_PATH|unix.O_DIRECTORY, 0) // the namespace's own root differs if the daemons are in a chroot
	}
	return doors, err
}

func threadOf(of *pb.Room) string {
	return fmt.Sprintf("/proc/%d/task/%d", of.GetShim(), of.GetThread())
}

// isRoots refuses any thread that is not root's. If the shim has died, its number may now be a process of a user's, in namespaces
// that the user made. It checks the real user: a shim has other effective users for moments.
func isRoots(of *pb.Room) error {
	path := threadOf(of) + "/status"
	status, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok && strings.HasPrefix(strings.TrimSpace(ids), "0\t") {
			return nil
		}
	}
	return fmt.Errorf("%s is not a thread of root's", path)
}
