package ctld

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/ctld/jobcomp"
	"github.com/sluice-hpc/sluice/ctld/mail"
	"github.com/sluice-hpc/sluice/ctld/prolog"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/passwd"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// maxPids bounds the processes and threads of one job on one node.
const maxPids = 65536

// controllerName returns SlurmctldHost of slurm.conf, which may differ from the host name of the machine.
func (d *daemon) controllerName() string {
	if hosts := d.conf.Load().SlurmctldHosts; len(hosts) > 0 {
		return hosts[0].Name
	}
	return ""
}

// nodeSettings returns the settings that a node gets before its first order, and after every reconfigure.
func (d *daemon) nodeSettings(v *state.View, n *state.Node) *pb.NodeSettings {
	c := d.conf.Load()
	return &pb.NodeSettings{
		Cluster: c.ClusterName, ClusterId: v.ClusterID, KillWaitS: v.Settings.KillWaitS, HeartbeatS: v.Settings.HeartbeatS,
		Prolog: c.Prolog, Epilog: c.Epilog, TaskProlog: c.TaskProlog, TaskEpilog: c.TaskEpilog,
		PrologEpilogTimeoutS: clampTimeout(c.PrologEpilogTimeoutSec),
		ConstrainCores:       c.Cgroup.ConstrainCores, ConstrainRam: c.Cgroup.ConstrainRAMSpace && v.Settings.CountMemory,
		ConstrainSwap:    c.Cgroup.ConstrainSwapSpace,
		ConstrainDevices: c.Cgroup.ConstrainDevices, UnkillableTimeoutS: clampSeconds(c.UnkillableStepTimeoutSec),
		JobFileAppend:   c.JobFileAppend,
		PropagateLimits: c.PropagatedLimits(), HealthCheck: c.HealthCheckProgram, HealthCheckS: clampSeconds(c.HealthCheckIntervalSec),
		HealthStates: strings.ToUpper(strings.Join(c.HealthCheckNodeState, ",")), HealthOffsetS: healthOffset(v, n, c),
		UnkillableProgram: c.UnkillableStepProgram, SerialHooks: hasWord(c.PrologFlags, "Serial"),
		Gres: gresLines(c, n.Name), Gpu: gpuPolicy(c, n.Name),
		AllowedRamPercent: c.Cgroup.AllowedRAMPercent, AllowedSwapPercent: c.Cgroup.AllowedSwapPercent,
		MaxRamPercent:  c.Cgroup.MaxRAMPercent,
		MaxSwapPercent: c.Cgroup.MaxSwapPercent, MinRamMib: c.Cgroup.MinRAMSpaceMiB, MaxPids: maxPids, Node: configured(n),
		LogLevel: int32(d.nodeLevel(n.Name)), Privacy: privacy(c, n.Name), Authority: d.certs.signs(),
		PublicJobs: !privateMetrics(c), BindTasks: hasWord(c.TaskPlugin, "task/affinity") || hasWord(c.TaskPlugin, "affinity"),
		Oci: ociRuntime(c.OCI),
	}
}

// ociRuntime converts oci.conf for nodes.
func ociRuntime(o *conf.OCI) *pb.OciRuntime {
	if o == nil {
		return nil
	}
	return &pb.OciRuntime{ContainerPath: o.ContainerPath, MountSpoolDir: o.MountSpoolDir, Create: o.RunTimeCreate, Delete: o.RunTimeDelete,
		Kill: o.RunTimeKill, Query: o.RunTimeQuery, Run: o.RunTimeRun, Start: o.RunTimeStart, EnvExclude: o.EnvExclude,
		RuntimeEnvExclude: o.RunTimeEnvExclude, EnvFile: o.CreateEnvFile, DisableHooks: o.DisableHooks, DisableCleanup: o.DisableCleanup,
		IgnoreConfig: o.IgnoreFileConfigJSON}
}

