package admit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"pgregory.net/rapid"
)

// The cluster of these tests: two nodes, whose CPUs jobs share four deep in one partition.
const (
	smallCPUs = 2 * 4
	smallMiB  = 2 * 4000
)

func smallView(shared bool) *state.View {
	cfg := &state.Config{Settings: &state.Settings{Cluster: "c", CountMemory: true, DefMemPerCPUMiB: 10, MaxArraySize: 1001},
		Default:        "debug",
		PartitionNodes: map[string][]string{"debug": {"n1", "n2"}}}
	for _, n := range []string{"n1", "n2"} {
		cfg.Nodes = append(cfg.Nodes, &pb.NodeRecord{Name: n, Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 4000,
			Gres: "gpu:4"})
	}
	p := &pb.PartitionRecord{Name: "debug", State: "UP", MaxTimeS: pb.Unlimited, DefaultTimeS: 60, MaxNodes: pb.Unlimited}
	if shared {
		p.Oversubscribe = "FORCE:4"
	}
	cfg.Partitions = []*pb.PartitionRecord{p}
	return state.New(cfg, "c", 1)
}

// However large the figures of a request, an accepted job fits the cluster, and a job accepted on hold is counted right. A product that
// wraps around would ask for next to nothing.
func TestProductsDoNotWrap(t *testing.T) {
	views := map[bool]*state.View{false: smallView(false), true: smallView(true)}
	rapid.Check(t, func(t *rapid.T) {
		count := func(name string) uint32 {
			return rapid.SampledFrom([]uint32{0, 0, 0, 1, 2, 4, 255, 256, 1 << 16, 1<<16 + 1, 1<<24 - 1, 1 << 24, 1<<24 + 1, 1 << 31,
				1<<32 - 256, 1<<32 - 2}).Draw(t, name)
		}
		mib := func(name string) uint64 {
			return rapid.SampledFrom([]uint64{0, 0, 0, 1, 1000, 1 << 32, 1 << 40, 1<<40 + 1, 1<<64 - 1}).Draw(t, name)
		}
		gpus := func(name string) string {
			if n := count(name); n > 0 {
				return fmt.Sprintf("gres/gpu:%d", n)
			}
			return ""
		}
		s := &pb.JobSpec{Name: "j", Uid: 1000, User: "u", NumTasks: count("tasks"), CpusPerTask: count("cpus"), MinNodes: count("nodes"),
			NtasksPerNode: count("per node"), PnMinCpus: count("mincpus"), NtasksPerTres: count("per gpu"),
			SocketsPerNode: count("sockets"),
			CoresPerSocket: count("cores"), ThreadsPerCore: count("threads"), TresPerTask: gpus("per task"), TresPerNode: gpus("on node"),
			TresPerJob: gpus("in all"), TresPerSocket: gpus("per socket"), CpusPerTres: gpus("cpus per gpu"),
			Overcommit: rapid.Bool().Draw(t, "overcommit"), Hold: rapid.Bool().Draw(t, "hold")}
		switch rapid.IntRange(0, 3).Draw(t, "memory") {
		case 0:
			s.MemPerNodeMib = mib("mem")
		case 1:
			s.MemPerCpuMib = mib("mem")
		case 2:
			s.MemPerGpuMib = mib("mem")
		}
		s.MaxNodes = s.MinNodes
		said := fmt.Sprint(s)
		j, p := Job(views[rapid.Bool().Draw(t, "shared")], s, "")
		if p != nil {
			if p.Error() == "" {
				t.Fatalf("refused without a word: %s", said)
			}
			return
		}
		tasks, cpus := uint64(max(s.NumTasks, 1)), uint64(max(s.CpusPerTask, 1))
		if !s.Overcommit && uint64(j.NumCpus) < tasks*cpus {
			t.Fatalf("%d tasks with %d CPUs are counted as %d CPUs: %s", tasks, cpus, j.NumCpus, said)
		}
		if s.MemPerCpuMib > 0 && !strings.Contains(j.ReqTres, "mem=") {
			t.Fatalf("memory is lost: %s of %s", j.ReqTres, said)
		}
		if !s.Hold && (j.NumCpus > smallCPUs || uint64(j.NumNodes) > 2 || s.MemPerNodeMib > smallMiB/2 ||
			s.MemPerCpuMib*uint64(j.NumCpus) > smallMiB) {
			t.Fatalf("accepted to run with %d CPUs on %d nodes: %s", j.NumCpus, j.NumNodes, said)
		}
	})
}

// The refusal says what the parts come to.
func TestProductsAreNamed(t *testing.T) {
	for want, s := range map[string]*pb.JobSpec{
		"4294967296 CPUs, at most 4294967293": {NumTasks: 1 << 24, CpusPerTask: 256, Hold: true},
		"281474976710656 tasks, at most": {MinNodes: 1 << 24, MaxNodes: 1 << 24, NtasksPerNode: 1 << 24, Overcommit: true,
			Hold: true},
		"at most 16777216 can be requested":          {NtasksPerTres: 1<<24 + 1, Hold: true},
		"1152921504606846976 MiB of memory in all (": {NumTasks: 1 << 24, CpusPerTask: 16, MemPerCpuMib: 1 << 40, Hold: true},
	} {
		s.Uid, s.User = 1000, "u"
		if _, p := Job(smallView(false), s, ""); p == nil || !strings.Contains(p.Error(), want) {
			t.Errorf("refused with %v, want %s", p, want)
		}
	}
}
