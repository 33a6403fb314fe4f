// Package planner runs the scheduler beside the writer: View -> sched.Snapshot -> sched.Plan -> reactor.ApplyPlan.
//
// It wakes on every commit that can change a decision and at the time that the last plan named, so a submission or an ended job leads to a
// start within milliseconds. It keeps the scheduler's records between passes and renews only those of jobs and nodes that a commit changed;
// the scheduler compares pointers. The next pass picks up changes made during this one.
package planner

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/proto/stepwire"
	"github.com/sluice-hpc/sluice/sched"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Writer accepts plans; *loop.Loop is one.
type Writer interface {
	Do(ctx context.Context, cmd reactor.Command) (any, error)
	View() *state.View
}

// Planner runs passes. Create with New, add Changed as an observer of the loop, run with Run.
type Planner struct {
	// Owners returns the present accounts of users with crontab jobs, by uid; nil, or a nil answer: as at submission. Set before Run. It
	// may be slow, and ends with the context.
	Owners func(ctx context.Context, uids []uint32) map[uint32]*reactor.Owner

	writer Writer
	clock  func() time.Time
	log    *slog.Logger
	wake   chan struct{}

	mu      sync.Mutex
	dirty   map[uint32]struct{} // jobs changed since the last pass
	rebuild bool                // nodes, partitions or settings changed
	params  record.Params
	shares  []record.Share

	// only for the planner goroutine
	sched        *sched.Scheduler
	used         record.Params
	mirror       mirror
	last         int64 // time of the last pass, in seconds
	nextForecast int64 // earliest time of the next one, in seconds
	owedForecast bool  // the last pass made none although jobs wait
	renewal      renewal
	stats        Stats
}

// Stats are counters since the start, for sdiag.
type Stats struct {
	Passes, Started, Dropped, Probes, Truncated atomic.Uint64
	LastNS, TotalNS, MaxNS, LastAtNS            atomic.Int64
	LastQueue, Backfilled                       atomic.Int64
	Queued, Tried, LastTried                    atomic.Int64 // sums over all passes, and for the last one
}

// New makes a planner with the scheduler parameters of the configuration.
func New(w Writer, params record.Params, clock func() time.Time, log *slog.Logger) *Planner {
	return &Planner{writer: w, clock: clock, log: log, wake: make(chan struct{}, 1), dirty: map[uint32]struct{}{}, rebuild: true,
		params: params}
}

// Configure replaces the parameters, from the next pass on.
func (p *Planner) Configure(params record.Params) {
	p.mu.Lock()
	p.params, p.rebuild = params, true
	p.mu.Unlock()
	p.poke()
}

// SetShares replaces the fair-share factors, from the next pass on. The list is sorted by account and user, and must not be changed.
func (p *Planner) SetShares(list []record.Share) {
	p.mu.Lock()
	p.shares = list
	p.mu.Unlock()
	p.poke()
}

// Stats returns the planner's counters.
func (p *Planner) Stats() *Stats { return &p.stats }

// Changed notes the changes of a commit. It is a loop observer and does not block.
func (p *Planner) Changed(c state.Change) {
	relevant := c.Structure || len(c.Jobs) > 0 || slices.ContainsFunc(c.Events, isPastRead)
	p.mu.Lock()
	for _, id := range c.Jobs {
		p.dirty[id] = struct{}{}
	}
	if c.Structure {
		p.rebuild = true
	}
	p.mu.Unlock()
	if relevant || p.nodesMatter(c) {
		p.poke()
	}
}

func isPastRead(e state.Event) bool { _, is := e.(state.PastRead); return is }

// nodesMatter reports whether a node record of the commit differs in a field that the scheduler sees; heartbeats do not.
func (p *Planner) nodesMatter(c state.Change) bool {
	for _, name := range c.Nodes {
		if n := c.View.Node(name); n != nil && p.mirror.nodeChanged(n) {
			return true
		}
	}
	return false
}

// Woken has a value when there is reason for a pass. Run waits for it or the time that the last plan named. For simulations.
func (p *Planner) Woken() <-chan struct{} { return p.wake }

