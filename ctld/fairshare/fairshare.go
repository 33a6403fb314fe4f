// Package fairshare reads usage from accounting: once in each PriorityCalcPeriod, and when accounts change or a user without a factor
// submits a job. It computes the fair-share factors of users for the scheduler and sprio (Factors), and if there are limits over time, the
// use before the state began to count (Past).
//
// Usage is a function of the accounting records (acct.Accounting.Parts), as sshare shows it. Nothing else is stored, so a restart changes
// nothing. Rejected: counters of decayed usage in the state, as in slurmctld. They would have to be stored, decayed in steps, and repaired
// after the clock was set.
package fairshare

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/sluice-hpc/sluice/conf/fairtree"
	"github.com/sluice-hpc/sluice/ctld/acct"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Keeper keeps the factors up to date. Changed is an observer of the loop.
type Keeper struct {
	View func() *state.View
	// Usage returns the usage from accounting and a view, by account, user, partition and QOS, and the time for which it holds. fades =
	// false: without decay.
	Usage func(ctx context.Context, view func() *state.View, fades bool) ([]*acct.Share, int64, error)
	// Settings returns whether fair share has a weight, and PriorityCalcPeriod. Factors are also computed if a QOS has a threshold for
	// them.
	Settings func() (weighs bool, period time.Duration)
	Set      func([]record.Share)
	SetPast  func(context.Context, *state.Past) error
	Log      *slog.Logger

	poked chan struct{}
	known map[[2]string]bool // account and user
	of    *state.Policy
	made  bool // the last reading made factors
}

// New prepares a Keeper.
func New(k Keeper) *Keeper {
	k.poked = make(chan struct{}, 1)
	k.poked <- struct{}{}
	return &k
}

// Changed notes changes that may need new factors. It does not block.
func (k *Keeper) Changed(c state.Change) {
	if c.Structure || slices.ContainsFunc(c.Events, func(e state.Event) bool { _, ok := e.(state.JobSubmitted); return ok }) {
		select {
		case k.poked <- struct{}{}:
		default:
		}
	}
}

// leastRest is the pause between two checks for changes, retry the pause after an error while jobs wait for the result.
const (
	leastRest = time.Second
	retry     = 10 * time.Second
)

// Run works until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		due := false
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			due = true
		case <-k.poked:
		}
		weighs, period := k.Settings()
		v := k.View()
		weighs = weighs || v.Settings.EnforceLimits && v.Policy().Thresholds()
		if k.wanted(v, weighs, due) {
			if err := k.read(ctx, weighs); err != nil && ctx.Err() == nil {
				k.Log.Warn("cannot read usage from accounting; fair-share factors and budget use keep their last values", "err", err)
				if v.Past() == nil && v.Policy().Budgeted() {
					period = retry
				}
			}
			timer.Reset(period)
		} else if due {
			timer.Reset(period)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(leastRest):
		}
	}
}

// wanted reports whether usage has to be read.
func (k *Keeper) wanted(v *state.View, weighs, due bool) bool {
	budgeted := v.Policy().Budgeted()
	return budgeted && (due || v.Past() == nil || k.of != v.Policy()) || weighs && (due || !k.made || k.stale(v))
}

// read reads usage and passes on the results.
func (k *Keeper) read(ctx context.Context, weighs bool) error {
	rows, nowNS, v, err := k.usage(ctx, true)
	if err != nil {
		return err
	}
	if v.Policy().Budgeted() {
		p := Past(v, rows, nowNS, true)
		if slices.ContainsFunc(v.Policy().TimedQOS(), Lasts) {
			lasting, nowNS, now, err := k.usage(ctx, false)
			if err != nil {
				return err
			}
			if now.Counting() != v.Counting() {
				return errors.New("usage was reset meanwhile")
			}
			for id, sums := range Past(now, lasting, nowNS, false).QOS {
				p.QOS[id] = sums
			}
		}
		if err := k.SetPast(ctx, p); err != nil {
			return err
		}
	}
	factors := k.note(v, rows)
	if k.made = weighs; weighs {
		k.Set(factors)
	}
	return nil
}

// usage returns the usage from accounting together with a view of the moment at which accounting could be read: jobs that start during the
// wait count in both.
func (k *Keeper) usage(ctx context.Context, fades bool) (rows []*acct.Share, nowNS int64, v *state.View, err error) {
	rows, nowNS, err = k.Usage(ctx, func() *state.View {
		if v == nil {
			v = k.View()
		}
		return v
	}, fades)
	if v == nil {
		v = k.View()
	}
	Charge(v.Policy(), rows)
	return rows, nowNS, v, err
}

// stale reports whether accounts have changed, or a pending job's user has no factor.
func (k *Keeper) stale(v *state.View) bool {
	if k.of != v.Policy() {
		return true
	}
	for j := range v.Jobs.All() {
		if state.Pending(j) && !k.known[[2]string{state.AccountOf(j.Spec), j.Spec.GetUser()}] {
			return true
		}
	}
	return false
}

func (k *Keeper) note(v *state.View, rows []*acct.Share) []record.Share {
	k.of, k.known = v.Policy(), map[[2]string]bool{}
	for j := range v.Jobs.All() { // including users without an account, whose factor is 0
		if state.Pending(j) {
			k.known[[2]string{state.AccountOf(j.Spec), j.Spec.GetUser()}] = true
		}
	}
	return Factors(v, rows)
}

// Factors returns the factors of all users with an account; while there are none, of those with usage or pending jobs.
func Factors(v *state.View, rows []*acct.Share) (out []record.Share) {
	var list []fairtree.Assoc
	for _, a := range v.Policy().Assocs() {
		one := fairtree.Assoc{ID: a.Id, Account: a.Account, User: a.User, Partition: a.Partition, Above: a.Parent, Shares: 1}
		for _, val := range a.Values {
			if val.Name == "Fairshare" {
				one.Shares = val.Value
			}
		}
		list = append(list, one)
	}
	t := fairtree.New(list)
	for _, r := range rows {
		if n := t.Place(r.Account, r.User); n != nil {
			n.Add(r.Used, nil)
		}
	}
	for j := range v.Jobs.All() {
		if state.Pending(j) {
			t.Place(state.AccountOf(j.Spec), j.Spec.GetUser())
		}
	}
	t.Weigh()
	t.Users(func(n *fairtree.Node) {
		out = append(out, record.Share{Account: n.Account, User: n.User, Factor: n.Factor})
		if n.Account == state.RootAccount { // the account of jobs that name none
			out = append(out, record.Share{User: n.User, Factor: n.Factor})
		}
	})
	slices.SortFunc(out, func(a, b record.Share) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.User, b.User))
	})
	return out
}
