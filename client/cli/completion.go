package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/client/sacct"
	"github.com/sluice-hpc/sluice/client/sacctmgr"
	"github.com/sluice-hpc/sluice/client/scancel"
	"github.com/sluice-hpc/sluice/client/scontrol"
	"github.com/sluice-hpc/sluice/client/scrontab"
	"github.com/sluice-hpc/sluice/client/sdiag"
	"github.com/sluice-hpc/sluice/client/seff"
	"github.com/sluice-hpc/sluice/client/sinfo"
	"github.com/sluice-hpc/sluice/client/sprio"
	"github.com/sluice-hpc/sluice/client/squeue"
	"github.com/sluice-hpc/sluice/client/sreport"
	"github.com/sluice-hpc/sluice/client/sshare"
	"github.com/sluice-hpc/sluice/client/sstat"
)

// completed is one command as the completion script sees it.
type completed struct {
	name  string
	names []opt.Name
	words []string // what may stand in place of an option
	rest  string   // of what the other words are, as a case of _sluice_values: "jobs"
}

// completions are the commands with options. A test holds it together with the table of commands.
func completions() []completed {
	return []completed{
		{"sbatch", opt.Names(opt.Sbatch), nil, ""},
		{"scancel", command.NamesOf(scancel.Options[:]), nil, "jobs"},
		{"squeue", squeue.Names, nil, ""},
		{"sinfo", sinfo.Names, nil, ""},
		{"sprio", sprio.Names, nil, ""},
		{"sacct", sacct.Names, nil, ""},
		{"sstat", sstat.Names, nil, "jobs"},
		{"sacctmgr", sacctmgr.Names, []string{"list", "show"}, ""},
		{"sshare", command.NamesOf(sshare.Options[:]), nil, ""},
		{"sreport", command.NamesOf(sreport.Options[:]), []string{"cluster", "user"}, ""},
		{"seff", seff.Names, nil, "jobs"},
		{"sdiag", command.NamesOf(sdiag.Options[:]), nil, ""},
		{"scrontab", command.NamesOf(scrontab.Options[:]), nil, ""},
		{"scontrol", command.NamesOf(scontrol.Options[:]), scontrol.Words(), ""},
	}
}

// completionBash is a completion script for bash, made from the tables of the commands:
//
//	source <(sluice completion bash)
//
// Names of partitions, nodes, jobs, reservations and users come from the cluster, at the moment they are asked for.
func completionBash() string {
	var b strings.Builder
	b.WriteString("# bash completion for Slurm's commands as Sluice has them; made by: sluice completion bash\n")
	b.WriteString(completionValues())
	for _, c := range completions() {
		fmt.Fprintf(&b, "_sluice_%s() {\n  local cur prev words\n  _sluice_words \"$1\"\n", c.name)
		if c.name == "scontrol" {
			b.WriteString(scontrolCompletion())
		}
		rest := ""
		if c.rest != "" {
			rest = "  [[ $cur != -* ]] && { _sluice_values " + c.rest + "; return; }\n"
		}
		fmt.Fprintf(&b,
			"  _sluice_option && return\n%s  COMPREPLY=($(compgen -W '%s' -- \"$cur\"))\n  [[ ${COMPREPLY-} == *= ]] && compopt -o "+
				"nospace\n}\ncomplete -o default -F _sluice_%s %s\n",
			rest, strings.Join(append(slices.Clone(c.words), longOptions(c.names)...), " "), c.name, c.name)
	}
	b.WriteString(sluiceCompletion())
	return b.String()
}

func longOptions(names []opt.Name) (list []string) {
	for _, n := range names {
		switch {
		case n.Long == "" || n.Canon != "":
		case n.Arg == opt.Required:
			list = append(list, "--"+n.Long+"=")
		default:
			list = append(list, "--"+n.Long)
		}
	}
	return list
}

