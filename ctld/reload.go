package ctld

import (
	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/ctld/hostconf"
	"github.com/sluice-hpc/sluice/ctld/reactor"
)

// reload reads slurm.conf and its companions again (scontrol reconfigure), checks them, and describes the changes. Nothing changes until
// the returned command is committed; the command of a dry run never changes anything.
func (d *daemon) reload(dryRun, force bool) (cmd reactor.Command, changes []string, err error) {
	r, err := d.read()
	if err != nil {
		return nil, nil, err
	}
	d.pack(r)
	now := d.conf.Load()
	if err := d.unfit(now, d.inForce.Load(), r); err != nil && !force {
		return nil, nil, err
	}
	changes = append(conf.Diff(now, r.Config), hostconf.Diff(d.inForce.Load().getBundle(), r.bundle)...)
	do := reactor.Reconfigure{Config: d.stateConfig(r), DryRun: dryRun, Force: force}
	if dryRun {
		return do, changes, nil
	}
	d.logDoubts(r.Config)
	d.logQOS(r.Config, d.loop.View().Policy())
	if err := d.needPlugin(r.Config); err != nil {
		return nil, nil, err
	}
	return reconfigure{Reconfigure: do, use: func() {
		if err := d.loadTrust(); err != nil {
			d.log.Error("cannot reload the controller's certificates: keeping the old ones", "err", err)
		}
		d.forgetDebug(r.Config)
		d.openLog(r.Config)
		d.readTokens(r.Config)
		d.planner.Configure(schedParams(r.Config))
		d.advisor.Configure(schedParams(r.Config))
		d.inForce.Store(r)
		d.hand(r)
		for _, c := range changes {
			d.log.Info("reconfigured", "change", c)
		}
	}}, changes, nil
}

// reconfigure applies, besides the state's configuration, the configuration of the rest of the controller: both or neither.
type reconfigure struct {
	reactor.Reconfigure
	use func()
}

// Committed implements loop.Committer.
func (r reconfigure) Committed() { r.use() }
