package sbatch

import (
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/joboptions"
)

func usage() string {
	return joboptions.Usage(joboptions.Sbatch, "sbatch", []string{
		"[-N nnodes]", "[-n ntasks]", "[-c ncpus]", "[-p partition]", "[-t minutes]",
		"[-J jobname]", "[-A account]",
		"[-q qos]", "[-o out]", "[-e err]", "[-i in]", "[-D path]", "[-a indexes]", "[-C list]", "[-w hosts...]", "[-x hosts...]", "[-H]",
		"[-W]", "[-Q]", "[-v]"},
		"executable [args...]")
}

// Page describes sbatch.
func Page() command.Page {
	return command.Page{
		Usage: "Usage: sbatch [OPTIONS] [executable [args...]]",
		About: `Submits a batch script: a file, standard input, or the command of --wrap. Options can be on the command
line, in the environment (SBATCH_*), or in #SBATCH lines before the first command of the script, in
descending order of precedence.`,
		Options: command.JobOptions(joboptions.Sbatch),
		Examples: `  sbatch job.sh --epochs 10                    submit a script with an argument
  sbatch --wrap="python3 train.py"             submit a command
  sbatch -J train -c 4 --mem=8G -t 2:00:00 -o %x-%j.out job.sh
  id=$(sbatch --parsable prepare.sh) && sbatch -d afterok:$id train.sh
  sbatch --signal=B:USR1@120 --requeue job.sh  warn the script two minutes before its time limit
`}
}
