package taskenv

import "strings"

// managed are the variables that only Sluice sets: a job must not inherit those of an outer job.
var managed = names(`
	SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_COUNT SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_MAX SLURM_ARRAY_TASK_MIN SLURM_ARRAY_TASK_STEP
	SLURM_CLUSTER_NAME SLURM_CONTAINER SLURM_CPUS_ON_NODE SLURM_CPUS_PER_GPU SLURM_CPUS_PER_TASK SLURM_DISTRIBUTION SLURM_DIST_PLANESIZE
	SLURM_EXPORT_ENV SLURM_GPUS SLURM_GPUS_ON_NODE SLURM_GPUS_PER_SOCKET SLURM_GPUS_PER_TASK SLURM_GPU_BIND SLURM_GPU_FREQ SLURM_GTIDS SLURM_HINT SLURM_JOBID SLURM_JOB_ACCOUNT SLURM_JOB_CPUS_PER_NODE
	SLURM_JOB_DEPENDENCY SLURM_JOB_END_TIME SLURM_JOB_GID SLURM_JOB_GPUS SLURM_JOB_ID SLURM_JOB_NAME SLURM_JOB_NODELIST
	SLURM_JOB_NUM_NODES SLURM_JOB_PARTITION SLURM_JOB_QOS SLURM_JOB_RESERVATION SLURM_JOB_START_TIME SLURM_JOB_UID SLURM_JOB_USER
	SLURM_LAUNCH_NODE_IPADDR SLURM_LOCALID SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU SLURM_MEM_PER_NODE SLURM_NNODES SLURM_NODEID
	SLURM_NODELIST SLURM_NODE_ALIASES SLURM_NPROCS SLURM_NTASKS SLURM_NTASKS_PER_CORE SLURM_NTASKS_PER_GPU SLURM_NTASKS_PER_NODE
	SLURM_NTASKS_PER_SOCKET SLURM_OVERCOMMIT SLURM_PROCID SLURM_PROFILE SLURM_RESTART_COUNT
	SLURM_SCRIPT_CONTEXT SLURM_SHARDS_ON_NODE SLURM_STEPID SLURM_STEP_GPUS SLURM_STEP_ID SLURM_STEP_LAUNCHER_PORT SLURM_STEP_NODELIST
	SLURM_STEP_NUM_NODES SLURM_STEP_NUM_TASKS SLURM_STEP_TASKS_PER_NODE SLURM_SRUN_COMM_HOST SLURM_SRUN_COMM_PORT
	SLURM_TASKS_PER_NODE SLURM_TASK_PID SLURM_THREADS_PER_CORE SLURM_TOPOLOGY_ADDR SLURM_TOPOLOGY_ADDR_PATTERN SLURM_UMASK
	SLURM_GET_USER_ENV SLURM_WORKING_CLUSTER SLURMD_NODENAME ENVIRONMENT HOSTNAME SLURM_CONF
	SLUICE_SOCKET`)

func names(s string) map[string]bool {
	m := map[string]bool{}
	for _, n := range strings.Fields(s) {
		m[n] = true
	}
	return m
}

// merge returns the user's variables, without managed ones and those that ours replaces, followed by ours. Of duplicate names the
// first counts, as for getenv(3). defaults are for names that neither has.
func merge(user []string, ours *vars, defaults ...string) []string {
	seen := make(map[string]bool, len(user)+len(ours.list))
	for _, kv := range ours.list {
		name, _, _ := strings.Cut(kv, "=")
		seen[name] = true
	}
	out := make([]string, 0, len(user)+len(ours.list)+1)
	for _, kv := range user {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" || seen[name] || managed[name] {
			continue
		}
		seen[name] = true
		out = append(out, kv)
	}
	for _, kv := range defaults {
		if name, value, _ := strings.Cut(kv, "="); !seen[name] && value != "" {
			out = append(out, kv)
		}
	}
	return append(out, ours.list...)
}
