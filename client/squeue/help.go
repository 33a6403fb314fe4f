package squeue

import "github.com/sluice-hpc/sluice/client/command"

const usage = `Usage: squeue [-A account] [-u user_name] [--me] [--job jobid] [-n name] [-p partitions]
              [--qos qos] [-t states] [-w nodes] [--reservation reservation] [-L licenses]
              [--sort fields] [-i seconds] [-o format] [-O format] [--start] [--step step_id]
              [--clusters names] [-ahjlrsv] [-P] [--noconvert] [--json] [--yaml]
              [--federation] [--local] [--sibling] [--usage]
`

// Page describes the command.
func Page() command.Page {
	return command.Page{
		Usage:   "Usage: squeue [OPTIONS]",
		About:   `Shows pending, running and completing jobs.`,
		Options: Options[:],
		Blocks: []command.Block{
			{Title: "Environment", Text: `  SQUEUE_*, see squeue(1); SLURM_TIME_FORMAT, SLURM_BITSTR_LEN, SLURM_JSON.
`},
		},
		Examples: `  squeue --me -o "%.10i %.20j %.8T %.10M %R"     my jobs, with long names
  squeue -t PD --start                           when will they start?
  squeue -h -t all -j 42 -o %T                   how did job 42 end?
  squeue --json -u alice | jq '.jobs[].job_state'
  squeue -p gpu -O "JobID:10,UserName:12,tres-per-node:30,ReasonList"
`,
	}
}
