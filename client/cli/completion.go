package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/completion"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/scontrol"
)

// Page is the description of a command, with its name and its line in `sluice help`.
type Page struct {
	Name, Line string
	command.Page
}

// Pages returns the pages of Slurm's commands.
func Pages() (pages []Page) {
	for _, c := range commands() {
		pages = append(pages, Page{c.name, c.help, c.page()})
	}
	return pages
}

// completions returns the commands and verbs for the shells' completion.
func completions(verbs []*command.Verb) (list []completion.Command) {
	for _, p := range Pages() {
		c := completion.Command{Name: p.Name, Options: p.Options}
		switch p.Name {
		case "scancel", "sstat", "seff", "sattach":
			c.Rest = completion.Jobs
		case "sacctmgr":
			c.Words = []completion.Word{{Word: "show", About: "show the rows of an entity"}, {Word: "list", About: "the same"}}
			c.After = []completion.After{{Words: []string{"show", "list"}, Kind: completion.Kind{List: strings.Fields(
				"account association cluster event qos runawayjobs tres user problem reservation resource transaction wckey federation")}}}
		case "sreport":
			c.Words = []completion.Word{{Word: "cluster", About: "the whole cluster, or its accounts"}, {Word: "user", About: "users"}}
			c.After = []completion.After{
				{Words: []string{"cluster"}, Kind: completion.Kind{List: strings.Fields(
					"Utilization AccountUtilizationByUser UserUtilizationByAccount")}},
				{Words: []string{"user"}, Kind: completion.Kind{List: []string{"TopUsage"}}}}
		case "scontrol":
			for _, w := range scontrol.Words() {
				c.Words = append(c.Words, completion.Word{Word: w[0], About: w[1]})
			}
			c.After = scontrolWords()
		}
		list = append(list, c)
	}
	return append(list, sluiceWords(verbs))
}

// arguments returns the completions of arguments that depend on the command as well as the option.
func arguments(name string, o *command.Option) completion.Kind {
	list := func(words []string) completion.Kind { return completion.Kind{List: words} }
	switch name + " " + o.Long {
	case "sinfo nodes":
		return completion.Nodes
	case "sbcast exclude":
		return completion.Folders
	case "sbcast compress", "srun compress":
		return list([]string{"lz4", "none"})
	case "sbcast send-libs", "srun send-libs":
		return list([]string{"yes", "no"})
	case "sinfo states":
		return list(strings.Split(format.NodeStateNames, ","))
	case "squeue states", "sacct state":
		return list(append([]string{"all"}, strings.Split(strings.ToLower(format.JobStateNames()), ",")...))
	case "scancel state":
		return list([]string{"PENDING", "RUNNING", "SUSPENDED"})
	case "scancel signal":
		return list(strings.Fields("HUP INT QUIT KILL USR1 USR2 TERM CONT STOP TSTP"))
	case "sacct format":
		return list(acct.FieldNames())
	case "sstat format":
		return list(acct.LiveNames())
	case "squeue Format":
		return list(format.Jobs().Names())
	case "sinfo Format":
		return list(format.Nodes().Names())
	case "sacct reason":
		return completion.None
	}
	return completion.None
}

// scontrolWords returns the words that can follow scontrol's verbs.
func scontrolWords() []completion.After {
	list := func(words ...string) completion.Kind { return completion.Kind{List: words} }
	return []completion.After{
		{Words: []string{"show"}, Kind: list(append(scontrol.Entities(), "hostnames", "hostlist", "hostlistsorted")...)},
		{Words: []string{"update"}, Kind: list("JobId=", "NodeName=", "PartitionName=", "ReservationName=")},
		{Words: []string{"create", "delete"}, Kind: list("ReservationName=", "PartitionName=", "NodeName=")},
		{Words: []string{"job", "jobs", "hold", "uhold", "release", "requeue", "requeuehold", "suspend", "resume", "top", "wait_job",
			"batch_script", "notify", "JobId", "jobid"}, Kind: completion.Jobs},
		{Words: []string{"node", "nodes", "reboot", "cancel_reboot", "NodeName", "nodename"}, Kind: completion.Nodes},
		{Words: []string{"partition", "partitions", "PartitionName", "partitionname"}, Kind: completion.Partitions},
		{Words: []string{"reservation", "reservations", "ReservationName", "reservationname"}, Kind: completion.Reservations},
		{Words: []string{"write"}, Kind: list("batch_script", "config")},
		{Words: []string{"State", "state"}, Kind: list(slices.Concat(scontrol.NodeStates(), []string{"UP", "INACTIVE"})...)},
	}
}

// sluiceWords returns the verbs of sluice itself, each with the words and options that may follow it.
func sluiceWords(verbs []*command.Verb) completion.Command {
	c := completion.Command{Name: "sluice"}
	list := func(words ...string) completion.Kind { return completion.Kind{List: words} }
	for _, v := range verbs {
		c.Words = append(c.Words, completion.Word{Word: v.Name, About: v.Line})
		var words []string
		for _, below := range v.Verbs {
			words = append(words, below.Name)
		}
		for _, o := range v.Options {
			if o.Help != "" {
				words = append(words, "--"+o.Long)
			}
		}
		if len(words) > 0 {
			c.After = append(c.After, completion.After{Words: []string{v.Name}, Kind: list(words...)})
		}
	}
	for _, k := range commands() {
		c.Words = append(c.Words, completion.Word{Word: k.name, About: k.help})
	}
	c.Words = append(c.Words, completion.Word{Word: "help", About: "list the commands"},
		completion.Word{Word: "commands", About: "list the names of Slurm's commands"})
	c.After = append(c.After,
		completion.After{Words: []string{"explain"}, Kind: completion.Jobs},
		completion.After{Words: []string{"revoke", "--node"}, Kind: completion.Nodes},
		completion.After{Words: []string{"--role"}, Kind: list("compute", "login")},
		completion.After{Words: []string{"--time_format"}, Kind: list("seconds", "minutes", "hours", "percent")},
		completion.After{Words: []string{"--by"}, Kind: list("user", "account", "partition", "node")},
		completion.After{Words: []string{"completion"}, Kind: list(shellNames...)})
	return c
}

var shellNames = []string{"bash", "zsh", "fish"}

// completionVerb is `sluice completion` for Slurm's commands and the other verbs.
func completionVerb(verbs []*command.Verb) *command.Verb {
	v := &command.Verb{
		Name: "completion", Args: "bash|zsh|fish", Line: "print completions for a shell",
		Page: command.Page{
			About: "Prints completions of all commands for a shell.",
			Examples: `  source <(sluice completion bash)                  for this shell; zsh as well, after compinit
  sluice completion fish | source                   the same in fish
  sluice completion bash > /etc/bash_completion.d/sluice              for everybody
  sluice completion zsh > /usr/local/share/zsh/site-functions/_sluice
`,
		},
	}
	v.Run = func(c *command.Call) error {
		makers := []func([]completion.Command, completion.Of) string{completion.Bash, completion.Zsh, completion.Fish}
		i := slices.Index(shellNames, c.Args[0])
		if i < 0 {
			return fmt.Errorf("cannot print completions for %q: supported shells are bash, zsh and fish", c.Args[0])
		}
		_, err := fmt.Fprint(c.Stdout, makers[i](completions(append(verbs, v)), arguments))
		return err
	}
	return v
}
