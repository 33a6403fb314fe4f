package ctld

import (
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/ctld/powersave"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// powerSettings returns the power saving settings of slurm.conf; nil if a program is missing, since the rest then has no effect.
func powerSettings(c *conf.Config) *state.PowerSettings {
	if c.SuspendProgram == "" || c.ResumeProgram == "" {
		return nil
	}
	p := &state.PowerSettings{SuspendTimeS: clampSeconds(c.SuspendTimeSec), SuspendTimeoutS: clampSeconds(c.SuspendTimeoutSec),
		ResumeTimeoutS: clampSeconds(c.ResumeTimeoutSec), SuspendRate: uint32(c.SuspendRate), ResumeRate: uint32(c.ResumeRate),
		FailProgram: c.ResumeFailProgram != "", RequeueOnFail: c.SchedulerParameters.Has("requeue_on_resume_failure"),
		IdleOnSuspend: c.SlurmctldParameters.Has("idle_on_node_suspend"), ExceptParts: c.SuspendExcParts,
		Partitions: map[string]state.PartitionPower{}}
	kept, _ := conf.SuspendExcept(c.SuspendExcNodes) // cannot fail: read before, with all of slurm.conf
	for _, k := range kept {
		p.Except = append(p.Except, state.PowerExcept{Nodes: k.Nodes, Count: k.Count})
	}
	for _, s := range c.SuspendExcStates {
		up := strings.ToUpper(s)
		p.ExceptDown = p.ExceptDown || up == "DOWN"
		p.ExceptFlags |= exceptFlags[up]
	}
	for _, part := range c.Partitions {
		own := func(s int64) *uint32 {
			if s == conf.NotSet {
				return nil
			}
			v := clampSeconds(s)
			return &v
		}
		q := state.PartitionPower{SuspendTimeS: own(part.SuspendTimeSec), SuspendTimeoutS: own(part.SuspendTimeoutSec),
			ResumeTimeoutS: own(part.ResumeTimeoutSec)}
		if q != (state.PartitionPower{}) {
			p.Partitions[part.Name] = q
		}
	}
	return p
}

// exceptFlags are the words of SuspendExcStates for flags of a node's record.
var exceptFlags = map[string]uint32{"CLOUD": pb.NodeCloud, "DRAIN": pb.NodeDrain, "FAIL": pb.NodeFail, "INVALID_REG": pb.NodeInvalidReg,
	"MAINTENANCE": pb.NodeMaint, "NOT_RESPONDING": pb.NodeNoRespond, "DYNAMIC_NORM": pb.NodeDynamic}

// powersaveSettings returns the present settings of the programs.
func (d *daemon) powersaveSettings() powersave.Settings {
	c := d.conf.Load()
	s := powersave.Settings{Suspend: c.SuspendProgram, Resume: c.ResumeProgram, Fail: c.ResumeFailProgram, Cluster: c.ClusterName,
		UID: d.uid, GID: d.gid, Env: []string{"SLURM_CONF=" + c.Path},
		Timeout: time.Duration(min(max(c.SuspendTimeoutSec, c.ResumeTimeoutSec, 10), 24*3600)) * time.Second}
	for _, p := range c.Partitions { // -1 if not set
		s.Timeout = max(s.Timeout, time.Duration(min(max(p.SuspendTimeoutSec, p.ResumeTimeoutSec), 24*3600))*time.Second)
	}
	if d.opts.Socket != DefaultSocket(c.ClusterName) {
		s.Env = append(s.Env, "SLUICE_SOCKET="+d.opts.Socket)
	}
	return s
}
