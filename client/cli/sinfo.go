package cli

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/format"
	pb "github.com/sluice-hpc/sluice/client/msg"
)

// sinfo runs one sinfo command line.
func sinfo(env *Env, args []string) int {
	o, err := sinfoParse(env, args)
	if err != nil {
		return env.viewExit(err)
	}
	return env.repeat(o.iterateS, func(ctx context.Context) int { return sinfoOnce(ctx, env, o) })
}

func sinfoOnce(ctx context.Context, env *Env, o *sinfoOptions) int {
	if o.reservations {
		return sinfoReservations(ctx, env, o)
	}
	if o.document.wanted {
		return sinfoDocument(ctx, env, o)
	}
	layout := sinfoLayout(env, o)
	order, _ := format.Nodes().ParseSort(o.order()) // a letter that does not exist is left out, as Slurm does
	parts, nodes, fc, err := sinfoLoad(ctx, env, format.NeedsOfNodes(layout, order).With(format.NeedsOfFolding()))
	if err != nil {
		return env.viewExit(err)
	}
	fc.Cluster = "" // only a federation names its clusters here
	rows := sinfoRows(fc, layout, parts, nodes, o)
	cluster := ""
	if o.haveClusters {
		cluster = env.clusterName()
	}
	return printTable(env, fc, layout, order, rows, tableOptions{noHeader: o.noHeader, stamp: o.long || o.iterateS > 0, cluster: cluster})
}

// sinfoRows selects and folds.
func sinfoRows(fc *format.Context, layout format.Layout[*format.NodeGroup], parts []*pb.PartitionRecord, nodes []*pb.NodeRecord, o *sinfoOptions) []*format.NodeGroup {
	parts = slices.DeleteFunc(slices.Clone(parts), func(p *pb.PartitionRecord) bool { return !o.showsPartition(p) })
	nodes = slices.DeleteFunc(nodes, func(n *pb.NodeRecord) bool { return !o.showsNode(n) })
	return format.FoldNodes(fc, layout, parts, format.PartitionNodes(parts, nodes), format.FoldOptions{
		Exact:   o.exact,
		PerNode: o.perNode,
		Empty:   !o.reasons && layout.Uses(func(f *format.Field[*format.NodeGroup]) bool { return f.Letter == 'P' || f.Letter == 'R' }),
	})
}

// sinfoDocument prints the same rows as JSON or YAML: nodes of a partition that look the same are one element.
func sinfoDocument(ctx context.Context, env *Env, o *sinfoOptions) int {
	layout := format.SinfoLayout()
	parts, nodes, fc, err := sinfoLoad(ctx, env, format.NeedsOfNodes(layout, nil).With(format.NeedsOfNodeGroup()))
	if err != nil {
		return env.viewExit(err)
	}
	doc := env.newDocument(o.document, "sinfo")
	doc.begin()
	for _, g := range sinfoRows(fc, layout, parts, nodes, o) {
		format.WriteNodeGroup(doc.Writer, fc, g)
	}
	return doc.finish(nil, nil)
}

func sinfoLayout(env *Env, o *sinfoOptions) format.Layout[*format.NodeGroup] {
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

// sinfoLoad asks for partitions, and for what is needed of nodes.
func sinfoLoad(ctx context.Context, env *Env, needs format.Needs) ([]*pb.PartitionRecord, []*pb.NodeRecord, *format.Context, error) {
	c, err := env.Dial(ctx)
	if err != nil {
		return nil, nil, nil, env.loadFailed("slurm_load_partitions", err)
	}
	defer func() { _ = c.Close() }()
	parts, err := c.Partitions(ctx, &pb.PartitionsRequest{})
	if err != nil {
		return nil, nil, nil, env.loadFailed("slurm_load_partitions", err)
	}
	var nodes []*pb.NodeRecord
	fc := env.formatContext(0)
	err = eachNode(ctx, c, needs.AskNodes(&pb.NodesRequest{}), fc, func(n *pb.NodeRecord) { nodes = append(nodes, n) })
	if err != nil {
		return nil, nil, nil, env.loadFailed("slurm_load_node", err)
	}
	return parts.GetPartitions(), nodes, fc, nil
}

// eachNode is eachJob for nodes.
func eachNode(ctx context.Context, c *client.Client, r *pb.NodesRequest, fc *format.Context, f func(*pb.NodeRecord)) error {
	stream, err := c.Nodes(ctx, r)
	if err != nil {
		return err
	}
	return eachPage(stream.Recv, func(p *pb.NodesReply) {
		setClock(fc, p.GetNowNs())
		for _, n := range p.GetNodes() {
			f(n)
		}
	})
}

// showsPartition leaves out partitions that were not asked for, and hidden ones unless root or -a asks.
func (o *sinfoOptions) showsPartition(p *pb.PartitionRecord) bool {
	if len(o.partitions) > 0 {
		return slices.Contains(o.partitions, p.GetName())
	}
	return !p.GetHidden() || o.all || os.Getuid() == 0
}

func (o *sinfoOptions) showsNode(n *pb.NodeRecord) bool {
	switch {
	case o.nodes != nil && !o.nodes[n.GetName()] && !o.nodes[n.GetHostname()]:
		return false
	case o.dead && !format.NoRespond(n), o.responding && format.NoRespond(n):
		return false
	case o.reasons && !o.haveStates && !format.Unavailable(n) && n.GetGresDrain() == "": // a device that is not given out has its reason, too
		return false
	case n.GetState() == pb.NodeState_NODE_FUTURE && !o.haveStates:
		return false
	}
	return o.states.Match(n)
}
