package submission

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/msg"
)

// JobVariables returns the variables by which salloc and srun describe the allocation to a command (salloc(1) and srun(1), OUTPUT
// ENVIRONMENT VARIABLES). asked is the specification before the controller has filled in its defaults: an srun inside repeats only
// the user's requests.
func JobVariables(job *msg.JobRecord, asked *msg.JobSpec, cluster string) []string {
	v := vars{}
	v.job(job, cluster)
	v.asked(job, asked)
	v.allocation(job)
	return v
}

type vars []string

func (v *vars) set(name, value string) { *v = append(*v, name+"="+value) }

func (v *vars) setIf(name, value string) {
	if value != "" {
		v.set(name, value)
	}
}

func (v *vars) num(name string, n uint64) { v.set(name, strconv.FormatUint(n, 10)) }

func (v *vars) numIf(name string, n uint64) {
	if n > 0 {
		v.num(name, n)
	}
}

func (v *vars) job(job *msg.JobRecord, cluster string) {
	spec := job.GetSpec()
	v.num("SLURM_JOB_ID", uint64(job.GetId()))
	v.num("SLURM_JOBID", uint64(job.GetId()))
	v.set("SLURM_JOB_NAME", spec.GetName())
	v.setIf("SLURM_JOB_ACCOUNT", spec.GetAccount())
	v.setIf("SLURM_JOB_QOS", spec.GetQos())
	v.setIf("SLURM_JOB_PARTITION", job.GetPartition())
	v.setIf("SLURM_JOB_RESERVATION", spec.GetReservation())
	v.setIf("SLURM_CLUSTER_NAME", cluster)
	v.set("SLURM_SUBMIT_DIR", spec.GetWorkDir())
	v.setIf("SLURM_SUBMIT_HOST", spec.GetAllocNode())
	const second = 1e9
	v.numIf("SLURM_JOB_START_TIME", uint64(max(job.GetStartNs(), 0)/second))
	v.numIf("SLURM_JOB_END_TIME", uint64(max(job.GetEndNs(), 0)/second))
}

func (v *vars) asked(job *msg.JobRecord, spec *msg.JobSpec) {
	said := spec.GetNumTasks() > 0 || spec.GetNtasksPerNode() > 0 || spec.GetNtasksPerTres() > 0
	if said || strings.Contains(spec.GetTresPerTask(), "gpu") {
		v.num("SLURM_NTASKS", uint64(job.GetNumTasks()))
		v.num("SLURM_NPROCS", uint64(job.GetNumTasks()))
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
	v.setIf("SLURM_CONTAINER", spec.GetContainer())
	if d := spec.GetDistribution(); d != "" {
		kind, size, plane := strings.Cut(d, "=")
		v.set("SLURM_DISTRIBUTION", kind)
		if plane {
			v.set("SLURM_DIST_PLANESIZE", size)
		}
	}
	v.setIf("SLURM_GPUS", ofGPUs(spec.GetTresPerJob()))
	v.setIf("SLURM_GPUS_PER_TASK", ofGPUs(spec.GetTresPerTask()))
	v.setIf("SLURM_GPUS_PER_SOCKET", ofGPUs(spec.GetTresPerSocket()))
	v.setIf("SLURM_CPUS_PER_GPU", ofGPUs(spec.GetCpusPerTres()))
	v.setIf("SLURM_GPU_BIND", strings.TrimPrefix(spec.GetTresBind(), "gres/gpu:"))
	v.setIf("SLURM_GPU_FREQ", strings.TrimPrefix(spec.GetTresFreq(), "gpu:"))
}

// ofGPUs returns the GPUs of a request, "2" or "a100:2"; "" if there are none.
func ofGPUs(request string) string {
	for part := range strings.SplitSeq(request, ",") {
		part = strings.TrimPrefix(part, "gres/")
		if rest, ok := strings.CutPrefix(part, "gpu:"); ok {
			return rest
		}
		if rest, ok := strings.CutPrefix(part, "gpu="); ok {
			return rest
		}
	}
	return ""
}

func (v *vars) allocation(job *msg.JobRecord) {
	spec := job.GetSpec()
	cpus, tasks := make([]uint32, 0, len(job.GetAlloc())), make([]uint32, 0, len(job.GetAlloc()))
	said := spec.GetNumTasks() > 0 || spec.GetNtasksPerNode() > 0
	for _, a := range job.GetAlloc() {
		room := a.GetCpus() / max(1, spec.GetCpusPerTask())
		if said {
			room = a.GetTasks()
		}
		cpus, tasks = append(cpus, a.GetCpus()), append(tasks, max(1, room))
	}
	if len(cpus) == 0 {
		return
	}
	v.set("SLURM_JOB_NODELIST", job.GetNodeList())
	v.set("SLURM_NODELIST", job.GetNodeList())
	v.num("SLURM_JOB_NUM_NODES", uint64(len(cpus)))
	v.num("SLURM_NNODES", uint64(len(cpus)))
	v.set("SLURM_JOB_CPUS_PER_NODE", Repeat(cpus))
	v.set("SLURM_TASKS_PER_NODE", Repeat(tasks))
}

// Repeat formats counts as Slurm does, "2(x3),1".
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
