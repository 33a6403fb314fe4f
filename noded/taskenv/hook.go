package taskenv

import (
	"fmt"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Contexts of prolog and epilog, as SLURM_SCRIPT_CONTEXT names them.
const (
	Prolog = "prolog_slurmd"
	Epilog = "epilog_slurmd"
)

// safePath is the search path of prolog and epilog. Slurm gives them none, which shells replace by a default of their own.
const safePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Hook gives the environment of a prolog or epilog, built from nothing: no variable of the user's or of the daemon's own reaches
// a script that runs as root, and no name in it is chosen by a user. The variables are those of Slurm's Prolog and Epilog Guide.
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
