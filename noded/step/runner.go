package step

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/noded/cgroup"
	"github.com/sluice-hpc/sluice/noded/private"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Options of a Runner.
type Options struct {
	Spool      string   // directory of this node alone; the jobs' users need search permission on it and its parents
	Command    []string // starts a shim; empty: this binary with the argument "stepd"
	CgroupRoot string   // relative name below the cgroup mounts: "sluice/<cluster>/<node>"
	// CgroupPlugin is CgroupPlugin of cgroup.conf(5): autodetect (also if empty), cgroup/v1, cgroup/v2 or disabled.
	CgroupPlugin string
	// ShimLog is the log file of shims; nil: this process's standard error.
	ShimLog *os.File
	// ShimEnv returns the environment variables that tell a new shim how to log; nil: none.
	ShimEnv     func() []string
	MinIdle     int           // idle shims kept; 0: 2
	IdleTimeout time.Duration // how long a shim above MinIdle stays idle; 0: 30 s
	// Group names the cgroup of a step, to clean up a step whose bundle is unreadable; nil: such leftovers stay.
	Group func(*pb.StepKey) string
	// AnswerTimeout is how long a shim found by Recover, or one whose connection broke, may take to answer before it counts as
	// dead and is killed; 0: 5 s.
	AnswerTimeout time.Duration
	Log           *slog.Logger // nil: slog.Default
	Cgroups       cgroup.Root  // nil: the machine's own; must mean the same as CgroupRoot means to a shim
}

func (o *Options) complete() error {
	var errs []error
	if !filepath.IsAbs(o.Spool) {
		errs = append(errs, fmt.Errorf("cannot use spool directory %q: not an absolute path", o.Spool))
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if len(o.Command) == 0 {
		exe, err := os.Executable()
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot find this program, which shims run: %w", err))
		}
		o.Command = []string{exe, "stepd"}
	}
	if o.ShimLog == nil {
		o.ShimLog = os.Stderr
	}
	if o.MinIdle == 0 {
		o.MinIdle = 2
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = 30 * time.Second
	}
	if o.AnswerTimeout == 0 {
		o.AnswerTimeout = 5 * time.Second
	}
	return errors.Join(errs...)
}

// Runner runs the steps of one node. Its methods may be called from any goroutine.
type Runner struct {
	o    Options
	root cgroup.Root
	log  *slog.Logger
	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup
	pool pool
	feed feed
	// slots bounds the launches under way: more jobs than processors that start at once slow each other down.
	slots chan struct{}

	closing sync.Once
	probing chan struct{} // holds one while a check for faults is under way

	mu    sync.Mutex
	steps map[string]*entry
	free  map[uint32][]string // by uid: names of directories to reuse
	frees int                 // number of names in free
	made  uint64              // numbers their names
}

// entry is a step known to this node: its directory exists, or is being made.
type entry struct {
	key  *pb.StepKey
	name string
	shim *shim          // nil once the step has ended
	rep  *pb.StepReport // newest; nil while Launch is under way
	told *pb.StepReport // the last one delivered
	cg   *pb.Bundle     // the part that Reclaim needs
}

// New creates the spool's directories. It starts nothing, and earlier steps are unknown until Recover.
func New(o Options) (*Runner, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	for _, d := range []struct {
		name string
		mode os.FileMode
	}{{folder.Steps, 0o711}, {folder.Shims, 0o700}} {
		dir := filepath.Join(o.Spool, d.name)
		if err := os.MkdirAll(dir, d.mode); err != nil {
			return nil, fmt.Errorf("cannot make the spool: %w", err)
		}
		if err := os.Chmod(dir, d.mode); err != nil {
			return nil, fmt.Errorf("cannot protect the spool: %w", err)
		}
	}
	if err := folder.Lists(filepath.Join(o.Spool, folder.Steps)); os.Geteuid() == 0 && errors.Is(err, unix.EOPNOTSUPP) {
		o.Log.Warn("users can append to their batch scripts and so fill the spool: use a file system with access control lists for it "+
			"(ext4, xfs, btrfs, tmpfs)", "err", err)
	}
	root := o.Cgroups
	if root == nil {
		var err error
		if root, err = cgroup.Open(o.CgroupRoot, o.CgroupPlugin); err != nil {
			return nil, err
		}
	}
	for _, n := range root.Notes() {
		o.Log.Warn(n)
	}
	r := &Runner{o: o, root: root, log: o.Log, steps: map[string]*entry{}, free: map[uint32][]string{},
		slots: make(chan struct{}, maxLaunching()), probing: make(chan struct{}, 1)}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.feed.init()
	r.pool.init(r)
	r.wg.Add(1)
	go func() { defer r.wg.Done(); r.feed.run(r.ctx, r.newest) }()
	return r, nil
}

// Dir is the directory of a step.
func (r *Runner) Dir(k *pb.StepKey) string { return r.dir(folder.Name(k)) }

func (r *Runner) dir(name string) string { return filepath.Join(r.o.Spool, folder.Steps, name) }

// Bundle returns the bundle that the step was launched with.
func (r *Runner) Bundle(k *pb.StepKey) (*pb.Bundle, error) { return r.readBundle(folder.Name(k)) }

