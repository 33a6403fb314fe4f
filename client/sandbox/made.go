package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Names in a cluster's directory.
const (
	recordName = "cluster.json"
	envName    = "env.sh"
	lockFile   = "lock"
)

var (
	folders   = []string{"run", "state", "tls", "spool", "log"}
	confNames = []string{"slurm.conf", "cgroup.conf", "job_container.conf"} // of a generated configuration
)

// checkEmpty rejects a directory with other content, which must not be overwritten, or deleted later.
func (d Dir) checkEmpty() error {
	if _, err := os.Lstat(d.recordFile()); err == nil {
		return nil
	}
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return fmt.Errorf("cannot use %s: %w", d, err)
	}
	var others []string
	for _, e := range entries {
		// A command that was interrupted, or is running now, has created at most these before its record.
		if e.Name() != lockFile && !strings.HasPrefix(e.Name(), "."+recordName+".") && e.Name() != "lost+found" {
			others = append(others, e.Name())
		}
	}
	if len(others) == 0 {
		return nil
	}
	return fmt.Errorf("cannot create a cluster in %s: the directory is not empty (%s) and has no %s, so it is not a cluster of `sluice up`; "+
		"give a new or empty directory: --dir DIR", d, some(others), recordName)
}

// some lists the first of many names.
func some(names []string) string {
	const most = 6
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// remove deletes the names that the record lists, except those in keep, and returns the rest of the directory, which others have
// created. If nothing is left and Up created the directory, it is deleted, too. All access is through one descriptor of the
// directory, so that it cannot be replaced meanwhile.
func (d Dir) remove(made []string, keep ...string) (left []string, err error) {
	root, err := os.OpenRoot(string(d))
	if err != nil {
		return nil, fmt.Errorf("cannot delete the cluster in %s: %w", d, err)
	}
	defer root.Close()
	if info, err := root.Stat("."); err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		return nil, fmt.Errorf("cannot delete the cluster in %s: the directory no longer belongs to you", d)
	}
	// The record and the lock go last, so that a command that was killed can be repeated.
	order := slices.DeleteFunc(slices.Clone(made), func(name string) bool {
		return name == "." || name == recordName || name == lockFile || slices.Contains(keep, name)
	})
	for _, name := range append(order, recordName, lockFile) {
		if slices.Contains(keep, name) {
			continue
		}
		more, err := removeMade(root, name)
		left = append(left, more...)
		if err != nil {
			return left, fmt.Errorf("cannot delete %s: %w", d.join(name), err)
		}
		removeTemporary(root, name)
	}
	left = append(left, others(root, ".", append(keep, left...))...)
	if len(left)+len(keep) == 0 && slices.Contains(made, ".") {
		_ = os.Remove(string(d))
	}
	return left, nil
}

// removeMade deletes one name that Up created. The daemons' own directories are deleted with their content; from the others, only
// files of Up and the daemons.
func removeMade(root *os.Root, name string) (left []string, err error) {
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case info.Mode()&fs.ModeSymlink != 0 && !slices.Contains(folders, name): // to a configuration elsewhere
		return nil, root.Remove(name)
	case info.Mode()&fs.ModeSymlink != 0: // the user moved the directory to another disk
		to, _ := root.Readlink(name)
		return []string{to + ", where " + name + " was a link to"}, root.Remove(name)
	case !info.IsDir():
		return nil, root.Remove(name)
	}
	switch name {
	case "log":
		return removeSome(root, name, func(e fs.DirEntry) bool {
			return e.Type().IsRegular() && (e.Name() == "ctld.log" || strings.HasPrefix(e.Name(), "noded.") &&
				strings.HasSuffix(e.Name(), ".log"))
		})
	case "bin":
		return removeSome(root, name, func(e fs.DirEntry) bool {
			to, err := root.Readlink(filepath.Join(name, e.Name()))
			return err == nil && filepath.Base(to) == "sluice"
		})
	case "run", "state", "tls", "spool":
		return nil, root.RemoveAll(name)
	}
	return []string{name}, nil // a directory where a file should be
}

// removeSome deletes files from a directory, and the directory if it is then empty.
func removeSome(root *os.Root, folder string, mine func(fs.DirEntry) bool) (left []string, err error) {
	entries, err := fs.ReadDir(root.FS(), folder)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		if !mine(e) {
			left = append(left, path)
		} else if err := root.Remove(path); err != nil {
			return left, err
		}
	}
	if len(left) > 0 {
		return left, nil
	}
	return nil, root.Remove(folder)
}

// removeTemporary deletes the temporary files of a killed replaceFile.
func removeTemporary(root *os.Root, name string) {
	entries, _ := fs.ReadDir(root.FS(), ".")
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "."+name+".") && e.Type().IsRegular() {
			_ = root.Remove(e.Name())
		}
	}
}

// others returns the entries of a directory that are neither known nor contain known ones.
func others(root *os.Root, folder string, known []string) (names []string) {
	entries, _ := fs.ReadDir(root.FS(), folder)
	for _, e := range entries {
		if !slices.ContainsFunc(known, func(k string) bool { return k == e.Name() || strings.HasPrefix(k, e.Name()+"/") }) {
			names = append(names, e.Name())
		}
	}
	return names
}
