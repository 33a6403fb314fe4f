package steps

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"pgregory.net/rapid"
)

// job has three nodes of four cores with one, one and two threads, and two GPUs on the last.
func job() *pb.JobRecord {
	j := &pb.JobRecord{Id: 7, Spec: &pb.JobSpec{}}
	for i, name := range []string{"n1", "n2", "n3"} {
		a := &pb.NodeAlloc{Node: name, Cpus: 4, CpuIds: "0-3", MemMib: 1000}
		if i == 2 {
			a.Cpus = 8
			a.Devices = []*pb.GresDevice{{Name: "gpu", Type: "a100", Index: 0, Id: "G0"}, {Name: "gpu", Type: "a100", Index: 1, Id: "G1"}}
		}
		j.Alloc = append(j.Alloc, a)
	}
	return j
}

// text is a placement in a line: "n1:0,1 cpus=2(0-1) mem=5 G0; …", or why there is none.
func text(p *Placement, busy, never *pb.Problem) string {
	switch {
	case busy != nil:
		return "busy"
	case never != nil:
		return "never: " + never.Phrase
	}
	var out []string
	for _, n := range p.Nodes {
		ranks := strings.Trim(strings.ReplaceAll(fmt.Sprint(n.Tasks), " ", ","), "[]")
		s := fmt.Sprintf("%s:%s cpus=%d(%s)", n.Node, ranks, n.Cpus, n.CpuIds)
		if n.MemMib > 0 {
			s += fmt.Sprintf(" mem=%d", n.MemMib)
		}
		for _, d := range n.Devices {
			s += " " + d.Id
		}
		out = append(out, s)
	}
	return strings.Join(out, "; ")
}

