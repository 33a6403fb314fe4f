package conf

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// Switch is one line of topology.conf, with values derived from all lines.
type Switch struct {
	Name      string
	Nodes     []string // of a leaf as written, of other switches all nodes below, in the order of the configuration
	Switches  []string // directly below it
	LinkSpeed uint32   // 1 if not set, as Slurm shows it
	Level     int      // 0 = a leaf
	Above     []string // the switches above it, the topmost first

	File string
	Line int

	parent *Switch
}

// topologyTree is the only supported kind of topology.
const topologyTree = "topology/tree"

// flatTopologies need no file: every node is as near as any other.
var flatTopologies = []string{"topology/none", "topology/default", "topology/flat"}

// SwitchesAbove returns the switches from the topmost down to the node's leaf; nil if topology.conf does not name the node.
func (c *Config) SwitchesAbove(node string) []string {
	if s := c.leaf[node]; s != nil {
		return append(slices.Clone(s.Above), s.Name)
	}
	return nil
}

var switchKeys = recordKeys(func() []recordKey[Switch] {
	return []recordKey[Switch]{
		{name: "Nodes", set: func(s *Switch, v string) (err error) {
			if s.Nodes, err = hostlist.Expand(v); err == nil && len(s.Nodes) == 0 {
				err = fmt.Errorf("it has no value")
			}
			return err
		}},
		{name: "Switches", set: func(s *Switch, v string) (err error) {
			if s.Switches, err = hostlist.Expand(v); err == nil && len(s.Switches) == 0 {
				err = fmt.Errorf("it has no value")
			}
			return err
		}},
		{name: "LinkSpeed", why: "it is only shown, as in Slurm", set: func(s *Switch, v string) error {
			n := 0
			err := readNumber(&n, v, 0, 1<<31-1)
			s.LinkSpeed = uint32(n)
			return err
		}},
	}
})

// topologyFile is beside slurm.conf.
const topologyFile = "topology.conf"

// readTopology reads topology.conf if TopologyPlugin asks for it.
func (l *loader) readTopology() {
	plugin := strings.ToLower(l.c.TopologyPlugin)
	switch {
	case slices.Contains(flatTopologies, plugin):
		return
	case plugin != topologyTree:
		l.fault(l.at("TopologyPlugin"), "use topology/tree, or topology/none", "TopologyPlugin=%s is not supported", l.c.TopologyPlugin)
		return
	}
	path := l.optional(topologyFile, l.topologyLine)
	if path == "" {
		path = filepath.Join(filepath.Dir(l.c.Path), "topology.conf")
		l.fault(l.at("TopologyPlugin"), "write it beside slurm.conf, or set TopologyPlugin=topology/none",
			"TopologyPlugin=%s needs %s, which does not exist", l.c.TopologyPlugin, path)
		return
	}
	l.checkTopology(path)
}

// topologyLine reads one line of topology.conf.
func (l *loader) topologyLine(pairs []pair) {
	at := pairs[0].place
	if !strings.EqualFold(pairs[0].key, "SwitchName") {
		l.fault(at, didYouMean(pairs[0].key, []string{"SwitchName"}), "the line begins with %s, not with SwitchName", pairs[0].key)
		return
	}
	before := len(l.faults)
	s := Switch{Name: pairs[0].value, LinkSpeed: 1, File: at.file, Line: at.line}
	readRecord(l, "SwitchName", switchKeys(), pairs[1:], &s)
	switch {
	case len(l.faults) > before:
		return
	case s.Name == "":
		l.fault(at, "", "SwitchName has no value")
	case strings.ContainsAny(s.Name, "/,[] "):
		l.fault(at, "", "%.40q is not a name for a switch", s.Name)
	case len(s.Nodes) == 0 && len(s.Switches) == 0:
		l.fault(at, "add Nodes= or Switches=", "switch %s connects nothing", s.Name)
	case len(s.Nodes) > 0 && len(s.Switches) > 0:
		l.fault(at, "give the nodes a switch of their own", "switch %s has both Nodes and Switches", s.Name)
	default:
		l.c.Switches = append(l.c.Switches, &s)
	}
}

