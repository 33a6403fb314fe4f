package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/internal/passwd"
	"github.com/sluice-hpc/sluice/internal/trusted"
)

// Dir is the directory of a cluster, an absolute path without symbolic links.
type Dir string

// maxSocketPath is the maximum length of a socket address (unix(7)) without the final zero.
const maxSocketPath = 107

// DefaultDir is ~/.sluice. For root, whose home other users cannot enter, and for users without a home, it is
// /var/tmp/sluice-<uid>.
func DefaultDir() string {
	home := os.Getenv("HOME")
	if os.Getuid() != 0 && home != "" {
		if info, err := os.Stat(home); err == nil && info.IsDir() && syscall.Access(home, 2) == nil {
			return filepath.Join(home, ".sluice")
		}
	}
	return "/var/tmp/sluice-" + strconv.Itoa(os.Getuid())
}

// absolute makes a path absolute; a tilde that no shell has expanded (--dir=~/c) is the home directory.
func absolute(path string) (string, error) {
	path, err := passwd.ExpandHome(path)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", fmt.Errorf("cannot use %s: %w", path, err)
	}
	return path, nil
}

// openDir creates the directory and its missing parents. made are the directories created, outermost first.
func openDir(path string) (d Dir, made []string, err error) {
	if path, err = absolute(path); err != nil {
		return "", nil, err
	}
	var missing []string
	for at := path; ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = append(missing, at)
	}
	slices.Reverse(missing)
	if len(missing) > 0 { // check before creating anything: below a user's directory, the result could be replaced at once
		above, err := follow(filepath.Dir(missing[0]))
		if err == nil {
			err = checkParents(filepath.Join(above, filepath.Base(missing[0])))
		}
		if err != nil {
			return "", nil, fmt.Errorf("cannot use %s: %w", path, err)
		}
		defer syscall.Umask(syscall.Umask(0o022)) // other users need the socket and the configuration
	}
	for _, at := range missing {
		err := os.Mkdir(at, 0o755)
		if err == nil {
			made = append(made, at)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			removeFolders(made)
			return "", nil, fmt.Errorf("cannot create the cluster's directory: %w", err)
		}
	}
	if d, err = existingDir(path); err != nil {
		removeFolders(made)
		return "", nil, err
	}
	return d, made, nil
}

// removeFolders removes empty directories, innermost first.
func removeFolders(made []string) {
	for _, at := range slices.Backward(made) {
		_ = os.Remove(at)
	}
}

// existingDir checks that no other user can add files to the directory or replace it: its content is executed.
func existingDir(path string) (Dir, error) {
	abs, err := absolute(path)
	if err != nil {
		return "", err
	}
	if abs, err = follow(abs); err != nil {
		return "", fmt.Errorf("cannot use %s: %w", path, err)
	}
	info, err := os.Stat(abs)
	if err != nil {
		return "", fmt.Errorf("cannot use %s: %w", path, err)
	}
	st := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return "", fmt.Errorf("cannot use %s: it is not a directory", path)
	case int(st.Uid) != os.Geteuid():
		return "", fmt.Errorf("cannot use %s: it belongs to uid %d and you are uid %d; run this as its owner, or give another --dir",
			path, st.Uid, os.Geteuid())
	case info.Mode().Perm()&0o022 != 0:
		return "", fmt.Errorf("cannot use %s: others can write to it (mode %#o); chmod go-w it, or give another --dir", path,
			info.Mode().Perm())
	}
	if err := checkParents(abs); err != nil {
		return "", fmt.Errorf("cannot use %s: %w", path, err)
	}
	d := Dir(abs)
	if n := len(d.socket()); n > maxSocketPath {
		return "", fmt.Errorf("cannot use %s: the path of the socket %s would have %d bytes, at most %d fit; give a shorter --dir",
			path, d.socket(), n, maxSocketPath)
	}
	return d, nil
}

