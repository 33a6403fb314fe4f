package conf

import (
	"maps"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// NewNodes creates the nodes of scontrol create, as a NodeName line at the end of slurm.conf would, including the defaults of
// NodeName=DEFAULT. The error is a Faults.
func (c *Config) NewNodes(names string, set []Pair) ([]*Node, error) {
	return c.newNodes(names, set, c.nodeDefault)
}

// FoundNode creates the node of a host that joins by itself (slurmd(8), -Z) from the hardware that it found and its --conf, which
// overrides that. NodeName=DEFAULT supplies the rest.
func (c *Config) FoundNode(name string, found []Pair, own string) (*Node, error) {
	said, err := NodePairs(own)
	if err != nil {
		return nil, err
	}
	shape := func(key string) bool {
		return slices.ContainsFunc([]string{"CPUs", "Procs", "Boards", "Sockets", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore"},
			func(k string) bool { return strings.EqualFold(k, key) })
	}
	if slices.ContainsFunc(said, func(p Pair) bool { return shape(p.Key) }) { // processors all or nothing: a mix would be inconsistent
		found = slices.DeleteFunc(slices.Clone(found), func(p Pair) bool { return shape(p.Key) })
	}
	defaults := maps.Clone(c.nodeDefault)
	maps.DeleteFunc(defaults, func(key string, _ pair) bool { return shape(key) })
	nodes, err := c.newNodes(name, append(slices.Clone(found), said...), defaults)
	if err != nil {
		return nil, err
	}
	return nodes[0], nil
}

func (c *Config) newNodes(names string, set []Pair, defaults map[string]pair) ([]*Node, error) {
	at := place{file: "NodeName=" + names}
	l := &loader{c: &Config{nodeByID: map[string]*Node{}}, nodeDefault: defaults}
	list, err := hostlist.Expand(names)
	switch {
	case err != nil:
		l.fault(at, "", "%s", err)
	case len(list) == 0:
		l.fault(at, "", "there is no name")
	case slices.ContainsFunc(list, badNodeName):
		l.fault(at, "letters, digits, '-', '_' and '.', but not ALL or DEFAULT", "this cannot be the name of a node")
	}
	if len(l.faults) > 0 {
		return nil, l.faults
	}
	pairs := []pair{{key: "NodeName", value: names, place: at}}
	for _, p := range set {
		pairs = append(pairs, pair{key: p.Key, value: p.Value, place: at})
	}
	l.nodeLine(pairs)
	if len(l.faults) > 0 {
		return nil, l.faults
	}
	return l.c.Nodes, nil // Port stays 0 unless set: the default port, which is not shown
}

// maxNodeName is the limit for a name in a certificate.
const maxNodeName = 255

func badNodeName(name string) bool {
	return strings.EqualFold(name, "ALL") || strings.EqualFold(name, "DEFAULT") || len(name) > maxNodeName ||
		strings.ContainsFunc(name, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
		})
}

// NodePairs reads KEY=VALUE … of --conf. It rejects name and address, which certificate and connection determine, and the state,
// which the controller determines (slurmd(8) accepts State= without effect).
func NodePairs(text string) ([]Pair, error) {
	var faults Faults
	at := place{file: "--conf"}
	r := &reader{faults: &faults}
	var out []Pair
	for _, p := range r.pairs(strings.TrimSpace(text), at) {
		switch strings.ToLower(p.key) {
		case "nodename", "nodeaddr", "nodehostname", "port", "bcastaddr", "state", "reason":
			r.fault(at, "", "option '%s=' not allowed in --conf", p.key)
		}
		out = append(out, Pair{Key: p.key, Value: p.value})
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return out, nil
}

// Apart returns the configured node, or an otherwise empty one with that name: the controller describes a dynamic node, but its
// paths (NodePath) are needed before that.
func (c *Config) Apart(name string) *Node {
	if n, ok := c.Node(name); ok {
		return n
	}
	return &Node{Name: name, Hostname: name, Addr: name, Port: c.SlurmdPort}
}
