package completion

import (
	"fmt"
	"strings"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/opt"
)

// Fish returns the script for fish: it is installed in a completions directory under the name of each command, or sourced.
func Fish(commands []Command, own Of) string {
	var b strings.Builder
	b.WriteString("# fish completion for Sluice and Slurm's commands; made by: sluice completion fish\n" +
		"function __sluice_values\n  switch $argv[1]\n")
	for _, l := range live {
		fmt.Fprintf(&b, "  case %s\n    %s\n", l.kind, l.command)
	}
	b.WriteString(fishHead)
	for i := range commands { // remove other completions for them
		fmt.Fprintf(&b, "complete -c %s -e\n", commands[i].Name)
	}
	for i := range commands {
		c := &commands[i]
		if c.Name == "sluice" {
			fishSluice(&b, c)
			continue
		}
		fishCommand(&b, c, own, "complete -c "+c.Name, "")
		fishCommand(&b, c, own, "complete -c sluice", "__sluice_verb "+c.Name)
	}
	return b.String()
}

const fishHead = `  end
end
function __sluice_list
  set -l token (commandline -ct | string replace -r '^(--[^=]*=|-[A-Za-z])' '')
  set -l head (string match -r '.*,' -- $token)
  printf "$head%s\n" $argv
end
function __sluice_after
  set -l words (commandline -opc)
  contains -- $words[-1] $argv
end
function __sluice_first
  set -l words (commandline -opc)
  test "$words[1]" = sluice; and set -e words[1]
  test (count $words) -le 1
end
function __sluice_verb
  set -l words (commandline -opc)
  test (count $words) -ge 2; and contains -- $words[2] $argv
end
function __sluice_pairs
  set -l token (commandline -ct)
  switch (string lower -- $token)
  case 'nodename=*'
    set -l head (string match -r '^.*[=,]' -- $token); printf "$head%s\n" (__sluice_values nodes)
  case 'partitionname=*'
    set -l head (string match -r '^.*[=,]' -- $token); printf "$head%s\n" (__sluice_values partitions)
  case 'reservationname=*'
    set -l head (string match -r '^.*[=,]' -- $token); printf "$head%s\n" (__sluice_values reservations)
  case 'jobid=*'
    set -l head (string match -r '^.*[=,]' -- $token); printf "$head%s\n" (__sluice_values jobs)
  case '*'
    printf "%s\n" $argv
  end
end
`

func fishCommand(b *strings.Builder, c *Command, own Of, complete, when string) {
	condition := func(more string) string {
		both := when
		if both != "" && more != "" {
			both += "; and "
		}
		if both += more; both == "" {
			return ""
		}
		return " -n '" + both + "'"
	}
	options := c.shown()
	for k := range options {
		o := &options[k]
		line := complete + condition("")
		if o.Short != 0 {
			line += " -s " + string(rune(o.Short))
		}
		line += " -l " + o.Long
		if o.Arg == opt.Required {
			line += fishArgument(Argument(own, c.Name, o))
		}
		b.WriteString(line + " -d " + fishQuoted(o) + "\n")
	}
	for _, a := range c.After {
		fmt.Fprintf(b, "%s%s%s\n", complete, condition("__sluice_after "+strings.Join(a.Words, " ")), fishValues(a.Kind))
	}
	for _, w := range c.Words {
		fmt.Fprintf(b, "%s%s -f -a %s -d '%s'\n", complete, condition("__sluice_first"), w.Word, fishPlain(w.About))
	}
	if c.Rest.known() {
		fmt.Fprintf(b, "%s%s%s\n", complete, condition(""), fishValues(c.Rest))
	}
}

func fishSluice(b *strings.Builder, c *Command) {
	for _, w := range c.Words {
		fmt.Fprintf(b, "complete -c sluice -n __fish_use_subcommand -f -a %s -d '%s'\n", w.Word, fishPlain(w.About))
	}
	for _, a := range c.After {
		fmt.Fprintf(b, "complete -c sluice -n '__sluice_after %s'%s\n", strings.Join(a.Words, " "), fishValues(a.Kind))
	}
}

// fishArgument says how an option takes its argument.
func fishArgument(k Kind) string {
	if !k.known() {
		return " -x"
	}
	return " -r" + fishValues(k)
}

func fishValues(k Kind) string {
	switch {
	case k.Name == "files":
		return " -F"
	case k.Name == "folders":
		return " -f -a '(__fish_complete_directories (commandline -ct))'"
	case k.Name == "users":
		return " -f -a '(__sluice_list (__fish_complete_users | string replace -r \"\\t.*\" \"\"))'"
	case k.Name != "":
		return " -f -a '(__sluice_list (__sluice_values " + k.Name + "))'"
	case k.equals():
		return " -f -a '(__sluice_pairs " + strings.Join(k.List, " ") + ")'"
	}
	return " -f -a '(__sluice_list " + strings.Join(k.List, " ") + ")'"
}

func fishQuoted(o *command.Option) string { return "'" + fishPlain(o.Help) + "'" }

func fishPlain(s string) string { return strings.NewReplacer("'", "’", "\\", "/").Replace(s) }
