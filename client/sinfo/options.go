package sinfo

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/client/view"
	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// options is a parsed command line of sinfo.
type options struct {
	all, hide, dead, responding, exact, long, perNode, noHeader, reasons, summary, reservations bool

	format        string
	haveFormat    bool
	formatFromEnv bool
	byName        bool // the format is for -O
	sort          string
	haveSort      bool
	clusters      string
	haveClusters  bool
	iterateS      int
	partitions    []string
	nodes         map[string]bool
	states        format.NodeFilter
	haveStates    bool
	noStates      bool // -t is empty, so no node matches
	document      view.DocumentKind
	given         view.Given
}

// Options are the command line of sinfo(1).
var Options = [...]command.Option{
	{Name: opt.Name{Long: "all", Short: 'a'}, Group: "Which nodes", Env: "SINFO_ALL", Help: "show hidden partitions too"},
	{Name: opt.Name{Long: "clusters", Short: 'M', Arg: opt.Required}, Group: "Which nodes", Env: "SLURM_CLUSTERS", Meta: "NAME",
		Help: `this cluster, or "all"`},
	{Name: opt.Name{Long: "cluster", Arg: opt.Required, Canon: "clusters"}},
	{Name: opt.Name{Long: "dead", Short: 'd'}, Group: "Which nodes", Help: "only nodes that do not respond"},
	{Name: opt.Name{Long: "exact", Short: 'e'}, Group: "What is shown", Help: `do not shorten different sizes to "4+"`},
	{Name: opt.Name{Long: "federation"}, Group: "Which nodes", Help: "accepted, no effect: there is one cluster"},
	{Name: opt.Name{Long: "format", Short: 'o', Arg: opt.Required}, Group: "What is shown", Env: "SINFO_FORMAT", Meta: "FORMAT",
		Help: `"%9P %.5a %N …": letters with [.][width]; %all for all`},
	{Name: opt.Name{Long: "Format", Short: 'O', Arg: opt.Required}, Group: "What is shown", Meta: "FIELDS",
		Help: "NodeList:20,StateLong,Gres:30,…: names of fields with the width"},
	{Name: opt.Name{Long: "help"}, Help: "show this help"},
	{Name: opt.Name{Long: "hide"}, Group: "Which nodes", Help: "do not show hidden partitions (the default)"},
	{Name: opt.Name{Long: "iterate", Short: 'i', Arg: opt.Required}, Group: "What is shown", Meta: "SECONDS",
		Help: "refresh every SECONDS"},
	{Name: opt.Name{Long: "json", Arg: opt.Optional}, Group: "What is shown", Meta: "parser",
		Help: "print JSON (data_parser v0.0.42)"},
	{Name: opt.Name{Long: "list-reasons", Short: 'R'}, Group: "Which nodes",
		Help: "nodes that are down, drained or failing, with reasons"},
	{Name: opt.Name{Long: "local"}, Group: "Which nodes", Help: "accepted, no effect: there is one cluster"},
	{Name: opt.Name{Long: "long", Short: 'l'}, Group: "What is shown", Help: "show more columns"},
	{Name: opt.Name{Long: "Node", Short: 'N'}, Group: "What is shown", Help: "a row for each node"},
	{Name: opt.Name{Long: "nodes", Short: 'n', Arg: opt.Required}, Group: "Which nodes", Meta: "HOSTS", Help: "only these nodes"},
	{Name: opt.Name{Long: "noconvert"}, Group: "What is shown", Help: "do not convert sizes to larger units"},
	{Name: opt.Name{Long: "noheader", Short: 'h'}, Group: "What is shown", Help: "no header"},
	{Name: opt.Name{Long: "partition", Short: 'p', Arg: opt.Required}, Group: "Which nodes", Env: "SINFO_PARTITION", Meta: "LIST",
		Help: "only these partitions"},
	{Name: opt.Name{Long: "reservation", Short: 'T'}, Group: "What is shown", Help: "show reservations"},
	{Name: opt.Name{Long: "responding", Short: 'r'}, Group: "Which nodes", Help: "only nodes that respond"},
	{Name: opt.Name{Long: "sort", Short: 'S', Arg: opt.Required}, Group: "What is shown", Env: "SINFO_SORT", Meta: "LETTERS",
		Help: `letters of -o, "-" for descending, "#P" partitions as in slurm.conf`},
	{Name: opt.Name{Long: "states", Short: 't', Arg: opt.Required}, Group: "Which nodes", Meta: "LIST",
		Help: `idle,mix,alloc,drain,down,…: "," or, "&" and, "~" not`},
	{Name: opt.Name{Long: "state", Arg: opt.Required, Canon: "states"}},
	{Name: opt.Name{Long: "summarize", Short: 's'}, Group: "What is shown", Help: "a row for each partition"},
	{Name: opt.Name{Long: "usage"}, Help: "show a short help"},
	{Name: opt.Name{Long: "verbose", Short: 'v'}, Group: "What is shown", Help: "print the options first"},
	{Name: opt.Name{Long: "version", Short: 'V'}, Help: "show the version"},
	{Name: opt.Name{Long: "yaml", Arg: opt.Optional}, Group: "What is shown", Meta: "parser", Help: "print YAML"},
}