// Layout is the cgroup layout in use.
func (r *Runner) Layout() cgroup.Layout { return r.root.Layout() }

// Devices returns nil if device rules (Limits.devices) work, else why not.
func (r *Runner) Devices() error { return r.root.Devices() }

// Reports delivers every change. Unread reports of a step are merged into its newest. Closed by Close.
func (r *Runner) Reports() <-chan *pb.StepReport { return r.feed.out }

// newest returns the report to deliver for a step; nil if it was delivered, or the step was forgotten.
func (r *Runner) newest(name string) *pb.StepReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.steps[name]
	if e == nil || e.rep == e.told {
		return nil
	}
	e.told = e.rep
	return e.rep
}

// repeat delivers the newest report of a step again.
func (r *Runner) repeat(e *entry) {
	r.mu.Lock()
	e.told = nil
	r.mu.Unlock()
	r.feed.touch(e.name)
}

// report records the newest state and delivers it.
func (r *Runner) report(e *entry, rep *pb.StepReport) {
	r.mu.Lock()
	e.rep = rep
	if rep.Phase == pb.StepPhase_STEP_ENDED {
		e.shim = nil
	}
	r.mu.Unlock()
	r.feed.touch(e.name)
}

// Forget deletes everything of an ended step. Forgetting an unknown step is not an error.
func (r *Runner) Forget(k *pb.StepKey) error {
	name := folder.Name(k)
	r.mu.Lock()
	e := r.steps[name]
	if e != nil && (e.rep == nil || e.rep.Phase != pb.StepPhase_STEP_ENDED) {
		r.mu.Unlock()
		return fmt.Errorf("cannot forget step %s: it has not ended", name)
	}
	delete(r.steps, name)
	r.mu.Unlock()
	if e == nil {
		return nil
	}
	r.removePrivate(e.cg)
	r.removeContainer(e.cg)
	if r.retire(e) {
		return nil
	}
	if err := folder.Remove(r.dir(name)); err != nil {
		r.mu.Lock()
		if r.steps[name] == nil {
			r.steps[name] = e // otherwise a retry would find nothing to delete
		}
		r.mu.Unlock()
		return fmt.Errorf("cannot delete the directory of step %s: %w", name, err)
	}
	return nil
}

// removePrivate deletes the private directories of an allocation and its steps, in the background since they may be large. What
// this process does not finish before Close, the next one does (private.Sweep, private.Purge).
func (r *Runner) removePrivate(b *pb.Bundle) {
	base := b.GetPrivacy().GetBase()
	if base == "" || strings.Contains(b.Cgroup, "/") || private.InMemory(b.Privacy) {
		return
	}
	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		if err := private.Remove(r.ctx, base, b.Cgroup); err != nil && r.ctx.Err() == nil {
			r.log.Error("cannot delete a job's private directories", "in", base, "name", b.Cgroup, "err", err)
		}
	}()
}

// Fail records and reports the end of a step that never began, for instance because its prolog failed.
func (r *Runner) Fail(b *pb.Bundle, exit *pb.ExitRecord) error {
	e, known := r.reserve(b)
	if known {
		return fmt.Errorf("cannot record the failure of step %s: the step is known already", e.name)
	}
	dir := r.dir(e.name)
	err := folder.Write(dir, b, nil, false)
	if err == nil {
		err = folder.WriteExit(dir, exit)
	}
	if err != nil {
		r.drop(e)
		folder.Remove(dir)
		return fmt.Errorf("cannot record the failure of step %s: %w", e.name, err)
	}
	r.report(e, ended(b.Key, exit))
	return nil
}

func ended(k *pb.StepKey, exit *pb.ExitRecord) *pb.StepReport {
	return &pb.StepReport{Key: k, Phase: pb.StepPhase_STEP_ENDED, Exit: exit, StartNs: exit.GetStartNs()}
}

// reserve creates the entry of a step, unless it is known.
func (r *Runner) reserve(b *pb.Bundle) (e *entry, known bool) {
	name := folder.Name(b.Key)
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.steps[name]; e != nil {
		return e, true
	}
	e = &entry{key: b.Key, name: name, cg: reclaimable(b)}
	r.steps[name] = e
	return e, false
}

// reclaimable returns the part of a bundle that Reclaim reads: the whole may hold a megabyte of environment.
func reclaimable(b *pb.Bundle) *pb.Bundle {
	return &pb.Bundle{Key: b.Key, Uid: b.Uid, Cgroup: b.Cgroup, Privacy: b.Privacy, Container: b.Container}
}

func (r *Runner) drop(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.steps, e.name)
}

// Close leaves the steps to their shims and ends the idle shims. The Runner cannot be used again.
func (r *Runner) Close() error {
	r.closing.Do(r.close)
	return nil
}

func (r *Runner) close() {
	r.stop()
	r.pool.close()
	r.wg.Wait()
	r.feed.close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.steps {
		if e.rep == nil || e.rep.Phase != pb.StepPhase_STEP_ENDED {
			return
		}
	}
	r.root.Tidy()
}
