package cli

import (
	"fmt"
	"strings"

	"github.com/sluice-hpc/sluice/client/adopt"
	"github.com/sluice-hpc/sluice/client/budget"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/confcheck"
	"github.com/sluice-hpc/sluice/client/enrol"
	"github.com/sluice-hpc/sluice/client/explain"
	"github.com/sluice-hpc/sluice/client/gpus"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/client/report"
	"github.com/sluice-hpc/sluice/client/sandbox"
	"github.com/sluice-hpc/sluice/internal/version"
)

// Verbs returns the verbs of `sluice` that are not Slurm's commands.
func Verbs() []*command.Verb {
	return []*command.Verb{sandbox.UpVerb(Names()), sandbox.DownVerb(), explain.Verb(), gpus.Verb(), report.Verb(), budget.Verb(),
		enrol.TokenVerb(), enrol.NodeVerb(), enrol.CertsVerb(), confcheck.Verb(), adopt.Verb()}
}

// Names are Slurm's commands, under whose names the program is also installed.
func Names() []string {
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	return names
}

// sluice runs `sluice VERB …`, where VERB is one of Slurm's commands or a verb of sluice; more are verbs that the program adds.
func sluice(env *command.Env, args []string, more []*command.Verb) int {
	if len(args) == 0 {
		args = []string{"help"}
	}
	switch args[0] {
	case "help", "--help", "-h":
		sluiceHelp(env, append(Verbs(), more...))
		return 0
	case "--version", "-v", "-V":
		fmt.Fprint(env.Stdout, version.Text())
		return 0
	case "commands":
		fmt.Fprintln(env.Stdout, strings.Join(Names(), "\n"))
		return 0
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return c.run(command.Process(c.name), args[1:])
		}
	}
	verbs := append(Verbs(), more...)
	verbs = append(verbs, completionVerb(verbs))
	words := Names()
	for _, v := range verbs {
		if v.Name == args[0] {
			env.Name += " " + v.Name
			return v.Main(env, args[1:])
		}
		words = append(words, v.Name)
	}
	if strings.HasPrefix(args[0], "-") {
		_, _, err := opt.Scan([]opt.Name{{Long: "help"}, {Long: "version"}}, args[:1], false)
		return env.Exit(err)
	}
	return env.Exit(command.Unknown(args[0], words))
}

func sluiceHelp(env *command.Env, verbs []*command.Verb) {
	fmt.Fprintln(env.Stdout, "Usage: sluice COMMAND [arguments]\n\nA cluster:")
	for _, v := range verbs {
		fmt.Fprintf(env.Stdout, "  %-10s %s\n", v.Name, v.Line)
	}
	fmt.Fprintln(env.Stdout, "\nSlurm's commands (also installed under their own names):")
	for _, c := range commands() {
		fmt.Fprintf(env.Stdout, "  %-10s %s\n", c.name, c.help)
	}
	fmt.Fprintln(env.Stdout,
		"\n`sluice COMMAND --help` describes each command; `sluice commands` lists the names of Slurm's commands,\n`sluice completion "+
			"bash` prints completions for bash (also zsh, fish).")
}