// parse reads environment and command line (sinfo(1), ENVIRONMENT). As in Slurm, words that are not options are ignored.
func parse(env *command.Env, argv []string) (*options, error) {
	o := &options{given: view.Given{}}
	names := command.NamesOf(Options[:])
	hits, _, err := env.Scan(names, argv, true)
	if err != nil {
		return nil, err
	}
	given := map[string]bool{}
	for _, h := range hits {
		given[command.Canonical(&names[h.Index])] = true
	}
	for i := range Options {
		option := Options[i].Long
		value, ok := env.LookupEnv(Options[i].Env)
		if Options[i].Env == "" || !ok || given[option] || option == "format" && given["Format"] || option == "partition" && given["all"] {
			continue
		}
		if err := o.set(env, option, opt.Hit{Value: value, Given: true}); err != nil {
			return nil, err
		}
		o.formatFromEnv = o.formatFromEnv || option == "format"
	}
	_, all := env.LookupEnv("SINFO_ALL")
	_, partition := env.LookupEnv("SINFO_PARTITION")
	if all && partition {
		return nil, env.Failf("Conflicting options, SINFO_ALL and SINFO_PARTITION, specified. Please choose one or the other.")
	}
	for _, h := range hits {
		if err := o.set(env, command.Canonical(&names[h.Index]), h); err != nil {
			return nil, err
		}
	}
	switch {
	case given["long"] && (given["format"] || given["Format"]):
		fmt.Fprintf(env.Stderr, "%s: fatal: Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry.\n",
			env.Name)
		return nil, command.ExitCode(1)
	case given["all"] && given["partition"]:
		return nil, env.Failf("Conflicting options, -a and -p, specified. Please choose one or the other.")
	case o.haveClusters:
		return o, env.CheckClusters(o.clusters)
	}
	return o, nil
}

func (o *options) set(env *command.Env, name string, h opt.Hit) error {
	o.given.Add(name, h)
	switch name {
	case "all":
		o.all = true
	case "hide":
		o.hide = true
	case "clusters":
		o.clusters, o.haveClusters = h.Value, true
	case "dead":
		o.dead = true
	case "exact":
		o.exact = true
	case "format":
		o.format, o.haveFormat = h.Value, true
	case "Format": // the last of several formats wins, and once -O is given it is read as one of -O
		o.format, o.haveFormat, o.byName = h.Value, true, true
	case "list-reasons":
		o.reasons = true
	case "long":
		o.long = true
	case "Node":
		o.perNode = true
	case "noheader":
		o.noHeader = true
	case "partition":
		o.partitions = command.List(h.Value)
	case "reservation":
		o.reservations = true
	case "responding":
		o.responding = true
	case "sort":
		o.sort, o.haveSort = h.Value, true
	case "summarize":
		o.summary = true
	default:
		return o.setMore(env, name, h)
	}
	return nil
}

func (o *options) setMore(env *command.Env, name string, h opt.Hit) error {
	switch name {
	case "iterate":
		n, err := strconv.Atoi(h.Value)
		if err != nil || n <= 0 {
			return env.Failf("Error: invalid entry for --iterate=%s\nsinfo: error: expected seconds, 1 or more", format.Escape(h.Value))
		}
		o.iterateS = n
	case "nodes":
		names, err := hostlist.Expand(h.Value)
		if err != nil {
			return env.Failf("%v", err)
		}
		o.nodes = map[string]bool{}
		for _, n := range names {
			if n == "localhost" {
				n = command.ShortHostname()
			}
			o.nodes[n] = true
		}
	case "states":
		filter, bad := format.ParseNodeStates(h.Value)
		if bad != "" {
			env.Errorf("Bad state string: \"%s\"", format.Escape(bad))
			env.Errorf("valid states: %s", format.NodeStateNames)
			return command.ExitCode(1)
		}
		o.states, o.haveStates, o.noStates = filter, true, strings.Trim(h.Value, ",") == ""
	case "json", "yaml":
		kind, err := view.DocumentOption(env, name, h.Value)
		o.document = kind
		return err
	case "help":
		return env.Print(Page().Help())
	case "usage":
		return env.Print(usage)
	case "version":
		return env.PrintVersion()
	}
	return nil
}

// view returns the format and whether it is by name; "#" columns are as wide as the rows require.
func (o *options) view() (spec string, byName bool) {
	switch {
	case o.haveFormat && !o.formatFromEnv, o.haveFormat && !o.summary && !o.perNode && !o.reasons:
		return o.format, o.byName
	case o.summary:
		return "%9" + format.Widest + "P %.5a %.10l %.16F %N", false
	case o.perNode && o.long:
		return "%9" + format.Widest + "N %.6D %.9" + format.Widest + "P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E", false
	case o.perNode:
		return "%9" + format.Widest + "N %.6D %.9" + format.Widest + "P %6t", false
	case o.reasons && o.long:
		return "%20E %12U %19H %6t %N", false
	case o.reasons:
		return "%20E %9u %19H %N", false
	case o.long:
		return "%9" + format.Widest + "P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N", false
	}
	return "%9" + format.Widest + "P %.5a %.10l %.6D %.6t %N", false
}

// order returns the --sort in effect.
func (o *options) order() string {
	switch {
	case o.haveSort:
		return strings.TrimSpace(o.sort)
	case o.perNode:
		return "N"
	}
	return "#P,-t"
}