// privacy returns the isolation of a node's jobs, and the privileges that they cannot gain.
func privacy(c *conf.Config, node string) *pb.Privacy {
	p := &pb.Privacy{Ipc: c.Privacy.IPC, NoNewPrivs: c.Privacy.NoNewPrivs, Bounded: c.Privacy.Bounded,
		Capabilities: c.Privacy.Capabilities}
	if j := c.JobContainer(c.Apart(node)); j != nil {
		p.Dirs, p.Base, p.MakeBase = j.Dirs, j.BasePath, j.AutoBase
	}
	return p
}

// healthOffset returns a node's time within HealthCheckInterval with HealthCheckNodeState=CYCLE; otherwise all nodes are checked at once.
func healthOffset(v *state.View, n *state.Node, c *conf.Config) uint32 {
	if !hasWord(c.HealthCheckNodeState, "CYCLE") || c.HealthCheckIntervalSec <= 0 {
		return 0
	}
	i := slices.IndexFunc(v.Nodes(), func(o *state.Node) bool { return o.Name == n.Name })
	return uint32(int64(max(i, 0)) * c.HealthCheckIntervalSec / int64(len(v.Nodes())))
}

// configured returns a node's record without its own reports.
func configured(n *state.Node) *pb.NodeRecord {
	r := state.CloneNode(n.NodeRecord)
	r.Reported = nil
	return r
}

// clampTimeout converts "no limit" to 0.
func clampTimeout(s int64) uint32 {
	if s < 0 {
		return 0
	}
	return clampSeconds(s)
}

func slurmUser(name string) (uint32, error) {
	u, ok := passwd.User(name)
	if !ok {
		return 0, fmt.Errorf("SlurmUser=%s does not exist on this machine", name)
	}
	return u.UID, nil
}

// slurmdUser returns the uid of the node daemons' user; a user unknown to this machine may exist on the nodes.
func slurmdUser(name string) uint32 {
	u, _ := passwd.User(name)
	return u.UID
}

// primaryGroup returns the group of a user, 0 when unknown.
func primaryGroup(uid uint32) uint32 {
	u, _ := passwd.User(strconv.FormatUint(uint64(uid), 10))
	return u.GID
}

func (d *daemon) makeBackup(path string) (string, int64, error) {
	if path != "" {
		return "", 0, fmt.Errorf("backups are made in %s/backup; copy from there", d.opts.State)
	}
	p, err := d.backup()
	return p, d.store.Size(), err
}

// prologSettings returns the present settings of PrologSlurmctld and EpilogSlurmctld.
func (d *daemon) prologSettings() prolog.Settings {
	c := d.conf.Load()
	s := prolog.Settings{Prolog: c.PrologSlurmctld, Epilog: c.EpilogSlurmctld,
		Timeout: time.Duration(clampTimeout(c.PrologEpilogTimeoutSec)) * time.Second,
		Cluster: c.ClusterName, UID: d.uid, GID: d.gid, Env: []string{"SLURM_CONF=" + c.Path}}
	if d.opts.Socket != DefaultSocket(c.ClusterName) {
		s.Env = append(s.Env, "SLUICE_SOCKET="+d.opts.Socket)
	}
	return s
}

// jobcompSettings returns the present settings of the job completion log.
func (d *daemon) jobcompSettings() jobcomp.Settings {
	c := d.conf.Load()
	if !strings.EqualFold(strings.TrimPrefix(c.JobCompType, "jobcomp/"), "filetxt") {
		return jobcomp.Settings{}
	}
	return jobcomp.Settings{Path: cmp.Or(c.JobCompLoc, conf.DefaultJobCompLoc), Cluster: c.ClusterName}
}

// mailSettings returns the present settings of mail.
func (d *daemon) mailSettings() mail.Settings {
	c := d.conf.Load()
	return mail.Settings{Program: c.MailProg, Domain: c.MailDomain, Cluster: c.ClusterName, UID: d.uid, GID: d.gid}
}