func TestPlace(t *testing.T) {
	for _, c := range []struct {
		spec *pb.StepSpec
		want string
	}{
		{&pb.StepSpec{}, "n1:0 cpus=4(0-3)"},
		{&pb.StepSpec{NumTasks: 5}, "n1:0,1,2 cpus=4(0-3); n2:3,4 cpus=4(0-3)"},
		{&pb.StepSpec{NumTasks: 5, MinNodes: 3, MaxNodes: 3}, "n1:0,1 cpus=4(0-3); n2:2,3 cpus=4(0-3); n3:4 cpus=8(0-3) G0 G1"},
		{&pb.StepSpec{NumTasks: 5, MinNodes: 2, MaxNodes: 2, Distribution: "cyclic"}, "n1:0,2,4 cpus=4(0-3); n2:1,3 cpus=4(0-3)"},
		{&pb.StepSpec{NumTasks: 6, MinNodes: 2, MaxNodes: 2, Distribution: "plane=2"}, "n1:0,1,4,5 cpus=4(0-3); n2:2,3 cpus=4(0-3)"},
		{&pb.StepSpec{NumTasks: 3, Hosts: []string{"n2", "n1", "n2"}}, "n2:0,2 cpus=4(0-3); n1:1 cpus=4(0-3)"},
		{&pb.StepSpec{MinNodes: 2, MaxNodes: 2}, "n1:0 cpus=4(0-3); n2:1 cpus=4(0-3)"},
		{&pb.StepSpec{MinNodes: 2, NtasksPerNode: 2}, "n1:0,1 cpus=4(0-3); n2:2,3 cpus=4(0-3)"},
		{&pb.StepSpec{NumTasks: 2, Exact: true}, "n1:0,1 cpus=2(0-1)"},
		{&pb.StepSpec{NumTasks: 2, CpusPerTask: 2}, "n1:0,1 cpus=4(0-3)"},
		{&pb.StepSpec{NumTasks: 2, CpusPerTask: 3}, "n1:0 cpus=3(0-2); n2:1 cpus=3(0-2)"},
		{&pb.StepSpec{NumTasks: 1, Exact: true, ReqNodes: "n3"}, "n3:0 cpus=2(0) G0 G1"},
		{&pb.StepSpec{NumTasks: 17}, "never: More processors requested than permitted"},
		{&pb.StepSpec{NumTasks: 17, Overcommit: true}, "n1:0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16 cpus=4(0-3)"},
		{&pb.StepSpec{MinNodes: 4}, "never: Requested node configuration is not available"},
		{&pb.StepSpec{MinNodes: 3, ExcNodes: "n1"}, "never: Requested node configuration is not available"},
		{&pb.StepSpec{ReqNodes: "n9"}, "never: Requested node configuration is not available"},
		{&pb.StepSpec{ReqNodes: "n2"}, "n2:0 cpus=4(0-3)"},
		{&pb.StepSpec{ExcNodes: "n1"}, "n2:0 cpus=4(0-3)"},
		{&pb.StepSpec{Relative: 1}, "n2:0 cpus=4(0-3)"},
		{&pb.StepSpec{Relative: 3}, "never: Requested node configuration is not available"},
		{&pb.StepSpec{Relative: -1}, "n1:0 cpus=4(0-3)"},
		{&pb.StepSpec{MemPerNodeMib: 500}, "n1:0 cpus=4(0-3) mem=500"},
		{&pb.StepSpec{MemPerNodeMib: 2000}, "never: Memory required by task is not available"},
		{&pb.StepSpec{MemPerCpuMib: 200, Exact: true, NumTasks: 2}, "n1:0,1 cpus=2(0-1) mem=400"},
		{&pb.StepSpec{TresPerNode: "gres/gpu:1"}, "n3:0 cpus=8(0-3) G0"},
		{&pb.StepSpec{TresPerSocket: "gres/gpu:1"}, "n3:0 cpus=8(0-3) G0"},
		{&pb.StepSpec{TresPerSocket: "gres/gpu:1", SocketsPerNode: 2}, "n3:0 cpus=8(0-3) G0 G1"},
		{&pb.StepSpec{TresPerSocket: "gres/gpu:2", SocketsPerNode: 2}, "never: Invalid generic resource (gres) specification"},
		{&pb.StepSpec{TresPerSocket: "gres/gpu:1", SocketsPerNode: 1 << 31}, "never: Invalid generic resource (gres) specification"},
		{&pb.StepSpec{TresPerStep: "gres/gpu:a100:2"}, "n3:0 cpus=8(0-3) G0 G1"},
		{&pb.StepSpec{TresPerTask: "gres/gpu:1", NumTasks: 2}, "n3:0,1 cpus=8(0-3) G0 G1"},
		{&pb.StepSpec{TresPerTask: "gres/gpu:1", NumTasks: 3}, "never: Invalid generic resource (gres) specification"},
		{&pb.StepSpec{TresPerStep: "gres/gpu:3"}, "never: Invalid generic resource (gres) specification"},
		{&pb.StepSpec{TresPerNode: "gres/gpu:h100:1"}, "never: Invalid generic resource (gres) specification"},
		{&pb.StepSpec{ReqNodes: "n3", NoGres: true}, "n3:0 cpus=8(0-3)"},
		{&pb.StepSpec{Interactive: true}, "n1:0 cpus=4(0-3)"},
		{&pb.StepSpec{CpusPerTask: 2, MinNodes: 2, MaxNodes: 2}, "n1:0,1 cpus=4(0-3); n2:2,3 cpus=4(0-3)"},
	} {
		if got := text(Place(job(), nil, c.spec, 0)); got != c.want {
			t.Errorf("%v:\n got %s\nwant %s", c.spec, got, c.want)
		}
	}
}

func made(p *Placement, spec *pb.StepSpec) *pb.StepRecord {
	return &pb.StepRecord{Spec: spec, State: pb.JobState_JOB_RUNNING, Nodes: p.Nodes}
}

