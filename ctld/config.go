package ctld

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/passwd"
	"github.com/sluice-hpc/sluice/internal/version"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// maxUserJobs is the largest number of jobs that one user may have queued or running.
const maxUserJobs = 20000

// requeueDelayS is the delay of a requeued job; Slurm's is two minutes, and tools expect the reason BeginTime meanwhile.
const requeueDelayS = 120

// stateConfig converts slurm.conf to the state's configuration.
func stateConfig(c *conf.Config, uid uint32) *state.Config {
	cfg := &state.Config{Settings: settings(c, uid), PartitionNodes: map[string][]string{}, PartitionGIDs: map[string][]uint32{},
		Gres: map[string]state.GresConfig{}, GresOf: func(node string) state.GresConfig { return gresConfig(c, node) }}
	for _, n := range c.Nodes {
		r := nodeRecord(n)
		r.Switches = c.SwitchesAbove(n.Name)
		cfg.Nodes = append(cfg.Nodes, r)
		cfg.Gres[n.Name] = gresConfig(c, n.Name)
	}
	for _, p := range c.Partitions {
		r := partitionRecord(c, p)
		cfg.Partitions = append(cfg.Partitions, r)
		cfg.PartitionNodes[p.Name] = p.Nodes
		if gids := groupIDs(p); gids != nil {
			cfg.PartitionGIDs[p.Name] = gids
		}
		if p.Default {
			cfg.Default = p.Name
		}
	}
	return cfg
}

func settings(c *conf.Config, uid uint32) *state.Settings {
	var licenses []state.License
	for _, l := range c.Licenses {
		licenses = append(licenses, state.License{Name: l.Name, Count: l.Count})
	}
	var switches []state.Switch
	for _, s := range c.Switches {
		switches = append(switches, state.Switch{Name: s.Name, Level: s.Level, LinkSpeed: s.LinkSpeed, Nodes: s.Nodes,
			Switches: s.Switches})
	}
	requeue, _ := conf.ExitCodes(c.RequeueExit) // cannot fail: read before, with all of slurm.conf
	hold, _ := conf.ExitCodes(c.RequeueExitHold)
	return &state.Settings{
		Zone:     time.Local,
		Power:    powerSettings(c),
		Licenses: licenses, Switches: switches, RequeueExit: requeue, RequeueExitHold: hold,
		PrologSlurmctld: c.PrologSlurmctld != "", EpilogSlurmctld: c.EpilogSlurmctld != "",
		Cluster: c.ClusterName, SlurmUserUID: uid, SlurmdUID: slurmdUser(c.SlurmdUser), KillWaitS: clampSeconds(c.KillWaitSec),
		OverTimeLimitS: minutes(c.OverTimeLimitMin), NodeTimeoutS: clampSeconds(c.SlurmdTimeoutSec),
		MailDomain: c.MailDomain, RebootProgram: c.RebootProgram, ResumeTimeoutS: clampSeconds(c.ResumeTimeoutSec),
		HeartbeatS: heartbeat(c.SlurmdTimeoutSec, max(c.MaxNodeCount, len(c.Nodes))), ReturnToService: c.ReturnToService,
		MinJobAgeS:   clampSeconds(c.MinJobAgeSec),
		MaxNodeCount: uint32(c.MaxNodeCount), FirstJobID: c.FirstJobID,
		MaxJobCount: uint32(c.MaxJobCount), MaxArraySize: c.MaxArraySize, MaxStepCount: uint32(c.MaxStepCount),
		MaxTasksPerNode: uint32(c.MaxTasksPerNode), JobRequeue: c.JobRequeue,
		ConfigOverrides: c.SlurmdParameters.Has("config_overrides"), DefMemPerCPUMiB: c.DefMemPerCPUMiB,
		DefMemPerNodeMiB: c.DefMemPerNodeMiB,
		MaxMemPerCPUMiB:  c.MaxMemPerCPUMiB, MaxMemPerNodeMiB: c.MaxMemPerNodeMiB, WholeCores: schedParams(c).WholeCores,
		WholeNodes: schedParams(c).WholeNodes, CountMemory: c.CountsMemory(),
		HoldOnPrologFail: !c.SchedulerParameters.Has("nohold_on_prolog_fail"), RequeueDelayS: requeueDelayS, MaxJobsPerUser: maxUserJobs,
		MaxSwitchWaitS: clampSeconds(maxSwitchWaitS(c)), MaxUserBytes: maxUserBytes(c),
		MaxScriptBytes: max(c.SchedulerParameters.Int("max_script_size", 0), 0),
		TrackTRES:      c.AccountingStorageTRES, DefMemPerGPUMiB: c.DefMemPerGPUMiB, DefCPUPerGPU: uint32(c.DefCPUPerGPU),
		GPUFaultDrains:    c.GPU.FaultDrains,
		EnforcePartLimits: c.EnforcePartLimits, EnforceAssocs: enforces(c, "associations"), EnforceQOS: enforces(c, "qos"),
		EnforceLimits:   enforces(c, "limits") || enforces(c, "safe"),
		EnforceSafe:     enforces(c, "safe"),
		DisableRootJobs: c.DisableRootJobs,
		PriorityBasic:   c.PriorityType == "priority/basic", KillInvalidDepend: c.DependencyParameters.Has("kill_invalid_depend"),
	}
}

