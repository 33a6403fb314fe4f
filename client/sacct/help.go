package sacct

import "github.com/sluice-hpc/sluice/client/command"

const usage = "Usage: sacct [options]\n\tUse --help for help\n"

// Page describes the command.
func Page() command.Page {
	return command.Page{
		Usage: `Usage: sacct [OPTIONS]
     Valid <OPTION> values are:`,
		About:   `Shows the accounting records of jobs and their steps, also after squeue has forgotten them. Records appear at submission.`,
		Options: Options[:],
		Blocks: []command.Block{
			{Title: "Times", Text: `  TIME is HH:MM[:SS][AM|PM], MMDD[YY], MM/DD[/YY][-HH:MM[:SS]], YYYY-MM-DD[THH:MM[:SS]], today, midnight, noon,
  or now[{+|-}COUNT[seconds|minutes|hours|days|weeks]].
`},
			{Title: "Environment", Text: `  SACCT_FORMAT, SLURM_TIME_FORMAT, SLURM_BITSTR_LEN.
`},
		},
		Examples: `  sacct -j 12 -o jobid,state,exitcode,elapsed,maxrss,totalcpu
  sacct -X -S now-7days -s F,TO,OOM -E now
  sacct -aXPn -S 2026-01-01 -o jobidraw,user,alloctres,elapsedraw
`,
	}
}
