// Package completion writes completion scripts for bash, zsh and fish from the options that each command lists.
//
// Names of partitions, nodes, jobs, reservations and features are fetched from the cluster on demand, by `sluice squeue` and the
// like, because the commands may not be installed under Slurm's names, or those names may belong to other programs.
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
	Words   []Word // first words that may replace an option
	Rest    Kind   // other words
	After   []After
}

// Word is a word and its description.
type Word struct{ Word, About string }

// After has the completions that follow certain words.
type After struct {
	Words []string
	Kind  Kind
}

// Kind is a kind of values: fetched from the cluster, or a list.
type Kind struct {
	Name string   // one of those below; "" with List
	List []string // words; those that end in "=" take a value
}

// The kinds of values that are fetched on demand; None is an unknown kind.
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

// live are the commands that print the values of a kind, in any shell.
var live = []struct{ kind, command string }{
	{"partitions", "sluice sinfo -h -a -o %R 2>/dev/null"},
	{"nodes", "sluice sinfo -h -N -o %N 2>/dev/null"},
	{"jobs", "sluice squeue -h --me -o %A 2>/dev/null"},
	{"reservations", `sluice scontrol -o show reservations 2>/dev/null | sed -n 's/^ReservationName=\([^ ]*\).*/\1/p'`},
	{"features", "sluice sinfo -h -o %f 2>/dev/null | tr ',' '\\n' | grep -v '(null)'"},
}

// Of returns the kind of an option's argument, by the option's names.
type Of func(command string, o *command.Option) Kind

// general are the options whose arguments are the same in every command.
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

// Argument returns the kind of an option's argument: that of own, or the general one.
func Argument(own Of, name string, o *command.Option) Kind {
	if own != nil {
		if k := own(name, o); k.known() {
			return k
		}
	}
	return general[o.Long]
}

func (k Kind) known() bool { return k.Name != "" || len(k.List) > 0 }

// shown returns the options to offer, without aliases.
func (c *Command) shown() (rows []command.Option) {
	for _, o := range c.Options {
		if o.Canon == "" && o.Help != "" {
			rows = append(rows, o)
		}
	}
	return rows
}

// names returns all spellings of an option.
func (c *Command) names(o *command.Option) (words []string) {
	p := command.Page{Options: c.Options}
	if o.Short != 0 {
		words = append(words, "-"+string(rune(o.Short)))
	}
	return append(append(words, "--"+o.Long), p.Aliases(o)...)
}

// equals reports whether the words of a list take a value after "=".
func (k Kind) equals() bool {
	return slices.ContainsFunc(k.List, func(w string) bool { return strings.HasSuffix(w, "=") })
}

func takes(o *command.Option) bool { return o.Arg == opt.Required }
