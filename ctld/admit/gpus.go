package admit

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// gresParts returns the four ways to request a resource, the finest first.
func gresParts(s *pb.JobSpec) [4]*string {
	return [4]*string{&s.TresPerTask, &s.TresPerSocket, &s.TresPerNode, &s.TresPerJob}
}

// checkGresText refuses invalid lists: commands parse them first, but a client need not be one of ours.
func checkGresText(_ *state.View, s *pb.JobSpec) *pb.Problem {
	for _, text := range gresParts(s) {
		if *text == "" {
			continue
		}
		list, err := convert.ReadGres(*text)
		if err != nil {
			return pb.NewProblem(pb.CodeInvalidGres, "%v", err)
		}
		for _, g := range list {
			if g.Count > maxCount {
				return pb.NewProblem(pb.CodeInvalidGres, "%s: at most %d can be requested", g, maxCount)
			}
		}
	}
	return checkGPUCounts(s)
}

// perNode returns the number of GPUs that a job requests on each node: per node, or on all of its sockets there.
func perNode(s *pb.JobSpec) uint64 {
	return cmp.Or(count(s.TresPerNode), times(count(s.TresPerSocket), uint64(max(s.SocketsPerNode, 1))))
}

// checkGPUCounts refuses GPUs per task, per socket, per node and in total that contradict each other or the counts of tasks and nodes
// (sbatch(1), --gpus-per-task, --ntasks-per-gpu). gpuDefaults sets those that follow from others.
func checkGPUCounts(s *pb.JobSpec) *pb.Problem {
	perTask, perNode, all := count(s.TresPerTask), perNode(s), count(s.TresPerJob)
	tasks, nodes := uint64(s.NumTasks), uint64(s.MinNodes)
	switch sockets := times(count(s.TresPerSocket), uint64(max(s.SocketsPerNode, 1))); {
	case sockets > 0 && perNode != sockets:
		return pb.NewProblem(pb.CodeInvalidGres, "%d GPUs on each node are not %d on each of %d sockets", perNode, count(s.TresPerSocket),
			max(s.SocketsPerNode, 1))
	case sockets > 0 && perTask > 0 && tasks > 0 && times(tasks, perTask) < times(sockets, max(nodes, 1)):
		return pb.NewProblem(pb.CodeNodeConfig, "%d tasks with %d GPUs each are fewer than %d GPUs on each node", tasks, perTask,
			sockets).WithHint("omit --gpus-per-socket or --gpus-per-task")
	case perTask > 0 && all%perTask != 0:
		return pb.NewProblem(pb.CodeInvalidGres, "%d GPUs in total cannot be divided into tasks of %d", all, perTask)
	case perNode > 0 && all%perNode != 0:
		return pb.NewProblem(pb.CodeInvalidGres, "%d GPUs in total cannot be divided into nodes of %d", all, perNode)
	case all > 0 && all < nodes:
		return pb.NewProblem(pb.CodeInvalidGres, "%d GPUs in total cannot give each of %d nodes one", all, nodes)
	case perTask > 0 && all > 0 && tasks > 0 && times(tasks, perTask) != all:
		return pb.NewProblem(pb.CodeInvalidGres, "%d tasks with %d GPUs each are not %d GPUs", tasks, perTask,
			all).WithHint("omit --gpus or --ntasks")
	case perNode > 0 && all > 0 && nodes > 0 && times(nodes, perNode) != all:
		return pb.NewProblem(pb.CodeInvalidGres, "%d nodes with %d GPUs each are not %d GPUs", nodes, perNode,
			all).WithHint("omit --gpus or --nodes")
	case perTask > 0 && perNode > 0 && s.NtasksPerNode > 0 && perNode != times(perTask, uint64(s.NtasksPerNode)):
		return pb.NewProblem(pb.CodeInvalidGres, "%d tasks on each node with %d GPUs each are not %d GPUs on each node", s.NtasksPerNode,
			perTask, perNode).
			WithHint("omit --ntasks-per-node or --gpus-per-task")
	case perTask > 0 && perNode > 0 && perNode%perTask != 0:
		return pb.NewProblem(pb.CodeInvalidGres, "%d GPUs on each node cannot be divided into tasks of %d", perNode, perTask)
	}
	return nil
}

// count returns the number of GPUs in a list.
func count(text string) uint64 {
	n := uint64(0)
	for _, g := range convert.Gres(text) {
		if g.Name == "gpu" {
			n += g.Count
		}
	}
	return n
}

