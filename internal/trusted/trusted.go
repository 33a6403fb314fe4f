// Package trusted checks that only root can change the target of a path. Daemons check that before they run a program with root's
// privileges or give a file away.
package trusted

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// maxLinks is the kernel's limit.
const maxLinks = 40

// Path follows path from the root directory, including symbolic links, and returns the final path. It rejects a path that users
// other than root and owners can change: each directory, link and the file itself must belong to one of them, and must not be
// writable by others. Directories with the sticky bit, such as /tmp, may be: only root can rename and remove root's entries there.
// But a file with several hard links may not be in such a directory: if the kernel permits it (fs.protected_hardlinks=0), other
// users can create hard links there to any of root's files on the file system, and so pass a file off as a program of another name.
//
// The result is valid as long as root and owners do not change the path, because nobody else can.
func Path(path string, owners ...uint32) (real string, err error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("%s is not an absolute path", path)
	}
	w := walk{owners: append([]uint32{0}, owners...), cur: "/", left: split(path)}
	if err := w.check("/"); err != nil {
		return "", err
	}
	for len(w.left) > 0 {
		if err := w.step(); err != nil {
			return "", err
		}
	}
	return w.cur, nil
}

// walk is a path being followed: cur has been resolved, left remains.
type walk struct {
	owners []uint32
	cur    string
	left   []string
	links  int
	shared string // the last directory on the way in which others may create entries
}

func split(path string) []string { return strings.Split(path, "/") }

func (w *walk) step() error {
	name := w.left[0]
	w.left = w.left[1:]
	switch name {
	case "", ".":
		return nil
	case "..":
		w.cur = filepath.Dir(w.cur)
		return nil
	}
	next := filepath.Join(w.cur, name)
	if err := w.check(next); err != nil {
		return err
	}
	target, err := os.Readlink(next)
	if errors.Is(err, syscall.EINVAL) { // not a link
		w.cur = next
		return nil
	}
	if err != nil {
		return err
	}
	if w.links++; w.links > maxLinks {
		return fmt.Errorf("%s: %w", next, syscall.ELOOP)
	}
	if filepath.IsAbs(target) {
		w.cur = "/"
	}
	w.left = append(split(target), w.left...)
	return nil
}

// check checks one directory, link or file.
func (w *walk) check(path string) error {
	fi, err := os.Lstat(path)
	if err != nil {
		return err
	}
	st := fi.Sys().(*syscall.Stat_t)
	if !slices.Contains(w.owners, st.Uid) {
		return fmt.Errorf("%s belongs to uid %d, not to root", path, st.Uid)
	}
	mode := fi.Mode()
	switch {
	case mode&os.ModeSymlink != 0:
		return nil
	case mode.IsDir() && mode&os.ModeSticky != 0:
		if mode.Perm()&0o022 != 0 {
			w.shared = path
		}
		return nil
	case mode.Perm()&0o002 != 0:
		return fmt.Errorf("%s is writable by everybody", path)
	case mode.Perm()&0o020 != 0 && st.Gid != 0:
		return fmt.Errorf("%s is writable by group %d", path, st.Gid)
	case !mode.IsDir() && st.Nlink > 1 && w.shared != "" && filepath.Dir(path) == w.shared:
		return fmt.Errorf("%s has %d names, and others may write to its folder: it may be a link that they have made", path, st.Nlink)
	}
	return nil
}
