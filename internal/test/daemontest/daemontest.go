// Package daemontest starts the real daemons for test suites, waits for them, and removes their leftovers. Only tests
// import it.
package daemontest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Seed returns the seed of random decisions from SLUICE_TEST_SEED (make test SEED=N); 0 if unset.
func Seed() uint64 {
	n, _ := strconv.ParseUint(os.Getenv("SLUICE_TEST_SEED"), 10, 64)
	return n
}

var programs = []string{"sluice", "sluice-steps", "sluice-ctld", "sluice-noded"}

// Programs installs the programs in a directory, which it creates, with links for some commands. They are copied from built, or if
// that is "" built.
func Programs(bin, built string, commands ...string) (err error) {
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err
	}
	if built == "" {
		err = build(bin)
	} else {
		for _, name := range programs {
			err = errors.Join(err, CopyProgram(filepath.Join(built, name), filepath.Join(bin, name)))
		}
	}
	for _, name := range commands {
		err = errors.Join(err, os.Symlink("sluice", filepath.Join(bin, name)))
	}
	return err
}

func build(bin string) error {
	args := []string{"build", "-o", bin + "/"}
	if Raced {
		args = append(args, "-race")
	}
	for _, name := range programs {
		args = append(args, "github.com/sluice-hpc/sluice/cmd/"+name)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build the programs: %w\n%s", err, out)
	}
	return nil
}

// CopyProgram copies an executable file.
func CopyProgram(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

// Host returns the short name of this machine.
func Host(t testing.TB) string {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	return host
}

// MountImage mounts a file as a disk, through a new loop device each time: a previous one may be broken and still be mounted in a
// mount namespace created meanwhile.
func MountImage(image, dir string) error {
	out, err := exec.Command("losetup", "--find", "--show", image).CombinedOutput()
	if err != nil {
		return fmt.Errorf("losetup: %w: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	out, err = exec.Command("mount", device, dir).CombinedOutput()
	if detached := exec.Command("losetup", "--detach", device).Run(); err == nil { // as soon as nothing mounts it any more
		err = detached
	}
	if err != nil {
		return fmt.Errorf("mount: %w: %s", err, out)
	}
	return nil
}

// portsTaken are the ports of this process's clusters, which run concurrently: one may be about to listen.
var portsTaken sync.Map

// FreePorts finds n consecutive free ports between low and high. Each suite has its own range, outside the kernel's ephemeral
// ports: a controller's port is free whenever the controller has been killed.
func FreePorts(t testing.TB, low, high, n int) (first int) {
	t.Helper()
next:
	for range 100 {
		first := low + rand.IntN((high-low)/n)*n
		if _, taken := portsTaken.Load(first); taken {
			continue
		}
		for p := first; p < first+n; p++ {
			l, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(p)))
			if err != nil {
				continue next
			}
			l.Close()
		}
		for p := first; p < first+n; p++ {
			if _, taken := portsTaken.LoadOrStore(p, true); taken {
				continue next
			}
		}
		return first
	}
	t.Fatal("no free ports")
	return 0
}

// Poll waits until cond holds; it returns false if that takes longer than limit.
func Poll(limit time.Duration, cond func() bool) bool {
	for deadline, pause := time.Now().Add(limit), time.Millisecond; !cond(); pause = min(2*pause, 20*time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// Daemon is a process started by a test.
type Daemon struct {
	Name string
	Log  string // path of its output
	Cmd  *exec.Cmd
	Done chan struct{} // closed at its end; Cmd has the result
}

// Launch starts a program in a session of its own and appends its output to NAME.log in dir.
func Launch(t testing.TB, dir, name string, attr syscall.SysProcAttr, env []string, program string, args ...string) *Daemon {
	t.Helper()
	d := &Daemon{Name: name, Log: filepath.Join(dir, name+".log"), Done: make(chan struct{})}
	log, err := os.OpenFile(d.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	attr.Setsid = true
	d.Cmd = exec.Command(program, args...)
	d.Cmd.Stdout, d.Cmd.Stderr, d.Cmd.Dir, d.Cmd.Env, d.Cmd.SysProcAttr = log, log, "/", env, &attr
	if err := d.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = d.Cmd.Wait()
		close(d.Done)
	}()
	return d
}

// Ended reports whether it has ended.
func (d *Daemon) Ended() bool {
	select {
	case <-d.Done:
		return true
	default:
		return false
	}
}

// Wait waits for its end; it returns false on a timeout.
func (d *Daemon) Wait(limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-d.Done:
		return true
	case <-t.C:
		return false
	}
}

// Text returns its output.
func (d *Daemon) Text() string {
	text, _ := os.ReadFile(d.Log)
	return string(text)
}

// Said reports whether its output contains text.
func (d *Daemon) Said(text string) bool { return strings.Contains(d.Text(), text) }

// Tail returns the end of its output.
func (d *Daemon) Tail(lines int) string {
	all := bytes.Split(bytes.TrimRight([]byte(d.Text()), "\n"), []byte("\n"))
	return d.Name + ": " + string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n"+d.Name+": ")))
}

// Race returns the report of the race detector; "" if there is none.
func (d *Daemon) Race() string {
	_, race, _ := strings.Cut(d.Text(), "WARNING: DATA RACE")
	return race[:min(len(race), 4000)]
}
