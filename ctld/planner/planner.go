// Package planner runs the scheduler beside the writer: View -> sched.Snapshot -> sched.Plan -> reactor.ApplyPlan.
//
// It wakes on every commit that can change a decision and at the moment that the last plan named, so a submission or an
// ended job leads to a start within milliseconds. It keeps the scheduler's records between passes and renews only those
// of jobs and nodes that a commit changed; the scheduler compares pointers. Changes during a pass are taken by the next
// one.
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

// Writer is where plans go; *loop.Loop is one.
type Writer interface {
	Do(ctx context.Context, cmd reactor.Command) (any, error)
	View() *state.View
}

// Planner runs passes. Create with New, add Changed as an observer of the loop, run with Run.
type Planner struct {
	// Owners says who the jobs of crontabs run as, by uid; nil, or an answer of nil: as they were submitted. Set before Run. It may take a
	// moment, and ends with the context.
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

	// of the planner goroutine alone
	sched        *sched.Scheduler
	used         record.Params
	mirror       mirror
	last         int64 // when the last pass was, in seconds
	nextForecast int64 // seconds; none is made before
	owedForecast bool  // the last pass made none although somebody waits
	renewal      renewal
	stats        Stats
}

// Stats are counters since the start, for sdiag.
type Stats struct {
	Passes, Started, Dropped, Probes, Truncated atomic.Uint64
	LastNS, TotalNS, MaxNS, LastAtNS            atomic.Int64
	LastQueue, Backfilled                       atomic.Int64
	Queued, Tried, LastTried                    atomic.Int64 // sums over the passes, and of the last
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

// Stats are the planner's counters.
func (p *Planner) Stats() *Stats { return &p.stats }

// Changed notes what a commit changed. It is a loop observer and does not block.
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

// nodesMatter reports whether a node record of the commit differs in what the scheduler sees; heartbeats do not.
func (p *Planner) nodesMatter(c state.Change) bool {
	for _, name := range c.Nodes {
		if n := c.View.Node(name); n != nil && p.mirror.nodeChanged(n) {
			return true
		}
	}
	return false
}

// Woken has a value when there is reason for a pass: what Run waits for, besides the moment that the last plan named. For
// simulations.
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

// rest waits, and reports false when ctx ended meanwhile.
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

// wakeAt is when the next pass is due though nothing happens: for the plan's sake, or for a forecast that was put off.
func (p *Planner) wakeAt(plan *record.Plan) int64 {
	if p.owedForecast {
		return min(plan.Wake, max(p.nextForecast, plan.Now+1))
	}
	return plan.Wake
}

// until is the time to a moment in seconds since 1970, at most an hour.
func (p *Planner) until(wake int64) time.Duration {
	d := time.Unix(wake, 0).Sub(p.clock())
	if wake == record.Forever || d > time.Hour {
		return time.Hour
	}
	return max(d, 0) + time.Millisecond
}

// pass makes one plan and hands it to the writer.
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

// ownersOf looks up who the jobs of crontabs among those that start run as.
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

// certify makes what the first steps of jobs that start are known by.
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

// Prepare is the first half of a pass: the plan for the present state, and the command that applies it, nil when there is nothing
// to apply. Run then hands the command to the writer; simulations, which have no goroutines, call Prepare themselves.
func (p *Planner) Prepare(resume record.Cursor) (*record.Plan, *reactor.ApplyPlan) {
	p.mu.Lock()
	dirty, rebuild, params := p.dirty, p.rebuild, p.params
	p.mirror.shares = p.shares
	p.dirty, p.rebuild = make(map[uint32]struct{}, len(dirty)), false
	p.mu.Unlock()
	v := p.writer.View() // not older than what dirty speaks of
	if p.sched == nil || params != p.used {
		p.sched, p.used = sched.New(params), params
	}
	p.mirror.typical.on = params.Placement == record.FGD
	// A change that Changed has not been told of yet, or nodes that refuse other users: requests are told apart by them.
	if rebuild || p.mirror.settings != v.Settings || p.mirror.users != v.Users() || p.mirror.limits.outdated(v) {
		if !v.Settings.EnforceLimits || p.mirror.limits.outdated(v) {
			p.mirror.limits = limits{} // made anew when the next job waits
		}
		p.mirror.rebuild(v)
	} else {
		p.mirror.update(v, dirty)
	}
	now := p.clock().Unix()
	if now < p.last { // what has passed may be to come again
		p.sched, p.nextForecast, p.renewal = sched.New(params), 0, renewal{}
	}
	p.last = now
	snap := p.mirror.snapshot(v, now, resume)
	plan := p.sched.Plan(snap)
	p.forecast(v, plan, now)
	cmd := p.mirror.command(v, plan)
	if len(cmd.Shown) > maxShown { // the rest is listed again by the next pass
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

// maxShown bounds the jobs of which one commit renews what is shown, so that starts do not wait long behind it.
const maxShown = 500

// forecastDepth is how many waiting jobs are told when they are expected to start, forecastEveryS how often at most.
const (
	forecastDepth  = 200
	forecastEveryS = 10
)

// forecast adds to a plan when the first jobs of the queue are expected to start, where the plan does not promise it. It costs more
// than a pass, so it is made now and then, and only while somebody waits.
func (p *Planner) forecast(v *state.View, plan *record.Plan, now int64) {
	due := p.nextForecast
	if len(plan.Start) > 0 { // nothing that starts should have to wait for what is only shown, unless there is never a pause
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
