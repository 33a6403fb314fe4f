package noded

import (
	"log/slog"
	"strings"

	"github.com/sluice-hpc/sluice/conf/filename"
	"github.com/sluice-hpc/sluice/noded/hw"
	"github.com/sluice-hpc/sluice/noded/step"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	"github.com/sluice-hpc/sluice/noded/taskenv"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
)

// defaultWarnSeconds is how long before its end a job is warned when --signal names no time (sbatch(1)).
const defaultWarnSeconds = 60

// minMemoryMiB is the least memory limit that a job gets, whatever MinRAMSpace says: its processes could not even start with less.
const minMemoryMiB = 30

// scriptName is how the bundle names the script that the runner writes beside it.
const scriptName = folder.Script

// bundler turns what the controller says into what a shim needs: nothing is left to expand or to look up.
type bundler struct {
	daemon   taskenv.Daemon
	hostname string
	topology hw.Topology
	// hard gives this daemon's own hard limit of a resource: no job gets more (slurm.conf(5), PropagateResourceLimits).
	hard func(resource int) uint64
	log  *slog.Logger
	// devices tells what this node gives to jobs; nil: nothing.
	devices func() []*pb.Device
	closed  bool            // devices are closed to jobs, whatever the settings say
	open    error           // why no device can be closed on this machine; nil: they can
	told    map[string]bool // what has been said of devices
}

// bundle builds the bundle of a launch.
func (b *bundler) bundle(l *pb.LaunchSpec, s *pb.NodeSettings) *pb.Bundle {
	if l.Step != nil {
		return b.stepBundle(l, s)
	}
	spec := l.GetSpec()
	out := &pb.Bundle{
		Key: l.Key, Uid: spec.GetUid(), Gid: spec.GetGid(), Groups: spec.GetGroups(), Umask: spec.GetUmask(),
		Dir: spec.GetWorkDir(), EndNs: l.EndNs, LimitS: limitOf(l), OverTimeS: l.OverTimeS, KillWaitS: s.GetKillWaitS(),
		UnkillableTimeoutS: s.GetUnkillableTimeoutS(),
		JobName:            spec.GetName(), Partition: l.Partition, Limits: b.limits(l, s), HoldOnly: !l.Batch, Cgroup: step.Group(l.Key),
		Devices: devicesOf(l), Job: jobOf(l),
	}
	for _, a := range l.Alloc {
		if a.Node == l.Node {
			out.Cpus = a.Cpus
		}
	}
	if c := spec.GetRunIn(); !out.HoldOnly || c != nil && spec.GetInteractive() {
		out.Container = containerOf(c, spec.GetContainer(), s)
	}
	if out.HoldOnly {
		return out
	}
	out.Argv = append([]string{scriptName}, spec.GetArgs()...)
	out.Env = taskenv.Batch(l, s.GetCluster(), b.daemonFor(s))
	out.StdIn, out.StdOut, out.StdErr = b.files(l, s)
	out.Rlimits = b.rlimits(spec.GetRlimits(), s.GetPropagateLimits())
	if p := s.GetTaskProlog(); p != "" {
		out.TaskProlog = []string{p}
	}
	out.TaskEpilog = s.GetTaskEpilog()
	if out.WarnSignal = spec.GetWarnSignal(); out.WarnSignal != 0 {
		out.WarnSeconds, out.WarnBatch = spec.GetWarnSeconds(), spec.GetWarnBatch()
		if out.WarnSeconds == 0 {
			out.WarnSeconds = defaultWarnSeconds
		}
	}
	return out
}

// containerOf is where the tasks of a step run: in a container of an image or of a bundle; nil: in none. A bundle is only shown where there
// is no oci.conf.
func containerOf(image *pb.ContainerSpec, bundle string, s *pb.NodeSettings) *pb.StepContainer {
	switch {
	case image != nil:
		return &pb.StepContainer{Spec: image}
	case bundle != "" && s.GetOci() != nil:
		return &pb.StepContainer{Bundle: bundle, Runtime: s.GetOci()}
	}
	return nil
}