// follow resolves a path. Root does not follow links that another user could redirect, for instance to another cluster's directory.
func follow(abs string) (string, error) {
	if os.Geteuid() != 0 {
		return filepath.EvalSymlinks(abs)
	}
	owners := []uint32{}
	if uid, err := strconv.ParseUint(os.Getenv("SUDO_UID"), 10, 32); err == nil {
		owners = append(owners, uint32(uid))
	}
	for at := abs; at != "/"; at = filepath.Dir(at) {
		if info, err := os.Lstat(at); err != nil || info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		if _, err := trusted.Path(at, owners...); err != nil {
			return "", fmt.Errorf("the link %s could be changed by somebody else: %w; name the directory itself", at, err)
		}
	}
	return filepath.EvalSymlinks(abs)
}

// checkParents keeps root out of directories that a user could rename and replace. With sudo, the invoking user's own are allowed.
func checkParents(abs string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	trusted := []string{"0", os.Getenv("SUDO_UID")}
	for at := filepath.Dir(abs); ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return err
		}
		uid := strconv.FormatUint(uint64(info.Sys().(*syscall.Stat_t).Uid), 10)
		switch sticky := info.Mode()&fs.ModeSticky != 0; {
		case !slices.Contains(trusted, uid):
			return fmt.Errorf("its parent directory %s belongs to uid %s, who could replace what root runs there; give another --dir", at, uid)
		case info.Mode().Perm()&0o022 != 0 && !sticky:
			return fmt.Errorf(
				"others can write to its parent directory %s (mode %#o) and could replace what root runs there; give another --dir",
				at, info.Mode().Perm())
		}
		if at == "/" {
			return nil
		}
	}
}

func (d Dir) join(parts ...string) string {
	return filepath.Join(append([]string{string(d)}, parts...)...)
}

func (d Dir) socket() string           { return d.join("run", "ctld.sock") }
func (d Dir) state() string            { return d.join("state") }
func (d Dir) ownConf() string          { return d.join("slurm.conf") }
func (d Dir) envFile() string          { return d.join(envName) }
func (d Dir) recordFile() string       { return d.join(recordName) }
func (d Dir) spool(node string) string { return d.join("spool", node) }
func (d Dir) tls(node string) string   { return d.join("tls", node) }
func (d Dir) log(daemon string) string { return d.join("log", daemon+".log") }

// makeFolders creates the directories with their modes: other users may reach only the socket and the configuration.
func (d Dir) makeFolders() error {
	for _, name := range folders {
		mode := os.FileMode(0o755)
		if name == "state" || name == "tls" {
			mode = 0o700
		}
		if err := os.Mkdir(d.join(name), mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("cannot create the cluster's directory: %w", err)
		}
		if err := os.Chmod(d.join(name), mode); err != nil { // whatever the umask
			return fmt.Errorf("cannot create the cluster's directory: %w", err)
		}
	}
	return nil
}

const lockPatience = 300 * time.Millisecond

// lock prevents concurrent commands on one cluster. The kernel releases it when all copies of the descriptor are closed, including
// inherited ones.
func (d Dir) lock() (*os.File, error) {
	f, err := os.OpenFile(d.join(lockFile), os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the cluster in %s: %w", d, err)
	}
	// If a command is killed while it starts a daemon, that process holds the lock until its exec.
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	for end := time.Now().Add(lockPatience); err != nil && time.Now().Before(end); time.Sleep(pollEvery) {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot lock the cluster in %s: another `sluice up` or `sluice down` is running; wait for it to finish", d)
	}
	mine, err := f.Stat()
	if now, nowErr := os.Lstat(d.join(lockFile)); err != nil || nowErr != nil || !os.SameFile(mine, now) {
		f.Close()
		return nil, fmt.Errorf("cannot lock the cluster in %s: `sluice down --wipe` has just removed it; try again", d)
	}
	return f, nil
}
