package scontrol

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/client/view"
	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// showEntity is one entity of scontrol show. least is the minimum length of an abbreviation.
type showEntity struct {
	names    []string
	least    int
	document bool // supports --json and --yaml
	run      func(s *show, id string) int
}

// show is one call of scontrol show.
type show struct {
	env  *command.Env
	opts showOptions
	ctx  context.Context
}

func showEntities() []showEntity {
	return []showEntity{
		{[]string{"jobs", "jobid"}, 1, true, (*show).jobs},
		{[]string{"nodes"}, 1, true, (*show).nodes},
		{[]string{"partitions", "partitionname"}, 2, true, (*show).partitions},
		{[]string{"config"}, 1, false, (*show).config},
		{[]string{"steps"}, 2, true, (*show).steps},
		{[]string{"reservations", "reservationname"}, 1, true, (*show).reservations},
		{[]string{"licenses"}, 2, true, (*show).licenses},
		{[]string{"daemons"}, 1, false, (*show).daemons},
		{[]string{"aliases"}, 1, false, (*show).aliases},
		{[]string{"assoc_mgr"}, 2, false, func(s *show, id string) int { return s.assocMgr([]string{id}) }},
		{[]string{"topology"}, 1, false, (*show).topology},
		{[]string{"frontend"}, 2, false, func(s *show, _ string) int { return s.none("No nodes in the system") }},
		{[]string{"burstbuffer", "bbstat", "dwstat"}, 2, false, func(*show, string) int { return 0 }},
		{[]string{"slurmd"}, 2, false, (*show).slurmd},
		{[]string{"federation"}, 2, false, func(*show, string) int { return 0 }},
	}
}

// runShow runs `scontrol show ENTITY [ID] …`; args start with the entity. Messages and exit codes are those of a real scontrol:
// missing records are reported on stdout, failed queries on stderr.
func runShow(env *command.Env, opts showOptions, args []string) int {
	s := &show{env: env, opts: opts, ctx: context.Background()}
	switch {
	case len(args) == 0:
		return s.complain("too few arguments for keyword:show")
	case isAssocMgr(args[0]):
		return s.assocMgr(args[1:])
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
				if opts.document.Wanted && !e.document {
					return s.complain(
						"scontrol: error: --json and --yaml are for jobs, nodes, partitions, reservations, licenses and steps, not for " +
							name)
				}
				return e.run(s, id)
			}
		}
	}
	text := "invalid entity:" + format.Escape(args[0]) + " for keyword:show "
	var names []string
	for _, e := range showEntities() {
		names = append(names, e.names...)
	}
	if near := opt.Nearest(names, tag); near != "" {
		text += "\ndid you mean " + near + "?"
	}
	return s.complain(text)
}

// complain prints an error unless -Q was given.
func (s *show) complain(text string) int {
	if !s.opts.quiet {
		fmt.Fprintln(s.env.Stderr, text)
	}
	return 1
}

// none reports that there is nothing to show.
func (s *show) none(text string) int {
	if !s.opts.quiet {
		fmt.Fprintln(s.env.Stdout, text)
	}
	return 0
}

// missing reports that the requested record does not exist.
func (s *show) missing(text string) int {
	s.none(text)
	return 1
}

// failed reports a failed query; call is Slurm's name for it.
func (s *show) failed(call string, err error) int {
	if s.opts.quiet {
		return 1
	}
	return s.env.Exit(view.LoadFailed(s.env, call+" error", err))
}

func (s *show) dial(call string) (*client.Client, int) {
	c, err := s.env.Dial(s.ctx)
	if err != nil {
		return nil, s.failed(call, err)
	}
	return c, 0
}

// stamp is the line of -v before a list of records: their time, and how many the controller sent.
func (s *show) stamp(fc *format.Context, records int) {
	if s.opts.verbose > 0 && !s.opts.quiet {
		_ = s.out(fmt.Appendf(fc.AppendTime([]byte("last_update_time="), fc.Now.UnixNano(), "Unknown"), ", records=%d\n", records))
	}
}

// out writes the output.
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
	byName := map[string]*msg.NodeRecord{}
	var all []string
	fc := view.Context(s.env, 0)
	request := &msg.NodesRequest{Visible: id == ""}
	if id != "" && s.opts.verbose == 0 { // -v prints the number of nodes
		request.Names = []string{id}
	}
	err := view.EachNode(s.ctx, c, request, fc, func(n *msg.NodeRecord) {
		if n.GetState() != msg.NodeState_NODE_FUTURE || s.opts.future {
			byName[n.GetName()] = n
			all = append(all, n.GetName())
		}
	})
	if p := client.ProblemOf(err); p != nil && p.GetCode() == uint32(msg.CodeInvalidNodeName) && id != "" {
		err = nil
	}
	if err != nil {
		return s.failed("slurm_load_node", err)
	}
	if id == "" {
		want = all
		slices.SortStableFunc(want, hostlist.Compare)
	}
	if s.opts.document.Wanted {
		return s.nodesDocument(fc, want, byName)
	}
	s.stamp(fc, len(byName))
	if id == "" && len(want) == 0 {
		return s.none("No nodes in the system")
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

func (s *show) partitions(id string) int {
	c, code := s.dial("slurm_load_partitions")
	if c == nil {
		return code
	}
	defer func() { _ = c.Close() }()
	reply, err := c.Partitions(s.ctx, &msg.PartitionsRequest{})
	if err != nil {
		return s.failed("slurm_load_partitions", err)
	}
	fc := view.Context(s.env, 0)
	shown := slices.DeleteFunc(slices.Clone(reply.GetPartitions()), func(p *msg.PartitionRecord) bool {
		hidden := p.GetHidden() && !s.opts.all && os.Getuid() != 0
		return hidden || id != "" && p.GetName() != id
	})
	var b []byte
	for _, p := range shown {
		b = format.AppendPartition(b, fc, p, s.opts.oneLine)
	}
	if s.opts.document.Wanted && (len(shown) > 0 || id == "") {
		return s.partitionsDocument(fc, shown)
	}
	s.stamp(fc, len(reply.GetPartitions()))
	switch {
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
	reply, err := c.Topology(s.ctx, &msg.TopologyRequest{Name: id})
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

// Entities returns the entities of show, by their first names.
func Entities() (names []string) {
	for _, e := range showEntities() {
		names = append(names, e.names[0])
	}
	return names
}