// enforces reports whether AccountingStorageEnforce has a word, or one that implies it (slurm.conf(5)).
func enforces(c *conf.Config, word string) bool {
	for _, e := range c.AccountingStorageEnforce {
		switch e = strings.ToLower(e); {
		case e == word, slices.Contains([]string{"all", "1", "yes"}, e):
			return true
		case word == "associations" && slices.Contains([]string{"limits", "qos", "wckeys", "safe"}, e):
			return true
		}
	}
	return false
}

// maxUserStateMiB is the default of max_user_state.
const maxUserStateMiB = 256

// maxUserBytes returns max_user_state of SlurmctldParameters, the MiB of scripts, environments and records that one user may hold in the
// state, in bytes; 0 is no bound.
func maxUserBytes(c *conf.Config) int64 {
	return int64(max(c.SlurmctldParameters.Int("max_user_state", maxUserStateMiB), 0)) << 20
}

// maxUserAccountingMiB is the default of max_user_accounting: MiB of one user's scripts and environments in accounting.
const maxUserAccountingMiB = 1024

// maxAccountingBytes returns max_user_accounting of SlurmctldParameters in bytes; 0 is no bound.
func maxAccountingBytes(c *conf.Config) int64 {
	return int64(max(c.SlurmctldParameters.Int("max_user_accounting", maxUserAccountingMiB), 0)) << 20
}

// maxSwitchWaitS returns max_switch_wait of SchedulerParameters, the longest time that jobs wait for the requested switches.
func maxSwitchWaitS(c *conf.Config) int64 {
	return int64(c.SchedulerParameters.Int("max_switch_wait", 300))
}

// Heartbeats: each node sends one every usualHeartbeatS seconds, or less often so that all nodes together send at most heartbeatsPerS a
// second, but at least one every slowHeartbeatS.
const (
	usualHeartbeatS = 10
	slowHeartbeatS  = 60
	heartbeatsPerS  = 250
)

// heartbeat returns the interval in seconds at which a node reports its load: a fraction of SlurmdTimeout. It does not detect dead nodes:
// the connection does.
func heartbeat(timeoutS int64, nodes int) uint32 {
	every := int64(max(usualHeartbeatS, min((nodes+heartbeatsPerS-1)/heartbeatsPerS, slowHeartbeatS)))
	if timeoutS <= 0 {
		return uint32(every)
	}
	return uint32(min(max(timeoutS/5, 1), every))
}

func clampSeconds(s int64) uint32 {
	if s < 0 || s >= int64(pb.Unlimited) {
		return pb.Unlimited
	}
	return uint32(s)
}

