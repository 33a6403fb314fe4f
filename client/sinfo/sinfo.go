// Package sinfo is the command that shows partitions and nodes.
package sinfo

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/format/doc"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/view"
)

// Main runs one sinfo command line.
func Main(env *command.Env, args []string) int {
	o, err := parse(env, args)
	if err != nil {
		return env.Exit(err)
	}
	o.printOptions(env)
	return view.Repeat(env, o.iterateS, func(ctx context.Context) int { return once(ctx, env, o) })
}

func once(ctx context.Context, env *command.Env, o *options) int {
	if o.reservations {
		return printReservations(ctx, env, o)
	}
	if o.document.Wanted {
		return printDocument(ctx, env, o)
	}
	layout := layout(env, o)
	order, _ := format.Nodes().ParseSort(o.order()) // as in Slurm, unknown letters are ignored
	parts, nodes, fc, err := load(ctx, env, o, format.NeedsOfNodes(layout, order).With(format.NeedsOfFolding()))
	if err != nil {
		return env.Exit(err)
	}
	fc.Cluster = "" // only a federation names its clusters here
	rows := rows(fc, layout, parts, nodes, o)
	cluster := ""
	if o.haveClusters {
		cluster = env.ClusterName()
	}
	return view.PrintTable(env, fc, layout, order, rows, view.TableOptions{NoHeader: o.noHeader,
		Stamp: o.long || o.iterateS > 0 || o.given.Verbose() > 0, Cluster: cluster})
}

// rows selects and groups the nodes.
func rows(fc *format.Context, layout format.Layout[*format.NodeGroup], parts []*msg.PartitionRecord, nodes []*msg.NodeRecord,
	o *options) []*format.NodeGroup {
	parts = slices.DeleteFunc(slices.Clone(parts), func(p *msg.PartitionRecord) bool { return !o.showsPartition(p) })
	nodes = slices.DeleteFunc(nodes, func(n *msg.NodeRecord) bool { return !o.showsNode(n) })
	return format.FoldNodes(fc, layout, parts, format.PartitionNodes(parts, nodes), format.FoldOptions{
		Exact:   o.exact,
		PerNode: o.perNode,
		Empty:   !o.reasons && layout.Uses(func(f *format.Field[*format.NodeGroup]) bool { return f.Letter == 'P' || f.Letter == 'R' }),
	})
}

// printDocument prints the same rows as JSON or YAML: nodes of a partition with equal fields are one element.
func printDocument(ctx context.Context, env *command.Env, o *options) int {
	layout := doc.SinfoLayout()
	parts, nodes, fc, err := load(ctx, env, o, format.NeedsOfNodes(layout, nil).With(format.NeedsOfNodeGroup()))
	if err != nil {
		return env.Exit(err)
	}
	out := view.NewDocument(env, o.document, "sinfo")
	out.Begin()
	for _, g := range rows(fc, layout, parts, nodes, o) {
		doc.WriteNodeGroup(out.Writer, fc, g)
	}
	return out.Finish(nil, nil)
}

func layout(env *command.Env, o *options) format.Layout[*format.NodeGroup] {
	spec, byName := o.view()
	if byName {
		layout, unknown := format.Nodes().ParseNames(spec)
		for _, word := range unknown {
			env.Errorf("Invalid job format specification: %s", format.Escape(word))
		}
		return layout
	}
	layout, unknown := format.Nodes().ParseLetters(spec)
	for _, word := range unknown {
		fmt.Fprintf(env.Stderr, "Invalid node format specification: %s\n", format.Escape(word))
	}
	return layout
}

// load fetches the partitions, and the required fields of nodes.
func load(ctx context.Context, env *command.Env, o *options, needs format.Needs) ([]*msg.PartitionRecord, []*msg.NodeRecord,
	*format.Context, error) {
	c, err := env.Dial(ctx)
	if err != nil {
		return nil, nil, nil, view.LoadFailed(env, "slurm_load_partitions", err)
	}
	defer func() { _ = c.Close() }()
	parts, err := c.Partitions(ctx, &msg.PartitionsRequest{})
	if err != nil {
		return nil, nil, nil, view.LoadFailed(env, "slurm_load_partitions", err)
	}
	var nodes []*msg.NodeRecord
	fc := view.Context(env, 0)
	request := &msg.NodesRequest{Visible: o.nodes == nil} // nodes that are named are shown even if hidden
	err = view.EachNode(ctx, c, needs.AskNodes(request), fc, func(n *msg.NodeRecord) { nodes = append(nodes, n) })
	if err != nil {
		return nil, nil, nil, view.LoadFailed(env, "slurm_load_node error", err)
	}
	return parts.GetPartitions(), nodes, fc, nil
}

// showsPartition leaves out partitions that were not requested, and hidden ones except for root and with -a.
func (o *options) showsPartition(p *msg.PartitionRecord) bool {
	if len(o.partitions) > 0 {
		return slices.Contains(o.partitions, p.GetName())
	}
	return !p.GetHidden() || o.all || os.Getuid() == 0
}

func (o *options) showsNode(n *msg.NodeRecord) bool {
	switch {
	case o.nodes != nil && !o.nodes[n.GetName()] && !o.nodes[n.GetHostname()]:
		return false
	case o.dead && !format.NoRespond(n), o.responding && format.NoRespond(n):
		return false
	case o.noStates:
		return false
	// a device that is not allocated has a reason, too
	case o.reasons && !o.haveStates && !format.Unavailable(n) && n.GetGresDrain() == "":
		return false
	case n.GetState() == msg.NodeState_NODE_FUTURE && !o.haveStates:
		return false
	}
	return o.states.Match(n)
}
