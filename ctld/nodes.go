package ctld

import (
	"fmt"
	"os/user"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// maxPids bounds the processes and threads of one job on one node.
const maxPids = 65536

// nodeSettings is what a node is told before its first order, and after every reconfigure.
func (d *daemon) nodeSettings(v *state.View, n *state.Node) *pb.NodeSettings {
	c := d.conf.Load()
	host := ""
	if len(c.SlurmctldHosts) > 0 {
		host = c.SlurmctldHosts[0].Name
	}
	return &pb.NodeSettings{
		Cluster: c.ClusterName, ClusterId: v.ClusterID, KillWaitS: v.Settings.KillWaitS, HeartbeatS: v.Settings.HeartbeatS,
		Prolog: c.Prolog, Epilog: c.Epilog, TaskProlog: c.TaskProlog, TaskEpilog: c.TaskEpilog, PrologEpilogTimeoutS: clampTimeout(c.PrologEpilogTimeoutSec),
		ConstrainCores: c.Cgroup.ConstrainCores, ConstrainRam: c.Cgroup.ConstrainRAMSpace && v.Settings.CountMemory, ConstrainSwap: c.Cgroup.ConstrainSwapSpace,
		ConstrainDevices: c.Cgroup.ConstrainDevices, UnkillableTimeoutS: clampSeconds(c.UnkillableStepTimeoutSec), JobFileAppend: c.JobFileAppend,
		PropagateLimits: strings.Join(c.PropagateResourceLimits, ","), HealthCheck: c.HealthCheckProgram, HealthCheckS: clampSeconds(c.HealthCheckIntervalSec),
		AllowedRamPercent: c.Cgroup.AllowedRAMPercent, ControllerHost: host, MaxPids: maxPids, Node: n.NodeRecord, ConfigOverrides: v.Settings.ConfigOverrides,
	}
}

// clampTimeout turns "no limit" into 0.
func clampTimeout(s int64) uint32 {
	if s < 0 {
		return 0
	}
	return clampSeconds(s)
}

func slurmUser(name string) (uint32, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, fmt.Errorf("SlurmUser=%s is no user of this machine: %w", name, err)
	}
	n, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(n), err
}

func (d *daemon) makeBackup(path string) (string, int64, error) {
	if path != "" {
		return "", 0, fmt.Errorf("backups are made in %s/backup; copy from there", d.opts.State)
	}
	p, err := d.backup()
	return p, d.store.Size(), err
}

// figures are the counters of sdiag.
func (d *daemon) figures(bool) map[string]float64 {
	l, p := d.loop.Stats(), d.planner.Stats()
	return map[string]float64{
		"commands": float64(l.Commands.Load()), "batches": float64(l.Batches.Load()), "commits": float64(l.Commits.Load()), "commit_ns": float64(l.CommitNS.Load()),
		"passes": float64(p.Passes.Load()), "pass_last_ns": float64(p.LastNS.Load()), "pass_total_ns": float64(p.TotalNS.Load()), "pass_max_ns": float64(p.MaxNS.Load()),
		"probes": float64(p.Probes.Load()), "started": float64(p.Started.Load()), "dropped": float64(p.Dropped.Load()), "backfilled": float64(p.Backfilled.Load()),
		"queue": float64(p.LastQueue.Load()), "links": float64(d.disp.Links()), "database_bytes": float64(d.store.Size()),
	}
}
