package sinfo

import "github.com/sluice-hpc/sluice/client/command"

const usage = `Usage: sinfo [-abdelNRrsTv] [-i seconds] [-t states] [-p partition] [-n nodes] [-S fields]
             [-o format] [-O Format] [-M cluster] [-h] [--hide] [--noconvert] [--json] [--yaml]
             [--federation] [--local]
`

// Page describes the command.
func Page() command.Page {
	return command.Page{
		Usage:   "Usage: sinfo [OPTIONS]",
		About:   `Shows partitions and the state of their nodes. Nodes with equal values share a row.`,
		Options: Options[:],
		Blocks: []command.Block{
			{Title: "Environment", Text: `  SINFO_FORMAT, SINFO_PARTITION, SINFO_SORT, SINFO_ALL, SLURM_TIME_FORMAT.
`},
		},
		Examples: `  sinfo -s                                 how full is each partition?
  sinfo -R                                 which nodes are out of service, and why?
  sinfo -N -o "%N %t %C %e %G"             every node, its CPUs (used/free/other/all), memory, GPUs
  sinfo -h -t "idle&~drain" -o %N          nodes that could start a job now
`,
	}
}
