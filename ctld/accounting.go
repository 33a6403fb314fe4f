package ctld

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/ctld/acct"
	"github.com/sluice-hpc/sluice/ctld/fairshare"
	"github.com/sluice-hpc/sluice/ctld/gpuhours"
	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/rpc"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/clock"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// newAccounting makes the accounting of a loaded state; the loop exists already.
func (d *daemon) newAccounting(v *state.View) *acct.Accounting {
	a := acct.New(acct.Options{Dir: d.opts.State, Cluster: v.ClusterID, Log: d.log, Policy: d.acctPolicy,
		Outbox:     func(at state.Attempt) ([]byte, error) { return d.store.Get(journal.Finished, at.Key()) },
		StepOutbox: func(k state.StepKey) ([]byte, error) { return d.store.Get(journal.Steps, k.Bytes()) },
		Script: func(j *pb.JobRecord) ([]byte, []byte, error) {
			script, env, err := d.script(j)
			return script, []byte(strings.Join(env, "\n")), err
		},
		Stored: func(ctx context.Context, cmd reactor.Stored) error { _, err := d.loop.Do(ctx, cmd); return err },
		Now:    time.Now,
	}, v)
	a.Open()
	d.loop.Observe(a.Changed)
	d.loop.Unstored(a.Unstored)
	return a
}

// newFairShare makes the keeper of fair-share factors, which observes each commit.
func (d *daemon) newFairShare() *fairshare.Keeper {
	k := fairshare.New(fairshare.Keeper{View: d.loop.View, Log: d.log,
		Usage: func(ctx context.Context, view func() *state.View, fades bool) ([]*acct.Share, int64, error) {
			fading := acct.Fading{}
			if fades {
				fading = d.fading()
			}
			if why := d.acct.Trouble(); why != "" { // unknown usage does not count as none
				return nil, 0, errors.New(why)
			}
			return d.acct.Parts(ctx, fading, view)
		},
		SetPast: func(ctx context.Context, p *state.Past) error {
			_, err := d.loop.Do(ctx, reactor.PastRead{Past: p})
			return err
		},
		Settings: func() (bool, time.Duration) {
			c := d.conf.Load()
			return c.PriorityType != "priority/basic" && c.PriorityWeightFairshare > 0,
				max(time.Minute, time.Duration(c.PriorityCalcPeriodMin)*time.Minute)
		},
		Set: func(list []record.Share) {
			d.planner.SetShares(list)
			d.advisor.SetShares(list)
		}})
	d.loop.Observe(k.Changed)
	return k
}

// newGPUHours makes the recorder of GPU use, which stores it in the accounting database.
func (d *daemon) newGPUHours() *gpuhours.Recorder {
	return &gpuhours.Recorder{View: d.loop.View, Keep: d.acct.AddHours, Now: time.Now, Boot: clock.Boot, Log: d.log,
		Sample: func(node, id string) (percent int64, known bool) {
			since := clock.Boot() - int64(3*d.conf.Load().GPU.SampleS+30)*1e9
			if last, _ := d.samples.Get(node, id, since); last != nil && last.UtilPercent >= 0 {
				return last.UtilPercent, true
			}
			return 0, false
		}}
}

// keepAccounts runs the recorder and accounting. Accounting ends last: it closes the database that stores the recorder's last minute.
func keepAccounts(ctx context.Context, part func(string, func() error), recorder, accounting func(context.Context)) {
	later, end := context.WithCancel(context.WithoutCancel(ctx))
	part("GPU hours", func() error { defer end(); recorder(ctx); return nil })
	part("accounting", func() error { accounting(later); return nil })
}

func (d *daemon) acctPolicy() acct.Policy {
	c := d.conf.Load()
	keep, _ := c.PurgeJobAfter() // Load has refused invalid values
	return acct.Policy{TextBytes: maxAccountingBytes(c), Scripts: hasWord(c.AccountingStoreFlags, "job_script"),
		Env: hasWord(c.AccountingStoreFlags, "job_env"), Keep: keep}
}

// privacy returns who may see what in sacct (slurm.conf(5), PrivateData).
func (d *daemon) privacy() rpc.Privacy {
	c := d.conf.Load()
	return rpc.Privacy{Jobs: hasWord(c.PrivateData, "jobs"), Extern: hasWord(c.PrologFlags, "contain"), WCKeys: c.TrackWCKey,
		Usage: hasWord(c.PrivateData, "usage"), Cloud: hasWord(c.PrivateData, "cloud"),
		Fading: d.fading()}
}

// fading returns how usage decays.
func (d *daemon) fading() acct.Fading {
	c := d.conf.Load()
	return acct.Fading{HalfLife: time.Duration(c.PriorityDecayHalfLifeMin) * time.Minute,
		SinceNS: acct.ResetAt(c.PriorityUsageResetPeriod, time.Now().In(d.loop.View().Settings.Location()))}
}

func hasWord(list []string, word string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, word) })
}
