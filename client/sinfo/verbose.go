package sinfo

import (
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/view"
)

// flags are the lines of the second block of -v: the flags that a real sinfo sets for the fields of its format, by -O name.
var flags = []struct{ line, fields string }{
	{"all_flag        = ", ""},
	{"alloc_mem_flag  = ", "allocmem"},
	{"avail_flag      = ", "available"},
	{"comment_flag    = ", "comment"},
	{"cpus_flag       = ", "cpus cpusstate"},
	{"default_time_flag =", "defaulttime"},
	{"disk_flag       = ", "disk"},
	{"extra_flag      = ", "extra"},
	{"features_flag   = ", "features"},
	{"features_flag_act = ", "features_act"},
	{"groups_flag     = ", "groups"},
	{"gres_flag       = ", "gres"},
	{"gres_used_flag  = ", "gresused"},
	{"job_size_flag   = ", "size"},
	{"max_time_flag   = ", "time"},
	{"memory_flag     = ", "memory"},
	{"partition_flag  = ", "partition partitionname"},
	{"port_flag       = ", "port"},
	{"priority_job_factor_flag   = ", "priorityjobfactor"},
	{"priority_tier_flag   = ", "prioritytier"},
	{"reason_flag     = ", "reason"},
	{"reason_timestamp_flag = ", "timestamp"},
	{"reason_user_flag = ", "user userlong"},
	{"reservation_flag = ", ""},
	{"root_flag       = ", "root"},
	{"oversubscribe_flag      = ", "oversubscribe"},
	{"state_flag      = ", "statecompact statelong"},
	{"statecomplete_flag = ", "statecomplete"},
	{"weight_flag     = ", "weight"},
}

// printOptions prints the first block of -v, in the format of a real sinfo; nothing before a document.
func (o *options) printOptions(env *command.Env) {
	g := o.given
	if g.Verbose() == 0 || o.document.Wanted {
		return
	}
	spec, byName := o.view()
	layout, _ := format.Nodes().ParseLetters(spec)
	if byName {
		layout, _ = format.Nodes().ParseNames(spec)
	}
	own := spec != o.format
	if own {
		spec = named(layout)
	}
	states := "(null)"
	if o.reasons {
		states = "down"
	}
	yes := strconv.FormatBool
	view.PrintOptions(env,
		"dead        = ", g.Has("dead"),
		"exact       = ", g.Flag("exact"),
		"filtering   = ", g.Has("dead", "responding", "nodes", "partition", "states", "list-reasons"),
		"format      = ", spec,
		"iterate     = ", strconv.Itoa(o.iterateS),
		"long        = ", yes(o.long),
		"no_header   = ", yes(o.noHeader),
		"node_field  = ", yes(o.perNode && own),
		"node_format = ", yes(o.perNode),
		"nodes       = ", g.Or("n/a", "nodes"),
		"part_field  = ", yes(own && !o.reasons),
		"partition   = ", g.Or("n/a", "partition"),
		"responding  = ", g.Has("responding"),
		"states      = ", g.Or(states, "states"),
		"sort        = ", g.Or(view.Null, "sort"),
		"summarize   = ", yes(o.summary),
		"verbose     = ", strconv.Itoa(g.Verbose()))
	var pairs []string
	for _, f := range flags {
		set := layout.Uses(func(field *format.Field[*format.NodeGroup]) bool {
			return strings.Contains(" "+f.fields+" ", " "+field.Names[0]+" ")
		})
		switch strings.TrimSpace(f.line) {
		case "all_flag        =":
			set = o.all || len(o.partitions) > 0
		case "reservation_flag =":
			set = o.reservations
		}
		pairs = append(pairs, f.line, yes(set))
	}
	view.PrintOptions(env, pairs...)
	view.EndOptions(env, "\n")
}

// named writes one of sinfo's own formats with the names of its fields, as a real sinfo does.
func named(layout format.Layout[*format.NodeGroup]) string {
	var words []string
	for _, c := range layout {
		width := strconv.Itoa(c.Width)
		switch {
		case c.Field.Letter == 'N':
			width = "0"
		case c.Right:
			width = "." + width
		}
		words = append(words, c.Field.Names[0]+":"+width)
	}
	return strings.Join(words, " ,")
}
