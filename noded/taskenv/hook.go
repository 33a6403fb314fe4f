package taskenv

import (
	"fmt"

	"github.com/sluice-hpc/sluice/internal/program"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Contexts of prolog and epilog, as SLURM_SCRIPT_CONTEXT names them.
const (
	Prolog = "prolog_slurmd"
	Epilog = "epilog_slurmd"
)

const safePath = program.Path

// Hook returns the environment of a prolog or epilog, built from scratch: no variable of the user or of the daemon reaches a
// script that runs as root, and no user chooses a variable's name. The variables are those of Slurm's Prolog and Epilog Guide.
// exit is the end of the job, for an epilog, or nil.
func Hook(context string, l *pb.LaunchSpec, exit *pb.ExitRecord, cluster string, d Daemon) []string {
	v, spec := &vars{}, l.GetSpec()
	v.set("PATH", safePath)
	v.set("SLURM_SCRIPT_CONTEXT", context)
	v.identity(l, cluster, d)
	v.allocation(l)
	v.array(l)
	v.gresOfHook(l, d.Gres)
	v.set("SLURMD_NODENAME", d.Node)
	v.num("SLURM_NODEID", uint64(l.GetNodeIndex()))
	v.setIf("SLURM_JOB_GROUP", spec.GetGroup())
	v.setIf("SLURM_JOB_COMMENT", spec.GetComment())
	v.setIf("SLURM_JOB_CONSTRAINTS", spec.GetFeatures())
	v.setIf("SLURM_JOB_EXTRA", spec.GetExtra())
	v.setIf("SLURM_JOB_LICENSES", spec.GetLicenses())
	v.setIf("SLURM_WCKEY", spec.GetWckey())
	v.setIf("SLURM_JOB_WORK_DIR", spec.GetWorkDir())
	if exit != nil {
		status := exit.GetWaitStatus()
		v.num("SLURM_JOB_EXIT_CODE", uint64(status))
		v.set("SLURM_JOB_EXIT_CODE2", fmt.Sprintf("%d:%d", status>>8&0xff, status&0x7f))
	}
	return v.list
}

// Check returns the environment of a program that belongs to no job, HealthCheckProgram. It acts on faults with scontrol, which
// finds the controller through these variables.
func Check(cluster string, d Daemon) []string {
	v := &vars{}
	v.set("PATH", safePath)
	v.set("SLURMD_NODENAME", d.Node)
	v.setIf("SLURM_CLUSTER_NAME", cluster)
	v.setIf("SLURM_CONF", d.Conf)
	v.setIf("SLUICE_SOCKET", d.Socket)
	return v.list
}

// Unkillable returns the environment of UnkillableStepProgram (slurm.conf(5), UNKILLABLE STEP PROGRAM SCRIPT).
func Unkillable(job, step uint32, cluster string, d Daemon) []string {
	v := &vars{list: Check(cluster, d)}
	v.num("SLURM_JOB_ID", uint64(job))
	v.num("SLURM_JOBID", uint64(job))
	v.num("SLURM_STEP_ID", uint64(step))
	v.num("SLURM_STEPID", uint64(step))
	return v.list
}
