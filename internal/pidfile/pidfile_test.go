package pidfile

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// folder is one that Write trusts: below /tmp, which is sticky.
func folder(t *testing.T) (dir string, own uint32) {
	t.Helper()
	return t.TempDir(), uint32(os.Geteuid())
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func own() string { return strconv.Itoa(os.Getpid()) + "\n" }

// TestLife: the file has this process's id, nobody else gets it, and it is gone at the end.
func TestLife(t *testing.T) {
	dir, uid := folder(t)
	path := filepath.Join(dir, "d.pid")
	f, err := Write(path, uid)
	if err != nil {
		t.Fatal(err)
	}
	if got := content(t, path); got != own() {
		t.Errorf("the file has %q, want %q", got, own())
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o644 {
		t.Errorf("mode %v (%v), want 0644", fi.Mode(), err)
	}
	if _, err := Write(path, uid); err == nil || !strings.Contains(err.Error(), "is running") {
		t.Errorf("a second daemon gets it: %v", err)
	}
	if err := f.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("it is left: %v", err)
	}
	if err := (*File)(nil).Remove(); err != nil {
		t.Error(err)
	}
}

// TestOlder: what is there is replaced when no daemon holds it, and is left alone when it is no pid file. That a process has the id says
// nothing: another one may have been given it, after a reboot or before the clock was set.
func TestOlder(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	other := exec.Command("sleep", "1000")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	for name, c := range map[string]struct {
		was     string
		foreign bool // no pid file
	}{
		"ended":           {was: fmt.Sprintln(ended.Process.Pid)},
		"id used again":   {was: fmt.Sprintln(other.Process.Pid)},
		"no line end":     {was: strconv.Itoa(other.Process.Pid)},
		"empty":           {},
		"blank":           {was: " \n"},
		"no number":       {was: "something that is longer than a number\n", foreign: true},
		"one line more":   {was: fmt.Sprintf("%d\n/run\n", ended.Process.Pid), foreign: true},
		"negative":        {was: "-1\n", foreign: true},
		"far behind":      {was: strings.Repeat("\n", 1000) + "precious", foreign: true},
		"number and more": {was: fmt.Sprint(ended.Process.Pid) + strings.Repeat(" ", 1000) + "precious", foreign: true},
		"its own":         {was: own()},
		"out of range":    {was: "99999999999999999999999\n", foreign: true},
		"more than a pid": {was: strings.Repeat("7", 10000), foreign: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir, uid := folder(t)
			path := filepath.Join(dir, "d.pid")
			if err := os.WriteFile(path, []byte(c.was), 0o644); err != nil {
				t.Fatal(err)
			}
			f, err := Write(path, uid)
			want := own()
			if c.foreign {
				want = c.was
				if err == nil || !strings.Contains(err.Error(), "is no pid file") {
					t.Errorf("error %v", err)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			if got := content(t, path); got != want {
				t.Errorf("the file has %q, want %q", got, want)
			}
			if err := f.Remove(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDaemonOfSlurm: a file is left alone that somebody has locked as slurmctld and slurmd do, with a lock of POSIX for writing.
func TestDaemonOfSlurm(t *testing.T) {
	dir, uid := folder(t)
	path := filepath.Join(dir, "slurmctld.pid")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString("123\n"); err != nil {
		t.Fatal(err)
	}
	// Of this process, which counts as well: Write's lock is of its open file.
	if err := unix.FcntlFlock(file.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(path, uid); err == nil || !strings.Contains(err.Error(), "that of process 123, which is running") {
		t.Errorf("error %v", err)
	}
	if got := content(t, path); got != "123\n" {
		t.Errorf("the file has %q", got)
	}
}

// TestRefused: what others could have put there is not written to.
func TestRefused(t *testing.T) {
	dir, uid := folder(t)
	target := filepath.Join(dir, "target")
	if err := os.WriteFile(target, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, make := range map[string]func() error{
		"link": func() error { return os.Symlink(target, at("link")) },
		"hard": func() error { return os.Link(target, at("hard")) },
		"fifo": func() error { return syscall.Mkfifo(at("fifo"), 0o644) },
		"dir":  func() error { return os.Mkdir(at("dir"), 0o755) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		if _, err := Write(at(name), uid); err == nil {
			t.Errorf("%s: written", name)
		}
	}
	if got := content(t, target); got != "precious" {
		t.Errorf("what a link leads to has %q", got)
	}
	open := at("open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(filepath.Join(open, "d.pid"), uid); err == nil || !strings.Contains(err.Error(), "writable by everybody") {
		t.Errorf("in a folder of everybody: %v", err)
	}
	if _, err := Write("d.pid", uid); err == nil {
		t.Error("a relative path is written")
	}
	if uid != 0 {
		t.Log("not root: no file of another user is tried")
		return
	}
	if err := os.Lchown(target, 1, 1); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(at("hard")); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(target); err == nil || !strings.Contains(err.Error(), "belongs to uid 1") {
		t.Errorf("a file of another user: %v", err)
	}
}

// TestReadersDoNotLock: who may only read the file does not keep the daemon from it, nor get it from the daemon.
func TestReadersDoNotLock(t *testing.T) {
	dir, uid := folder(t)
	path := filepath.Join(dir, "d.pid")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	reader, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := unix.Flock(int(reader.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	if err := unix.FcntlFlock(reader.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err == nil {
		t.Error("a reader may lock the file for writing")
	}
	f, err := Write(path, uid)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(path, uid); err == nil || !strings.Contains(err.Error(), "of another process, which is running") {
		t.Errorf("a file that is locked and empty: %v", err)
	}
	if err := f.Remove(); err != nil {
		t.Error(err)
	}
}

// TestReplaced: a file that somebody has put in its place is not removed.
func TestReplaced(t *testing.T) {
	dir, uid := folder(t)
	path := filepath.Join(dir, "d.pid")
	f, err := Write(path, uid)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := f.Remove(); err != nil {
		t.Error(err)
	}
	if got := content(t, path); got != "1\n" {
		t.Errorf("the other file has %q", got)
	}
}