func nodeRecord(n *conf.Node) *pb.NodeRecord {
	r := &pb.NodeRecord{Name: n.Name, Addr: n.Addr, Hostname: n.Hostname, Port: uint32(n.Port), Cpus: uint32(n.CPUs),
		Boards:  uint32(n.Boards),
		Sockets: uint32(n.Sockets), Cores: uint32(n.CoresPerSocket), Threads: uint32(n.ThreadsPerCore), RealMemoryMib: n.RealMemoryMiB,
		TmpDiskMib: n.TmpDiskMiB, CoreSpec: uint32(n.CoreSpecCount), MemSpecMib: n.MemSpecLimitMiB, Weight: n.Weight,
		Features: strings.Join(n.Features, ","), ActiveFeatures: strings.Join(n.Features, ","), Gres: tres.FormatGres(n.Gres, ""),
		Reason: n.Reason}
	r.CfgTres = fmt.Sprintf("cpu=%d,mem=%s,billing=%d", r.Cpus, tres.FormatMiB(r.RealMemoryMib), r.Cpus)
	for _, g := range n.Gres {
		r.CfgTres += fmt.Sprintf(",gres/%s=%d", g.Name, g.Count)
	}
	switch n.State {
	case "DOWN":
		r.State = pb.NodeState_NODE_DOWN
	case "DRAIN":
		r.StateFlags = pb.NodeDrain
	case "FAIL", "FAILING":
		r.StateFlags = pb.NodeFail
	case "FUTURE":
		r.State = pb.NodeState_NODE_FUTURE
	case "CLOUD":
		r.State, r.StateFlags = pb.NodeState_NODE_IDLE, pb.NodeCloud|pb.NodePoweredDown
	}
	return r
}

func partitionRecord(c *conf.Config, p *conf.Partition) *pb.PartitionRecord {
	r := &pb.PartitionRecord{Name: p.Name, Nodes: hostlist.Fold(p.Nodes), IsDefault: p.Default, State: p.State,
		MaxTimeS: minutes(p.MaxTimeMin),
		AllNodes: p.AllNodes, NodeSets: p.NodeSets, SetFeatures: p.SetFeatures,
		MinNodes: uint32(p.MinNodes), MaxNodes: count(p.MaxNodes), TotalNodes: uint32(len(p.Nodes)),
		MaxCpusPerNode:   count(p.MaxCPUsPerNode),
		MaxCpusPerSocket: count(p.MaxCPUsPerSocket), DefMemPerCpuMib: p.DefMemPerCPUMiB, DefMemPerNodeMib: p.DefMemPerNodeMiB,
		MaxMemPerCpuMib: p.MaxMemPerCPUMiB, MaxMemPerNodeMib: p.MaxMemPerNodeMiB, PriorityTier: uint32(p.PriorityTier),
		PriorityJobFactor: uint32(p.PriorityJobFactor), Oversubscribe: p.OverSubscribe.String(), PreemptMode: preemptMode(c, p),
		GraceTimeS: clampSeconds(p.GraceTimeSec), AllowGroups: strings.Join(p.AllowGroups, ","),
		AllowAccounts: strings.Join(p.AllowAccounts, ","),
		AllowQos:      strings.Join(p.AllowQOS, ","), DenyAccounts: strings.Join(p.DenyAccounts, ","),
		DenyQos:         strings.Join(p.DenyQOS, ","),
		AllowAllocNodes: strings.Join(p.AllocNodes, ","), Alternate: p.Alternate, Qos: p.QOS, Hidden: p.Hidden, RootOnly: p.RootOnly,
		ReqResv: p.ReqResv, DisableRootJobs: p.DisableRootJobs, ExclusiveUser: p.ExclusiveUser, Lln: p.LLN,
		TresBillingWeights: p.TRESBillingWeights, JobDefaults: jobDefaults(p), SelectTypeParameters: p.SelectTypeParameters}
	if p.DefaultTimeMin != conf.NotSet {
		r.DefaultTimeS = minutes(p.DefaultTimeMin)
	}
	if p.OverTimeLimitMin != conf.NotSet {
		r.OverTimeLimitS, r.NoOverTime = minutes(p.OverTimeLimitMin), p.OverTimeLimitMin == 0
	}
	var mem uint64
	for _, name := range p.Nodes {
		if n, ok := c.Node(name); ok {
			r.TotalCpus += uint32(n.CPUs)
			mem += n.RealMemoryMiB
		}
	}
	r.Tres = fmt.Sprintf("cpu=%d,mem=%s,node=%d,billing=%d", r.TotalCpus, tres.FormatMiB(mem), r.TotalNodes, r.TotalCpus)
	return r
}

