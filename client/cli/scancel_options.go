package cli

import (
	"strings"

	"github.com/sluice-hpc/sluice/client/opt"
)

// option is one row of a command's own table: how it is written, the variable that sets it, and its help.
type option struct {
	opt.Name
	env, meta, help string
}

func namesOf(options []option) []opt.Name {
	names := make([]opt.Name, len(options))
	for i := range options {
		names[i] = options[i].Name
	}
	return names
}

func helpOf(options []option) string {
	var b strings.Builder
	for i := range options {
		if o := &options[i]; o.help != "" {
			opt.WriteHelp(&b, o.Name, o.meta, o.help)
		}
	}
	return b.String()
}

var scancelOptions = [...]option{
	{opt.Name{Long: "account", Short: 'A', Arg: opt.Required}, "SCANCEL_ACCOUNT", "account", "only jobs charged to this account"},
	{opt.Name{Long: "batch", Short: 'b'}, "SCANCEL_BATCH", "", "signal the batch shell only"},
	{opt.Name{Long: "clusters", Short: 'M', Arg: opt.Required}, "SLURM_CLUSTERS", "names", "cluster to act on: this one's name"},
	{opt.Name{Long: "cluster", Arg: opt.Required, Canon: "clusters"}, "", "", ""},
	{opt.Name{Long: "cron"}, "SCANCEL_CRON", "", "jobs of crontabs are meant, too (always so)"},
	{opt.Name{Long: "ctld"}, "SCANCEL_CTLD", "", "send through the controller (always so)"},
	{opt.Name{Long: "full", Short: 'f'}, "SCANCEL_FULL", "", "signal the batch shell and all steps"},
	{opt.Name{Long: "help"}, "", "", "show this help"},
	{opt.Name{Long: "hurry", Short: 'H'}, "SCANCEL_HURRY", "", "do not stage out burst buffers"},
	{opt.Name{Long: "interactive", Short: 'i'}, "SCANCEL_INTERACTIVE", "", "ask before each job"},
	{opt.Name{Long: "jobname", Arg: opt.Required, Canon: "name"}, "", "", ""},
	{opt.Name{Long: "me"}, "", "", "only jobs of the user who asks"},
	{opt.Name{Long: "name", Short: 'n', Arg: opt.Required}, "SCANCEL_NAME", "name", "only jobs with this name"},
	{opt.Name{Long: "nodelist", Short: 'w', Arg: opt.Required}, "", "nodes", "only jobs on these nodes"},
	{opt.Name{Long: "partition", Short: 'p', Arg: opt.Required}, "SCANCEL_PARTITION", "partition", "only jobs in this partition"},
	{opt.Name{Long: "qos", Short: 'q', Arg: opt.Required}, "SCANCEL_QOS", "qos", "only jobs with this quality of service"},
	{opt.Name{Long: "quiet", Short: 'Q'}, "", "", "do not report jobs that have ended"},
	{opt.Name{Long: "reservation", Short: 'R', Arg: opt.Required}, "", "name", "only jobs in this reservation"},
	{opt.Name{Long: "sibling", Arg: opt.Required}, "", "cluster", "(federations only)"},
	{opt.Name{Long: "signal", Short: 's', Arg: opt.Required}, "", "name|number", "signal to send instead of ending the job"},
	{opt.Name{Long: "state", Short: 't', Arg: opt.Required}, "SCANCEL_STATE", "state", "only jobs that are PENDING, RUNNING or SUSPENDED"},
	{opt.Name{Long: "usage"}, "", "", "show a short help"},
	{opt.Name{Long: "user", Short: 'u', Arg: opt.Required}, "SCANCEL_USER", "user", "only jobs of this user"},
	{opt.Name{Long: "verbose", Short: 'v'}, "SCANCEL_VERBOSE", "", "say what is done"},
	{opt.Name{Long: "version", Short: 'V'}, "", "", "show the version"},
	{opt.Name{Long: "wckey", Arg: opt.Required}, "SCANCEL_WCKEY", "key", "only jobs with this workload key"},
}

const scancelUsage = `Usage: scancel [-A account] [--batch] [--full] [--interactive] [-n job_name] [--me]
               [-p partition] [-Q] [-q qos] [-R reservation] [-s signal | integer]
               [-t PENDING | RUNNING | SUSPENDED] [--usage] [-u user_name]
               [--hurry] [-V] [-v] [-w hosts...] [--wckey=wckey]
               [job_id[_array_id][.step_id]]
`

func scancelHelp() string {
	return `Usage: scancel [OPTIONS] [job_id[_array_id][.step_id]] ...

Ends jobs, or sends them a signal. Without --signal a job gets SIGCONT and SIGTERM, and SIGKILL when
KillWait seconds have passed. All filters given must match.

` + helpOf(scancelOptions[:]) + `
Examples:
  scancel 1234                                 end job 1234
  scancel 1234_5 1235_[1-3]                    end tasks of arrays
  scancel --state=PENDING --user=bob --partition=debug
  scancel --signal=USR1 --batch 1236           signal the batch shell only
  scancel --me --interactive                   ask about each of my jobs
`
}
