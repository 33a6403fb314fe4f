package taskenv

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/noded/isolate"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Gres holds the node's devices for the environment of a job.
type Gres struct {
	Devices []*pb.Device
	Conf    []*pb.GresConf // for their Flags
	// Closed: a job can only open its own devices, so a GPU library counts them from 0 (slurm.conf(5), "ConstrainDevices").
	// Otherwise it sees all of them, and needs their numbers on the node.
	Closed bool
	UUIDs  bool // CUDA_VISIBLE_DEVICES names UUIDs
}

// gpu is one GPU, or MIG instance, of a job.
type gpu struct {
	has    *pb.GresDevice
	device *pb.Device // nil if the node does not know it
}

func (g gpu) id() string { return cmp.Or(g.device.GetId(), g.has.GetId()) }

func (g gpu) isMIG() bool { return strings.HasPrefix(g.id(), "MIG-") }

// kind is gpu, or the kind of share: shard, mps.
func (g gpu) kind() string {
	switch {
	case g.has.GetName() != "gpu":
		return g.has.GetName()
	case g.has.GetShare() > 0:
		return cmp.Or(g.device.GetSharedAs(), "shard")
	}
	return "gpu"
}

// here returns the devices of a job on this node.
func here(l *pb.LaunchSpec) (all []*pb.GresDevice) {
	for _, a := range l.GetAlloc() {
		if a.GetNode() == l.GetNode() {
			all = append(all, a.GetDevices()...)
		}
	}
	return all
}

// gpusOf returns a job's GPUs in the order of their indexes.
func gpusOf(has []*pb.GresDevice, devices []*pb.Device) (gpus []gpu) {
	for _, h := range has {
		if h.GetCount() > 0 || h.GetName() != "gpu" && h.GetName() != "shard" && h.GetName() != "mps" {
			continue
		}
		g := gpu{has: h}
		if held := isolate.Held(devices, []*pb.GresDevice{h}); len(held) > 0 {
			g.device = held[0]
		}
		gpus = append(gpus, g)
	}
	slices.SortFunc(gpus, func(a, b gpu) int { return cmp.Compare(a.has.GetIndex(), b.has.GetIndex()) })
	return gpus
}

// gresAsked sets the variables about requested GPUs, for srun (sbatch(1), "Output environment variables").
func (v *vars) gresAsked(spec *pb.JobSpec) {
	v.setIf("SLURM_GPUS", gpuCount(spec.GetTresPerJob()))
	v.setIf("SLURM_CPUS_PER_GPU", gpuCount(spec.GetCpusPerTres()))
	v.setIf("SLURM_GPUS_PER_TASK", gpuCount(spec.GetTresPerTask()))
	v.setIf("SLURM_GPUS_PER_SOCKET", gpuCount(spec.GetTresPerSocket()))
	v.setIf("SLURM_GPU_BIND", ofGPUs(spec.GetTresBind()))
	v.setIf("SLURM_GPU_FREQ", ofGPUs(spec.GetTresFreq()))
}

// gpuCount returns a request's GPUs, "2" or "a100:2"; empty if it names none.
func gpuCount(tres string) string {
	for _, part := range strings.Split(tres, ",") {
		if n, ok := strings.CutPrefix(part, "gres/gpu:"); ok {
			return n
		}
	}
	return ""
}

// ofGPUs returns the value of --gpu-bind or --gpu-freq, whose commas are part of it.
func ofGPUs(tres string) string {
	value, ok := strings.CutPrefix(tres, "gres/gpu:")
	if !ok {
		value, _ = strings.CutPrefix(tres, "gpu:")
	}
	return value
}

// gres sets the variables about the job's devices on this node.
func (v *vars) gres(l *pb.LaunchSpec, g Gres) {
	has := here(l)
	gpus := gpusOf(has, g.Devices)
	if len(gpus) == 0 {
		v.noGPU(g)
	} else {
		v.gpus(gpus)
		v.visible(gpus, g)
	}
	v.others(has, g)
}

// gresOfHook is gres for prolog and epilog: they see every device of the node, so the numbers are the node's.
func (v *vars) gresOfHook(l *pb.LaunchSpec, g Gres) {
	g.Closed, g.UUIDs = false, false
	if gpus := gpusOf(here(l), g.Devices); len(gpus) > 0 {
		v.gpus(gpus)
		v.visible(gpus, g)
	}
}

// gpus sets Slurm's own variables.
func (v *vars) gpus(gpus []gpu) {
	whole, index := uint64(0), []string(nil)
	var shards, mps, of uint64
	for _, x := range gpus {
		switch x.kind() {
		case "gpu":
			whole++
		case "shard":
			shards += uint64(x.has.GetShare())
		case "mps":
			mps, of = mps+uint64(x.has.GetShare()), of+x.device.GetShares()
		}
		if n := strconv.FormatUint(uint64(x.has.GetIndex()), 10); !slices.Contains(index, n) {
			index = append(index, n)
		}
	}
	v.numIf("SLURM_GPUS_ON_NODE", whole)
	v.numIf("SLURM_SHARDS_ON_NODE", shards)
	v.set("SLURM_JOB_GPUS", strings.Join(index, ","))
	if mps > 0 && of > 0 {
		v.num("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", max(1, mps*100/of))
	}
}

// visible sets the variables that tell the vendors' libraries which GPUs to use.
func (v *vars) visible(gpus []gpu, g Gres) { v.visibleOf(gpus, gpus, g) }

