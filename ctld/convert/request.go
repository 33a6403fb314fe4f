package convert

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Request converts a specification to the scheduler's request. users are those of the view.
func Request(s *pb.JobSpec, users state.Users) *record.Request {
	r := Anywhere(s, users)
	r.NodeList, _ = hostlist.Expand(s.ReqNodes) // cannot fail: admit has read both
	r.Exclude, _ = hostlist.Expand(s.ExcNodes)
	return r
}

// Anywhere is Request without the lists of nodes, which may be long.
func Anywhere(s *pb.JobSpec, users state.Users) *record.Request {
	r := &record.Request{MinNodes: int(s.MinNodes), MaxNodes: int(s.MaxNodes), Tasks: int(s.NumTasks), CPUsPerTask: int(s.CpusPerTask),
		TasksPerNode: int(s.NtasksPerNode), MinCPUs: int(s.PnMinCpus), Overcommit: s.Overcommit, Sockets: int(s.SocketsPerNode),
		CoresPerSocket: int(s.CoresPerSocket), ThreadsPerCore: int(s.ThreadsPerCore), MemNodeMiB: int64(s.MemPerNodeMib),
		MemCPUMiB: int64(s.MemPerCpuMib),
		MemGPUMiB: int64(s.MemPerGpuMib), MemSaid: s.MemPerNodeMib != 0 || s.MemAll, TmpMiB: int64(s.TmpDiskMib), Features: s.Features,
		Contiguous: s.Contiguous, Spread: s.Spread, UseMinNodes: s.UseMinNodes, Reservation: s.Reservation,
		Exclusive: s.Sharing == "exclusive", ExclusiveUser: s.Sharing == "user", Oversubscribe: s.Sharing == "oversubscribe"}
	r.LowUID = users.Low(s.Uid)
	r.Gres, r.CPUsPerGPU, r.Binding = GresRequests(s), cpusPerGPU(s), strings.Contains(s.GresFlags, "enforce-binding")
	r.TasksPerGPU = int(s.NtasksPerTres)
	if perTask, perNode := gpus(s.TresPerTask), gpus(s.TresPerNode); perTask > 0 && perNode >= perTask && r.TasksPerNode == 0 {
		r.TasksPerNode = int(perNode / perTask) // as many tasks on a node as its GPUs are for
	}
	if oneTaskPerGPU(s) { // a job has shares of one GPU per node
		if r.Tasks == 0 {
			r.Tasks = max(r.MinNodes, 1) * max(r.TasksPerNode, 1)
		}
		r.TasksPerNode = 1
	}
	if s.Licenses != "" {
		r.Licenses = Licenses(s.Licenses)
	}
	if s.NodesSet != "" {
		r.NodeCounts = nodeCounts(s.NodesSet)
	}
	r.Switches, r.SwitchWaitS = switches(s.Switches)
	return r
}

// switches parses "count[@max-time]" (sbatch(1), --switches); admit has checked it. Without a time waitS is 0; a time of 0 is the shortest
// possible.
func switches(text string) (count int, waitS int64) {
	n, wait, timed := strings.Cut(text, "@")
	count, _ = strconv.Atoi(n)
	switch t, err := timespec.ParseSeconds(wait); {
	case !timed || err != nil:
	case t == timespec.Unlimited:
		waitS = record.Forever
	default:
		waitS = max(t, 1)
	}
	return count, waitS
}

// cpusPerGPU parses CpusPerTres, "gres/gpu:4".
func cpusPerGPU(s *pb.JobSpec) int {
	list := Gres(s.CpusPerTres)
	if len(list) == 0 {
		return 0
	}
	return int(list[0].Count)
}

// maxGres is more of a generic resource than any node has.
const maxGres = 1 << 40

// GresRequests parses a job's requests for generic resources (sbatch(1): --gres, --gpus and their relatives). If one is requested in
// several ways they are equivalent: the finest counts, and admit has computed the numbers of tasks and nodes.
func GresRequests(s *pb.JobSpec) []record.GresRequest {
	return GresOf(s.TresPerTask, s.TresPerSocket, s.TresPerNode, s.TresPerJob)
}

// GresOf is GresRequests for the texts alone; a step has the same four.
func GresOf(perTask, perSocket, perNode, all string) []record.GresRequest {
	var out []record.GresRequest
	seen := map[string]bool{}
	for _, part := range []struct {
		text string
		per  record.GresPer
	}{{perTask, record.PerTask}, {perSocket, record.PerSocket}, {perNode, record.PerNode}, {all, record.PerJob}} {
		list := slices.DeleteFunc(Gres(part.text), func(g tres.Gres) bool { return g.Count == 0 })
		for _, g := range list {
			if !seen[g.Name] {
				out = append(out, record.GresRequest{Name: g.Name, Type: g.Type, Count: int64(min(g.Count, maxGres)), Per: part.per})
			}
		}
		for _, g := range list {
			seen[g.Name] = true
		}
	}
	return out
}

// oneTaskPerGPU reports whether tasks of a job must not share a GPU (sbatch(1), --gres-flags=one-task-per-sharing).
func oneTaskPerGPU(s *pb.JobSpec) bool {
	return strings.Contains(s.GresFlags, "one-task-per-sharing") && slices.ContainsFunc(Gres(s.TresPerTask),
		func(g tres.Gres) bool { return g.Name == "shard" || g.Name == "mps" })
}

// Licenses parses "name:count,name" of sbatch(1).
func Licenses(text string) []record.License {
	var out []record.License
	for _, part := range strings.Split(text, ",") {
		name, count, counted := strings.Cut(part, ":")
		n, err := strconv.ParseInt(count, 10, 64)
		if !counted || err != nil {
			n = 1
		}
		if name != "" {
			out = append(out, record.License{Name: name, Count: n})
		}
	}
	return out
}

// nodeCounts parses "2,4,8" and "4-16:4".
func nodeCounts(text string) []record.NodeCount {
	var out []record.NodeCount
	for _, part := range strings.Split(text, ",") {
		span, step, _ := strings.Cut(part, ":")
		lo, hi, isRange := strings.Cut(span, "-")
		a, err := strconv.Atoi(lo)
		if err != nil {
			continue
		}
		c := record.NodeCount{Min: a, Max: a, Step: 1}
		if b, err := strconv.Atoi(hi); isRange && err == nil {
			c.Max = b
		}
		if n, err := strconv.Atoi(step); err == nil {
			c.Step = n
		}
		out = append(out, c)
	}
	return out
}

// gpus counts the GPUs in a list of resources.
func gpus(list string) (n uint64) {
	if list == "" {
		return 0
	}
	for _, g := range Gres(list) {
		if g.Name == "gpu" {
			n += g.Count
		}
	}
	return n
}
