package planner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/ctld/steps"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
	"pgregory.net/rapid"
)

// newAdmittingWorld is an idle cluster of three nodes with GPUs of different kinds and features, where nothing that a partition cannot
// hold is taken.
func newAdmittingWorld(t rapid.TB) *gpuWorld {
	w := newGPUWorld(t)
	set := w.cfg.Settings
	set.CountMemory, set.WholeCores, set.DefMemPerCPUMiB, set.EnforcePartLimits = true, true, 100, "ALL"
	for i, features := range []string{"a,b", "a", "b"} {
		w.cfg.Nodes[i].Features, w.cfg.Nodes[i].ActiveFeatures = features, features
	}
	w.store = journal.NewMemory()
	w.boot(state.New(w.cfg, "c", 1))
	w.p = New(w.loop, record.Params{Weights: record.Weights{Basic: true}, WholeCores: true}, w.p.clock, discard())
	w.loop.Observe(w.p.Changed)
	for _, n := range w.cfg.Nodes {
		w.hello(n.Name)
	}
	return w
}

// anyRequest draws a specification with some of the options about resources, many of which cannot be met.
func anyRequest(t *rapid.T) *pb.JobSpec {
	s := &pb.JobSpec{Name: "j", Uid: 1000, User: "u", TimeLimitS: 60}
	few := func(name string, most int) uint32 {
		return uint32(rapid.IntRange(1, most).Draw(t, name))
	}
	gpus := func(name string) string {
		return fmt.Sprintf("gres/gpu:%s%d", rapid.SampledFrom([]string{"", "", "a100:", "h100:"}).Draw(t, name+" type"), few(name, 4))
	}
	options := map[string]func(){
		"nodes":            func() { s.MinNodes = few("nodes", 4); s.MaxNodes = s.MinNodes },
		"node range":       func() { s.MinNodes = few("least", 2); s.MaxNodes = s.MinNodes + few("more", 2) },
		"ntasks":           func() { s.NumTasks = few("tasks", 200) },
		"cpus-per-task":    func() { s.CpusPerTask = few("cpus", 70) },
		"ntasks-per-node":  func() { s.NtasksPerNode = few("tasks per node", 70) },
		"mincpus":          func() { s.PnMinCpus = few("mincpus", 66) },
		"overcommit":       func() { s.Overcommit = true },
		"mem":              func() { s.MemPerNodeMib = uint64(few("mem", 70000)) },
		"mem-per-cpu":      func() { s.MemPerCpuMib = uint64(few("mem per cpu", 5000)) },
		"mem-per-gpu":      func() { s.MemPerGpuMib = uint64(few("mem per gpu", 40000)) },
		"gpus":             func() { s.TresPerJob = gpus("gpus") },
		"gpus-per-node":    func() { s.TresPerNode = gpus("per node") },
		"gpus-per-task":    func() { s.TresPerTask = gpus("per task") },
		"ntasks-per-gpu":   func() { s.NtasksPerTres = few("tasks per GPU", 5) },
		"cpus-per-gpu":     func() { s.CpusPerTres = fmt.Sprintf("gres/gpu:%d", few("cpus per gpu", 40)) },
		"exclusive":        func() { s.Sharing = "exclusive" },
		"contiguous":       func() { s.Contiguous = true },
		"spread-job":       func() { s.Spread = true },
		"nodelist":         func() { s.ReqNodes = rapid.SampledFrom([]string{"n1", "n[1,3]", "n[1-3]"}).Draw(t, "nodelist") },
		"exclude":          func() { s.ExcNodes = rapid.SampledFrom([]string{"n2", "n3"}).Draw(t, "exclude") },
		"cores-per-socket": func() { s.CoresPerSocket = few("cores", 80) },
		"constraint": func() {
			s.Features = rapid.SampledFrom([]string{"a", "a&b", "a|b", "[a|b]", "[a*2&b*1]", "b*3", "[(a&b)*1&b*1]"}).Draw(t, "C")
		},
		"several partitions": func() { s.Partition = "debug,other" },
	}
	var names []string
	for name := range options {
		names = append(names, name)
	}
	slices.Sort(names)
	for range rapid.IntRange(1, 4).Draw(t, "options") {
		options[rapid.SampledFrom(names).Draw(t, "option")]()
	}
	return s
}

