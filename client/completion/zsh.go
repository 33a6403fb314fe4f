package completion

import (
	"fmt"
	"strings"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/opt"
)

// Zsh returns the script for zsh: the file _sluice in a directory of its function path, or sourced.
func Zsh(commands []Command, own Of) string {
	var b strings.Builder
	names := make([]string, len(commands))
	for i := range commands {
		names[i] = commands[i].Name
	}
	all := strings.Join(names, " ")
	fmt.Fprintf(&b, "#compdef %s\n# zsh completion for Sluice and Slurm's commands; made by: sluice completion zsh\n", all)
	b.WriteString("_sluice_values() {\n  local -a list\n  case $1 in\n")
	for _, l := range live {
		fmt.Fprintf(&b, "  %s) list=(${(fu)\"$(%s)\"}) ;;\n", l.kind, l.command)
	}
	b.WriteString(zshHead)
	for i := range commands {
		b.WriteString(zshCommand(&commands[i], own))
	}
	b.WriteString("_sluice_call() {\n  local service=$1\n  case $service in\n")
	for _, name := range names {
		fmt.Fprintf(&b, "  %s) _sluice_c_%s ;;\n", name, name)
	}
	b.WriteString("  *) _default ;;\n  esac\n}\n_sluice() { _sluice_call \"$service\" }\n")
	fmt.Fprintf(&b, "if [[ ${funcstack[1]} == _sluice ]]; then _sluice \"$@\"; else compdef _sluice %s; fi\n", all)
	return b.String()
}

const zshHead = `  esac
  _sluice_choose $list
}
_sluice_choose() {
  local -a offered=($@)
  compset -P '*,'
  compset -S ',*' || true
  compadd -a offered
}
_sluice_pairs() {
  if compset -P 1 '*='; then
    case ${(L)IPREFIX} in
    nodename=) _sluice_values nodes ;;
    partitionname=) _sluice_values partitions ;;
    reservationname=) _sluice_values reservations ;;
    jobid=) _sluice_values jobs ;;
    esac
  else
    local -a offered=($@)
    compadd -S '' -a offered
  fi
}
`

func zshCommand(c *Command, own Of) string {
	var b strings.Builder
	fmt.Fprintf(&b, "_sluice_c_%s() {\n", c.Name)
	if len(c.After) > 0 || len(c.Words) > 0 {
		b.WriteString("  case ${words[CURRENT-1]} in\n")
		for _, a := range c.After {
			fmt.Fprintf(&b, "  %s) %s; return ;;\n", strings.Join(a.Words, "|"), zshValues(a.Kind))
		}
		b.WriteString("  esac\n")
	}
	if c.Name == "sluice" {
		b.WriteString("  if ((CURRENT > 2)); then shift words; ((CURRENT--)); _sluice_call $words[1]; return; fi\n")
	}
	b.WriteString("  local -a options=(\n")
	options := c.shown()
	for k := range options {
		b.WriteString("    " + zshOption(c, &options[k], own) + "\n")
	}
	b.WriteString("  )\n")
	switch {
	case len(c.Words) > 0:
		b.WriteString("  local -a verbs=(\n")
		for _, w := range c.Words {
			fmt.Fprintf(&b, "    '%s:%s'\n", zshPlain(w.Word), zshPlain(w.About))
		}
		b.WriteString("  )\n  local context state state_descr line; typeset -A opt_args\n" +
			"  _arguments -s -S : $options '1: :->verb' '*: :_default' && return\n" +
			"  [[ $state == verb ]] && _describe -t commands command verbs\n")
	case c.Rest.known():
		fmt.Fprintf(&b, "  _arguments -s -S : $options '*: :{%s}'\n", zshValues(c.Rest))
	default:
		b.WriteString("  _arguments -s -S : $options '*: :_default'\n")
	}
	b.WriteString("}\n")
	return b.String()
}

// zshOption returns an option's row for _arguments.
func zshOption(c *Command, o *command.Option, own Of) string {
	help := zshPlain(o.Help)
	argument := ""
	meta := zshPlain(o.Meta)
	if meta == "" {
		meta = "value"
	}
	switch o.Arg {
	case opt.Required:
		argument = ":" + meta + ":{" + zshValues(Argument(own, c.Name, o)) + "}"
	case opt.Optional:
		argument = "::" + meta + ":{" + zshValues(Argument(own, c.Name, o)) + "}"
	}
	long, short := "--"+o.Long, ""
	if o.Short != 0 {
		short = "-" + string(rune(o.Short))
	}
	switch o.Arg {
	case opt.Required:
		long += "="
		if short != "" {
			short += "+"
		}
	case opt.Optional:
		long += "=-"
		if short != "" {
			short += "-"
		}
	}
	if short == "" {
		return "'*" + long + "[" + help + "]" + argument + "'"
	}
	return "'*" + short + "[" + help + "]" + argument + "' '*" + long + "[" + help + "]" + argument + "'"
}

func zshValues(k Kind) string {
	switch {
	case k.Name == "files":
		return "_files"
	case k.Name == "folders":
		return "_files -/"
	case k.Name == "users":
		return "_users"
	case k.Name != "":
		return "_sluice_values " + k.Name
	case k.equals():
		return "_sluice_pairs " + strings.Join(k.List, " ")
	case len(k.List) > 0:
		return "_sluice_choose " + strings.Join(k.List, " ")
	}
	return "_message value"
}

// zshPlain removes characters with a meaning in _arguments or quotes from a description.
func zshPlain(s string) string {
	return strings.NewReplacer("'", "’", "[", "(", "]", ")", ":", " ", "\\", "/", "`", "").Replace(s)
}
