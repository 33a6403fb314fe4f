package taskenv

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// notOurs are in Slurm's answer but not in ours, with the reason.
var notOurs = map[string]string{
	"SLURM_TASK_PID":        "known only to the shim, which sets it",
	"SLURM_NODE_ALIASES":    "Slurm's wire protocol",
	"SLURM_WORKING_CLUSTER": "Slurm's wire protocol",
	"SLURM_GET_USER_ENV":    "an order to the node daemon, not for the job",
	"PWD":                   "set by bash", "SHLVL": "set by bash", "_": "set by bash",
}

// submit is what the sbatch calls of the recordings had in common.
func submit(id uint32, nodes ...*pb.NodeAlloc) *pb.LaunchSpec {
	l := &pb.LaunchSpec{
		Key: &pb.StepKey{JobId: id, Attempt: 1, Step: pb.BatchStep}, Batch: true, Node: nodes[0].Node, Alloc: nodes,
		NodeList:  nodes[0].Node,
		Partition: "debug", Account: "default", Qos: "normal",
		Spec: &pb.JobSpec{Name: "env.sh", User: "nobody", Uid: 65534, Gid: 65534, WorkDir: "/home/work", AllocNode: "vm",
			MemPerCpuMib: 100},
		Env: []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "USER=nobody", "LOGNAME=nobody", "SHELL=/bin/sh", "LANG=C.UTF-8",
			"FOO=bar",
			"SLURM_SUBMIT_DIR=/home/work", "SLURM_CONF=/home/nobody/slurm.conf"},
	}
	for _, a := range nodes {
		l.NumTasks += a.Tasks
	}
	return l
}

func on(node string, cpus, tasks uint32) *pb.NodeAlloc {
	return &pb.NodeAlloc{Node: node, Cpus: cpus, Tasks: tasks}
}

func TestBatchAsSlurmGivesIt(t *testing.T) {
	type with = func(*pb.LaunchSpec)
	for _, c := range []struct {
		file string
		l    *pb.LaunchSpec
		with with
	}{
		{"simple", submit(298, on("n1", 1, 1)), func(l *pb.LaunchSpec) { l.Spec.Name = "simple" }},
		{"multi", submit(299, on("n2", 4, 4), on("n3", 4, 4)), func(l *pb.LaunchSpec) {
			l.NodeList, l.NumTasks = "n[2-3]", 7
			l.Spec.Name, l.Spec.NumTasks, l.Spec.CpusPerTask, l.Spec.NtasksPerNode = "multi", 7, 1, 4
			l.Spec.MemPerCpuMib, l.Spec.MemPerNodeMib = 0, 200
		}},
		{"uneven", submit(304, on("n1", 3, 3), on("n2", 1, 1), on("n3", 1, 1)), func(l *pb.LaunchSpec) {
			l.NodeList, l.Spec.NumTasks = "n[1-3]", 5
		}},
		{"arr", submit(300, on("n1", 2, 1)), func(l *pb.LaunchSpec) {
			l.IsArrayTask, l.ArrayJobId, l.ArrayTaskId, l.ArrayTaskCount, l.ArrayTaskMin, l.ArrayTaskMax = true, 300, 3, 1, 3, 3
			l.Spec.MemPerCpuMib, l.Spec.CpusPerTask = 50, 2
		}},
		{"arr4", submit(398, on("n1", 1, 1)), func(l *pb.LaunchSpec) {
			l.IsArrayTask, l.ArrayJobId, l.ArrayTaskId, l.ArrayTaskCount, l.ArrayTaskMin, l.ArrayTaskMax, l.ArrayTaskStep = true, 398, 7,
				4, 1, 7, 2
		}},
		{"none", submit(301, on("n2", 1, 1)), func(l *pb.LaunchSpec) {
			l.Env, l.Spec.ExportEnv = []string{"SLURM_SUBMIT_DIR=/home/work", "SLURM_GET_USER_ENV=1"}, "NONE"
		}},
		{"foo", submit(305, on("n2", 1, 1)), func(l *pb.LaunchSpec) {
			l.Env, l.Spec.ExportEnv = []string{"SLURM_SUBMIT_DIR=/home/work", "FOO=bar"}, "FOO"
		}},
		{"dist", submit(307, on("n3", 1, 1)), func(l *pb.LaunchSpec) {
			l.Spec.Distribution, l.Spec.Hint, l.Spec.ThreadsPerCore = "block:cyclic", "nomultithread", 1
			l.Spec.Overcommit, l.Spec.Profile = true, "Energy,Lustre,Network,Task"
		}},
		{"mincpus", submit(401, on("n1", 2, 2)), func(l *pb.LaunchSpec) { l.Spec.Distribution, l.Spec.NumTasks = "plane=2", 2 }},
		{"dep", submit(302, on("n2", 1, 1)), func(l *pb.LaunchSpec) { l.Dependency = "afterany:298" }},
		{"mem0", submit(306, on("n4", 4, 1)), func(l *pb.LaunchSpec) { l.Spec.MemPerCpuMib, l.Spec.MemAll = 0, true }},
		{"tpn", submit(399, on("n1", 2, 2), on("n2", 2, 2)), func(l *pb.LaunchSpec) { l.NodeList, l.Spec.NtasksPerNode = "n[1-2]", 2 }},
		{"ntc", submit(400, on("n1", 2, 2)), func(l *pb.LaunchSpec) {
			l.Spec.NumTasks, l.Spec.NtasksPerCore, l.Spec.NtasksPerSocket, l.Spec.ThreadsPerCore = 2, 1, 2, 1
		}},
	} {
		c.with(c.l)
		want := recorded(t, c.file)
		node := want["SLURMD_NODENAME"] // two recordings ran wherever there was room
		for i, a := range c.l.Alloc {
			if i == 0 && len(c.l.Alloc) == 1 {
				a.Node, c.l.Node, c.l.NodeList = node, node, node
			}
		}
		if id := want["SLURM_JOB_ID"]; c.file == "tpn" || c.file == "ntc" || c.file == "mincpus" || c.file == "arr4" {
			c.l.NodeList = want["SLURM_NODELIST"]
			c.l.Node, c.l.Alloc[0].Node = node, node
			c.l.Key.JobId = number(id)
			c.l.ArrayJobId = number(want["SLURM_ARRAY_JOB_ID"])
		}
		got := asMap(t, Batch(c.l, "cluster1", Daemon{Node: node, Conf: "/etc/slurm/slurm.conf"}))
		compare(t, c.file, got, want)
	}
}