// limitOf is the time limit of a launch; a controller of an older version says only from when until when.
func limitOf(l *pb.LaunchSpec) uint32 {
	if l.LimitS == 0 && l.EndNs > l.StartNs && l.StartNs != 0 {
		return uint32(min((l.EndNs-l.StartNs+1e9-1)/1e9, int64(pb.Unlimited)-1))
	}
	return l.LimitS
}

func (b *bundler) files(l *pb.LaunchSpec, s *pb.NodeSettings) (in, out, err *pb.StdFile) {
	spec := l.GetSpec()
	v := filename.Values{
		JobID: l.GetKey().GetJobId(), IsArrayTask: l.IsArrayTask, ArrayJobID: l.ArrayJobId, ArrayTaskID: l.ArrayTaskId,
		JobName: spec.GetName(), User: spec.GetUser(), Host: b.hostname, NodeIndex: l.NodeIndex,
	}
	appendTo := spec.GetOpenMode() == pb.OpenAppend || spec.GetOpenMode() == pb.Unset && s.GetJobFileAppend()
	dir := spec.GetWorkDir()
	in = &pb.StdFile{Path: filename.Input(spec.GetStdIn(), dir, v)}
	out = &pb.StdFile{Path: filename.Output(spec.GetStdOut(), dir, v), Append: appendTo}
	err = &pb.StdFile{Path: filename.Error(spec.GetStdErr(), dir, v), Append: appendTo}
	return in, out, err
}

// limits of the step's cgroup, as cgroup.conf asks for them.
func (b *bundler) limits(l *pb.LaunchSpec, s *pb.NodeSettings) *pb.Limits {
	out := &pb.Limits{Pids: s.GetMaxPids()}
	for _, a := range l.Alloc {
		if a.Node != l.Node {
			continue
		}
		if s.GetConstrainCores() {
			out.CpusetCpus = b.cpuset(l, a, s)
		}
		if s.GetConstrainRam() && a.MemMib > 0 {
			out.MemoryMib, out.MemorySwapMib = memoryLimits(a.MemMib, s)
		}
	}
	return out
}

// memoryLimits are the memory that a job may use for so much that it asked for, and memory and swap together (0: as much swap as
// there is), as cgroup.conf(5) has it.
func memoryLimits(mib uint64, s *pb.NodeSettings) (ram, total uint64) {
	percent := func(of uint64, p float64) uint64 { return uint64(float64(of) * p / 100) }
	node := s.GetNode().GetRealMemoryMib()
	if ram = mib; s.GetAllowedRamPercent() > 0 {
		ram = percent(mib, s.GetAllowedRamPercent())
	}
	total = ram + percent(mib, s.GetAllowedSwapPercent())
	if p := s.GetMaxRamPercent(); p > 0 && node > 0 {
		ram = min(ram, percent(node, p))
	}
	if p := s.GetMaxSwapPercent(); p > 0 && node > 0 {
		total = min(total, percent(node, p))
	}
	ram = max(ram, s.GetMinRamMib(), minMemoryMiB)
	if !s.GetConstrainSwap() {
		return ram, 0
	}
	return ram, max(total, ram)
}

func (b *bundler) cpuset(l *pb.LaunchSpec, a *pb.NodeAlloc, s *pb.NodeSettings) string {
	configured := s.GetNode().GetCpus()
	if configured == 0 {
		configured = uint32(len(b.topology))
	}
	set, err := b.topology.CPUSet(a.CpuIds, configured)
	if err != nil {
		b.log.Error("a job is not bound to its CPUs", "job", l.GetKey().GetJobId(), "cpu_ids", a.CpuIds, "err", err)
	}
	return set
}

