package scontrol

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
)

// keywords in the order in which abbreviations are looked up: "hold" before "holdu", "requeue" before "requeuehold".
func keywords() []keyword {
	setting := func(set func(*showOptions)) func(*control, []string) int {
		return func(c *control, _ []string) int { set(&c.opts); return 0 }
	}
	leave := func(c *control, _ []string) int { c.done = true; return 0 }
	no := func(name string) func(*control, []string) int {
		return func(c *control, _ []string) int { return c.unsupported(name) }
	}
	return []keyword{
		{"show", 3, 0, -1, (*control).show, "show <ENTITY> [<ID>]: one of an entity by its id, or all of them"},
		{"hold", 4, 1, -1, jobVerb("hold", "slurm_suspend error"), "hold JOBS: keep pending jobs from starting"},
		{"holdu", 5, 1, -1, jobVerb("uhold", "slurm_suspend error"), ""},
		{"uhold", 3, 1, -1, jobVerb("uhold", "slurm_suspend error"), "uhold JOBS: hold so that the owner may release"},
		{"release", 3, 1, -1, jobVerb("release", "slurm_suspend error"), "release JOBS: undo hold"},
		{"requeue", 3, 1, -1, jobVerb("requeue", ""), "requeue [incomplete] JOBS: put jobs back into the queue"},
		{"requeuehold", 8, 1, -1, jobVerb("requeuehold", ""), "requeuehold [incomplete] JOBS: requeue and hold"},
		{"suspend", 2, 1, -1, jobVerb("suspend", ""), "suspend JOBS: stop running jobs"},
		{"resume", 3, 1, -1, jobVerb("resume", ""), "resume JOBS: continue suspended jobs"},
		{"top", 3, 1, 1, jobVerb("top", ""), "top JOB: first among the pending jobs of its user"},
		{"update", 1, 0, -1, (*control).update, "update ENTITY=ID KEY=VALUE …: change a job, node, partition or reservation"},
		{"create", 2, 0, -1, (*control).create,
			"create reservation[=NAME] StartTime=… Duration=… Nodes=…|NodeCnt=… Users=…; create PartitionName=NAME KEY=VALUE …; " +
				"create NodeName=NODES State=FUTURE|CLOUD KEY=VALUE …"},
		{"delete", 3, 0, -1, (*control).remove, "delete ReservationName=NAME, PartitionName=NAME, NodeName=NODES"},
		{"ping", 3, 0, 0, (*control).ping, "ping: check that the controller answers"},
		{"reconfigure", 3, 0, -1, (*control).reconfigure,
			"reconfigure [--dry-run] [--force]: reread the configuration; --dry-run only shows the changes, --force applies them even " +
				"if running jobs are lost"},
		{"shutdown", 8, 0, 1, (*control).shutdown,
			"shutdown [slurmctld|controller]: stop the controller and all node daemons, or the controller alone; jobs keep running"},
		{"wait_job", 2, 1, 1, (*control).waitJob, "wait_job JOB: wait until its nodes are ready"},
		{"write", 5, 1, 3, (*control).write, "write batch_script JOB [FILE|-]: save the script of a job; write config [FILE|-]"},
		{"completing", 2, 0, 0, (*control).completing, "completing: list completing jobs"},
		{"errnumstr", 2, 1, 1, (*control).errnumstr, "errnumstr NUMBER: text of a Slurm error number"},
		{"version", 4, 0, 0, (*control).version, "version: show the version"},
		{"help", 2, 0, 0, (*control).help, "help: show this help"},
		{"all", 2, 0, 0, setting(func(o *showOptions) { o.all = true }), "all, details, hide, oneliner, quiet, verbose: as the options"},
		{"details", 1, 0, 0, setting(func(o *showOptions) { o.details = 1 }), ""},
		{"hide", 2, 0, 0, setting(func(o *showOptions) { o.all, o.hide = false, true }), ""},
		{"oneliner", 1, 0, 0, setting(func(o *showOptions) { o.oneLine = true }), ""},
		{"quiet", 4, 0, 0, setting(func(o *showOptions) { o.quiet = true }), ""},
		{"verbose", 4, 0, 0, setting(func(o *showOptions) { o.verbose++ }), ""},
		{"exit", 2, 0, 0, leave, "exit, quit: end"},
		{"quit", 4, 0, 0, leave, ""},
		{"abort", 5, 0, -1, no("abort"), ""},
		{"cancel_reboot", 3, 0, 1, (*control).cancelReboot, "cancel_reboot NODES: cancel reboots that have not begun"},
		{"cluster", 2, 1, 1, (*control).otherCluster, ""},
		{"fsdampeningfactor", 1, 1, -1, no("fsdampeningfactor"), ""},
		{"listjobs", 5, 0, 1, (*control).listJobsHere, "listjobs, liststeps: list the jobs or steps on this host"},
		{"listpids", 5, 0, 2, (*control).listPids, "listpids [JOB[.STEP]] [NODE]: processes of jobs on this host"},
		{"liststeps", 5, 0, 1, (*control).listSteps, ""},
		{"notify", 1, 1, -1, (*control).notify, "notify JOB MESSAGE: write into the standard error of a running job"},
		{"pidinfo", 3, 1, 1, (*control).pidInfo, "pidinfo PID: the job of a process of this host"},
		{"reboot", 3, 0, -1, (*control).reboot,
			"reboot [ASAP] [nextstate=RESUME|DOWN] [reason=TEXT] ALL|NODES: reboot nodes when they are idle"},
		{"schedloglevel", 3, 1, 1, (*control).schedLogLevel, ""},
		{"setdebug", 2, 1, 2, (*control).setDebug, "setdebug LEVEL [nodes=NODES]: set the log level of the daemons"},
		{"setdebugflags", 9, 1, 1, (*control).setDebugFlags, "setdebugflags +FLAG|-FLAG: set or clear a DebugFlag"},
		{"takeover", 8, 0, -1, (*control).takeover, ""},
		{"token", 5, 0, -1, (*control).token, ""},
	}
}