func number(s string) (n uint32) {
	for _, c := range s {
		n = n*10 + uint32(c-'0')
	}
	return n
}

func recorded(t *testing.T, name string) map[string]string {
	b, err := os.ReadFile(filepath.Join("testdata/slurm-22.05", name+".env"))
	if err != nil {
		t.Fatal(err)
	}
	want := asMap(t, strings.Split(strings.TrimSpace(string(b)), "\n"))
	for name := range notOurs {
		delete(want, name)
	}
	return want
}

func asMap(t *testing.T, env []string) map[string]string {
	m := map[string]string{}
	for _, kv := range env {
		k, v, ok := strings.Cut(kv, "=")
		if _, twice := m[k]; twice || !ok {
			t.Errorf("%q: twice, or no variable", kv)
		}
		m[k] = v
	}
	return m
}

func compare(t *testing.T, file string, got, want map[string]string) {
	for k := range want {
		if v, ok := got[k]; !ok || v != want[k] {
			t.Errorf("%s: %s=%q (%v), Slurm has %q", file, k, v, ok, want[k])
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("%s: %s=%q, which Slurm does not give", file, k, got[k])
		}
	}
}

// nest4 was recorded with the variables of an outer job: what Slurm lets through, and what we do not.
func TestOuterJobDoesNotLeak(t *testing.T) {
	l := submit(337, on("n1", 1, 1))
	l.Spec.CpusPerTask = 1
	l.Env = nil
	for k, v := range recorded(t, "nest4") {
		l.Env = append(l.Env, k+"="+v)
	}
	l.Env = append(l.Env, "SLURM_UMASK=0777", "SLURM_GET_USER_ENV=1", "SLURM_STEPID=3")
	got := asMap(t, Batch(l, "cluster1", Daemon{Node: "n1"}))
	for _, k := range strings.Fields(
		"SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_JOB_DEPENDENCY SLURM_JOB_START_TIME SLURM_MEM_PER_NODE SLURM_NTASKS " +
			"SLURM_RESTART_COUNT SLURM_STEP_ID SLURM_STEP_NODELIST SLURM_UMASK SLURM_GET_USER_ENV SLURM_STEPID") {
		if v, ok := got[k]; ok {
			t.Errorf("%s=%s leaked", k, v)
		}
	}
	for _, k := range strings.Fields("SLURM_FOO SBATCH_FOO SRUN_DEBUG PMI_RANK CUDA_VISIBLE_DEVICES") {
		if _, ok := got[k]; !ok {
			t.Errorf("%s is the user's own and is gone", k)
		}
	}
	if got["TMPDIR"] != "/var/tmp" || got["SLURM_JOB_ID"] != "337" || got["SLURM_MEM_PER_CPU"] != "100" {
		t.Errorf("%v", got)
	}
}

