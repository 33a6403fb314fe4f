// Package hook runs prolog and epilog: programs of the administrator, as root, before and after each job on a node.
//
// Records in <spool>/hooks carry over a restart of the node daemon (name is the step's, "12.1.4294967291"):
//
//	name.job      the job, for the epilog's environment (LaunchSpec without script and environment)
//	name.pid      the process group of the hook that runs now, and when it began: a hook that outlived a killed daemon is ended
//	              by the next one, so that no two run at a time
//	name.epilog   the epilog has run; the content says why it failed
package hook

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

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// Runner runs hooks and keeps their records.
type Runner struct {
	dir string
	log *slog.Logger
}

// Open makes <spool>/hooks and ends every hook that an earlier daemon left running.
func Open(spool string, log *slog.Logger) (*Runner, error) {
	r := &Runner{dir: filepath.Join(spool, "hooks"), log: log}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the folder for prolog and epilog records: %w", err)
	}
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", r.dir, err)
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".pid"); ok {
			r.endStray(name)
		}
	}
	return r, nil
}

func (r *Runner) path(name, kind string) string { return filepath.Join(r.dir, name+"."+kind) }

// Prolog runs the prolog of a step and remembers the job for its epilog.
func (r *Runner) Prolog(ctx context.Context, name, pattern string, env []string, timeout time.Duration) error {
	return r.run(ctx, "prolog", name, pattern, env, timeout)
}

// Epilog runs the epilog of a step, unless it has run already, and gives the words that say why it failed. An error means that
// it was interrupted and has to run again.
func (r *Runner) Epilog(ctx context.Context, name, pattern string, env []string, timeout time.Duration) (failed string, err error) {
	if b, err := os.ReadFile(r.path(name, "epilog")); err == nil {
		return string(b), nil
	}
	err = r.run(ctx, "epilog", name, pattern, env, timeout)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		failed = err.Error()
	}
	if err := replace(r.path(name, "epilog"), []byte(failed)); err != nil {
		r.log.Error("cannot note that an epilog has run: it will run again after a restart", "step", name, "err", err)
	}
	return failed, nil
}

// Remember keeps what an epilog needs to know of a job.
func (r *Runner) Remember(name string, l *pb.LaunchSpec) error {
	b, err := proto.Marshal(l)
	if err == nil {
		err = replace(r.path(name, "job"), b)
	}
	if err != nil {
		return fmt.Errorf("cannot keep the description of job %d for its epilog: %w", l.GetKey().GetJobId(), err)
	}
	return nil
}

// Recall gives what Remember kept, or nil.
func (r *Runner) Recall(name string) *pb.LaunchSpec {
	b, err := os.ReadFile(r.path(name, "job"))
	if err != nil {
		return nil
	}
	l := &pb.LaunchSpec{}
	if proto.Unmarshal(b, l) != nil {
		return nil
	}
	return l
}

// Forget deletes the records of a step.
func (r *Runner) Forget(name string) {
	for _, kind := range []string{"job", "pid", "epilog"} {
		_ = os.Remove(r.path(name, kind))
	}
}

// Names lists the steps with records, for the owner to forget those that are gone.
func (r *Runner) Names() []string {
	entries, _ := os.ReadDir(r.dir)
	var out []string
	for _, e := range entries {
		for _, kind := range []string{".job", ".epilog"} {
			if name, ok := strings.CutSuffix(e.Name(), kind); ok && (len(out) == 0 || out[len(out)-1] != name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// replace writes a small file whole. It is not synced: after a power cut nothing of the job runs, and a new boot has no use for it.
func replace(path string, b []byte) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// run executes every program that pattern matches (slurm.conf(5): "a glob pattern … may be used to run more than one program"),
// in the order of their names, until one fails.
func (r *Runner) run(ctx context.Context, what, name, pattern string, env []string, timeout time.Duration) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it ran longer than PrologEpilogTimeout, %v", timeout))
		defer cancel()
	}
	programs, err := match(pattern)
	if err != nil {
		return fmt.Errorf("cannot run %s %s: %w", what, pattern, err)
	}
	for _, p := range programs {
		if err := r.one(ctx, name, p, env); err != nil {
			return fmt.Errorf("%s %s failed: %w", what, p, err)
		}
	}
	return nil
}

// match expands a pattern. A name without special characters is itself, so that a missing program is an error; a pattern that
// matches nothing is an empty folder of programs, which is none.
func match(pattern string) ([]string, error) {
	if !filepath.IsAbs(pattern) {
		return nil, errors.New("it has to be an absolute path")
	}
	if !strings.ContainsAny(pattern, "*?[") {
		return []string{pattern}, nil
	}
	return filepath.Glob(pattern)
}

// waitDelay is how long after its end a hook's output is still read, when a process that it left behind holds it open.
const waitDelay = time.Second

// one runs a program in a session of its own. When ctx ends its process group is killed.
func (r *Runner) one(ctx context.Context, name, program string, env []string) error {
	var out tail
	cmd := exec.Command(program)
	cmd.Env, cmd.Dir = env, "/"
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = waitDelay
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	if err := replace(r.path(name, "pid"), fmt.Appendf(nil, "%d %s", pid, startTime(pid))); err != nil {
		r.log.Warn("cannot note the process of a prolog or epilog", "step", name, "err", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-pid, syscall.SIGKILL) })
	err := cmd.Wait()
	stop()
	_ = os.Remove(r.path(name, "pid"))
	switch {
	case ctx.Err() != nil && err != nil:
		return context.Cause(ctx)
	case errors.Is(err, exec.ErrWaitDelay): // it ended well, and left a process that holds its output
		return nil
	case err == nil:
		return nil
	}
	r.log.Warn("prolog or epilog failed", "step", name, "program", program, "err", err, "output", out.String())
	if last := out.lastLine(); last != "" {
		return fmt.Errorf("%w: %s", err, last)
	}
	return err
}

// endStray kills the process group of a hook that an earlier daemon started.
func (r *Runner) endStray(name string) {
	b, err := os.ReadFile(r.path(name, "pid"))
	_ = os.Remove(r.path(name, "pid"))
	first, began, _ := strings.Cut(string(b), " ")
	pid, err2 := strconv.Atoi(first)
	if err != nil || err2 != nil || pid <= 1 || began == "" || startTime(pid) != began {
		return // gone, or its number is another's now
	}
	r.log.Warn("ending a prolog or epilog of an earlier daemon", "step", name, "pid", pid)
	_ = syscall.Kill(-pid, syscall.SIGKILL)
}

// startTime tells one process from another that gets the same number later: clock ticks since boot, and the boot.
func startTime(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	i := bytes.LastIndexByte(b, ')') // the name may hold anything
	f := strings.Fields(string(b[i+1:]))
	if len(f) < 20 {
		return ""
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return f[19] + "@" + strings.TrimSpace(string(boot))
}

// tail keeps the end of what is written to it.
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

// lastLine is what a failed program most likely said about why; it goes into the node's reason.
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
