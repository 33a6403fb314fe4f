package taskenv

import (
	"slices"
	"strconv"
	"strings"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Step returns the node's part of the environment of every task of a step; it replaces variables of the same name that srun
// exports. The set of variables was recorded from Slurm 22.05 (testdata).
func Step(l *pb.LaunchSpec, here *pb.StepNode, index uint32, cluster string, d Daemon) []string {
	v, s, spec := &vars{}, l.GetStep(), l.GetSpec()
	v.setIf("SLURM_CONF", d.Conf)
	v.setIf("SLUICE_SOCKET", d.Socket)
	v.setIf("SLURM_CLUSTER_NAME", cluster)
	v.num("SLURM_JOB_ID", uint64(l.GetKey().GetJobId()))
	v.num("SLURM_JOBID", uint64(l.GetKey().GetJobId()))
	v.set("SLURM_JOB_USER", spec.GetUser())
	v.num("SLURM_JOB_UID", uint64(spec.GetUid()))
	v.num("SLURM_JOB_GID", uint64(spec.GetGid()))
	v.set("SLURM_JOB_PARTITION", l.GetPartition())
	v.setIf("SLURM_JOB_ACCOUNT", l.GetAccount())
	v.setIf("SLURM_JOB_QOS", l.GetQos())
	v.setIf("SLURM_JOB_RESERVATION", spec.GetReservation())
	v.numIf("SLURM_RESTART_COUNT", uint64(l.GetRestarts()))
	v.seconds("SLURM_JOB_START_TIME", l.GetStartNs())
	v.array(l)
	v.numbers(s)
	v.set("SLURMD_NODENAME", d.Node)
	v.num("SLURM_NODEID", uint64(index))
	v.num("SLURM_CPUS_ON_NODE", uint64(here.GetCpus()))
	addr := topology(l, d.Node)
	v.set("SLURM_TOPOLOGY_ADDR", strings.ReplaceAll(addr, "/", "."))
	v.set("SLURM_TOPOLOGY_ADDR_PATTERN", strings.Repeat("switch.", strings.Count(addr, "/"))+"node")
	v.set("SLURM_GTIDS", ranks(here.GetTasks()))
	v.stepGres(here, d.Gres)
	return v.list
}

// numbers sets the step's identity and size.
func (v *vars) numbers(s *pb.StepRecord) {
	var tasks []uint32
	for _, n := range s.GetNodes() {
		tasks = append(tasks, uint32(len(n.GetTasks())))
	}
	v.num("SLURM_STEP_ID", uint64(s.GetStepId()))
	v.num("SLURM_STEPID", uint64(s.GetStepId()))
	v.set("SLURM_STEP_NODELIST", s.GetNodeList())
	v.num("SLURM_STEP_NUM_NODES", uint64(len(tasks)))
	v.num("SLURM_STEP_NUM_TASKS", uint64(s.GetNumTasks()))
	v.set("SLURM_STEP_TASKS_PER_NODE", Repeat(tasks))
	v.num("SLURM_NNODES", uint64(len(tasks)))
	v.num("SLURM_NTASKS", uint64(s.GetNumTasks()))
	v.num("SLURM_NPROCS", uint64(s.GetNumTasks()))
	v.set("SLURM_TASKS_PER_NODE", Repeat(tasks))
	if d := s.GetSpec().GetDistribution(); d != "" {
		kind, size, plane := strings.Cut(d, "=")
		v.set("SLURM_DISTRIBUTION", kind)
		if plane {
			v.set("SLURM_DIST_PLANESIZE", size)
		}
	}
}

// stepGres sets the variables about the step's devices on this node.
func (v *vars) stepGres(here *pb.StepNode, g Gres) {
	gpus := gpusOf(here.GetDevices(), g.Devices)
	if len(gpus) == 0 {
		v.noGPU(g)
	} else {
		of := &vars{}
		of.gpus(gpus)
		for _, kv := range of.list { // SLURM_JOB_GPUS stays the job's
			name, value, _ := strings.Cut(kv, "=")
			if name == "SLURM_JOB_GPUS" {
				name = "SLURM_STEP_GPUS"
			}
			v.set(name, value)
		}
		v.visible(gpus, g)
	}
	v.others(here.GetDevices(), g)
}

// Task returns the variables of one task.
func Task(_ *pb.LaunchSpec, here *pb.StepNode, local int, _ Daemon) []string {
	v := &vars{}
	v.num("SLURM_PROCID", uint64(here.GetTasks()[local]))
	v.num("SLURM_LOCALID", uint64(local))
	return v.list
}

// TaskGPUs returns the variables by which a task sees only some of its step's GPUs: those at these positions, or the first if
// there are no such, as in Slurm.
func TaskGPUs(here *pb.StepNode, g Gres, positions []int) []string {
	gpus := gpusOf(here.GetDevices(), g.Devices)
	var own []gpu
	for _, p := range positions {
		if p >= 0 && p < len(gpus) {
			own = append(own, gpus[p])
		}
	}
	if len(gpus) == 0 || positions == nil {
		return nil
	}
	if len(own) == 0 {
		own = gpus[:1]
	}
	v := &vars{}
	var index []string
	for _, x := range own {
		index = append(index, strconv.FormatUint(uint64(x.has.GetIndex()), 10))
	}
	v.set("SLURM_STEP_GPUS", strings.Join(slices.Compact(index), ","))
	v.visibleOf(own, gpus, g)
	return v.list
}

func ranks(tasks []uint32) string {
	var out []string
	for _, t := range tasks {
		out = append(out, strconv.FormatUint(uint64(t), 10))
	}
	return strings.Join(out, ",")
}