func TestPlaceBesideOthers(t *testing.T) {
	for _, c := range []struct {
		other, spec *pb.StepSpec
		want        string
	}{
		{&pb.StepSpec{}, &pb.StepSpec{}, "n2:0 cpus=4(0-3)"},
		{&pb.StepSpec{}, &pb.StepSpec{ReqNodes: "n1"}, "busy"},
		{&pb.StepSpec{}, &pb.StepSpec{ReqNodes: "n1", Overlap: true}, "n1:0 cpus=4(0-3)"},
		{&pb.StepSpec{Overlap: true}, &pb.StepSpec{}, "n1:0 cpus=4(0-3)"},
		{&pb.StepSpec{Interactive: true}, &pb.StepSpec{}, "n1:0 cpus=4(0-3)"},
		{&pb.StepSpec{Exact: true}, &pb.StepSpec{Exact: true}, "n2:0 cpus=1(0)"},
		{&pb.StepSpec{Exact: true}, &pb.StepSpec{Exact: true, ReqNodes: "n1"}, "n1:0 cpus=1(1)"},
		{&pb.StepSpec{Exact: true}, &pb.StepSpec{Exact: true, MinNodes: 3}, "n1:0 cpus=1(1); n2:1 cpus=1(0); n3:2 cpus=2(0) G0 G1"},
		{&pb.StepSpec{Exact: true, MinNodes: 2}, &pb.StepSpec{Exact: true, MinNodes: 2}, "n1:0 cpus=1(1); n2:1 cpus=1(1)"},
		{&pb.StepSpec{NumTasks: 4, Exact: true}, &pb.StepSpec{NumTasks: 4, MinNodes: 1, MaxNodes: 1, Exact: true},
			"n2:0,1,2,3 cpus=4(0-3)"},
		{&pb.StepSpec{Exact: true}, &pb.StepSpec{ReqNodes: "n1"}, "busy"},
		{&pb.StepSpec{Exact: true, MemPerNodeMib: 600}, &pb.StepSpec{Exact: true, MemPerNodeMib: 600}, "n2:0 cpus=1(0) mem=600"},
		{&pb.StepSpec{Exact: true, TresPerNode: "gpu:1"}, &pb.StepSpec{Exact: true, TresPerNode: "gpu:1"}, "n3:0 cpus=2(1) G1"},
		{&pb.StepSpec{Exact: true, TresPerNode: "gpu:1"}, &pb.StepSpec{Exact: true, TresPerNode: "gpu:2"}, "busy"},
	} {
		p, _, never := Place(job(), nil, c.other, 0)
		if never != nil {
			t.Fatal(never)
		}
		if got := text(Place(job(), []*pb.StepRecord{made(p, c.other)}, c.spec, 0)); got != c.want {
			t.Errorf("%v beside %v:\n got %s\nwant %s", c.spec, c.other, got, c.want)
		}
	}
}

// TestTasksFollowGPUs: all tasks of a job of --ntasks-per-gpu go where its GPUs are.
func TestTasksFollowGPUs(t *testing.T) {
	j := job()
	for i, a := range j.Alloc {
		a.Devices = nil
		for k := range []int{1, 1, 2}[i] {
			a.Devices = append(a.Devices, &pb.GresDevice{Name: "gpu", Index: uint32(k), Id: fmt.Sprintf("G%d%d", i, k)})
		}
	}
	j.Spec.NtasksPerTres, j.Spec.NumTasks = 2, 8
	for _, c := range []struct {
		tasks uint32
		want  string
	}{
		{8, "n1:0,1 cpus=4(0-3) G00; n2:2,3 cpus=4(0-3) G10; n3:4,5,6,7 cpus=8(0-3) G20 G21"},
		{5, "n1:0,1,2 cpus=4(0-3) G00; n2:3,4 cpus=4(0-3) G10"}, // others are placed by CPUs
	} {
		if got := text(Place(j, nil, &pb.StepSpec{NumTasks: c.tasks}, 0)); got != c.want {
			t.Errorf("%d tasks:\n got %s\nwant %s", c.tasks, got, c.want)
		}
	}
}

// TestPlaceProperty: nothing is given twice, ranks are complete, and what a job can hold it can hold once it is empty.
func TestPlaceProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j, live := job(), []*pb.StepRecord{}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			spec := drawSpec(t)
			p, busy, never := Place(j, live, spec, 0)
			if busy != nil {
				if _, b, n := Place(j, nil, spec, 0); b != nil || n != nil {
					t.Fatalf("%v is busy in an empty job: %v %v", spec, b, n)
				}
				if len(live) > 0 && rapid.Bool().Draw(t, "end") {
					live = live[1:]
				}
				continue
			}
			if never != nil {
				continue
			}
			checkRanks(t, p, spec)
			live = append(live, made(p, spec))
			checkShares(t, j, live)
		}
	})
}

func drawSpec(t *rapid.T) *pb.StepSpec {
	some := func(name string, most int) uint32 { return uint32(rapid.IntRange(0, most).Draw(t, name)) }
	return &pb.StepSpec{NumTasks: some("tasks", 10), MinNodes: some("nodes", 3), CpusPerTask: some("cpus", 3),
		NtasksPerNode: some("per node", 3), Exact: rapid.Bool().Draw(t, "exact"), Overlap: rapid.IntRange(0, 4).Draw(t, "overlap") == 0,
		Overcommit: rapid.IntRange(0, 4).Draw(t, "overcommit") == 0, MemPerNodeMib: uint64(some("mem", 3)) * 300,
		Distribution: rapid.SampledFrom([]string{"", "block", "cyclic", "plane=2", "plane=3:cyclic"}).Draw(t, "distribution"),
		ReqNodes:     rapid.SampledFrom([]string{"", "", "n2", "n[1-2]"}).Draw(t, "wanted"),
		TresPerNode:  rapid.SampledFrom([]string{"", "", "gpu:1", "gpu:2"}).Draw(t, "gres"),
		TresPerStep:  rapid.SampledFrom([]string{"", "", "gpu:2"}).Draw(t, "gres of the step")}
}

