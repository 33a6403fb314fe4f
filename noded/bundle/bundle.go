// Package bundle builds the bundle of a step: everything that its shim needs to run it on this node, with nothing left to expand
// or to look up. It computes the limits of the step's cgroup (bundle.go) and binds its tasks to CPUs and GPUs (binding.go).
package bundle

import (
	"log/slog"
	"strings"

	"github.com/sluice-hpc/sluice/conf/filename"
	"github.com/sluice-hpc/sluice/noded/hw"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	"github.com/sluice-hpc/sluice/noded/taskenv"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
)

// defaultWarnSeconds is how long before its end a job is warned if --signal names no time (sbatch(1)).
const defaultWarnSeconds = 60

// minMemoryMiB is the lowest memory limit of a job, whatever MinRAMSpace says: its processes could not even start with less.
const minMemoryMiB = 30

// scriptName is the name of the script that the runner writes beside the bundle.
const scriptName = folder.Script

// Builder builds the bundles of one node.
type Builder struct {
	Daemon   taskenv.Daemon
	Hostname string
	Topology hw.Topology
	// Hard returns the hard limit of a resource on this node. No job gets more (slurm.conf(5), PropagateResourceLimits).
	Hard func(resource int) uint64
	Log  *slog.Logger
	// Devices returns the devices that jobs can get; nil: there are none.
	Devices func() []*pb.Device
	Closed  bool  // devices are closed to jobs, whatever the settings say
	Open    error // why devices cannot be closed on this machine; nil: they can
}

// Build builds the bundle of a launch.
func (b *Builder) Build(l *pb.LaunchSpec, s *pb.NodeSettings) *pb.Bundle {
	if l.Step != nil {
		return b.stepBundle(l, s)
	}
	spec := l.GetSpec()
	out := &pb.Bundle{
		Key: l.Key, Uid: spec.GetUid(), Gid: spec.GetGid(), Groups: spec.GetGroups(), Umask: spec.GetUmask(),
		Dir: spec.GetWorkDir(), LimitS: l.LimitS, OverTimeS: l.OverTimeS, KillWaitS: s.GetKillWaitS(),
		UnkillableTimeoutS: s.GetUnkillableTimeoutS(),
		JobName:            spec.GetName(), Partition: l.Partition, Limits: b.limits(l, s), HoldOnly: !l.Batch, Cgroup: folder.Group(l.Key),
		Devices: DevicesOf(l), Job: JobOf(l),
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
	out.Env = taskenv.Batch(l, s.GetCluster(), b.Environ(s))
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

// containerOf returns the container of a step's tasks, from an image or a bundle; nil: none. Without an oci.conf a bundle is only
// shown.
func containerOf(image *pb.ContainerSpec, bundle string, s *pb.NodeSettings) *pb.StepContainer {
	switch {
	case image != nil:
		return &pb.StepContainer{Spec: image}
	case bundle != "" && s.GetOci() != nil:
		return &pb.StepContainer{Bundle: bundle, Runtime: s.GetOci()}
	}
	return nil
}

func (b *Builder) files(l *pb.LaunchSpec, s *pb.NodeSettings) (in, out, err *pb.StdFile) {
	spec := l.GetSpec()
	v := filename.Values{
		JobID: l.GetKey().GetJobId(), IsArrayTask: l.IsArrayTask, ArrayJobID: l.ArrayJobId, ArrayTaskID: l.ArrayTaskId,
		JobName: spec.GetName(), User: spec.GetUser(), Host: b.Hostname, NodeIndex: l.NodeIndex,
	}
	appendTo := spec.GetOpenMode() == pb.OpenAppend || spec.GetOpenMode() == pb.Unset && s.GetJobFileAppend()
	dir := spec.GetWorkDir()
	in = &pb.StdFile{Path: filename.Input(spec.GetStdIn(), dir, v)}
	out = &pb.StdFile{Path: filename.Output(spec.GetStdOut(), dir, v), Append: appendTo}
	err = &pb.StdFile{Path: filename.Error(spec.GetStdErr(), dir, v), Append: appendTo}
	return in, out, err
}

// limits returns the limits of the step's cgroup, as configured in cgroup.conf.
func (b *Builder) limits(l *pb.LaunchSpec, s *pb.NodeSettings) *pb.Limits {
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

// memoryLimits returns the memory limit for a job that asked for mib, and the limit of memory and swap together (0: no limit on
// swap), by the rules of cgroup.conf(5).
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

func (b *Builder) cpuset(l *pb.LaunchSpec, a *pb.NodeAlloc, s *pb.NodeSettings) string {
	configured := s.GetNode().GetCpus()
	if configured == 0 {
		configured = uint32(len(b.Topology))
	}
	set, err := b.Topology.CPUSet(a.CpuIds, configured)
	if err != nil {
		b.Log.Error("cannot bind a job to its CPUs", "job", l.GetKey().GetJobId(), "cpu_ids", a.CpuIds, "err", err)
	}
	return set
}

// limitNames are the names of slurm.conf(5), PropagateResourceLimits.
var limitNames = map[string]uint32{
	"AS": unix.RLIMIT_AS, "CORE": unix.RLIMIT_CORE, "CPU": unix.RLIMIT_CPU, "DATA": unix.RLIMIT_DATA, "FSIZE": unix.RLIMIT_FSIZE,
	"MEMLOCK": unix.RLIMIT_MEMLOCK, "NOFILE": unix.RLIMIT_NOFILE, "NPROC": unix.RLIMIT_NPROC, "RSS": unix.RLIMIT_RSS,
	"STACK": unix.RLIMIT_STACK,
}

// rlimits returns the submitter's limits that propagate or that the job's own --propagate names: their soft values, at most what
// this daemon may give. All others are the daemon's own.
func (b *Builder) rlimits(asked []*pb.Rlimit, propagate string) []*pb.Rlimit {
	take, known := propagated(propagate), propagated("ALL")
	var out []*pb.Rlimit
	for _, r := range asked {
		if !take[r.Resource] && !(r.Asked && known[r.Resource]) {
			continue
		}
		hard := b.Hard(int(r.Resource))
		out = append(out, &pb.Rlimit{Resource: r.Resource, Soft: min(r.Soft, hard), Hard: hard})
	}
	return out
}

// propagated parses ALL (also if empty), NONE, or a list of names. Unknown names were refused when slurm.conf was read.
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

// Closes reports whether a job can open only its own devices.
func (b *Builder) Closes(s *pb.NodeSettings) bool {
	return (b.Closed || s.GetConstrainDevices()) && b.Open == nil
}

// Environ returns this node's part of environments, including its devices.
func (b *Builder) Environ(s *pb.NodeSettings) taskenv.Daemon {
	d := b.Daemon
	if b.Devices != nil {
		d.Gres = taskenv.Gres{Devices: b.Devices(), Conf: s.GetGres(), Closed: b.Closes(s), UUIDs: s.GetGpu().GetUuids()}
	}
	return d
}
