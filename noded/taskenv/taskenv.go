// Package taskenv builds environments: that of a batch job or of a step of srun from the user's exports and the allocation, and
// that of prolog and epilog from scratch. Commands that salloc starts get theirs from client/submission (jobenv.go).
//
// The variables of a batch job, and their conditions, were recorded from Slurm 22.05 (testdata) and taken from sbatch(1), "Output
// environment variables"; start and end time are newer (25.x). Two differences are intended:
//
//   - A variable that this package manages never leaks in from outside. In Slurm a job that is submitted from inside an
//     array task, without being one itself, inherits SLURM_ARRAY_TASK_ID; here it does not.
//   - SLURM_NODE_ALIASES and SLURM_WORKING_CLUSTER, which describe Slurm's own wire protocol, do not exist.
package taskenv

import (
	"fmt"
	"strconv"
	"strings"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Daemon is the node daemon's part of a job's environment.
type Daemon struct {
	Node   string // this node's name
	Conf   string // SLURM_CONF, passed on when not empty
	Socket string // SLUICE_SOCKET, passed on when not empty
	Gres   Gres
}

// Batch returns the environment of the batch script of l: the user's variables, in their order, then ours.
func Batch(l *pb.LaunchSpec, cluster string, d Daemon) []string {
	ours := &vars{}
	ours.identity(l, cluster, d)
	ours.request(l.GetSpec(), l)
	ours.allocation(l)
	ours.array(l)
	ours.gresAsked(l.GetSpec())
	ours.gres(l, d.Gres)
	ours.task(l, d)
	// The client knows where sbatch was called, which may differ from the working directory (--chdir).
	return merge(l.GetEnv(), ours, "TMPDIR=/tmp", "SLURM_PRIO_PROCESS=0", "SLURM_SUBMIT_DIR="+l.GetSpec().GetWorkDir())
}

// maxVariable bounds the value of a variable: Linux allows 128 KiB including its name (MAX_ARG_STRLEN).
const maxVariable = 128<<10 - 64

// vars is a list of variables in the order in which they were set.
type vars struct{ list []string }

func (v *vars) set(name, value string) { v.list = append(v.list, name+"="+value) }

func (v *vars) num(name string, n uint64) { v.set(name, strconv.FormatUint(n, 10)) }

func (v *vars) setIf(name, value string) {
	if value != "" {
		v.set(name, value)
	}
}

func (v *vars) numIf(name string, n uint64) {
	if n != 0 {
		v.num(name, n)
	}
}

// identity sets the job's identity and owner.
func (v *vars) identity(l *pb.LaunchSpec, cluster string, d Daemon) {
	spec, id := l.GetSpec(), uint64(l.GetKey().GetJobId())
	v.setIf("SLURM_CONF", d.Conf)
	v.setIf("SLUICE_SOCKET", d.Socket)
	v.setIf("SLURM_CLUSTER_NAME", cluster)
	v.num("SLURM_JOB_ID", id)
	v.num("SLURM_JOBID", id)
	v.set("SLURM_JOB_NAME", spec.GetName())
	v.set("SLURM_JOB_USER", spec.GetUser())
	v.num("SLURM_JOB_UID", uint64(spec.GetUid()))
	v.num("SLURM_JOB_GID", uint64(spec.GetGid()))
	v.setIf("SLURM_JOB_ACCOUNT", l.GetAccount())
	v.setIf("SLURM_JOB_QOS", l.GetQos())
	v.set("SLURM_JOB_PARTITION", l.GetPartition())
	v.setIf("SLURM_JOB_RESERVATION", spec.GetReservation())
	if len(l.GetDependency()) < maxVariable { // a longer one would keep every program from starting
		v.setIf("SLURM_JOB_DEPENDENCY", l.GetDependency())
	}
	v.numIf("SLURM_RESTART_COUNT", uint64(l.GetRestarts()))
	v.seconds("SLURM_JOB_START_TIME", l.GetStartNs())
	v.seconds("SLURM_JOB_END_TIME", l.GetEndNs())
	v.setIf("SLURM_SUBMIT_HOST", spec.GetAllocNode())
	if !strings.EqualFold(spec.GetExportEnv(), "ALL") { // not set for the default
		v.setIf("SLURM_EXPORT_ENV", spec.GetExportEnv())
	}
}

func (v *vars) seconds(name string, ns int64) {
	if ns > 0 {
		v.num(name, uint64(ns/1e9))
	}
}

// request sets the variables of given options, which srun uses inside the job.
func (v *vars) request(spec *pb.JobSpec, l *pb.LaunchSpec) {
	if spec.GetNumTasks() > 0 || spec.GetNtasksPerNode() > 0 || spec.GetTresPerTask() != "" {
		v.num("SLURM_NTASKS", uint64(l.GetNumTasks()))
		v.num("SLURM_NPROCS", uint64(l.GetNumTasks()))
	}
	v.numIf("SLURM_CPUS_PER_TASK", uint64(spec.GetCpusPerTask()))
	v.numIf("SLURM_NTASKS_PER_NODE", uint64(spec.GetNtasksPerNode()))
	v.numIf("SLURM_NTASKS_PER_SOCKET", uint64(spec.GetNtasksPerSocket()))
	v.numIf("SLURM_NTASKS_PER_CORE", uint64(spec.GetNtasksPerCore()))
	v.numIf("SLURM_NTASKS_PER_GPU", uint64(spec.GetNtasksPerTres()))
	v.numIf("SLURM_THREADS_PER_CORE", uint64(spec.GetThreadsPerCore()))
	v.numIf("SLURM_MEM_PER_NODE", spec.GetMemPerNodeMib())
	v.numIf("SLURM_MEM_PER_CPU", spec.GetMemPerCpuMib())
	v.numIf("SLURM_MEM_PER_GPU", spec.GetMemPerGpuMib())
	if spec.GetOvercommit() {
		v.set("SLURM_OVERCOMMIT", "1")
	}
	v.setIf("SLURM_HINT", spec.GetHint())
	v.setIf("SLURM_PROFILE", spec.GetProfile())
	v.setIf("SLURM_CONTAINER", spec.GetContainer())
	if d := spec.GetDistribution(); d != "" {
		kind, size, plane := strings.Cut(d, "=")
		v.set("SLURM_DISTRIBUTION", kind)
		if plane {
			v.set("SLURM_DIST_PLANESIZE", size)
		}
	}
}

// allocation sets the variables of the job's allocation. If the number of tasks was not given, it is what its CPUs have room for,
// as in Slurm: mpirun starts that many.
func (v *vars) allocation(l *pb.LaunchSpec) {
	cpus, tasks := make([]uint32, 0, len(l.GetAlloc())), make([]uint32, 0, len(l.GetAlloc()))
	said := l.GetSpec().GetNumTasks() > 0 || l.GetSpec().GetNtasksPerNode() > 0
	for _, a := range l.GetAlloc() {
		room := a.GetCpus() / max(1, l.GetSpec().GetCpusPerTask())
		if said {
			room = a.GetTasks()
		}
		cpus, tasks = append(cpus, a.GetCpus()), append(tasks, max(1, room))
		if a.GetNode() == l.GetNode() {
			v.num("SLURM_CPUS_ON_NODE", uint64(a.GetCpus()))
		}
	}
	v.set("SLURM_JOB_NODELIST", l.GetNodeList())
	v.set("SLURM_NODELIST", l.GetNodeList())
	v.num("SLURM_JOB_NUM_NODES", uint64(len(cpus)))
	v.num("SLURM_NNODES", uint64(len(cpus)))
	v.set("SLURM_JOB_CPUS_PER_NODE", Repeat(cpus))
	if l.GetSpec().GetDistribution() != "arbitrary" { // srun lays those out by the order of nodes, and Slurm's sbatch sets nothing
		v.set("SLURM_TASKS_PER_NODE", Repeat(tasks))
	}
}

func (v *vars) array(l *pb.LaunchSpec) {
	if !l.GetIsArrayTask() {
		return
	}
	v.num("SLURM_ARRAY_JOB_ID", uint64(l.GetArrayJobId()))
	v.num("SLURM_ARRAY_TASK_ID", uint64(l.GetArrayTaskId()))
	v.num("SLURM_ARRAY_TASK_COUNT", uint64(l.GetArrayTaskCount()))
	v.num("SLURM_ARRAY_TASK_MIN", uint64(l.GetArrayTaskMin()))
	v.num("SLURM_ARRAY_TASK_MAX", uint64(l.GetArrayTaskMax()))
	v.num("SLURM_ARRAY_TASK_STEP", uint64(max(1, l.GetArrayTaskStep())))
}

// task describes the batch script as the first task of the first node.
func (v *vars) task(l *pb.LaunchSpec, d Daemon) {
	v.set("SLURMD_NODENAME", d.Node)
	v.num("SLURM_NODEID", uint64(l.GetNodeIndex()))
	v.set("SLURM_PROCID", "0")
	v.set("SLURM_LOCALID", "0")
	v.set("SLURM_GTIDS", "0")
	addr := topology(l, d.Node)
	v.set("SLURM_TOPOLOGY_ADDR", strings.ReplaceAll(addr, "/", "."))
	v.set("SLURM_TOPOLOGY_ADDR_PATTERN", strings.Repeat("switch.", strings.Count(addr, "/"))+"node")
	v.set("HOSTNAME", d.Node)
	v.set("ENVIRONMENT", "BATCH")
}

// topology returns the node's topology address, its name after those of the switches above it (sbatch(1), SLURM_TOPOLOGY_ADDR),
// else its name.
func topology(l *pb.LaunchSpec, node string) string {
	for _, a := range l.GetAlloc() {
		if a.GetNode() == node && a.GetTopology() != "" {
			return a.GetTopology()
		}
	}
	return node
}

// Repeat formats figures per node as Slurm does: 2,2,2,1 is "2(x3),1".
func Repeat(n []uint32) string {
	var b strings.Builder
	for i := 0; i < len(n); {
		j := i
		for j < len(n) && n[j] == n[i] {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatUint(uint64(n[i]), 10))
		if j-i > 1 {
			fmt.Fprintf(&b, "(x%d)", j-i)
		}
		i = j
	}
	return b.String()
}
