package stepd

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// This process, which is root's, opens paths that a user names. Below /proc they refer to this process: /proc/self/fd/5, and
// /dev/stdin, /dev/fd/5, or a user's link to them, are the shim's descriptors and not the job's. Opening one bypasses the
// permissions of the directories above the file, and the shim's memory and environment are hidden from the user only unless
// fs.suid_dumpable=1.
var errInProc = fmt.Errorf("%w: a path through /proc, where it leads to files of the node daemon and not of the job", unix.EPERM)

// named returns the path that the job's description means: none, and slurmstepd's own three descriptors (-e /dev/stderr), are
// /dev/null as in Slurm.
func named(f *pb.StdFile) string {
	path := f.GetPath()
	for _, own := range []string{"/dev/std", "/dev/fd/", "/proc/self/fd/"} {
		switch name, ok := strings.CutPrefix(path, own); {
		case path == "", ok && slices.Contains([]string{"in", "out", "err", "0", "1", "2"}, name):
			return os.DevNull
		}
	}
	return path
}

func inProc(fd int) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(fd, &fs) != nil || fs.Type == unix.PROC_SUPER_MAGIC
}

// openPath is open(2) with O_CLOEXEC that does not follow magic links of procfs.
func openPath(path string, flags int, mode uint32) (int, error) {
	flags |= unix.O_CLOEXEC
	how := unix.OpenHow{Flags: uint64(flags), Resolve: unix.RESOLVE_NO_MAGICLINKS}
	if flags&unix.O_CREAT != 0 {
		how.Mode = uint64(mode)
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &how)
	switch err {
	case unix.ENOSYS, unix.EPERM, // before Linux 5.6, or a container's filter
		unix.ELOOP: // a magic link, or a loop
		return openOnFoot(path, flags, mode)
	}
	return fd, err
}

// maxLinks is the kernel's own limit.
const maxLinks = 40

// openOnFoot does the same without openat2(2), one name at a time.
func openOnFoot(path string, flags int, mode uint32) (int, error) {
	if path == "" {
		return -1, unix.ENOENT
	}
	w := walk{dir: unix.AT_FDCWD, rest: path}
	defer w.close()
	if err := w.from(path); err != nil {
		return -1, err
	}
	for {
		name, rest, more := strings.Cut(w.rest, "/")
		if w.rest = strings.TrimLeft(rest, "/"); more && w.rest == "" {
			w.rest = "." // a trailing slash: a directory
		}
		if name == "" { // nothing is left
			return unix.Openat(w.dir, ".", flags, mode)
		}
		link, err := w.step(name)
		switch {
		case err == unix.ENOENT && w.rest == "", err == nil && !link && w.rest == "":
			return unix.Openat(w.dir, name, flags|unix.O_NOFOLLOW, mode)
		case err == unix.ENOENT && w.rest == "." && flags&unix.O_CREAT != 0:
			return -1, unix.EISDIR
		case err != nil:
			return -1, err
		}
	}
}

// walk is a directory and the path that remains from there.
type walk struct {
	dir   int
	rest  string
	links int
}

func (w *walk) close() {
	if w.dir >= 0 {
		unix.Close(w.dir)
	}
}

// from moves the walk to the root for an absolute path.
func (w *walk) from(path string) error {
	if !strings.HasPrefix(path, "/") {
		return nil
	}
	w.close()
	w.rest = strings.TrimLeft(w.rest, "/")
	var err error
	w.dir, err = unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return err
}

// step follows a link, or enters a directory unless it is the end of the path.
func (w *walk) step(name string) (link bool, err error) {
	fd, err := unix.Openat(w.dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer func() { unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return true, w.follow(fd)
	}
	if w.rest == "" {
		return false, nil
	}
	// Opened as a directory, so that an automounter mounts it.
	next, err := unix.Openat(w.dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		w.close()
		w.dir = next
	}
	return false, err
}

func (w *walk) follow(link int) error {
	if inProc(link) {
		return errInProc
	}
	if w.links++; w.links > maxLinks {
		return unix.ELOOP
	}
	var to [unix.PathMax]byte
	n, err := unix.Readlinkat(link, "", to[:])
	if err != nil {
		return err
	}
	target := string(to[:n])
	if w.rest == "" {
		w.rest = target
	} else {
		w.rest = target + "/" + w.rest
	}
	return w.from(target)
}

// chdir is chdir(2) with the rules of openPath.
func chdir(dir string) error {
	fd, err := openPath(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fchdir(fd)
}