// visibleOf is visible for some of the GPUs that can be opened.
func (v *vars) visibleOf(some, gpus []gpu, g Gres) {
	var numbers, names []string
	byName := g.UUIDs
	for _, x := range gpus {
		byName = byName || x.isMIG() // CUDA identifies instances by UUID alone
	}
	seen := map[string]uint64{}
	for _, x := range gpus {
		key := x.key()
		if _, has := seen[key]; has {
			continue
		}
		seen[key] = uint64(len(seen))
		if !g.Closed {
			seen[key] = uint64(x.has.GetIndex())
		}
	}
	told := map[string]bool{}
	for _, x := range some {
		if told[x.key()] {
			continue
		}
		told[x.key()] = true
		numbers = append(numbers, strconv.FormatUint(seen[x.key()], 10))
		name := numbers[len(numbers)-1]
		if byName && (x.isMIG() || strings.HasPrefix(x.id(), "GPU-")) {
			name = x.id()
		}
		names = append(names, name)
	}
	makers := makersOf(gpus, g)
	list := strings.Join(numbers, ",")
	if makers.nvidia {
		v.set("CUDA_VISIBLE_DEVICES", strings.Join(names, ","))
	}
	if makers.opencl {
		v.set("GPU_DEVICE_ORDINAL", list)
	}
	if makers.amd {
		v.set("ROCR_VISIBLE_DEVICES", list)
	}
	if makers.intel {
		v.set("ZE_AFFINITY_MASK", list)
	}
}

// key distinguishes GPUs.
func (g gpu) key() string { return cmp.Or(g.id(), strconv.FormatUint(uint64(g.has.GetIndex()), 10)) }

// noGPU hides the node's GPUs from a job without any, whatever its submitter has set. Slurm leaves that to the device controller;
// libraries then fail to open the GPUs that they find, with unhelpful errors.
func (v *vars) noGPU(g Gres) {
	var all []gpu
	for _, d := range g.Devices {
		if d.GetName() == "gpu" {
			all = append(all, gpu{has: &pb.GresDevice{Name: "gpu"}, device: d})
		}
	}
	if len(all) == 0 {
		return
	}
	makers := makersOf(all, g)
	if makers.nvidia {
		v.set("CUDA_VISIBLE_DEVICES", "")
	}
	if makers.amd && !makers.nvidia {
		v.set("ROCR_VISIBLE_DEVICES", "")
	}
}

// makers are the kinds of variables to set (gres.conf(5), Flags).
type makers struct{ nvidia, amd, intel, opencl bool }

// makersOf combines the kinds of all GPUs: a flag of the line that declares a GPU, else of any line about GPUs of its type, else
// the detected vendor. NVML's GPUs are NVIDIA's, and a ROCR_VISIBLE_DEVICES beside CUDA_VISIBLE_DEVICES stops some programs.
func makersOf(gpus []gpu, g Gres) (m makers) {
	for _, x := range gpus {
		flags := flagsOf(x, g.Conf)
		said := false
		for _, f := range flags {
			switch f {
			case "nvidia_gpu_env":
				m.nvidia, said = true, true
			case "amd_gpu_env":
				m.amd, said = true, true
			case "intel_gpu_env":
				m.intel, said = true, true
			case "opencl_env":
				m.opencl, said = true, true
			case "no_gpu_env":
				said = true
			}
		}
		switch {
		case said:
		case isolate.FromDriver(x.device):
			m.nvidia, m.opencl = true, true
		default:
			return makers{true, true, true, true}
		}
	}
	return m
}

func flagsOf(x gpu, conf []*pb.GresConf) (flags []string) {
	for _, c := range conf {
		named := c.GetName() == "gpu" || c.GetName() == "" && c.GetAutodetect() != ""
		byLine := c.GetPlace() != "" && c.GetPlace() == x.device.GetDeclared()
		if byLine || named && isolate.FromDriver(x.device) && (c.GetType() == "" || c.GetType() == x.device.GetType()) {
			for _, f := range c.GetFlags() {
				flags = append(flags, strings.ToLower(f))
			}
		}
	}
	return flags
}

// others sets variables for devices that are not GPUs, for which Slurm has none: SLUICE_GRES_FPGA=0,2 and
// SLUICE_GRES_FPGA_FILES=/dev/fpga0,/dev/fpga2.
func (v *vars) others(has []*pb.GresDevice, g Gres) {
	index, files := map[string][]string{}, map[string][]string{}
	var names []string
	for _, h := range has {
		if h.GetCount() > 0 || h.GetName() == "gpu" || h.GetName() == "shard" || h.GetName() == "mps" {
			continue
		}
		name := variable(h.GetName())
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		index[name] = append(index[name], strconv.FormatUint(uint64(h.GetIndex()), 10))
		for _, d := range isolate.Held(g.Devices, []*pb.GresDevice{h}) {
			files[name] = append(files[name], d.GetFiles()...)
		}
	}
	for _, name := range names {
		v.set("SLUICE_GRES_"+name, strings.Join(index[name], ","))
		v.setIf("SLUICE_GRES_"+name+"_FILES", strings.Join(files[name], ","))
	}
}

// variable converts a resource's name for use in a variable's name.
func variable(name string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case 'a' <= c && c <= 'z':
			return c - 'a' + 'A'
		case 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
			return c
		}
		return '_'
	}, name)
}
