package admit

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Gres reads what a specification has of generic resources, "gres/gpu:a100:2,gres/shard:4", with "gres:" as older versions write it.
// What cannot be read is empty: Check has refused it.
func Gres(text string) []tres.Gres {
	if text == "" {
		return nil
	}
	list, _ := readGres(text)
	return list
}

func readGres(text string) ([]tres.Gres, error) {
	var bare []string
	for part := range strings.SplitSeq(text, ",") {
		bare = append(bare, strings.TrimPrefix(strings.TrimPrefix(part, "gres/"), "gres:"))
	}
	return tres.ParseGres(strings.Join(bare, ","))
}

// gresParts are the four ways to ask for a resource, the finest first.
func gresParts(s *pb.JobSpec) [4]*string {
	return [4]*string{&s.TresPerTask, &s.TresPerSocket, &s.TresPerNode, &s.TresPerJob}
}

// checkGresText refuses lists that cannot be read: commands read them first, but not every caller is a command of ours.
func checkGresText(_ *state.View, s *pb.JobSpec) *pb.Problem {
	for _, text := range gresParts(s) {
		if *text == "" {
			continue
		}
		list, err := readGres(*text)
		if err != nil {
			return pb.NewProblem(pb.CodeInvalidGres, "%v", err)
		}
		for _, g := range list {
			if g.Count > maxCount {
				return pb.NewProblem(pb.CodeInvalidGres, "%s: at most %d can be asked for", g, maxCount)
			}
		}
	}
	return checkGPUCounts(s)
}

// checkGPUCounts refuses GPUs per task, per node and in all that contradict each other or the counts of tasks and nodes
// (sbatch(1), --gpus-per-task, --ntasks-per-gpu). Where one follows from the others, gpuDefaults fills it in.
func checkGPUCounts(s *pb.JobSpec) *pb.Problem {
	perTask, perNode, all := count(s.TresPerTask), count(s.TresPerNode), count(s.TresPerJob)
	tasks, nodes := uint64(s.NumTasks), uint64(s.MinNodes)
	switch {
	case perTask > 0 && all%perTask != 0:
		return pb.NewProblem(pb.CodeInvalidGres, "%d GPUs in all cannot be divided among tasks of %d", all, perTask)
	case perNode > 0 && all%perNode != 0:
		return pb.NewProblem(pb.CodeInvalidGres, "%d GPUs in all cannot be divided among nodes of %d", all, perNode)
	case all > 0 && all < nodes:
		return pb.NewProblem(pb.CodeInvalidGres, "%d GPUs in all are less than one for each of %d nodes", all, nodes)
	case perTask > 0 && all > 0 && tasks > 0 && tasks*perTask != all:
		return pb.NewProblem(pb.CodeInvalidGres, "%d tasks with %d GPUs each are not %d GPUs", tasks, perTask, all).WithHint("leave --gpus or --ntasks out")
	case perNode > 0 && all > 0 && nodes > 0 && nodes*perNode != all:
		return pb.NewProblem(pb.CodeInvalidGres, "%d nodes with %d GPUs each are not %d GPUs", nodes, perNode, all).WithHint("leave --gpus or --nodes out")
	case perTask > 0 && perNode > 0 && perNode%perTask != 0:
		return pb.NewProblem(pb.CodeInvalidGres, "%d GPUs on each node cannot be divided among tasks of %d", perNode, perTask)
	}
	return nil
}

// count is how many GPUs a list asks for.
func count(text string) uint64 {
	n := uint64(0)
	for _, g := range Gres(text) {
		if g.Name == "gpu" {
			n += g.Count
		}
	}
	return n
}

// gpuDefaults fills in what follows from a request for GPUs: tasks, nodes, CPUs and memory.
func gpuDefaults(s *state.Settings, p *pb.PartitionRecord, spec *pb.JobSpec) {
	perTask, perNode, all := count(spec.TresPerTask), count(spec.TresPerNode), count(spec.TresPerJob)
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
		switch total := max(all, perNode*uint64(max(spec.MinNodes, 1))); {
		case total == 0 && spec.NumTasks > 0:
			spec.TresPerJob = "gres/gpu:" + strconv.FormatUint((uint64(spec.NumTasks)+k-1)/k, 10)
		case total > 0 && spec.NumTasks == 0:
			spec.NumTasks = clamp(total * k)
		}
	}
	if !asksForGPUs(spec) { // a job without GPUs has the usual memory, not none
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

func clamp(n uint64) uint32 { return uint32(min(n, maxCount)) }

// jobDefault reads one of a partition's JobDefaults=; where it has none the cluster's counts.
func jobDefault(p *pb.PartitionRecord, key string, cluster uint64) uint64 {
	for part := range strings.SplitSeq(p.JobDefaults, ",") {
		name, value, _ := strings.Cut(part, "=")
		if n, err := strconv.ParseUint(value, 10, 32); err == nil && strings.EqualFold(name, key) {
			return n
		}
	}
	return cluster
}

// gresTotals is what a request takes of generic resources in all, with the least counts of nodes and tasks. Of the ways to ask
// for one resource the widest says most: the others divide it.
func gresTotals(s *pb.JobSpec, nodes, tasks uint64) []tres.Gres {
	var out []tres.Gres
	seen := map[string]bool{}
	parts := gresParts(s)
	for i, times := range []uint64{1, nodes, nodes * uint64(max(1, s.SocketsPerNode)), tasks} {
		list := Gres(*parts[len(parts)-1-i])
		for _, g := range list {
			if seen[g.Name] {
				continue
			}
			if hi := math.MaxUint64 / max(times, 1); g.Count > hi {
				g.Count = hi
			}
			g.Count *= times
			out = append(out, g)
		}
		for _, g := range list {
			seen[g.Name] = true
		}
	}
	return out
}

// GresTRES is the part of a set of resources for generic ones: ",gres/gpu=2,gres/gpu:a100=2". Types are tracked unless
// AccountingStorageTRES names some resources and not them.
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
	slices.SortStableFunc(order, func(a, b string) int { // types behind their name
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
