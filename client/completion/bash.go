package completion

import (
	"fmt"
	"strings"
)

// Bash returns the script for bash: it is sourced, or installed in bash-completion's directory under the name of each command.
func Bash(commands []Command, own Of) string {
	var b strings.Builder
	b.WriteString("# bash completion for Sluice and Slurm's commands; made by: sluice completion bash\n" + bashHead() + bashTail)
	for i := range commands {
		c := &commands[i]
		fmt.Fprintf(&b, "_sluice_%s() {\n  local cur prev\n  _sluice_words\n  case $prev in\n", c.Name)
		options := c.shown()
		for k := range options {
			o := &options[k]
			if !takes(o) {
				continue
			}
			fmt.Fprintf(&b, "  %s) %s; return ;;\n", strings.Join(c.names(o), "|"), bashValues(Argument(own, c.Name, o)))
		}
		for _, a := range c.After {
			fmt.Fprintf(&b, "  %s) %s; return ;;\n", strings.Join(a.Words, "|"), bashValues(a.Kind))
		}
		b.WriteString("  esac\n")
		var words []string
		for _, w := range c.Words {
			words = append(words, w.Word)
		}
		if c.Rest.known() {
			fmt.Fprintf(&b, "  [[ $cur != -* ]] && { %s; return; }\n", bashValues(c.Rest))
		}
		for k := range options {
			if word := "--" + options[k].Long; takes(&options[k]) {
				words = append(words, word+"=")
			} else {
				words = append(words, word)
			}
		}
		if len(c.Words) > 0 { // sluice VERB: continue with the verb's own words
			fmt.Fprintf(&b, "  _sluice_below %s && return\n", c.Name)
		}
		fmt.Fprintf(&b, "  _sluice_list '%s'\n}\ncomplete -o default -F _sluice_%s %s\n", strings.Join(words, " "), c.Name, c.Name)
	}
	return b.String()
}

// bashValues returns the command that offers values.
func bashValues(k Kind) string {
	switch {
	case k.Name == "files":
		return "COMPREPLY=()"
	case k.Name == "folders":
		return `compopt -o nospace; COMPREPLY=($(compgen -d -S / -- "$cur"))`
	case k.Name != "":
		return "_sluice_values " + k.Name
	case k.equals():
		return "compopt -o nospace; _sluice_list '" + strings.Join(k.List, " ") + "'"
	case len(k.List) > 0:
		return "_sluice_choose '" + strings.Join(k.List, " ") + "'"
	}
	return "compopt +o default; COMPREPLY=()"
}

// bashHead returns the functions that the commands share: splitting "--name=value", and completing values by kind.
func bashHead() string {
	var b strings.Builder
	b.WriteString(`_sluice_words() {
  cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
  if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi
}
_sluice_values() {
  local list=
  case $1 in
`)
	for _, l := range live {
		fmt.Fprintf(&b, "  %s) list=$(%s) ;;\n", l.kind, l.command)
	}
	b.WriteString(`  users) COMPREPLY=($(compgen -u -- "$cur")); return ;;
  esac
  _sluice_choose "$list"
}
`)
	return b.String()
}

const bashTail = `_sluice_choose() {
  local head=; [[ $cur == *,* ]] && head=${cur%,*},
  COMPREPLY=($(compgen -P "$head" -W "$1" -- "${cur##*,}"))
}
_sluice_list() {
  COMPREPLY=($(compgen -W "$1" -- "$cur"))
  [[ ${COMPREPLY-} == *= ]] && compopt -o nospace
}
_sluice_below() {
  [[ $1 == sluice ]] && ((COMP_CWORD > 1)) && declare -F "_sluice_${COMP_WORDS[1]}" >/dev/null || return 1
  local f=_sluice_${COMP_WORDS[1]}
  COMP_WORDS=("${COMP_WORDS[@]:1}") COMP_CWORD=$((COMP_CWORD - 1))
  "$f"
}
`