// gpuDefaults sets the values that follow from a request for GPUs: tasks, nodes, CPUs and memory.
func gpuDefaults(s *state.Settings, p *pb.PartitionRecord, spec *pb.JobSpec) {
	perTask, perNode, all := count(spec.TresPerTask), perNode(spec), count(spec.TresPerJob)
	if perNode > 0 && all > 0 && spec.MinNodes == 0 {
		spec.MinNodes = clamp(all / perNode)
		spec.MaxNodes = spec.MinNodes
	}
	if perTask > 0 && spec.NumTasks == 0 {
		switch {
		case all > 0:
			spec.NumTasks = clamp(all / perTask)
		case perNode > 0 && spec.NtasksPerNode == 0:
			spec.NtasksPerNode = clamp(perNode / perTask)
		}
	}
	if k := uint64(spec.NtasksPerTres); k > 0 {
		switch total := max(all, times(perNode, uint64(max(spec.MinNodes, 1)))); {
		case total == 0 && spec.NumTasks == 0 && spec.MinNodes > 0: // a GPU on each node, with its tasks
			spec.NumTasks, spec.TresPerJob = clamp(times(uint64(spec.MinNodes), k)),
				"gres/gpu:"+strconv.FormatUint(uint64(spec.MinNodes), 10)
		case total == 0 && spec.NumTasks > 0:
			spec.TresPerJob = "gres/gpu:" + strconv.FormatUint((uint64(spec.NumTasks)+k-1)/k, 10)
		case total > 0 && spec.NumTasks == 0:
			spec.NumTasks = clamp(times(total, k))
		}
	}
	if !asksForGPUs(spec) { // a job without GPUs gets the default memory, not none
		spec.MemPerGpuMib, spec.CpusPerTres = 0, ""
		return
	}
	cpus, mem := jobDefault(p, "DefCpuPerGPU", uint64(s.DefCPUPerGPU)), jobDefault(p, "DefMemPerGPU", s.DefMemPerGPUMiB)
	if cpus > 0 && spec.CpusPerTask == 0 && spec.CpusPerTres == "" {
		spec.CpusPerTres = "gres/gpu:" + strconv.FormatUint(cpus, 10)
	}
	if mem > 0 && spec.MemPerNodeMib|spec.MemPerCpuMib|spec.MemPerGpuMib == 0 && !spec.MemAll && s.CountMemory {
		spec.MemPerGpuMib = mem
	}
}

func asksForGPUs(s *pb.JobSpec) bool {
	return count(s.TresPerTask)+count(s.TresPerSocket)+count(s.TresPerNode)+count(s.TresPerJob) > 0
}

// times multiplies; an overflow gives the largest value.
func times(a, b uint64) uint64 {
	if high, low := bits.Mul64(a, b); high == 0 {
		return low
	}
	return math.MaxUint64
}

func clamp(n uint64) uint32 { return uint32(min(n, maxCount)) }

// jobDefault returns one of a partition's JobDefaults=, or else the cluster's.
func jobDefault(p *pb.PartitionRecord, key string, cluster uint64) uint64 {
	for part := range strings.SplitSeq(p.JobDefaults, ",") {
		name, value, _ := strings.Cut(part, "=")
		if n, err := strconv.ParseUint(value, 10, 32); err == nil && strings.EqualFold(name, key) {
			return n
		}
	}
	return cluster
}

// GresTRES formats the generic resources of a set of resources: ",gres/gpu=2,gres/gpu:a100=2". Types are tracked unless
// AccountingStorageTRES names some resources without them.
func GresTRES(st *state.Settings, list []tres.Gres) string {
	total := map[string]uint64{}
	var order []string
	add := func(name string, n uint64) {
		if _, known := total[name]; !known {
			order = append(order, name)
		}
		total[name] += n
	}
	for _, g := range list {
		add("gres/"+g.Name, g.Count)
		if g.Type != "" && (len(st.TrackTRES) == 0 || slices.Contains(st.TrackTRES, g.TresName())) {
			add(g.TresName(), g.Count)
		}
	}
	slices.SortStableFunc(order, func(a, b string) int { // types after their name
		x, _, _ := strings.Cut(a, ":")
		y, _, _ := strings.Cut(b, ":")
		if x != y {
			return 0
		}
		return len(a) - len(b)
	})
	var b strings.Builder
	for _, name := range order {
		if total[name] > 0 {
			fmt.Fprintf(&b, ",%s=%d", name, total[name])
		}
	}
	return b.String()
}
