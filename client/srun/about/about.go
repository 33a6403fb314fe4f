// Package about is the help text of srun. It is separate from the command, which links TLS, so that programs that only print help,
// completions and manual pages do not link it.
package about

import (
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/joboptions"
)

// Usage is the short help.
func Usage() string {
	return joboptions.Usage(joboptions.Srun, "srun", []string{
		"[-N nnodes]", "[-n ntasks]", "[-i in]", "[-o out]", "[-e err]", "[-c ncpus]", "[-r n]",
		"[-p partition]", "[-t minutes]", "[-D path]", "[-I[seconds]]", "[-K]", "[-l]", "[-u]", "[-O]", "[-m dist]", "[-J jobname]",
		"[-w hosts...]", "[-x hosts...]", "[-C list]", "[-W sec]", "[-Q]", "[-v]"},
		"executable [args...]")
}

// Page describes srun.
func Page() command.Page {
	return command.Page{
		Usage: "Usage: srun [OPTIONS] executable [args...]",
		About: `Runs a command as tasks: inside an allocation (in a batch script, in the shell of salloc, with --jobid) as a step of that
job, otherwise as a job of its own. Tasks get standard input, and their output is printed here. The exit code is the
highest of the tasks'. Environment variables can set options.`,
		Options: command.JobOptions(joboptions.Srun),
		Examples: `  srun hostname                                a job of one task
  srun -N2 --ntasks-per-node=4 -l ./prog       eight tasks on two nodes, output lines with labels
  srun --gres=gpu:1 -t 2:00:00 --pty bash      a shell on a GPU
  srun -n1 --exact python3 a.py & srun -n1 --exact python3 b.py & wait
  srun --jobid=12 --overlap --pty top          inspect a running job
  srun -n3 --multi-prog programs.conf          one program for each task
`}
}
