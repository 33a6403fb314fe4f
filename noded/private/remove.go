package private

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// maxDepth is how deep a deletion descends, with an open descriptor for each directory. A job can nest directories without limit,
// and the deleting process needs its descriptors for the whole node.
const maxDepth = 32

// removal deletes one directory. What is deeper than maxDepth is first moved to its top, which belongs to root alone.
type removal struct {
	ctx   context.Context
	top   int // descriptor
	moved int
}

// removeAll deletes a directory in root and everything in it, without following links.
func removeAll(ctx context.Context, root *os.Root, name string) error {
	in, err := root.Open(".")
	if err != nil {
		return err
	}
	defer in.Close()
	r := &removal{ctx: ctx}
	if err := r.remove(int(in.Fd()), name, 0); err != nil {
		return fmt.Errorf("cannot delete %s: %w", name, err)
	}
	return nil
}

// remove deletes a file or directory. It tries everything in a directory and returns the first error.
func (r *removal) remove(in int, name string, depth int) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	err := unix.Unlinkat(in, name, 0)
	if err == unix.EISDIR || err == unix.EPERM { // the latter is POSIX's error for directories
		if folder := unix.Unlinkat(in, name, unix.AT_REMOVEDIR); folder != unix.ENOTDIR {
			err = folder
		}
	}
	switch {
	case err == nil || err == unix.ENOENT:
		return nil
	case err != unix.ENOTEMPTY && err != unix.EEXIST:
		return err
	case depth > maxDepth:
		return r.lift(in, name)
	}
	fd, err := unix.Openat(in, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	if depth == 0 {
		r.top = fd
	}
	for {
		n, failed := r.clear(dir, depth)
		err := unix.Unlinkat(in, name, unix.AT_REMOVEDIR)
		if err == nil || err == unix.ENOENT {
			return nil
		}
		if n == 0 || r.ctx.Err() != nil || err != unix.ENOTEMPTY && err != unix.EEXIST {
			if failed == nil {
				failed = err
			}
			return failed
		}
	}
}

// clear deletes the contents of a directory, and reports how much is gone.
func (r *removal) clear(dir *os.File, depth int) (n int, failed error) {
	if _, err := dir.Seek(0, 0); err != nil {
		return 0, err
	}
	for r.ctx.Err() == nil {
		names, err := dir.Readdirnames(1000)
		for _, name := range names {
			if err := r.remove(int(dir.Fd()), name, depth+1); err == nil {
				n++
			} else if failed == nil {
				failed = err
			}
		}
		if err != nil || len(names) == 0 { // the end, or an error that the deletion of the directory will report
			return n, failed
		}
	}
	return n, r.ctx.Err()
}

// lift moves a directory to the top, to be deleted later.
func (r *removal) lift(in int, name string) error {
	for {
		// Rename replaces an empty directory, but no other one.
		err := unix.Renameat(in, name, r.top, fmt.Sprintf("deep-%d", r.moved))
		r.moved++
		if err != unix.EEXIST && err != unix.ENOTEMPTY { // left by an interrupted deletion
			return err
		}
	}
}