func checkRanks(t *rapid.T, p *Placement, spec *pb.StepSpec) {
	seen := map[uint32]bool{}
	for _, n := range p.Nodes {
		if len(n.Tasks) == 0 {
			t.Fatalf("%v: %s has no task: %v", spec, n.Node, p.Nodes)
		}
		for _, rank := range n.Tasks {
			if seen[rank] || rank >= p.Tasks {
				t.Fatalf("%v: rank %d of %d: %v", spec, rank, p.Tasks, p.Nodes)
			}
			seen[rank] = true
		}
	}
	if len(seen) != int(p.Tasks) || spec.NumTasks > 0 && p.Tasks != spec.NumTasks {
		t.Fatalf("%v: %d ranks of %d", spec, len(seen), p.Tasks)
	}
}

func checkShares(t *rapid.T, j *pb.JobRecord, live []*pb.StepRecord) {
	for _, a := range j.Alloc {
		cpus, mem, owned := uint32(0), uint64(0), map[string]bool{}
		var cores state.Cores
		for _, s := range live {
			if Overlaps(s.Spec) {
				continue
			}
			for _, n := range s.Nodes {
				if n.Node != a.Node {
					continue
				}
				c, err := state.ParseCores(n.CpuIds)
				if err != nil || c.Overlaps(cores) {
					t.Fatalf("%v has cores of another step: %v", s, err)
				}
				cpus, mem, cores = cpus+n.Cpus, mem+n.MemMib, cores.With(c)
				for _, d := range n.Devices {
					if owned[d.Id] {
						t.Fatalf("%v has a device of another step", s)
					}
					owned[d.Id] = true
				}
			}
		}
		if cpus > a.Cpus || mem > a.MemMib {
			t.Fatalf("%s: %d CPUs of %d, %d MiB of %d", a.Node, cpus, a.Cpus, mem, a.MemMib)
		}
	}
}

// TestMoreNodesThanTheJobHas: srun says so in words of its own.
func TestMoreNodesThanTheJobHas(t *testing.T) {
	if _, _, p := Place(job(), nil, &pb.StepSpec{MinNodes: 4}, 0); p.GetLead() != "Only allocated 3 nodes asked for 4" {
		t.Error(p)
	}
}

// TestLeads: the messages that Slurm's srun prints before it refuses.
func TestLeads(t *testing.T) {
	none := job()
	none.Alloc = none.Alloc[:2]
	for _, c := range []struct {
		j    *pb.JobRecord
		spec *pb.StepSpec
		want string
	}{
		{none, &pb.StepSpec{TresPerNode: "gpu:1"}, "Step requested GRES but job doesn't have GRES"},
		{job(), &pb.StepSpec{TresPerNode: "gpu:h100:1"}, "Step requested GRES (gpu:h100) not found in the job"},
		{job(), &pb.StepSpec{TresPerStep: "gpu:3"}, "Step requested gres=gpu:3 is more than the job's gres=gpu:2"},
		{job(), &pb.StepSpec{Relative: 3, MinNodes: 1}, "--relative and --nodes option incompatible with count of allocated nodes (3+1>3)"},
		{job(), &pb.StepSpec{Relative: 2, MinNodes: 2}, "--relative and --nodes option incompatible with count of allocated nodes (2+2>3)"},
	} {
		if _, _, p := Place(c.j, nil, c.spec, 0); p.GetLead() != c.want {
			t.Errorf("%v: %q", c.spec, p.GetLead())
		}
	}
}

// TestMemoryOfAllNodes: tasks that fit one by one but not together are refused with the reason, whichever resource they lack.
func TestMemoryOfAllNodes(t *testing.T) {
	for _, spec := range []*pb.StepSpec{{NumTasks: 8, MemPerCpuMib: 400, Exact: true},
		{NumTasks: 8, MemPerCpuMib: 400, CpusPerTask: 1, MinNodes: 3}} {
		if got := text(Place(job(), nil, spec, 0)); got != "never: Memory required by task is not available" {
			t.Errorf("%v: %s", spec, got)
		}
	}
}

