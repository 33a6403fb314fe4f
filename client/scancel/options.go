package scancel

import (
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/opt"
)

var Options = [...]command.Option{
	{Name: opt.Name{Long: "account", Short: 'A', Arg: opt.Required}, Env: "SCANCEL_ACCOUNT", Meta: "account",
		Help: "only jobs charged to this account"},
	{Name: opt.Name{Long: "batch", Short: 'b'}, Env: "SCANCEL_BATCH", Help: "signal the batch shell only"},
	{Name: opt.Name{Long: "clusters", Short: 'M', Arg: opt.Required}, Env: "SLURM_CLUSTERS", Meta: "names",
		Help: "cluster to act on: this one's name"},
	{Name: opt.Name{Long: "cluster", Arg: opt.Required, Canon: "clusters"}},
	{Name: opt.Name{Long: "cron"}, Env: "SCANCEL_CRON", Help: "include crontab jobs (always done)"},
	{Name: opt.Name{Long: "ctld"}, Env: "SCANCEL_CTLD", Help: "send through the controller (always done)"},
	{Name: opt.Name{Long: "full", Short: 'f'}, Env: "SCANCEL_FULL", Help: "signal the batch shell and all steps"},
	{Name: opt.Name{Long: "help"}, Help: "show this help"},
	{Name: opt.Name{Long: "hurry", Short: 'H'}, Env: "SCANCEL_HURRY", Help: "do not stage out burst buffers"},
	{Name: opt.Name{Long: "interactive", Short: 'i'}, Env: "SCANCEL_INTERACTIVE", Help: "ask before each job"},
	{Name: opt.Name{Long: "jobname", Arg: opt.Required, Canon: "name"}},
	{Name: opt.Name{Long: "me"}, Help: "only your own jobs"},
	{Name: opt.Name{Long: "name", Short: 'n', Arg: opt.Required}, Env: "SCANCEL_NAME", Meta: "name", Help: "only jobs with this name"},
	{Name: opt.Name{Long: "nodelist", Short: 'w', Arg: opt.Required}, Meta: "nodes", Help: "only jobs on these nodes"},
	{Name: opt.Name{Long: "partition", Short: 'p', Arg: opt.Required}, Env: "SCANCEL_PARTITION", Meta: "partition",
		Help: "only jobs in this partition"},
	{Name: opt.Name{Long: "qos", Short: 'q', Arg: opt.Required}, Env: "SCANCEL_QOS", Meta: "qos",
		Help: "only jobs with this quality of service"},
	{Name: opt.Name{Long: "quiet", Short: 'Q'}, Help: "do not report jobs that have ended"},
	{Name: opt.Name{Long: "reservation", Short: 'R', Arg: opt.Required}, Meta: "name", Help: "only jobs in this reservation"},
	{Name: opt.Name{Long: "sibling", Arg: opt.Required}, Meta: "cluster", Help: "(federations only)"},
	{Name: opt.Name{Long: "signal", Short: 's', Arg: opt.Required}, Meta: "name|number",
		Help: "signal to send instead of cancelling the job"},
	{Name: opt.Name{Long: "state", Short: 't', Arg: opt.Required}, Env: "SCANCEL_STATE", Meta: "state",
		Help: "only jobs that are PENDING, RUNNING or SUSPENDED"},
	{Name: opt.Name{Long: "usage"}, Help: "show a short help"},
	{Name: opt.Name{Long: "user", Short: 'u', Arg: opt.Required}, Env: "SCANCEL_USER", Meta: "user", Help: "only jobs of this user"},
	{Name: opt.Name{Long: "verbose", Short: 'v'}, Env: "SCANCEL_VERBOSE", Help: "print what is done"},
	{Name: opt.Name{Long: "version", Short: 'V'}, Help: "show the version"},
	{Name: opt.Name{Long: "wckey", Arg: opt.Required}, Env: "SCANCEL_WCKEY", Meta: "key", Help: "only jobs with this workload key"},
}

const usage = `Usage: scancel [-A account] [--batch] [--full] [--interactive] [-n job_name] [--me]
               [-p partition] [-Q] [-q qos] [-R reservation] [-s signal | integer]
               [-t PENDING | RUNNING | SUSPENDED] [--usage] [-u user_name]
               [--hurry] [-V] [-v] [-w hosts...] [--wckey=wckey]
               [job_id[_array_id][.step_id]]
`

// Page describes the command.
func Page() command.Page {
	return command.Page{
		Usage: "Usage: scancel [OPTIONS] [job_id[_array_id][.step_id]] ...",
		About: `Ends jobs, or sends them a signal. Without --signal a job gets SIGCONT and SIGTERM, and SIGKILL when
KillWait seconds have passed. All filters given must match.`,
		Options: Options[:],
		Examples: `  scancel 1234                                 end job 1234
  scancel 1234_5 1235_[1-3]                    end tasks of arrays
  scancel --state=PENDING --user=bob --partition=debug
  scancel --signal=USR1 --batch 1236           signal the batch shell only
  scancel --me --interactive                   ask about each of my jobs

`,
	}
}
