// Package program runs the administrator's programs for the daemons: prologs, epilogs, health checks.
//
// A program gets an environment built from scratch by its caller, "/" as its directory, its own session, process group and session
// keyring, and no standard input. Its output is read to the end, and the last few KiB are kept. When its context ends, its process
// group is killed. A file records the process group while the program runs, so that the next daemon ends a program that outlived a
// killed one, and no two run at a time.
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/internal/inherit"
)

// Path is the search path of programs. Slurm sets none; shells then use a default of their own.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Program describes a program to run.
type Program struct {
	Path string // absolute
	Args []string
	Env  []string
	// Record is the file that records the process group while the program runs; empty: none.
	Record string
	// Credential is the user to run as; nil: that of this process.
	Credential *syscall.Credential
}

// waitDelay is how long after a program's end its output is still read, if a process that it left behind holds it open.
const waitDelay = time.Second

// Run runs a program and returns the end of its output. The error includes the last line of output; if ctx has ended it is ctx's
// cause.
func Run(ctx context.Context, p Program) (output string, err error) {
	if !filepath.IsAbs(p.Path) {
		return "", errors.New("it has to be an absolute path")
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	var out tail
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Env, cmd.Dir = p.Env, "/"
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: p.Credential}
	cmd.WaitDelay = waitDelay
	if err := inherit.Start(cmd); err != nil {
		return "", err
	}
	pid := cmd.Process.Pid
	if p.Record != "" {
		_ = Replace(p.Record, fmt.Appendf(nil, "%d %s", pid, StartTime(pid)))
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-pid, syscall.SIGKILL) })
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if !wait(ctx, ended, &err) {
		return "", fmt.Errorf("%w, and process %d does not die of SIGKILL", context.Cause(ctx), pid) // its record stays
	}
	stop()
	if p.Record != "" {
		_ = os.Remove(p.Record)
	}
	switch {
	case ctx.Err() != nil && err != nil:
		return out.String(), context.Cause(ctx)
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // ErrWaitDelay: it succeeded, and left a process that holds its output open
		return out.String(), nil
	}
	if last := out.lastLine(); last != "" {
		err = fmt.Errorf("%w: %s", err, last)
	}
	return out.String(), err
}

// killDelay is how long to wait for a killed program. One that is blocked on a device or file system cannot be killed, and is left
// behind.
const killDelay = 5 * time.Second

// wait reports whether the program has ended, and sets err to its result.
func wait(ctx context.Context, ended <-chan error, err *error) bool {
	select {
	case *err = <-ended:
		return true
	case <-ctx.Done():
	}
	late := time.NewTimer(killDelay)
	defer late.Stop()
	select {
	case *err = <-ended:
		return true
	case <-late.C:
		return false
	}
}

// EndStray kills the process group of a record, if it is still the same one, and removes the record. It returns the process id, 0
// if there was none.
func EndStray(record string) int {
	b, err := os.ReadFile(record)
	_ = os.Remove(record)
	first, began, _ := strings.Cut(string(b), " ")
	pid, err2 := strconv.Atoi(first)
	if err != nil || err2 != nil || pid <= 1 || began == "" || StartTime(pid) != began {
		return 0 // gone, or its number belongs to another process now
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	return pid
}

// Records creates the directory for a daemon's records, NAME.pid, and ends programs that an earlier daemon left running. programs
// describes them in the log.
func Records(dir, programs string, log *slog.Logger) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot make the folder for the records of %s: %w", programs, err)
	}
	records, _ := filepath.Glob(filepath.Join(dir, "*.pid"))
	for _, path := range records {
		if pid := EndStray(path); pid != 0 {
			log.Warn("killed a program that an earlier daemon had started", "one_of", programs, "pid", pid)
		}
	}
	return nil
}

// Replace writes a small file atomically. It is not synced: after a power failure no program is running, and the file is obsolete.
func Replace(path string, b []byte) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// StartTime distinguishes processes that get the same number: clock ticks since boot, and the boot id.
func StartTime(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	i := bytes.LastIndexByte(b, ')') // the name may contain any character
	f := strings.Fields(string(b[i+1:]))
	if len(f) < 20 {
		return ""
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return f[19] + "@" + strings.TrimSpace(string(boot))
}

// tail keeps the end of the data written to it.
type tail struct{ b []byte }

const tailBytes = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if n := len(t.b); n > 2*tailBytes {
		t.b = append(t.b[:0], t.b[n-tailBytes:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.b) }

// lastLine returns the last line of output, in which a failed program most likely gives the reason; it goes into a node's reason.
func (t *tail) lastLine() string {
	s := strings.TrimSpace(string(t.b))
	s = s[strings.LastIndexByte(s, '\n')+1:]
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return -1
		}
		return c
	}, s)
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "")
	}
	return strings.ToValidUTF8(s, "?")
}
