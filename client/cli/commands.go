package cli

import (
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/sacct"
	"github.com/sluice-hpc/sluice/client/sacctmgr"
	"github.com/sluice-hpc/sluice/client/salloc"
	attachabout "github.com/sluice-hpc/sluice/client/sattach/about"
	"github.com/sluice-hpc/sluice/client/sbatch"
	sbcast "github.com/sluice-hpc/sluice/client/sbcast/about"
	"github.com/sluice-hpc/sluice/client/scancel"
	"github.com/sluice-hpc/sluice/client/scontrol"
	"github.com/sluice-hpc/sluice/client/scrontab"
	"github.com/sluice-hpc/sluice/client/sdiag"
	"github.com/sluice-hpc/sluice/client/seff"
	"github.com/sluice-hpc/sluice/client/sinfo"
	"github.com/sluice-hpc/sluice/client/sprio"
	"github.com/sluice-hpc/sluice/client/squeue"
	"github.com/sluice-hpc/sluice/client/sreport"
	"github.com/sluice-hpc/sluice/client/srun/about"
	"github.com/sluice-hpc/sluice/client/sshare"
	"github.com/sluice-hpc/sluice/client/sstat"
)

// row is one row of the dispatch table.
type row struct {
	name string
	run  func(env *command.Env, args []string) int
	page func() command.Page
	help string // one line for `sluice help`
	big  bool   // may hold the whole queue in memory
}

// commands lists Slurm's commands. It is a function so that nothing is built at process start.
func commands() []row {
	return []row{
		{"sbatch", sbatch.Main, sbatch.Page, "submit a batch script", false},
		{"srun", stepCommand("srun"), about.Page, "run tasks, in an allocation or in one of their own", false},
		{"salloc", salloc.Main, salloc.Page, "get an allocation, and run a command or a shell in it", false},
		{"sattach", stepCommand("sattach"), attachabout.Page, "attach to a running step: show its output, give it input", false},
		{"sbcast", stepCommand("sbcast"), sbcast.Page, "copy a file to the nodes of a job", false},
		{"scancel", scancel.Main, scancel.Page, "cancel or signal jobs", false},
		{"squeue", squeue.Main, squeue.Page, "show jobs", true},
		{"sinfo", sinfo.Main, sinfo.Page, "show partitions and nodes", true},
		{"scrontab", scrontab.Main, scrontab.Page, "edit, show or remove your crontab of periodic jobs", false},
		{"sdiag", sdiag.Main, sdiag.Page, "show statistics of the controller and the scheduler", false},
		{"seff", seff.Main, seff.Page, "show the efficiency of a job: CPU, memory and GPU use", false},
		{"sstat", sstat.Main, sstat.Page, "show the resource use of running steps", false},
		{"sacctmgr", sacctmgr.Main, sacctmgr.Page, "show and change accounts, users, associations and QOS", false},
		{"sacct", sacct.Main, sacct.Page, "show the accounting records of running and finished jobs", false},
		{"sshare", sshare.Main, sshare.Page, "show shares and usage of accounts and users", false},
		{"sreport", sreport.Main, sreport.Page, "sum up allocations over a period, by cluster, account and user", false},
		{"sprio", sprio.Main, sprio.Page, "show the components of the priorities of pending jobs", true},
		{"scontrol", scontrol.Main, scontrol.Page, "show and change the state of jobs, nodes and partitions", true},
	}
}
