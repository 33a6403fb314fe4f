package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/format"
	pb "github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// showEntity is one thing that scontrol show knows. least is how many letters of the name are enough.
type showEntity struct {
	names    []string
	least    int
	document bool // has --json and --yaml
	run      func(s *show, id string) int
}

// show is one run of scontrol show.
type show struct {
	env  *Env
	opts showOptions
	ctx  context.Context
}

func showEntities() []showEntity {
	return []showEntity{
		{[]string{"jobs", "jobid"}, 1, true, (*show).jobs},
		{[]string{"nodes"}, 1, true, (*show).nodes},
		{[]string{"partitions", "partitionname"}, 2, true, (*show).partitions},
		{[]string{"config"}, 1, false, (*show).config},
		{[]string{"steps", "stepid"}, 2, true, (*show).steps},
		{[]string{"reservations", "reservationname"}, 1, true, (*show).reservations},
		{[]string{"licenses"}, 2, true, (*show).licenses},
		{[]string{"daemons"}, 1, false, (*show).daemons},
		{[]string{"aliases"}, 1, false, (*show).aliases},
		{[]string{"assoc_mgr"}, 2, false, (*show).assocMgr},
		{[]string{"topology"}, 1, false, (*show).topology},
		{[]string{"frontend"}, 2, false, func(s *show, _ string) int { return s.none("No nodes in the system") }},
		{[]string{"burstbuffer", "bbstat", "dwstat"}, 2, false, func(*show, string) int { return 0 }},
		{[]string{"federation"}, 2, false, func(*show, string) int { return 0 }},
	}
}

// scontrolShow runs `scontrol show ENTITY [ID] …`; args start with the entity. The messages and exit codes are those of a real
// scontrol: what is not found is said on stdout, what cannot be asked on stderr.
func scontrolShow(env *Env, opts showOptions, args []string) int {
	s := &show{env: env, opts: opts, ctx: context.Background()}
	switch {
	case len(args) == 0:
		return s.complain("too few arguments for keyword:show")
	case len(args) > 2:
		return s.complain("too many arguments for keyword:show")
	}
	tag, id, hasID := strings.Cut(args[0], "=")
	if len(args) == 2 {
		id = args[1]
		if hasID {
			return s.complain("too many arguments for keyword:show")
		}
	}
	for _, e := range showEntities() {
		for _, name := range e.names {
			if len(tag) >= e.least && len(tag) <= len(name) && strings.EqualFold(tag, name[:len(tag)]) {
				if opts.document.wanted && !e.document {
					return s.complain("scontrol: error: --json and --yaml are for jobs, nodes, partitions, reservations, licenses and steps, not for " + name)
				}
				return e.run(s, id)
			}
		}
	}
	return s.complain("invalid entity:" + format.Escape(args[0]) + " for keyword:show ")
}

// complain prints an error unless -Q was given.
func (s *show) complain(text string) int {
	if !s.opts.quiet {
		fmt.Fprintln(s.env.Stderr, text)
	}
	return 1
}

// none says that there is nothing to show.
func (s *show) none(text string) int {
	if !s.opts.quiet {
		fmt.Fprintln(s.env.Stdout, text)
	}
	return 0
}

// missing says that what was asked for does not exist.
func (s *show) missing(text string) int {
	s.none(text)
	return 1
}

// failed reports a query that failed; call is the name that Slurm gives it.
func (s *show) failed(call string, err error) int {
	if s.opts.quiet {
		return 1
	}
	return s.env.viewExit(s.env.loadFailed(call, err))
}

func (s *show) dial(call string) (*client.Client, int) {
	c, err := s.env.Dial(s.ctx)
	if err != nil {
		return nil, s.failed(call, err)
	}
	return c, 0
}

// out writes what was gathered.
func (s *show) out(b []byte) int {
	if _, err := s.env.Stdout.Write(b); err != nil {
		return 1
	}
	return 0
}

func (s *show) nodes(id string) int {
	c, code := s.dial("slurm_load_node")
	if c == nil {
		return code
	}
	defer func() { _ = c.Close() }()
	var want []string
	if id != "" {
		var err error
		if want, err = hostlist.Expand(id); err != nil {
			return s.missing("Node " + format.Escape(id) + " not found")
		}
	}
	byName := map[string]*pb.NodeRecord{}
	var all []string
	fc := s.env.formatContext(0)
	err := eachNode(s.ctx, c, &pb.NodesRequest{Names: nodeNames(id)}, fc, func(n *pb.NodeRecord) {
		byName[n.GetName()] = n
		if n.GetState() != pb.NodeState_NODE_FUTURE || s.opts.future {
			all = append(all, n.GetName())
		}
	})
	if p := client.ProblemOf(err); p != nil && p.GetCode() == uint32(pb.CodeInvalidNodeName) && id != "" {
		err = nil
	}
	if err != nil {
		return s.failed("slurm_load_node", err)
	}
	if id == "" {
		want = all
		slices.SortStableFunc(want, hostlist.Compare)
		if len(want) == 0 && !s.opts.document.wanted {
			return s.none("No nodes in the system")
		}
	}
	if s.opts.document.wanted {
		return s.nodesDocument(fc, want, byName)
	}
	var b []byte
	for _, name := range want {
		if n := byName[name]; n != nil {
			b = format.AppendNode(b, fc, n, s.opts.oneLine, s.opts.details)
			continue
		}
		if !s.opts.quiet {
			b = append(b, "Node "+format.Escape(name)+" not found\n"...)
		}
		code = 1
	}
	return max(s.out(b), code)
}

// nodeNames is the selection to ask for: nil is all nodes.
func nodeNames(id string) []string {
	if id == "" {
		return nil
	}
	return []string{id}
}

func (s *show) partitions(id string) int {
	c, code := s.dial("slurm_load_partitions")
	if c == nil {
		return code
	}
	defer func() { _ = c.Close() }()
	reply, err := c.Partitions(s.ctx, &pb.PartitionsRequest{})
	if err != nil {
		return s.failed("slurm_load_partitions", err)
	}
	fc := s.env.formatContext(0)
	shown := slices.DeleteFunc(slices.Clone(reply.GetPartitions()), func(p *pb.PartitionRecord) bool {
		hidden := p.GetHidden() && !s.opts.all && os.Getuid() != 0
		return hidden || id != "" && p.GetName() != id
	})
	var b []byte
	for _, p := range shown {
		b = format.AppendPartition(b, fc, p, s.opts.oneLine)
	}
	switch {
	case s.opts.document.wanted && (len(shown) > 0 || id == ""):
		return s.partitionsDocument(fc, shown)
	case len(shown) > 0:
		return s.out(b)
	case id != "":
		return s.missing("Partition " + format.Escape(id) + " not found")
	}
	return s.none("No partitions in the system")
}

func (s *show) topology(id string) int {
	c, code := s.dial("slurm_load_topo")
	if c == nil {
		return code
	}
	defer func() { _ = c.Close() }()
	reply, err := c.Topology(s.ctx, &pb.TopologyRequest{Name: id})
	switch {
	case err != nil:
		return s.failed("slurm_load_topo", err)
	case id != "" && len(reply.GetSwitches()) == 0:
		s.env.Errorf("Topology information contains no switch or node named %s", format.Escape(id))
		return 0
	case len(reply.GetSwitches()) == 0:
		s.env.Errorf("No topology information available")
		return 0
	}
	var b []byte
	for _, w := range reply.GetSwitches() {
		b = format.AppendSwitch(b, w)
	}
	return s.out(b)
}
