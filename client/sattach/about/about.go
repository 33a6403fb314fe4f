// Package about is the help text of sattach. It is separate from the command, which links TLS, so that programs that only print
// help, completions and manual pages do not link it.
package about

import (
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/opt"
)

// Options are the command line of sattach(1).
var Options = [...]command.Option{
	{Name: opt.Name{Long: "input-filter", Arg: opt.Required}, Meta: "TASK", Help: "standard input goes to this task only"},
	{Name: opt.Name{Long: "output-filter", Arg: opt.Required}, Meta: "TASK", Help: "print standard output of this task only"},
	{Name: opt.Name{Long: "error-filter", Arg: opt.Required}, Meta: "TASK", Help: "print standard error of this task only"},
	{Name: opt.Name{Long: "label", Short: 'l'}, Help: "prefix each line with the number of its task"},
	{Name: opt.Name{Long: "layout"}, Help: "print the nodes of the tasks, without attaching"},
	{Name: opt.Name{Long: "pty"}, Help: "attach to the terminal of a step of srun --pty"},
	{Name: opt.Name{Long: "quiet", Short: 'Q'}, Help: "only errors"},
	{Name: opt.Name{Long: "verbose", Short: 'v'}, Help: "print each action"},
	{Name: opt.Name{Long: "help", Short: 'h'}, Help: "show this help"},
	{Name: opt.Name{Long: "usage", Short: 'u'}, Help: "show a short help"},
	{Name: opt.Name{Long: "version", Short: 'V'}, Help: "show the version"},
}

// Usage is the short help.
const Usage = "Usage: sattach [options] <jobid.stepid>\n"

// Page describes sattach.
func Page() command.Page {
	return command.Page{
		Usage: Usage,
		About: `Attaches to a running step whose srun runs elsewhere: shows the output of its tasks from now on, and gives them standard input.
Ctrl-C ends sattach, not the step. The exit code is that of the step.`,
		Options: Options[:],
		Examples: `  sattach 12.0                       output of all tasks of step 0 of job 12
  sattach -l --output-filter=3 12.0  task 3 only, with labels
  sattach --layout 12.0              nodes of the tasks
`,
	}
}