// TestTasksPerNode: with --overcommit CPUs do not bound the tasks of a node, MaxTasksPerNode does.
func TestTasksPerNode(t *testing.T) {
	for _, c := range []struct {
		tasks, nodes, most uint32
		want               string
	}{{512, 1, 0, ""}, {513, 1, 0, "Task count"}, {1200, 2, 0, "Task count"}, {600, 1, 600, ""}, {1 << 20, 1, 0, "Task count"}} {
		spec := &pb.StepSpec{NumTasks: c.tasks, MinNodes: c.nodes, MaxNodes: c.nodes, Overcommit: true}
		p, busy, never := Place(job(), nil, spec, c.most)
		if busy != nil || (p == nil) != (c.want != "") || !strings.HasPrefix(never.GetPhrase(), c.want) {
			t.Errorf("%d tasks on %d nodes of %d at most: %v, %v, %v", c.tasks, c.nodes, c.most, p != nil, busy, never)
		}
	}
}

// TestOneReading: a resource requested in several ways counts once, in its finest form. Memory per GPU goes with the GPUs that the step
// has, also when it asks for none and has all of them. Slurm 22.05 does the same.
func TestOneReading(t *testing.T) {
	for _, c := range []struct {
		spec *pb.StepSpec
		want string
	}{
		{&pb.StepSpec{TresPerStep: "gpu:2", TresPerTask: "gpu:1"}, "n3:0 cpus=8(0-3) G0"},
		{&pb.StepSpec{TresPerStep: "gpu:2", TresPerNode: "gpu:1", NumTasks: 2}, "n3:0,1 cpus=8(0-3) G0"},
		{&pb.StepSpec{TresPerNode: "gpu:2", TresPerTask: "gpu:1", NumTasks: 2}, "n3:0,1 cpus=8(0-3) G0 G1"},
		{&pb.StepSpec{MemPerGpuMib: 600, TresPerStep: "gpu:1"}, "n3:0 cpus=8(0-3) mem=600 G0"},
		{&pb.StepSpec{MemPerGpuMib: 500, TresPerStep: "gpu:2"}, "n3:0 cpus=8(0-3) mem=1000 G0 G1"},
		{&pb.StepSpec{MemPerGpuMib: 600, TresPerStep: "gpu:2"}, "never: Memory required by task is not available"},
		{&pb.StepSpec{MemPerGpuMib: 600, ReqNodes: "n3"}, "never: Memory required by task is not available"},
		{&pb.StepSpec{MemPerGpuMib: 500, ReqNodes: "n3"}, "n3:0 cpus=8(0-3) mem=1000 G0 G1"},
		{&pb.StepSpec{MemPerCpuMib: 300, ReqNodes: "n1"}, "never: Memory required by task is not available"},
	} {
		if got := text(Place(job(), nil, c.spec, 0)); got != c.want {
			t.Errorf("%v:\n got %s\nwant %s", c.spec, got, c.want)
		}
	}
}

// TestDevicesInAll: a step that asks for a total of devices goes to the nodes that have them, even if others have more room.
func TestDevicesInAll(t *testing.T) {
	j := job()
	j.Alloc[0].Cpus, j.Alloc[0].CpuIds = 16, "0-15"
	j.Alloc[1].Devices = []*pb.GresDevice{{Name: "gpu", Type: "a100", Index: 0, Id: "H0"}}
	for _, c := range []struct {
		spec *pb.StepSpec
		want string
	}{
		{&pb.StepSpec{TresPerStep: "gpu:2"}, "n3:0 cpus=8(0-3) G0 G1"},
		{&pb.StepSpec{TresPerStep: "gpu:3", NumTasks: 2}, "n2:0 cpus=4(0-3) H0; n3:1 cpus=8(0-3) G0 G1"},
		{&pb.StepSpec{TresPerStep: "gpu:3"}, "n2:0 cpus=4(0-3) H0; n3:1 cpus=8(0-3) G0 G1"},
		{&pb.StepSpec{TresPerStep: "gpu:3", NumTasks: 1}, "never: Invalid generic resource (gres) specification"},
		{&pb.StepSpec{TresPerStep: "gpu:3", MaxNodes: 1}, "never: Invalid generic resource (gres) specification"},
	} {
		if got := text(Place(j, nil, c.spec, 0)); got != c.want {
			t.Errorf("%v:\n got %s\nwant %s", c.spec, got, c.want)
		}
	}
}
