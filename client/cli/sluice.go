package cli

import (
	"fmt"

	"github.com/sluice-hpc/sluice/client/admin"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/explain"
	"github.com/sluice-hpc/sluice/client/gpus"
	"github.com/sluice-hpc/sluice/client/hosts"
	"github.com/sluice-hpc/sluice/client/report"
)

// Verbs are those of `sluice` that are not Slurm's commands, with a line of help each.
func Verbs() [][2]string {
	return [][2]string{
		{"up", "start a cluster on this machine"},
		{"down", "stop it"},
		{"explain", "show why a job is pending, and what would let it start (explain JOB)"},
		{"gpus", "show every GPU: its state, use, job and user"},
		{"report", "show GPU-hours used, left idle and queued, by user and account, with a chart"},
		{"token", "create and list tokens with which hosts join (token create --node NAME)"},
		{"node", "list the hosts, or revoke one (node list, node revoke NAME)"},
		{"certs", "show the certificates of hosts"},
		{"conf", "check a slurm.conf (conf check FILE)"},
		{"adopt", "admit ssh logins of users with a job on the node, as part of the job (for pam_exec)"},
	}
}

// Names are Slurm's commands, under which the program is installed too.
func Names() []string {
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	return names
}

// sluice runs `sluice VERB …`: any of Slurm's commands by name, or a verb of its own.
func sluice(env *command.Env, args []string) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
		sluiceHelp(env)
		return 0
	}
	if args[0] == "commands" && len(args) == 1 {
		for _, name := range Names() {
			fmt.Fprintln(env.Stdout, name)
		}
		return 0
	}
	if args[0] == "completion" {
		return printCompletion(env, args[1:])
	}
	if args[0] == "gpus" {
		return gpus.Main(command.Process("sluice gpus"), args[1:])
	}
	if args[0] == "explain" {
		return explain.Main(command.Process("sluice explain"), args[1:])
	}
	switch args[0] {
	case "report":
		return report.Main(command.Process("sluice report"), args[1:])
	case "token":
		return hosts.Token(command.Process("sluice token"), args[1:])
	case "node":
		return hosts.Node(command.Process("sluice node"), args[1:])
	case "certs":
		return hosts.Certs(command.Process("sluice certs"), args[1:])
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return c.run(command.Process(c.name), args[1:])
		}
	}
	return admin.Main(args, Names())
}

func sluiceHelp(env *command.Env) {
	fmt.Fprintln(env.Stdout, "usage: sluice COMMAND [arguments]\n\nA cluster:")
	for _, v := range Verbs() {
		fmt.Fprintf(env.Stdout, "  %-10s %s\n", v[0], v[1])
	}
	for _, c := range admin.Extra {
		fmt.Fprintf(env.Stdout, "  %-10s %s\n", c.Name, c.Usage)
	}
	fmt.Fprintln(env.Stdout, "\nSlurm's commands (also installed under their own names):")
	for _, c := range commands() {
		fmt.Fprintf(env.Stdout, "  %-10s %s\n", c.name, c.help)
	}
	fmt.Fprintln(env.Stdout,
		"\n`sluice COMMAND --help` describes each command; `sluice commands` lists the names of Slurm's commands,\n`sluice completion "+
			"bash` prints completions for bash (also zsh, fish).")
}
