package sinfo

import (
	"fmt"
	"io"
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
	byName        bool // the format is one of -O
	sort          string
	haveSort      bool
	clusters      string
	haveClusters  bool
	iterateS      int
	partitions    []string
	nodes         map[string]bool
	states        format.NodeFilter
	haveStates    bool
	noStates      bool // -t named none, so no node has one of them
	document      view.DocumentKind
}

var Names = []opt.Name{
	{Long: "all", Short: 'a'}, {Long: "clusters", Short: 'M', Arg: opt.Required}, {Long: "cluster", Arg: opt.Required, Canon: "clusters"},
	{Long: "dead", Short: 'd'}, {Long: "exact", Short: 'e'}, {Long: "federation"},
	{Long: "format", Short: 'o', Arg: opt.Required}, {Long: "Format", Short: 'O', Arg: opt.Required}, {Long: "help"}, {Long: "hide"},
	{Long: "iterate", Short: 'i', Arg: opt.Required}, {Long: "json", Arg: opt.Optional}, {Long: "list-reasons", Short: 'R'},
	{Long: "local"},
	{Long: "long", Short: 'l'}, {Long: "Node", Short: 'N'}, {Long: "nodes", Short: 'n', Arg: opt.Required}, {Long: "noconvert"},
	{Long: "noheader", Short: 'h'}, {Long: "partition", Short: 'p', Arg: opt.Required}, {Long: "reservation", Short: 'T'},
	{Long: "responding", Short: 'r'}, {Long: "sort", Short: 'S', Arg: opt.Required}, {Long: "states", Short: 't', Arg: opt.Required},
	{Long: "state", Arg: opt.Required, Canon: "states"}, {Long: "summarize", Short: 's'}, {Long: "usage"}, {Long: "verbose", Short: 'v'},
	{Long: "version", Short: 'V'}, {Long: "yaml", Arg: opt.Optional},
}

// parse reads environment and command line (sinfo(1), ENVIRONMENT). Words that are no options are ignored, as Slurm does.
func parse(env *command.Env, argv []string) (*options, error) {
	o := &options{}
	hits, _, err := env.Scan(Names, argv, true)
	if err != nil {
		return nil, err
	}
	given := map[string]bool{}
	for _, h := range hits {
		given[command.Canonical(&Names[h.Index])] = true
	}
	for _, v := range [...]struct{ name, option string }{
		{"SINFO_ALL", "all"}, {"SINFO_FORMAT", "format"}, {"SINFO_PARTITION", "partition"}, {"SINFO_SORT", "sort"},
		{"SLURM_CLUSTERS", "clusters"},
	} {
		value, ok := env.LookupEnv(v.name)
		if !ok || given[v.option] || v.option == "format" && given["Format"] || v.option == "partition" && given["all"] {
			continue
		}
		if err := o.set(env, v.option, opt.Hit{Value: value, Given: true}); err != nil {
			return nil, err
		}
		o.formatFromEnv = o.formatFromEnv || v.option == "format"
	}
	_, all := env.LookupEnv("SINFO_ALL")
	_, partition := env.LookupEnv("SINFO_PARTITION")
	if all && partition {
		return nil, env.Failf("Conflicting options, SINFO_ALL and SINFO_PARTITION, specified. Please choose one or the other.")
	}
	for _, h := range hits {
		if err := o.set(env, command.Canonical(&Names[h.Index]), h); err != nil {
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
	case "Format": // of several formats the last counts, and is read as this one's once it has been given
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
		_, _ = io.WriteString(env.Stdout, help)
		return command.ExitCode(0)
	case "usage":
		_, _ = io.WriteString(env.Stdout, usage)
		return command.ExitCode(0)
	case "version":
		return env.PrintVersion()
	}
	return nil
}

// view gives the format of the options and the layout it is written in; the "#" widths are as wide as the rows need.
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

// order is the --sort in force.
func (o *options) order() string {
	switch {
	case o.haveSort:
		return strings.TrimSpace(o.sort)
	case o.perNode:
		return "N"
	}
	return "#P,-t"
}