func (p *Planner) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run makes passes until ctx ends.
func (p *Planner) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var resume record.Cursor
	failed := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		case <-timer.C:
		}
		plan, took, err := p.pass(ctx, resume)
		resume = record.Cursor{}
		if err != nil {
			failed++
			if ctx.Err() == nil {
				p.log.Warn("a scheduling plan could not be applied; planning again", "err", err, "failed", failed)
			}
			p.poke()
			if !rest(ctx, failureRest(failed)) {
				return nil
			}
			continue
		}
		failed = 0
		if plan.Truncated {
			resume = plan.Resume
			p.poke()
		}
		timer.Reset(p.until(p.wakeAt(plan)))
		if !rest(ctx, min(took, maxRest)) {
			return nil
		}
	}
}

// maxRest bounds the pause after a pass. The planner rests as long as it worked, so that a burst of submissions into a long queue
// leaves the other half of a core to the rest of the controller; on a short queue the pause is microseconds.
const maxRest = 20 * time.Millisecond

// failureRest is the pause after the n-th plan in a row that could not be applied (full disk, full mailbox): it doubles from 50 ms
// to 3.2 s, so that a disk that stays full costs neither a core nor a log.
func failureRest(n int) time.Duration { return 50 * time.Millisecond << min(n-1, 6) }

// rest waits, and returns false when ctx ended meanwhile.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// wakeAt returns when the next pass is due without an event: because of the plan, or of a delayed forecast.
func (p *Planner) wakeAt(plan *record.Plan) int64 {
	if p.owedForecast {
		return min(plan.Wake, max(p.nextForecast, plan.Now+1))
	}
	return plan.Wake
}

// until returns the time until a moment in seconds since 1970, at most an hour.
func (p *Planner) until(wake int64) time.Duration {
	d := time.Unix(wake, 0).Sub(p.clock())
	if wake == record.Forever || d > time.Hour {
		return time.Hour
	}
	return max(d, 0) + time.Millisecond
}

// pass makes one plan and passes it to the writer.
func (p *Planner) pass(ctx context.Context, resume record.Cursor) (*record.Plan, time.Duration, error) {
	begun := p.clock()
	plan, cmd := p.Prepare(resume)
	took := p.clock().Sub(begun)
	p.count(plan, took)
	p.log.Debug("pass", "flag", "Backfill", "took", took, "waiting", len(p.mirror.pending), "tried", plan.Stats.Tried, "starts",
		len(plan.Start), "promises", len(plan.Reserve))
	if cmd == nil {
		return plan, took, nil
	}
	p.ownersOf(ctx, cmd.Starts)
	if err := p.certify(cmd.Starts); err != nil {
		return plan, took, err
	}
	out, err := p.writer.Do(ctx, *cmd)
	if err != nil {
		return plan, took, err
	}
	a := out.(reactor.Applied)
	p.stats.Started.Add(uint64(a.Started))
	p.stats.Dropped.Add(uint64(a.Dropped))
	return plan, took, nil
}

// ownersOf looks up the present accounts of users whose crontab jobs start.
func (p *Planner) ownersOf(ctx context.Context, starts []reactor.PlannedStart) {
	var uids []uint32
	for i := range starts {
		if s := &starts[i]; s.Spec.GetCron() != "" && !slices.Contains(uids, s.Spec.Uid) {
			uids = append(uids, s.Spec.Uid)
		}
	}
	if len(uids) == 0 || p.Owners == nil {
		return
	}
	owners := p.Owners(ctx, uids)
	for i := range starts {
		if s := &starts[i]; s.Spec.GetCron() != "" {
			s.Owner = owners[s.Spec.Uid]
		}
	}
}

// certify makes the certificates of the first steps of starting jobs.
func (p *Planner) certify(starts []reactor.PlannedStart) (err error) {
	for i := range starts {
		if s := &starts[i]; p.writer.View().Jobs.Get(s.ID).GetFirstStep() != nil {
			if s.Certificate, s.Key, err = stepwire.NewCertificate(s.ID); err != nil {
				return fmt.Errorf("cannot create a certificate for the first step of job %d: %w", s.ID, err)
			}
		}
	}
	return nil
}