// TestAdmittedJobsStart: every admitted job starts on an idle cluster of the same nodes.
func TestAdmittedJobsStart(t *testing.T) {
	admitted, refused := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		w := newAdmittingWorld(rt)
		s := anyRequest(rt)
		asked := state.CloneSpec(s)
		j, p := admit.Job(w.loop.View(), s, "")
		if p != nil {
			refused++
			return
		}
		admitted++
		out, ok := w.do(reactor.Submit{Job: j, Layout: w.loop.View().Layout}).(reactor.Submitted)
		if !ok {
			rt.Fatalf("%v is admitted and refused", asked)
		}
		id := out.ID
		w.run()
		if got := w.loop.View().Jobs.Get(id); got.State != pb.JobState_JOB_RUNNING {
			rt.Fatalf("%v is admitted and waits: %s", asked, got.Reason)
		} else {
			holdsItself(rt, got)
		}
	})
	if admitted < 10 || refused < 10 {
		t.Errorf("%d admitted, %d refused: too few of one kind to say anything", admitted, refused)
	}
}

// holdsItself: a step that asks for what its job has asked for fits into what the job has got, and so it does where it takes only the
// CPUs that it needs. It gets as many tasks as the job has, and no memory and no devices that the job has not. As srun does it, it asks for
// the nodes of its job where the job does not say how many.
func holdsItself(t *rapid.T, j *pb.JobRecord) {
	s := j.Spec
	least := s.MinNodes
	if least == 0 {
		least = uint32(len(j.Alloc))
	}
	if s.NumTasks > 0 {
		least = min(least, s.NumTasks)
	}
	most := s.MaxNodes
	if most > 0 {
		most = max(most, uint32(len(j.Alloc))) // all that --nodelist names, as in Slurm; SLURM_NNODES tells srun
	}
	for _, exact := range []bool{false, true} {
		step := &pb.StepSpec{NumTasks: s.NumTasks, MinNodes: least, MaxNodes: most, CpusPerTask: s.CpusPerTask,
			NtasksPerNode: s.NtasksPerNode, MemPerNodeMib: s.MemPerNodeMib, MemPerCpuMib: s.MemPerCpuMib, MemPerGpuMib: s.MemPerGpuMib,
			TresPerStep: s.TresPerJob, TresPerNode: s.TresPerNode, TresPerSocket: s.TresPerSocket, SocketsPerNode: s.SocketsPerNode,
			TresPerTask: s.TresPerTask, Overcommit: s.Overcommit, Relative: -1, Exact: exact}
		got, busy, never := steps.Place(j, nil, step, 0)
		if busy != nil || never != nil {
			t.Fatalf("the step of %v (exact: %v) does not fit into %v: %v %v", s, exact, j.Alloc, busy, never)
		}
		if s.NumTasks > 0 && got.Tasks != s.NumTasks {
			t.Fatalf("the step of %v has %d tasks", s, got.Tasks)
		}
		for _, n := range got.Nodes {
			i := slices.IndexFunc(j.Alloc, func(a *pb.NodeAlloc) bool { return a.Node == n.Node })
			if a := j.Alloc[i]; n.Cpus > a.Cpus || n.MemMib > a.MemMib || len(n.Devices) > len(a.Devices) {
				t.Fatalf("the step of %v has more on %s than the job, %v of %v", s, n.Node, n, a)
			}
		}
	}
}

