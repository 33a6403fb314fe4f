// Package hook runs prolog and epilog: the administrator's programs, as root, before and after each job on a node.
//
// Records in <spool>/hooks survive a restart of the node daemon (the name is the step's, "12.1.4294967291"):
//
//	name.job      the job, for the epilog's environment (LaunchSpec without script and environment)
//	name.pid      the process group of the running hook, and when it began: the next daemon ends a hook that outlived a
//	              killed one, so that no two run at a time
//	name.epilog   the epilog has run; the content says why it failed
package hook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-hpc/sluice/internal/program"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// Runner runs hooks and keeps their records.
type Runner struct {
	// Allow checks whether a program may run; nil: any may.
	Allow  func(path string) error
	dir    string
	log    *slog.Logger
	serial atomic.Bool
	turn   chan struct{} // held by the running prolog or epilog if they run one at a time

	mu   sync.Mutex
	held map[string]bool // steps that may have records
}

// Serial makes prologs and epilogs run one at a time (PrologFlags=Serial), from the next one on.
func (r *Runner) Serial(on bool) { r.serial.Store(on) }

// Open makes <spool>/hooks and ends every hook that an earlier daemon left running.
func Open(spool string, log *slog.Logger) (*Runner, error) {
	r := &Runner{dir: filepath.Join(spool, "hooks"), log: log, turn: make(chan struct{}, 1), held: map[string]bool{}}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the directory for prolog and epilog records: %w", err)
	}
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", r.dir, err)
	}
	for _, e := range entries {
		r.hold(strings.TrimSuffix(e.Name(), filepath.Ext(e.Name())))
		if name, ok := strings.CutSuffix(e.Name(), ".pid"); ok {
			r.endStray(name)
		}
	}
	return r, nil
}

// hold notes that a step gets a record. Most never do, and deleting a missing file costs as much as deleting one.
func (r *Runner) hold(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[name] = true
}

func (r *Runner) path(name, kind string) string { return filepath.Join(r.dir, name+"."+kind) }

// Prolog runs the prolog of a step and remembers the job for its epilog.
func (r *Runner) Prolog(ctx context.Context, name, pattern string, env []string, timeout time.Duration) error {
	r.hold(name)
	return r.run(ctx, "prolog", name, pattern, env, timeout)
}

// Epilog runs the epilog of a step, unless it has run already, and returns the reason why it failed. An error means that it was
// interrupted and must run again.
func (r *Runner) Epilog(ctx context.Context, name, pattern string, env []string, timeout time.Duration) (failed string, err error) {
	if b, err := os.ReadFile(r.path(name, "epilog")); err == nil {
		return string(b), nil
	}
	r.hold(name)
	err = r.run(ctx, "epilog", name, pattern, env, timeout)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		failed = err.Error()
	}
	if err := program.Replace(r.path(name, "epilog"), []byte(failed)); err != nil {
		r.log.Error("cannot record that an epilog has run: it will run again after a restart", "step", name, "err", err)
	}
	return failed, nil
}

// Remember stores the description of a job for its epilog.
func (r *Runner) Remember(name string, l *pb.LaunchSpec) error {
	r.hold(name)
	b, err := proto.Marshal(l)
	if err == nil {
		err = program.Replace(r.path(name, "job"), b)
	}
	if err != nil {
		return fmt.Errorf("cannot store the description of job %d for its epilog: %w", l.GetKey().GetJobId(), err)
	}
	return nil
}

// Recall returns the description stored by Remember, or nil.
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
	r.mu.Lock()
	held := r.held[name]
	delete(r.held, name)
	r.mu.Unlock()
	if !held {
		return
	}
	for _, kind := range []string{"job", "pid", "epilog"} {
		_ = os.Remove(r.path(name, kind))
	}
}

// Names returns the steps with records, so that the owner can forget those that are gone.
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

// run executes every program that pattern matches (slurm.conf(5): "a glob pattern … may be used to run more than one program"),
// in order of their names, until one fails.
func (r *Runner) run(ctx context.Context, what, name, pattern string, env []string, timeout time.Duration) error {
	if r.serial.Load() { // its timeout starts with its turn
		select {
		case r.turn <- struct{}{}:
			defer func() { <-r.turn }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
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

// match expands a pattern. A name without special characters stands for itself, so that a missing program is an error; a pattern
// that matches nothing means that there are no programs.
func match(pattern string) ([]string, error) {
	if !filepath.IsAbs(pattern) {
		return nil, errors.New("it must be an absolute path")
	}
	if !strings.ContainsAny(pattern, "*?[") {
		return []string{pattern}, nil
	}
	return filepath.Glob(pattern)
}

// one runs a program. When ctx ends it is killed.
func (r *Runner) one(ctx context.Context, name, path string, env []string) error {
	if r.Allow != nil {
		if err := r.Allow(path); err != nil {
			return err
		}
	}
	out, err := program.Run(ctx, program.Program{Path: path, Env: env, Record: r.path(name, "pid")})
	if err != nil && ctx.Err() == nil {
		r.log.Warn("a program failed", "step", name, "program", path, "err", err, "output", out)
	}
	return err
}

// Check runs a program that belongs to no job, such as HealthCheckProgram; name is the name of its record.
func (r *Runner) Check(ctx context.Context, name, path string, env []string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it ran longer than %v", timeout))
	defer cancel()
	return r.one(ctx, name, path, env)
}

// endStray kills the process group of a hook that an earlier daemon started.
func (r *Runner) endStray(name string) {
	if pid := program.EndStray(r.path(name, "pid")); pid != 0 {
		r.log.Warn("killed a prolog, epilog or health check that an earlier daemon had started", "step", name, "pid", pid)
	}
}
