// Package completion writes completion scripts for bash, zsh and fish from the options that each command lists.
//
// Names of partitions, nodes, jobs, reservations and features come from the cluster when they are needed, by `sluice
// squeue` and the like, because the commands may not be installed under Slurm's names, or those names may be another
// program's.
package completion

import (
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/opt"
)

// Command is one command.
type Command struct {
	Name    string
	Options []command.Option
	Words   []Word // what may stand in place of an option, at first
	Rest    Kind   // what the other words are
	After   []After
}

// Word is a word and what it is for.
type Word struct{ Word, About string }

// After says what follows one of some words.
type After struct {
	Words []string
	Kind  Kind
}

// Kind is a sort of values: one that a cluster is asked for, or a list.
type Kind struct {
	Name string   // of those below; "" with List
	List []string // words; those that end in "=" take a value
}

// The sorts of values that are asked for when they are needed; None is a value of which nothing is known.
var (
	None         = Kind{}
	Partitions   = Kind{Name: "partitions"}
	Nodes        = Kind{Name: "nodes"}
	Jobs         = Kind{Name: "jobs"}
	Reservations = Kind{Name: "reservations"}
	Features     = Kind{Name: "features"}
	Users        = Kind{Name: "users"}
	Files        = Kind{Name: "files"}
	Folders      = Kind{Name: "folders"}
)

// live are the commands that print a sort of values, in any shell.
var live = []struct{ kind, command string }{
	{"partitions", "sluice sinfo -h -a -o %R 2>/dev/null"},
	{"nodes", "sluice sinfo -h -N -o %N 2>/dev/null"},
	{"jobs", "sluice squeue -h --me -o %A 2>/dev/null"},
	{"reservations", `sluice scontrol -o show reservations 2>/dev/null | sed -n 's/^ReservationName=\([^ ]*\).*/\1/p'`},
	{"features", "sluice sinfo -h -o %f 2>/dev/null | tr ',' '\\n' | grep -v '(null)'"},
}

// Of says what the argument of an option is, by the option's names.
type Of func(command string, o *command.Option) Kind

// general are options whose arguments are the same in every command that has them.
var general = map[string]Kind{
	"partition": Partitions, "nodelist": Nodes, "exclude": Nodes, "user": Users, "users": Users, "uid": Users, "mail-user": Users,
	"jobs": Jobs, "jobid": Jobs, "reservation": Reservations, "constraint": Features, "prefer": Features, "constraints": Features,
	"output": Files, "error": Files, "input": Files, "nodefile": Files, "chdir": Folders, "export-file": Files,
	"mail-type": {List: strings.Fields("NONE BEGIN END FAIL REQUEUE ALL INVALID_DEPEND TIME_LIMIT TIME_LIMIT_90 TIME_LIMIT_80 " +
		"TIME_LIMIT_50 ARRAY_TASKS")},
	"open-mode": {List: []string{"append", "truncate"}}, "profile": {List: strings.Fields("all none energy task")},
	"kill-on-invalid-dep": {List: []string{"yes", "no"}},
	"hint":                {List: strings.Fields("compute_bound memory_bound multithread nomultithread")},
	"units":               {List: strings.Fields("K M G T P")}, "qos": {List: []string{"normal"}},
}

// Argument is what the argument of an option is: as own says, or as it is everywhere.
func Argument(own Of, name string, o *command.Option) Kind {
	if own != nil {
		if k := own(name, o); k.known() {
			return k
		}
	}
	return general[o.Long]
}

func (k Kind) known() bool { return k.Name != "" || len(k.List) > 0 }

// shown are the options to offer: no other names of the same.
func (c *Command) shown() (rows []command.Option) {
	for _, o := range c.Options {
		if o.Canon == "" && o.Help != "" {
			rows = append(rows, o)
		}
	}
	return rows
}

// names are all ways in which an option is written.
func (c *Command) names(o *command.Option) (words []string) {
	p := command.Page{Options: c.Options}
	if o.Short != 0 {
		words = append(words, "-"+string(rune(o.Short)))
	}
	return append(append(words, "--"+o.Long), p.Aliases(o)...)
}

// equals reports whether the words of a list take a value behind "=".
func (k Kind) equals() bool {
	return slices.ContainsFunc(k.List, func(w string) bool { return strings.HasSuffix(w, "=") })
}

func takes(o *command.Option) bool { return o.Arg == opt.Required }