// Prepare is the first half of a pass: the plan for the present state, and the command that applies it, nil when there is nothing to apply.
// Run then passes the command to the writer; simulations, which have no goroutines, call Prepare themselves.
func (p *Planner) Prepare(resume record.Cursor) (*record.Plan, *reactor.ApplyPlan) {
	p.mu.Lock()
	dirty, rebuild, params := p.dirty, p.rebuild, p.params
	p.mirror.shares = p.shares
	p.dirty, p.rebuild = make(map[uint32]struct{}, len(dirty)), false
	p.mu.Unlock()
	v := p.writer.View() // not older than the changes in dirty
	if p.sched == nil || params != p.used {
		p.sched, p.used = sched.New(params), params
	}
	p.mirror.typical.on = params.Placement == record.FGD
	// Changed may not have been called for this view's change yet. Which users nodes refuse matters too, because requests differ by it.
	if rebuild || p.mirror.settings != v.Settings || p.mirror.users != v.Users() || p.mirror.limits.outdated(v) {
		if !v.Settings.EnforceLimits || p.mirror.limits.outdated(v) {
			p.mirror.limits = limits{} // remade when the next job waits
		}
		p.mirror.rebuild(v)
	} else {
		p.mirror.update(v, dirty)
	}
	now := p.clock().Unix()
	if now < p.last { // the clock was set back: past moments may come again
		p.sched, p.nextForecast, p.renewal = sched.New(params), 0, renewal{}
	}
	p.last = now
	snap := p.mirror.snapshot(v, now, resume)
	plan := p.sched.Plan(snap)
	p.forecast(v, plan, now)
	cmd := p.mirror.command(v, plan)
	if len(cmd.Shown) > maxShown { // the next pass lists the rest again
		cmd.Shown = cmd.Shown[:maxShown]
		p.poke()
	}
	if p.mirror.priorities(&cmd, v, snap, &params, &p.renewal) {
		p.poke()
	}
	if len(cmd.Starts)+len(cmd.Shown)+len(cmd.Never)+len(cmd.Preempt) == 0 {
		return plan, nil
	}
	return plan, &cmd
}

// maxShown bounds the jobs whose displayed fields one commit renews, so that starts do not wait long behind it.
const maxShown = 500

// forecastDepth is the number of waiting jobs that get an expected start, forecastEveryS the least interval in seconds.
const (
	forecastDepth  = 200
	forecastEveryS = 10
)

// forecast adds to a plan the expected starts of the first jobs of the queue that the plan does not promise. It costs more than a pass, so
// it is made now and then, and only while jobs wait.
func (p *Planner) forecast(v *state.View, plan *record.Plan, now int64) {
	due := p.nextForecast
	if len(plan.Start) > 0 { // starts should not wait for displayed fields, unless there is never a pause
		due += forecastEveryS
	}
	p.owedForecast = len(p.mirror.pending) > 0 && now < due
	if len(p.mirror.pending) == 0 || p.owedForecast {
		return
	}
	begun := p.clock()
	promised := make(map[uint32]bool, len(plan.Reserve))
	for i := range plan.Reserve {
		promised[plan.Reserve[i].ID] = true
	}
	for _, r := range p.sched.Forecast(p.mirror.snapshot(v, now, record.Cursor{}), forecastDepth) {
		if !promised[r.ID] && r.At > now {
			promised[r.ID] = true
			plan.Reserve = append(plan.Reserve, r)
		}
	}
	p.nextForecast = now + max(forecastEveryS, 20*int64(p.clock().Sub(begun)/time.Second))
}

func (p *Planner) count(plan *record.Plan, took time.Duration) {
	p.stats.Passes.Add(1)
	p.stats.Probes.Add(uint64(plan.Stats.Probes))
	p.stats.LastNS.Store(int64(took))
	p.stats.TotalNS.Add(int64(took))
	p.stats.LastAtNS.Store(p.clock().UnixNano())
	p.stats.LastQueue.Store(int64(len(p.mirror.pending)))
	p.stats.Queued.Add(int64(len(p.mirror.pending)))
	p.stats.Tried.Add(int64(plan.Stats.Tried))
	p.stats.LastTried.Store(int64(plan.Stats.Tried))
	if int64(took) > p.stats.MaxNS.Load() {
		p.stats.MaxNS.Store(int64(took))
	}
	if plan.Truncated {
		p.stats.Truncated.Add(1)
	}
	for i := range plan.Start {
		if plan.Start[i].Backfilled {
			p.stats.Backfilled.Add(1)
		}
	}
}
