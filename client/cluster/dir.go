package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Dir is a cluster's folder, an absolute path without symbolic links.
type Dir string

// maxSocketPath is what fits into a socket address (unix(7)), without its final zero.
const maxSocketPath = 107

// DefaultDir is ~/.sluice, and /var/tmp/sluice-<uid> for root, whose home other users cannot enter, and for users without a
// home.
func DefaultDir() string {
	home := os.Getenv("HOME")
	if os.Getuid() != 0 && home != "" {
		if info, err := os.Stat(home); err == nil && info.IsDir() && syscall.Access(home, 2) == nil {
			return filepath.Join(home, ".sluice")
		}
	}
	return "/var/tmp/sluice-" + strconv.Itoa(os.Getuid())
}

// openDir makes the folder if need be and checks that nobody else can put things into it: what lies in it is run.
func openDir(path string) (Dir, error) {
	_, absent := os.Stat(path)
	err := os.MkdirAll(path, 0o755)
	if err == nil && absent != nil {
		err = os.Chmod(path, 0o755) // whatever the umask: other users reach the socket and the configuration
	}
	if err != nil {
		return "", fmt.Errorf("cannot make the cluster's folder: %w", err)
	}
	return existingDir(path)
}

func existingDir(path string) (Dir, error) {
	abs, err := filepath.Abs(path)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return "", fmt.Errorf("cannot use %s: %w", path, err)
	}
	info, err := os.Stat(abs)
	if err != nil {
		return "", fmt.Errorf("cannot use %s: %w", path, err)
	}
	st := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return "", fmt.Errorf("cannot use %s: it is not a folder", path)
	case int(st.Uid) != os.Geteuid():
		return "", fmt.Errorf("cannot use %s: it belongs to uid %d and you are uid %d; run this as its owner, or give another --dir", path, st.Uid, os.Geteuid())
	case info.Mode().Perm()&0o022 != 0:
		return "", fmt.Errorf("cannot use %s: others may write to it (mode %#o); chmod go-w it, or give another --dir", path, info.Mode().Perm())
	}
	d := Dir(abs)
	if n := len(d.socket()); n > maxSocketPath {
		return "", fmt.Errorf("cannot use %s: the path of the socket %s would have %d bytes, at most %d fit; give a shorter --dir", path, d.socket(), n, maxSocketPath)
	}
	return d, nil
}

func (d Dir) join(parts ...string) string {
	return filepath.Join(append([]string{string(d)}, parts...)...)
}

func (d Dir) socket() string           { return d.join("run", "ctld.sock") }
func (d Dir) state() string            { return d.join("state") }
func (d Dir) ownConf() string          { return d.join("slurm.conf") }
func (d Dir) envFile() string          { return d.join("env.sh") }
func (d Dir) recordFile() string       { return d.join("cluster.json") }
func (d Dir) spool(node string) string { return d.join("spool", node) }
func (d Dir) tls(node string) string   { return d.join("tls", node) }
func (d Dir) log(daemon string) string { return d.join("log", daemon+".log") }

// owned is everything that Up makes in the folder.
func (d Dir) owned() []string {
	names := []string{"run", "state", "tls", "spool", "log", "bin", "env.sh", "slurm.conf", "cgroup.conf", "cluster.json", "lock"}
	for i, n := range names {
		names[i] = d.join(n)
	}
	return names
}

// makeFolders gives each its mode: other users reach the socket and the configuration, nothing else.
func (d Dir) makeFolders() error {
	for name, mode := range map[string]os.FileMode{"run": 0o755, "state": 0o700, "tls": 0o700, "spool": 0o755, "log": 0o755} {
		if err := os.Mkdir(d.join(name), mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("cannot make the cluster's folder: %w", err)
		}
		if err := os.Chmod(d.join(name), mode); err != nil { // whatever the umask
			return fmt.Errorf("cannot make the cluster's folder: %w", err)
		}
	}
	return nil
}

// lock keeps two commands from working on one cluster at once. The kernel releases it when the process ends.
func (d Dir) lock() (release func(), err error) {
	f, err := os.OpenFile(d.join("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the cluster in %s: %w", d, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot lock the cluster in %s: another `sluice up` or `sluice down` is at work on it; wait for it to end", d)
	}
	return func() { f.Close() }, nil
}