// TestRefusedJobsWait: a job refused because no nodes could ever hold it does not start on idle nodes if it exists anyway, as a held job
// may.
func TestRefusedJobsWait(t *testing.T) {
	refused := 0
	rapid.Check(t, func(rt *rapid.T) {
		w := newAdmittingWorld(rt)
		s := anyRequest(rt)
		asked := state.CloneSpec(s)
		if _, p := admit.Job(w.loop.View(), state.CloneSpec(s), ""); p == nil || pb.Code(p.Code) != pb.CodeNodeConfig {
			return
		}
		s.Hold = true
		j, p := admit.Job(w.loop.View(), s, "")
		if p != nil {
			return
		}
		refused++
		out, ok := w.do(reactor.Submit{Job: j, Layout: w.loop.View().Layout}).(reactor.Submitted)
		if !ok {
			rt.Fatalf("%v cannot be held", asked)
		}
		w.do(reactor.Control{Caller: reactor.Caller{Operator: true}, Verb: "release", IDs: []string{fmt.Sprint(out.ID)}})
		w.run()
		if got := w.loop.View().Jobs.Get(out.ID); got.State != pb.JobState_JOB_PENDING || got.Reason == "None" {
			rt.Fatalf("%v is refused, and is %v with %s once it has been released", asked, got.State, got.Reason)
		}
	})
	if refused < 10 {
		t.Errorf("only %d were refused", refused)
	}
}

// TestUpdatedJobsStart: a waiting job whose update was taken starts on an idle cluster.
func TestUpdatedJobsStart(t *testing.T) {
	taken := 0
	rapid.Check(t, func(rt *rapid.T) {
		w := newAdmittingWorld(rt)
		j, p := admit.Job(w.loop.View(), &pb.JobSpec{Name: "j", Uid: 1000, User: "u", TimeLimitS: 60, BeginNs: w.now + 3600e9}, "")
		if p != nil {
			rt.Fatal(p)
		}
		out := w.do(reactor.Submit{Job: j})
		done, ok := out.(reactor.Submitted)
		if !ok {
			rt.Fatal(out)
		}
		id := done.ID
		update := func(key, value string) *pb.Problem {
			cmd := reactor.UpdateJob{Caller: reactor.Caller{Operator: true}, IDs: []string{fmt.Sprint(id)},
				Set: []*pb.KeyValue{{Key: key, Value: value}}}
			return w.do(cmd).(reactor.Outcomes).List[0].Problem
		}
		var said []string
		for range rapid.IntRange(1, 4).Draw(rt, "updates") {
			key := rapid.SampledFrom([]string{"NumNodes", "NumTasks", "CPUs/Task", "MinCPUsNode", "TasksPerNode", "MinMemoryNode",
				"MinMemoryCPU", "Gres", "TresPerJob", "TresPerTask", "Features",
				"ReqNodeList", "ExcNodeList", "ReqCores", "Contiguous", "OverSubscribe"}).Draw(rt, "key")
			number := fmt.Sprint(rapid.IntRange(1, 80).Draw(rt, "number"))
			value := map[string]string{"Gres": "gpu:" + number, "TresPerJob": "gpu:" + number, "TresPerTask": "gpu:" + number,
				"Contiguous": "yes", "OverSubscribe": "no",
				"Features": rapid.SampledFrom([]string{"a&b", "[a*2&b*1]", "b*2"}).Draw(rt, "features"), "ReqNodeList": "n[1-2]",
				"ExcNodeList": "n1"}[key]
			if value == "" {
				value = number
			}
			if update(key, value) == nil {
				taken++
				said = append(said, key+"="+value)
			}
		}
		if p := update("StartTime", timespec.FormatUnix(time.Unix(0, w.now))); p != nil {
			rt.Fatal(p)
		}
		w.run()
		if got := w.loop.View().Jobs.Get(id); got.State != pb.JobState_JOB_RUNNING {
			rt.Fatalf("updated with %s it waits: %s", strings.Join(said, " "), got.Reason)
		}
	})
	if taken < 10 {
		t.Errorf("only %d updates were taken", taken)
	}
}
