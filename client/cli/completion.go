package cli

import (
	"fmt"
	"strings"

	"github.com/sluice-hpc/sluice/client/opt"
)

// completionBash is a completion script for bash, made from the tables of the commands:
//
//	source <(sluice completion bash)
func completionBash() string {
	var words []string
	for _, k := range keywords() {
		if k.help != "" {
			words = append(words, k.name)
		}
	}
	var b strings.Builder
	b.WriteString("# bash completion for Slurm's commands as Sluice has them; made by: sluice completion bash\n")
	for _, c := range []struct {
		name  string
		names []opt.Name
		words []string
	}{
		{"sbatch", opt.Names(opt.Sbatch), nil},
		{"scancel", namesOf(scancelOptions[:]), nil},
		{"scontrol", namesOf(scontrolOptions[:]), words},
	} {
		list := c.words
		for _, n := range c.names {
			switch {
			case n.Long == "" || n.Canon != "":
			case n.Arg == opt.Required:
				list = append(list, "--"+n.Long+"=")
			default:
				list = append(list, "--"+n.Long)
			}
		}
		fmt.Fprintf(&b, "_sluice_%s() {\n  local cur=${COMP_WORDS[COMP_CWORD]}\n  COMPREPLY=($(compgen -W '%s' -- \"$cur\"))\n"+
			"  [[ ${COMPREPLY-} == *= ]] && compopt -o nospace\n}\ncomplete -o default -F _sluice_%s %s\n", c.name, strings.Join(list, " "), c.name, c.name)
	}
	return b.String()
}
