package salloc

import (
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/joboptions"
)

func usage() string {
	return joboptions.Usage(joboptions.Salloc, "salloc", []string{
		"[-N nnodes]", "[-n ntasks]", "[-c ncpus]", "[-p partition]", "[-t minutes]",
		"[-D path]", "[-I[seconds]]", "[-K[signal]]", "[-J jobname]", "[-A account]", "[-q qos]", "[-C list]", "[-w hosts...]",
		"[-x hosts...]", "[-H]", "[-Q]", "[-v]"},
		"[command [args...]]")
}

// Page describes salloc.
func Page() command.Page {
	return command.Page{
		Usage: "Usage: salloc [OPTIONS] [command [args...]]",
		About: `Gets an allocation and runs a command in it, usually a shell: on the first node of the job if the cluster has
LaunchParameters=use_interactive_step, otherwise here. srun in it runs tasks on the nodes. When the command ends, the
allocation is released. Environment variables SALLOC_* can set options.`,
		Options: command.JobOptions(joboptions.Salloc),
		Examples: `  salloc --gres=gpu:1 -t 2:00:00               a shell with a GPU
  salloc -N2 --ntasks-per-node=4 srun ./prog   run eight tasks and release the nodes
  salloc -N4 --no-shell                        keep nodes; use them with srun --jobid, end with scancel
`}
}
