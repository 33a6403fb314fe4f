package taskenv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// fromElsewhere are variables of a task that srun exports, or the shim sets, which knows them.
var fromElsewhere = names(`
	A HOME TMPDIR SRUN_DEBUG SLURM_JOB_NAME SLURM_JOB_NODELIST SLURM_NODELIST SLURM_JOB_NUM_NODES SLURM_JOB_CPUS_PER_NODE
	SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0 SLURM_PRIO_PROCESS SLURM_SUBMIT_DIR SLURM_SUBMIT_HOST SLURM_MEM_PER_CPU
	SLURM_TASK_PID SLURM_UMASK SLURM_LAUNCH_NODE_IPADDR SLURM_SRUN_COMM_HOST SLURM_SRUN_COMM_PORT SLURM_STEP_LAUNCHER_PORT
	SLURM_WORKING_CLUSTER SLURM_NODE_ALIASES`)

// TestTasksAsSlurmGivesThem: srun -N2 -n3, which lays two tasks on the first node, in a job and outside.
func TestTasksAsSlurmGivesThem(t *testing.T) {
	for _, c := range []struct {
		file string
		job  uint32
		dist string
		node int
		task int
	}{{"srun-out.0", 100005, "", 0, 0}, {"srun-out.2", 100005, "", 1, 0},
		{"srun-in.0", 100020, "block", 0, 0}, {"srun-in.2", 100020, "block", 1, 0}} {
		s := &pb.StepRecord{StepId: 0, NodeList: "n[1-2]", NumTasks: 3, Spec: &pb.StepSpec{Distribution: c.dist},
			Nodes: []*pb.StepNode{{Node: "n1", Tasks: []uint32{0, 1}, Cpus: 2}, {Node: "n2", Tasks: []uint32{2}, Cpus: 1}}}
		here := s.Nodes[c.node]
		l := submit(c.job, on("n1", 2, 2), on("n2", 1, 1))
		l.Step, l.Account, l.Node = s, "root", here.Node
		l.Spec.User, l.Spec.Uid, l.Spec.Gid = "root", 0, 0
		d := Daemon{Node: here.Node, Conf: "/etc/slurm/slurm.conf"}
		ours := map[string]string{}
		for _, kv := range append(Step(l, here, uint32(c.node), "compat", d), Task(l, here, c.task, d)...) {
			name, value, _ := strings.Cut(kv, "=")
			ours[name] = value
		}
		raw, err := os.ReadFile(filepath.Join("testdata/slurm-22.05", c.file+".env"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			if got, ok := ours[name]; got != value && (ok || !fromElsewhere[name]) {
				t.Errorf("%s: %s is %q, and %q with Slurm", c.file, name, got, value)
			}
			delete(ours, name)
		}
		for name, value := range ours {
			t.Errorf("%s: %s=%s is not with Slurm", c.file, name, value)
		}
	}
}
