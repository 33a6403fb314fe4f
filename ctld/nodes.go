package ctld

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/accounts"
	"github.com/sluice-hpc/sluice/ctld/mail"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// maxPids bounds the processes and threads of one job on one node.
const maxPids = 65536

// controllerName is SlurmctldHost of slurm.conf, which may differ from what the machine calls itself.
func (d *daemon) controllerName() string {
	if hosts := d.conf.Load().SlurmctldHosts; len(hosts) > 0 {
		return hosts[0].Name
	}
	return ""
}

// nodeSettings is what a node is told before its first order, and after every reconfigure.
func (d *daemon) nodeSettings(v *state.View, n *state.Node) *pb.NodeSettings {
	c := d.conf.Load()
	return &pb.NodeSettings{
		Cluster: c.ClusterName, ClusterId: v.ClusterID, KillWaitS: v.Settings.KillWaitS, HeartbeatS: v.Settings.HeartbeatS,
		Prolog: c.Prolog, Epilog: c.Epilog, TaskProlog: c.TaskProlog, TaskEpilog: c.TaskEpilog, PrologEpilogTimeoutS: clampTimeout(c.PrologEpilogTimeoutSec),
		ConstrainCores: c.Cgroup.ConstrainCores, ConstrainRam: c.Cgroup.ConstrainRAMSpace && v.Settings.CountMemory, ConstrainSwap: c.Cgroup.ConstrainSwapSpace,
		ConstrainDevices: c.Cgroup.ConstrainDevices, UnkillableTimeoutS: clampSeconds(c.UnkillableStepTimeoutSec), JobFileAppend: c.JobFileAppend,
		PropagateLimits: strings.Join(c.PropagateResourceLimits, ","), HealthCheck: c.HealthCheckProgram, HealthCheckS: clampSeconds(c.HealthCheckIntervalSec),
		Gres: gresLines(c, n.Name), Gpu: gpuPolicy(c, n.Name),
		AllowedRamPercent: c.Cgroup.AllowedRAMPercent, ControllerHost: d.controllerName(), MaxPids: maxPids, Node: configured(n), ConfigOverrides: v.Settings.ConfigOverrides,
		LogLevel: int32(d.nodeLevel(n.Name)),
	}
}

// configured is a node's record without what it has reported itself.
func configured(n *state.Node) *pb.NodeRecord {
	r := state.CloneNode(n.NodeRecord)
	r.Reported = nil
	return r
}

// clampTimeout turns "no limit" into 0.
func clampTimeout(s int64) uint32 {
	if s < 0 {
		return 0
	}
	return clampSeconds(s)
}

func slurmUser(name string) (uint32, error) {
	u, ok := accounts.User(name)
	if !ok {
		return 0, fmt.Errorf("SlurmUser=%s is no user of this machine", name)
	}
	return u.UID, nil
}

// slurmdUser is the uid that node daemons run as; one that is no user of this machine may be one of theirs.
func slurmdUser(name string) uint32 {
	u, _ := accounts.User(name)
	return u.UID
}

// primaryGroup is the group of a user, 0 when it is not known.
func primaryGroup(uid uint32) uint32 {
	u, _ := accounts.User(strconv.FormatUint(uint64(uid), 10))
	return u.GID
}

func (d *daemon) makeBackup(path string) (string, int64, error) {
	if path != "" {
		return "", 0, fmt.Errorf("backups are made in %s/backup; copy from there", d.opts.State)
	}
	p, err := d.backup()
	return p, d.store.Size(), err
}

// mailSettings are what slurm.conf says of mail now.
func (d *daemon) mailSettings() mail.Settings {
	c := d.conf.Load()
	return mail.Settings{Program: c.MailProg, Domain: c.MailDomain, Cluster: c.ClusterName, UID: d.uid, GID: d.gid}
}
