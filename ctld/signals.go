package ctld

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/ctld/state"
)

// signals handles signals as in slurmctld(8): SIGHUP reads the configuration again, SIGUSR2 only the debug level; both reopen the log.
func (d *daemon) signals(ctx context.Context, from <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-from:
			switch s {
			case syscall.SIGHUP:
				d.opts.Service.Reloading()
				d.reconfigure(ctx)
				d.opts.Service.Ready(d.status())
			case syscall.SIGUSR2:
				d.reopenLog()
			}
		}
	}
}

// status returns the controller's line for systemctl status.
func (d *daemon) status() string {
	v := d.loop.View()
	return fmt.Sprintf("cluster %s, nodes: %d", v.Settings.Cluster, len(v.Nodes()))
}

// writes returns a function that reports whether the writer has committed since its last call: the writer has a tick each second.
func (d *daemon) writes() func() bool {
	var last *state.View
	return func() bool {
		v := d.loop.View()
		defer func() { last = v }()
		return v != last
	}
}

// reconfigure is scontrol reconfigure, with the log instead of an answer. Applying the configuration opens the log.
func (d *daemon) reconfigure(ctx context.Context) {
	cmd, _, err := d.reload(false, false)
	if err == nil {
		_, err = d.loop.Do(ctx, cmd)
	}
	if err != nil {
		d.log.Error("SIGHUP: the configuration is unchanged", "err", err)
		return
	}
	d.log.Info("SIGHUP: configuration reloaded")
}

// reopenLog continues in a new log file, at slurm.conf's present level. A faulty slurm.conf changes no level.
func (d *daemon) reopenLog() {
	c, err := conf.Load(d.opts.Conf, conf.Options{})
	d.nodeDebug.mu.Lock()
	defer d.nodeDebug.mu.Unlock()
	now := d.conf.Load()
	if err == nil {
		changed := *now
		changed.SlurmctldDebug = cmp.Or(d.opts.Debug, c.SlurmctldDebug)
		changed.DebugFlags, changed.SlurmctldLogFile = c.DebugFlags, c.SlurmctldLogFile
		changed.SlurmctldSyslogDebug, changed.LogTimeFormat = c.SlurmctldSyslogDebug, c.LogTimeFormat
		now = &changed
	}
	d.useConfig(now)
	d.openLog(now)
	if err != nil {
		d.log.Error("SIGUSR2: log reopened; the debug level is unchanged", "err", err)
		return
	}
	d.log.Info("SIGUSR2: log reopened", "level", now.SlurmctldDebug)
}

// openLog opens the log of a configuration, or reopens it. If that fails the log stays where it was, with a message.
func (d *daemon) openLog(c *conf.Config) {
	if d.opts.LogTo == nil {
		return
	}
	if err := d.opts.LogTo(c); err != nil {
		d.log.Error("SlurmctldLogFile cannot be used", "err", err)
	}
}