// jobDefaults combines JobDefaults and the separate keys for jobs with GPUs.
func jobDefaults(p *conf.Partition) string {
	var out []string
	if p.DefCPUPerGPU > 0 {
		out = append(out, fmt.Sprintf("DefCpuPerGPU=%d", p.DefCPUPerGPU))
	}
	if p.DefMemPerGPUMiB > 0 {
		out = append(out, fmt.Sprintf("DefMemPerGPU=%d", p.DefMemPerGPUMiB))
	}
	return strings.Join(out, ",")
}

func preemptMode(c *conf.Config, p *conf.Partition) string {
	if p.PreemptMode != nil {
		return strings.Join(p.PreemptMode, ",")
	}
	return strings.Join(c.PreemptMode, ",")
}

func minutes(m int64) uint32 {
	if m == timespec.Unlimited || m*60 >= int64(pb.Unlimited) {
		return pb.Unlimited
	}
	return uint32(max(m, 0) * 60)
}

func count(n int64) uint32 {
	if n < 0 || n >= int64(pb.Unlimited) {
		return pb.Unlimited
	}
	return uint32(n)
}

// resolvedGroups caches the groups that were found since the start, gid by name: a directory service that does not answer during a
// reconfigure closes no partition.
var resolvedGroups sync.Map

// groupIDs resolves AllowGroups; nil = all users. A name that is not a group on this machine, and never was one, admits nobody, as in
// Slurm: logDoubts names it. Root's group is implied.
func groupIDs(p *conf.Partition) []uint32 {
	if len(p.AllowGroups) == 0 || slices.ContainsFunc(p.AllowGroups, func(g string) bool { return strings.EqualFold(g, "ALL") }) {
		return nil
	}
	gids := []uint32{}
	for _, name := range p.AllowGroups {
		if _, gid, ok := passwd.Group(name); ok {
			resolvedGroups.Store(name, gid)
			gids = append(gids, gid)
		} else if gid, known := resolvedGroups.Load(name); known {
			gids = append(gids, gid.(uint32))
		}
	}
	return gids
}