var Options = [...]command.Option{
	{Name: opt.Name{Long: "all", Short: 'a'}, Help: "show hidden partitions too"},
	{Name: opt.Name{Long: "cluster", Arg: opt.Required, Canon: "clusters"}},
	{Name: opt.Name{Long: "clusters", Short: 'M', Arg: opt.Required}, Meta: "name", Help: "cluster to act on: this one's name"},
	{Name: opt.Name{Long: "details", Short: 'd'}, Help: "show more of each job"},
	{Name: opt.Name{Long: "federation"}, Help: "accepted, no effect: there is one cluster"},
	{Name: opt.Name{Long: "future", Short: 'F'}, Help: "show FUTURE nodes too"},
	{Name: opt.Name{Long: "help", Short: 'h'}, Help: "show this help"},
	{Name: opt.Name{Long: "hide"}, Help: "do not show hidden partitions"},
	{Name: opt.Name{Long: "json", Arg: opt.Optional}, Meta: "parser", Help: "show as JSON (data_parser v0.0.42)"},
	{Name: opt.Name{Long: "local"}, Help: "accepted, no effect: there is one cluster"},
	{Name: opt.Name{Long: "oneliner", Short: 'o'}, Help: "one line for each record"},
	{Name: opt.Name{Long: "quiet", Short: 'Q'}, Help: "print no messages"},
	{Name: opt.Name{Long: "sibling"}, Help: "accepted, no effect: there is one cluster"},
	{Name: opt.Name{Long: "uid", Short: 'u', Arg: opt.Required}, Meta: "user",
		Help: "act as this user, by name or number (root only)"},
	{Name: opt.Name{Long: "usage"}, Help: "show this help"},
	{Name: opt.Name{Long: "verbose", Short: 'v'}, Help: "print more"},
	{Name: opt.Name{Long: "version", Short: 'V'}, Help: "show the version"},
	{Name: opt.Name{Long: "yaml", Arg: opt.Optional}, Meta: "parser", Help: "show as YAML"},
}

// Page describes scontrol.
func Page() command.Page {
	var verbs strings.Builder
	verbs.WriteString("JOBS is a list of job ids separated by commas, or jobname=NAME. Keywords can be abbreviated.\n\n")
	for _, k := range keywords() {
		if k.help != "" {
			verbs.WriteString("  " + k.help + "\n")
		}
	}
	var names []string
	for _, e := range showEntities() {
		names = append(names, e.names[0])
	}
	half := len(names) / 2
	verbs.WriteString("\n  <ENTITY> may be " + strings.Join(names[:half], ", ") + ",\n  " + strings.Join(names[half:], ", ") +
		", hostlist, hostlistsorted or hostnames.\n")
	return command.Page{
		Usage:   "scontrol [<OPTION>] [<COMMAND>]",
		About:   "Without a command, commands are read from standard input.",
		Title:   "    Valid <OPTION> values are:",
		Options: Options[:],
		Blocks:  []command.Block{{Title: "    Valid <COMMAND> values are", Text: verbs.String()}},
		Examples: `  scontrol show job 1234
  scontrol -o show nodes
  scontrol update JobId=1234 TimeLimit=+30
  scontrol update NodeName=n[1-3] State=DRAIN Reason="bad fan"
  scontrol create NodeName=cloud[1-8] State=CLOUD CPUs=16 RealMemory=64000 Feature=burst
  scontrol delete NodeName=cloud[5-8]
  scontrol create reservation=course StartTime=09:00 Duration=3:00:00 NodeCnt=2 Users=alice,bob
  scontrol show hostnames $SLURM_JOB_NODELIST
`}
}

// errorText returns the meaning of an error number of Slurm's or of the system.
func errorText(n uint32) string {
	if text := msg.NewProblem(msg.Code(n), "").GetPhrase(); text != "" {
		return text
	}
	if n == 0 {
		return "No error"
	}
	if n < 134 {
		return command.SystemText(syscall.Errno(n))
	}
	return fmt.Sprintf("Unknown error %d", n)
}

// Words returns the verbs to complete, each with its help.
func Words() (words [][2]string) {
	for _, k := range keywords() {
		if k.help != "" {
			_, about, _ := strings.Cut(k.help, ": ")
			words = append(words, [2]string{k.name, about})
		}
	}
	return words
}