func TestNewerVariables(t *testing.T) {
	l := submit(5, on("n1", 1, 1))
	l.StartNs, l.EndNs, l.Restarts = 1_700_000_000_999_999_999, 1_700_000_060_000_000_000, 2
	l.Spec.Reservation = "night"
	l.Env = []string{"A=1", "A=2", "no-value", "=x", "EMPTY=", "BASH_FUNC_f%%=() { :; }"}
	got := asMap(t, Batch(l, "c", Daemon{Node: "n1", Socket: "/run/s"}))
	want := map[string]string{"SLURM_JOB_START_TIME": "1700000000", "SLURM_JOB_END_TIME": "1700000060", "SLURM_RESTART_COUNT": "2",
		"SLURM_JOB_RESERVATION": "night", "SLUICE_SOCKET": "/run/s", "A": "1", "EMPTY": "", "BASH_FUNC_f%%": "() { :; }", "TMPDIR": "/tmp",
		"SLURM_SUBMIT_DIR": "/home/work"}
	for k, v := range want {
		if g, ok := got[k]; !ok || g != v {
			t.Errorf("%s=%q (%v), want %q", k, g, ok, v)
		}
	}
	if _, ok := got["no-value"]; ok || slices.Contains(slices.Collect(maps.Keys(got)), "") {
		t.Error("what is no variable came through")
	}
}

func TestHookIsBuiltFromNothing(t *testing.T) {
	t.Setenv("LD_PRELOAD", "/evil.so")
	l := submit(12, on("n1", 2, 1))
	l.Env = append(l.Env, "LD_PRELOAD=/evil.so", "BASH_ENV=/evil", "PATH=/evil")
	l.IsArrayTask, l.ArrayJobId, l.ArrayTaskId = true, 10, 2
	l.Spec.Comment = "LD_PRELOAD=/evil.so"
	got := asMap(t, Hook(Epilog, l, &pb.ExitRecord{WaitStatus: 3<<8 | 9}, "c", Daemon{Node: "n1", Conf: "/etc/slurm.conf"}))
	for k := range got {
		if !strings.HasPrefix(k, "SLURM") && k != "PATH" {
			t.Errorf("%s in the environment of a root script", k)
		}
	}
	for k, v := range map[string]string{"PATH": safePath, "SLURM_JOB_ID": "12", "SLURM_JOB_USER": "nobody", "SLURM_JOB_UID": "65534",
		"SLURM_JOB_EXIT_CODE2": "3:9",
		"SLURM_SCRIPT_CONTEXT": "epilog_slurmd", "SLURM_ARRAY_TASK_ID": "2", "SLURM_CONF": "/etc/slurm.conf",
		"SLURM_JOB_COMMENT": "LD_PRELOAD=/evil.so"} {
		if got[k] != v {
			t.Errorf("%s=%q, want %q", k, got[k], v)
		}
	}
}

func TestRepeat(t *testing.T) {
	for want, in := range map[string][]uint32{"": nil, "2": {2}, "2(x3),1": {2, 2, 2, 1}, "3,1(x2)": {3, 1, 1}, "1,2,1": {1, 2, 1}} {
		if got := Repeat(in); got != want {
			t.Errorf("%v: %q, want %q", in, got, want)
		}
	}
}

// TestLongDependencyIsLeftOut: Linux starts no program with a variable of 128 KiB.
func TestLongDependencyIsLeftOut(t *testing.T) {
	for _, n := range []int{100 << 10, 128 << 10} {
		l := submit(302, on("n2", 1, 1))
		l.Dependency = strings.Repeat("1", n)
		if _, set := asMap(t, Batch(l, "cluster1", Daemon{Node: "n2"}))["SLURM_JOB_DEPENDENCY"]; set != (n < 128<<10) {
			t.Errorf("of %d bytes: set %t", n, set)
		}
	}
}