// schedParams returns the scheduler's parameters (slurm.conf(5), SchedulerType, SchedulerParameters, SelectTypeParameters). Sluice's own
// SchedulerParameters are bf_policy (easy, conservative), bf_reservations, bf_order (queue, sjbf, merit), bf_guard, bf_head_guard,
// bf_short_queue and bf_max_wait (seconds), placement (pack, fgd, bestfit); docs/scheduling.md explains them.
func schedParams(c *conf.Config) record.Params {
	p, own := record.DefaultParams(), c.SchedulerParameters
	p.Depth, p.UserDepth, p.Reservations = own.Int("bf_max_job_test", 0), own.Int("bf_max_job_user", 0), own.Int("bf_reservations", 0)
	p.MaxSwitchWaitS = maxSwitchWaitS(c)
	p.ResolutionS, p.WindowS = int64(own.Int("bf_resolution", 0)), 60*int64(own.Int("bf_window", 0))
	p.GuardS = int64(own.Int("bf_guard", int(p.GuardS)))
	p.ShortQueue = own.Int("bf_short_queue", p.ShortQueue)
	p.HeadGuardS, p.MaxWaitS = int64(own.Int("bf_head_guard", int(p.HeadGuardS))), int64(own.Int("bf_max_wait", int(p.MaxWaitS)))
	if own.Get("bf_policy") == "conservative" {
		p.Policy = record.Conservative
	}
	switch own.Get("bf_order") {
	case "queue":
		p.Order = record.QueueOrder
	case "sjbf":
		p.Order = record.ShortestFirst
	}
	switch own.Get("placement") {
	case "fgd":
		p.Placement = record.FGD
	case "bestfit":
		p.Placement = record.BestFit
	}
	if c.SchedulerType == "sched/builtin" {
		p.Policy = record.FIFO
	}
	p.NoMemory = true
	for _, s := range c.SelectTypeParameters {
		s = strings.ToUpper(s)
		p.WholeCores = p.WholeCores || strings.HasPrefix(s, "CR_CORE")
		p.NoMemory = p.NoMemory && !strings.Contains(s, "MEMORY")
		p.LLN = p.LLN || s == "CR_LLN"
	}
	switch c.PreemptType {
	case "preempt/partition_prio":
		p.Preempt = record.PreemptPartition
	case "preempt/qos":
		p.Preempt = record.PreemptQOS
	}
	p.PreemptMode, p.ExemptS = convert.PreemptMode(strings.Join(c.PreemptMode, ",")), max(c.PreemptExemptTimeMin, 0)*60
	p.WholeNodes = c.SelectType == "select/linear"
	p.Weights = record.Weights{Basic: c.PriorityType == "priority/basic", Age: c.PriorityWeightAge, FairShare: c.PriorityWeightFairshare,
		JobSize: c.PriorityWeightJobSize, Partition: c.PriorityWeightPartition, QOS: c.PriorityWeightQOS, Assoc: c.PriorityWeightAssoc,
		MaxAgeS: c.PriorityMaxAgeMin * 60, SmallFirst: c.PriorityFavorSmall, CalcPeriodS: c.PriorityCalcPeriodMin * 60}
	return p
}

// shown returns the configuration for scontrol show config.
func (d *daemon) shown() *pb.ConfigReply {
	c := d.conf.Load()
	rt := conf.Runtime{NextJobID: d.loop.View().NextJobID, Version: version.Slurm,
		SlurmUID: d.uid, SlurmdUID: d.uid}
	r := &pb.ConfigReply{Pairs: keyValues(c.Pairs(rt)), Cgroup: keyValues(c.CgroupPairs()), BootNs: d.started.UnixNano()}
	for _, i := range c.Ignored {
		r.Ignored = append(r.Ignored, &pb.KeyValue{Key: i.Key, Value: i.Why})
	}
	return r
}

func keyValues(pairs []conf.Pair) []*pb.KeyValue {
	var out []*pb.KeyValue
	for _, kv := range pairs {
		out = append(out, &pb.KeyValue{Key: kv.Key, Value: kv.Value})
	}
	return out
}

// logQOS logs the partitions whose QOS does not exist: they have no such limits.
func (d *daemon) logQOS(c *conf.Config, p *state.Policy) {
	if !enforces(c, "limits") && !enforces(c, "safe") {
		return
	}
	for _, part := range c.Partitions {
		if part.QOS != "" && p.QOS(strings.ToLower(part.QOS)) == nil {
			d.log.Warn("the partition names an unknown QOS; sacctmgr add qos adds it", "partition", part.Name, "qos", part.QOS)
		}
	}
}

// logDoubts logs the parts of a configuration that have no effect, or that may be a mistake.
func (d *daemon) logDoubts(c *conf.Config) {
	for _, i := range c.Ignored {
		d.log.Warn("configuration key or word without effect", "key", i.Key, "why", i.Why, "at", fmt.Sprintf("%s:%d", i.File, i.Line))
	}
	for _, w := range slices.Concat(c.Warnings, c.OnThisMachine()) {
		d.log.Warn("probable mistake in the configuration", "warning", w.Error())
	}
	for _, a := range c.Advice {
		d.log.Info("configuration advice", "advice", a.Error())
	}
	if lack := filesDoubt(len(c.Nodes)); lack != "" {
		d.log.Warn("too few file descriptors", "warning", lack)
	}
}