// limitNames are the names of slurm.conf(5), PropagateResourceLimits.
var limitNames = map[string]uint32{
	"AS": unix.RLIMIT_AS, "CORE": unix.RLIMIT_CORE, "CPU": unix.RLIMIT_CPU, "DATA": unix.RLIMIT_DATA, "FSIZE": unix.RLIMIT_FSIZE,
	"MEMLOCK": unix.RLIMIT_MEMLOCK, "NOFILE": unix.RLIMIT_NOFILE, "NPROC": unix.RLIMIT_NPROC, "RSS": unix.RLIMIT_RSS,
	"STACK": unix.RLIMIT_STACK,
}

// rlimits keeps those limits of the submitter that propagate or the job's own --propagate names: their soft values, within what this daemon
// may give. All others are the daemon's own.
func (b *bundler) rlimits(asked []*pb.Rlimit, propagate string) []*pb.Rlimit {
	take, known := propagated(propagate), propagated("ALL")
	var out []*pb.Rlimit
	for _, r := range asked {
		if !take[r.Resource] && !(r.Asked && known[r.Resource]) {
			continue
		}
		hard := b.hard(int(r.Resource))
		out = append(out, &pb.Rlimit{Resource: r.Resource, Soft: min(r.Soft, hard), Hard: hard})
	}
	return out
}

// propagated reads ALL (also when empty), NONE, or a list of names. Names that are not known were refused with slurm.conf.
func propagated(list string) map[uint32]bool {
	take := map[uint32]bool{}
	for _, name := range strings.Split(strings.ToUpper(list), ",") {
		switch name = strings.TrimPrefix(strings.TrimSpace(name), "RLIMIT_"); name {
		case "NONE":
			return nil
		case "ALL", "":
			for _, r := range limitNames {
				take[r] = true
			}
		default:
			if r, ok := limitNames[name]; ok {
				take[r] = true
			}
		}
	}
	return take
}

// rootsLimit leaves the bound to the root half, whose own limits they are.
func rootsLimit(int) uint64 { return unix.RLIM_INFINITY }

// closes: jobs are kept from each other's devices.
func (b *bundler) closes(s *pb.NodeSettings) bool {
	return (b.closed || s.GetConstrainDevices()) && b.open == nil
}

// sayOnce logs what would come again with each job.
func (b *bundler) sayOnce(what string, err error) {
	if b.told == nil {
		b.told = map[string]bool{}
	}
	if !b.told[err.Error()] && len(b.told) < 1000 {
		b.told[err.Error()] = true
		b.log.Warn(what, "err", err)
	}
}

// daemonFor is what environments take from this node, its devices among it.
func (b *bundler) daemonFor(s *pb.NodeSettings) taskenv.Daemon {
	d := b.daemon
	if b.devices != nil {
		d.Gres = taskenv.Gres{Devices: b.devices(), Conf: s.GetGres(), Closed: b.closes(s), UUIDs: s.GetGpu().GetUuids()}
	}
	return d
}

// refusal is the bundle of a step that never began here: no cgroup, nothing to run an epilog for.
func refusal(k *pb.StepKey) *pb.Bundle { return &pb.Bundle{Key: k, HoldOnly: true} }

func isRefusal(b *pb.Bundle) bool { return b.GetCgroup() == "" }

// bare is a LaunchSpec without what only the start needs: it stays in memory for as long as the job runs.
func bare(l *pb.LaunchSpec) *pb.LaunchSpec {
	c := pb.ShallowCopy(l)
	c.Script, c.Env = nil, nil
	return c
}

// fromBundle is what is known of a job whose description is gone (the epilog was configured after its start).
func fromBundle(b *pb.Bundle, node string) *pb.LaunchSpec {
	return &pb.LaunchSpec{Key: b.GetKey(), Node: node, Partition: b.GetPartition(), Spec: &pb.JobSpec{
		Name: b.GetJobName(), Uid: b.GetUid(), Gid: b.GetGid(), WorkDir: b.GetDir()}}
}