// checkTopology builds the tree of switches and reports its faults.
func (l *loader) checkTopology(path string) {
	before := len(l.faults)
	byName := map[string]*Switch{}
	for _, s := range l.c.Switches {
		if first := byName[s.Name]; first != nil {
			l.fault(place{s.File, s.Line}, "", "switch %s was already defined at %s:%d", s.Name, first.File, first.Line)
			continue
		}
		byName[s.Name] = s
	}
	l.checkLeaves(path)
	for _, s := range l.c.Switches {
		for _, name := range s.Switches {
			child := byName[name]
			switch {
			case child == nil:
				l.fault(place{s.File, s.Line}, "add a line SwitchName="+name, "switch %s: there is no switch %s", s.Name, name)
			case child.parent != nil && child.parent != s:
				l.fault(place{s.File, s.Line}, "", "switch %s is below both %s and %s", name, child.parent.Name, s.Name)
			default:
				child.parent = s
			}
		}
	}
	l.checkCycles()
	if len(l.faults) > before {
		return
	}
	l.settleSwitches(byName)
}

// checkLeaves requires that nodes exist, are on one leaf, and that none is missing.
func (l *loader) checkLeaves(path string) {
	leaf := map[string]*Switch{}
	l.c.leaf = leaf
	for _, s := range l.c.Switches {
		for _, node := range s.Nodes {
			if _, known := l.c.Node(node); !known {
				l.fault(place{s.File, s.Line}, "add it to slurm.conf", "switch %s: there is no node %s", s.Name, node)
			}
			if other := leaf[node]; other != nil {
				where := "twice on switch " + s.Name
				if other != s {
					where = "on both switch " + other.Name + " and switch " + s.Name
				}
				l.fault(place{s.File, s.Line}, "", "node %s is %s", node, where)
			}
			leaf[node] = s
		}
	}
	var alone []string
	for _, n := range l.c.Nodes {
		if leaf[n.Name] == nil {
			alone = append(alone, n.Name)
		}
	}
	if len(alone) > 0 {
		l.warn(place{file: path}, "add them to a switch; a job on one of them cannot use others", "no switch has nodes %s",
			hostlist.Fold(alone))
	}
}

func (l *loader) checkCycles() {
	for _, s := range l.c.Switches {
		for up, steps := s.parent, 0; up != nil && steps <= len(l.c.Switches); up, steps = up.parent, steps+1 {
			if up == s {
				l.fault(place{s.File, s.Line}, "", "switch %s is connected below itself", s.Name)
				break
			}
		}
	}
}

// settleSwitches fills in level, the switches above and the nodes below, and sorts by level as Slurm shows them.
func (l *loader) settleSwitches(byName map[string]*Switch) {
	below := map[*Switch]map[string]bool{}
	for _, s := range l.c.Switches {
		for up := s.parent; up != nil; up = up.parent {
			s.Above = append(s.Above, up.Name)
			if below[up] == nil {
				below[up] = map[string]bool{}
			}
			for _, n := range s.Nodes {
				below[up][n] = true
			}
		}
		slices.Reverse(s.Above)
		for level, up := 1, s.parent; up != nil && len(s.Switches) == 0; level, up = level+1, up.parent {
			up.Level = max(up.Level, level)
		}
	}
	for s, nodes := range below {
		for _, n := range l.c.Nodes {
			if nodes[n.Name] {
				s.Nodes = append(s.Nodes, n.Name)
			}
		}
	}
	slices.SortStableFunc(l.c.Switches, func(a, b *Switch) int { return cmp.Compare(a.Level, b.Level) })
	tops := 0
	for _, s := range byName {
		if s.parent == nil {
			tops++
		}
	}
	if tops > 1 {
		l.warn(place{file: l.c.Switches[0].File}, "if a switch connects them, add it above them",
			"%d switches have no switch above them: no job spans two of them", tops)
	}
}
