package acct

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// File is the name of the database in StateSaveLocation.
const File = "acct.db"

// Options configure an Accounting.
type Options struct {
	Dir     string // StateSaveLocation
	Cluster string // the cluster's id
	Log     *slog.Logger
	// Policy returns the present settings of slurm.conf.
	Policy func() Policy
	// Outbox reads an encoded record of the journal's bucket Finished, nil = none; Script reads a stored script and environment.
	Outbox func(state.Attempt) ([]byte, error)
	Script func(*pb.JobRecord) (script, env []byte, err error)
	// StepOutbox reads the encoded record of a step, nil = none.
	StepOutbox func(state.StepKey) ([]byte, error)
	// Stored passes to the writer the command that removes attempts from the outbox.
	Stored func(ctx context.Context, cmd reactor.Stored) error
	Now    func() time.Time
}

// Policy holds the settings of slurm.conf.
type Policy struct {
	Scripts, Env bool          // AccountingStoreFlags
	Keep         time.Duration // PurgeJobAfter; 0 = for ever
	// TextBytes bounds the stored scripts and environments of one user, compressed; 0 = no bound.
	TextBytes int64
}

// Accounting maintains the database. Changed and Unstored are for the loop, Select and Script for sacct, Run is the writer.
type Accounting struct {
	o    Options
	path string
	db   atomic.Pointer[store]
	kick chan struct{}

	decayed decayedSums
	lasting decayedSums // the same without decay
	warned  time.Time   // last warning about texts that were not kept; only for Run

	mu      sync.Mutex
	view    *state.View
	dirty   map[uint32]struct{}        // jobs whose present record is not in the database
	flying  map[uint32]struct{}        // of those, the ones being stored
	kept    map[state.Attempt]struct{} // attempts of the outbox that are not in the database
	sent    map[state.Attempt]struct{} // of those, the ones being stored
	steps   stepsDue
	written uint64 // rows since the start
	broken  error  // a reader found the database damaged
	failed  error  // error of the last attempt to store; nil = success
}

// New begins with everything in the state: it does not know what is stored already. It does not touch the disk.
func New(o Options, v *state.View) *Accounting {
	if o.Now == nil {
		o.Now = time.Now
	}
	a := &Accounting{o: o, decayed: decayedSums{turn: make(chan struct{}, 1)},
		lasting: decayedSums{turn: make(chan struct{}, 1)},
		path:    filepath.Join(o.Dir, File), kick: make(chan struct{}, 1), view: v, dirty: map[uint32]struct{}{},
		flying: map[uint32]struct{}{}, kept: map[state.Attempt]struct{}{}, sent: map[state.Attempt]struct{}{}}
	a.steps = newStepsDue(v)
	a.all(v)
	for _, at := range v.Outbox {
		a.kept[at] = struct{}{}
	}
	return a
}

// all marks every job of the state. The caller holds the lock, or is alone.
func (a *Accounting) all(v *state.View) {
	for j := range v.Jobs.All() {
		a.dirty[j.Id] = struct{}{}
	}
	a.steps.all(v)
}

// Changed notes the changes of a commit. The loop calls it, so it never blocks.
func (a *Accounting) Changed(c state.Change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.view = c.View
	for _, id := range c.Stored {
		if c.View.Jobs.Get(id) != nil {
			a.dirty[id] = struct{}{}
		} else {
			delete(a.dirty, id) // forgotten: stored, or in the outbox
		}
	}
	for _, at := range c.Kept {
		a.kept[at] = struct{}{}
	}
	a.steps.changed(c)
}

// Unstored returns the jobs whose last change is not in the database.
func (a *Accounting) Unstored() map[uint32]struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.dirty)+len(a.flying) == 0 {
		return nil
	}
	m := make(map[uint32]struct{}, len(a.dirty)+len(a.flying))
	for id := range a.dirty {
		m[id] = struct{}{}
	}
	for id := range a.flying {
		m[id] = struct{}{}
	}
	return m
}

// Waiting returns the number of attempts that are only in the state's outbox. It grows while the database cannot be written.
func (a *Accounting) Waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.kept) + len(a.sent)
}

// Figures returns counters for sdiag.
func (a *Accounting) Figures() (waiting int, written uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.dirty) + len(a.flying) + len(a.kept) + len(a.sent) + a.steps.count(), a.written, a.failed
}

// Open opens the database, so that the first sacct has it. If it fails, Run tries again.
func (a *Accounting) Open() {
	if _, err := a.open(); err != nil {
		a.o.Log.Error("cannot open the accounting database; sacct shows only jobs that the controller still holds", "err", err)
		a.mu.Lock()
		a.failed = err
		a.mu.Unlock()
	}
}

// Trouble explains why Select may be incomplete, "" = it is complete.
func (a *Accounting) Trouble() string {
	if a.db.Load() != nil {
		return ""
	}
	if _, _, err := a.Figures(); err != nil {
		return fmt.Sprintf("only jobs that the controller still holds are shown: %v", err)
	}
	return "only jobs that the controller still holds are shown: " + errClosed.Error()
}

// Flush waits until everything that was committed before the call is stored.
func (a *Accounting) Flush(ctx context.Context) error {
	for {
		if n, _, err := a.Figures(); n == 0 {
			return nil
		} else if err != nil {
			return err
		}
		select {
		case a.kick <- struct{}{}:
		default:
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// errClosed means that the database could not be opened, or has been closed.
var errClosed = errors.New("the accounting database is not open")

// Script returns the stored script or environment of a job: of the newest attempt, from the state while it has the job.
func (a *Accounting) Script(ctx context.Context, v *state.View, id uint32, env bool) (data []byte, uid uint32, found bool, err error) {
	p := a.o.Policy()
	if j := v.Jobs.Get(id); j != nil {
		if env && !p.Env || !env && !p.Scripts {
			return nil, j.Spec.Uid, true, nil
		}
		script, vars, err := a.o.Script(j)
		if env {
			script = vars
		}
		if err == nil {
			return script, j.Spec.Uid, true, nil
		}
	}
	db := a.db.Load()
	if db == nil {
		return nil, 0, false, errClosed
	}
	column := "script"
	if env {
		column = "env"
	}
	return db.text(ctx, id, column)
}

// jobTexts holds a job's script and environment, as far as they are kept.
type jobTexts struct{ script, env []byte }

// textsOf returns a job's texts, read once for all tasks of an array in a batch: known caches them.
func (a *Accounting) textsOf(j *pb.JobRecord, known map[uint32]jobTexts) jobTexts {
	if j.ArrayJobId == 0 {
		return a.texts(j)
	}
	t, ok := known[state.ScriptID(j)]
	if !ok {
		t = a.texts(j)
		known[state.ScriptID(j)] = t
	}
	return t
}

// texts returns the parts of a job's script and environment that have to be stored.
func (a *Accounting) texts(j *pb.JobRecord) (t jobTexts) {
	p := a.o.Policy()
	if !p.Scripts && !p.Env || j.Spec.GetInteractive() {
		return t
	}
	script, env, err := a.o.Script(j)
	if err != nil {
		return t // an earlier version of the job had it, or it is gone with its array
	}
	if p.Scripts {
		t.script = script
	}
	if p.Env {
		t.env = env
	}
	return t
}