// completionValues are the functions that the commands share: the words of the line with "--name=value" taken apart, and the values
// of an option by its name.
func completionValues() string {
	states := strings.ToLower(format.JobStateNames())
	return `_sluice_words() {
  cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
  if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi
}
_sluice_values() {
  local list=
  case $1 in
  partitions) list=$(sinfo -h -a -o %R 2>/dev/null) ;;
  nodes) list=$(sinfo -h -N -o %N 2>/dev/null) ;;
  jobs) list=$(squeue -h --me -o %A 2>/dev/null) ;;
  reservations) list=$(scontrol -o show reservations 2>/dev/null | sed -n 's/^ReservationName=\([^ ]*\).*/\1/p') ;;
  users) COMPREPLY=($(compgen -u -- "$cur")); return ;;
  jobstates) list='all ` + strings.ReplaceAll(states, ",", " ") + `' ;;
  nodestates) list='` + strings.ReplaceAll(format.NodeStateNames, ",", " ") + `' ;;
  mail) list='NONE BEGIN END FAIL REQUEUE ALL INVALID_DEPEND TIME_LIMIT TIME_LIMIT_90 TIME_LIMIT_80 TIME_LIMIT_50 ARRAY_TASKS' ;;
  signals) list='HUP INT QUIT KILL USR1 USR2 TERM CONT STOP TSTP' ;;
  esac
  local head=; [[ $cur == *,* ]] && head=${cur%,*},
  COMPREPLY=($(compgen -P "$head" -W "$list" -- "${cur##*,}"))
}
_sluice_option() {
  case $prev in
  -p|--partition) _sluice_values partitions ;;
  -w|-x|--nodelist|--exclude|--nodes) _sluice_values nodes ;;
  -u|--user|--users|--uid) _sluice_values users ;;
  -j|--jobs) _sluice_values jobs ;;
  -R|--reservation) _sluice_values reservations ;;
  -t|--state|--states) if [[ $COMP_LINE == sinfo* ]]; then _sluice_values nodestates; elif [[ $COMP_LINE == sbatch* ]]; then return 1; else _sluice_values jobstates; fi ;;
  -s|--signal) [[ $COMP_LINE == scancel* ]] || return 1; _sluice_values signals ;;
  --mail-type) _sluice_values mail ;;
  *) return 1 ;;
  esac
}
`
}

// scontrolCompletion completes the words behind scontrol's commands.
func scontrolCompletion() string {
	entities := append(scontrol.Entities(), "hostnames", "hostlist", "hostlistsorted")
	return `  case $prev in
  show) COMPREPLY=($(compgen -W '` + strings.Join(entities, " ") + `' -- "$cur")); return ;;
  update) compopt -o nospace; COMPREPLY=($(compgen -S = -W 'JobId NodeName PartitionName ReservationName' -- "$cur")); return ;;
  create|delete) compopt -o nospace; COMPREPLY=($(compgen -S = -W 'ReservationName PartitionName NodeName' -- "$cur")); return ;;
  job|jobs|hold|uhold|release|requeue|requeuehold|suspend|resume|top|wait_job|batch_script|JobId|jobid) _sluice_values jobs; return ;;
  node|nodes|NodeName|nodename) _sluice_values nodes; return ;;
  partition|partitions|PartitionName|partitionname) _sluice_values partitions; return ;;
  reservation|reservations|ReservationName) _sluice_values reservations; return ;;
  write) COMPREPLY=($(compgen -W 'batch_script config' -- "$cur")); return ;;
  State|state) COMPREPLY=($(compgen -W '` + strings.Join(scontrol.NodeStates(), " ") + ` UP INACTIVE' -- "$cur")); return ;;
  esac
`
}

// sluiceCompletion completes the verbs of sluice itself.
func sluiceCompletion() string {
	words := append(Names(), "help", "commands", "completion")
	for _, v := range Verbs() {
		words = append(words, v[0])
	}
	return fmt.Sprintf(
		"_sluice_sluice() {\n  local cur prev words\n  _sluice_words\n  case $prev in\n  explain) _sluice_values jobs; return ;;\n  "+
			"token) COMPREPLY=($(compgen -W 'create list revoke' -- \"$cur\")); return ;;\n  "+
			"node) COMPREPLY=($(compgen -W 'list revoke' -- \"$cur\")); return ;;\n  revoke|--node) _sluice_values nodes; return ;;\n  "+
			"--role) COMPREPLY=($(compgen -W 'compute login' -- \"$cur\")); return ;;\n  "+
			"completion) COMPREPLY=(bash); return ;;\n  esac\n"+
			"  COMPREPLY=($(compgen -W '%s' -- \"$cur\"))\n}\ncomplete -o default -F _sluice_sluice sluice\n", strings.Join(words, " "))
}
