package conf

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/tres"
)

// Node is one node as configured. Figures are given by the file or follow from it, as slurm.conf(5), "NODE CONFIGURATION",
// describes; the default is 1.
type Node struct {
	Name      string
	Hostname  string
	Addr      string
	BcastAddr string
	Port      int

	CPUs           int
	Boards         int
	Sockets        int // on all boards
	CoresPerSocket int
	ThreadsPerCore int
	RealMemoryMiB  uint64
	TmpDiskMiB     uint64

	CoreSpecCount   int
	CPUSpecList     string
	MemSpecLimitMiB uint64

	Gres     []tres.Gres
	Features []string
	Weight   uint32
	State    string // UNKNOWN, CLOUD, DOWN, DRAIN, FAIL, FAILING or FUTURE
	Reason   string
	CPUBind  string
	Topology string

	File string // where it is defined
	Line int
}

// nodeSpec is one NodeName line, for many nodes.
type nodeSpec struct {
	names, hostnames, addrs, bcast, ports []string
	node                                  Node
	sockets, perBoard                     int // as written; 0: not given
	cpus, cores, threads, boards          int
	procs                                 int // the old name of cpus, which takes precedence
}

func nodeNumber(field func(*nodeSpec) *int, low int64) func(*nodeSpec, string) error {
	return func(s *nodeSpec, v string) error { return readNumber(field(s), v, low, 65533) }
}

func nodeList(field func(*nodeSpec) *[]string) func(*nodeSpec, string) error {
	return func(s *nodeSpec, v string) (err error) {
		*field(s), err = hostlist.Expand(v)
		return err
	}
}

// nodePorts reads "32021", "[32021-32022]" and, as Slurm does, "32021-32022".
func nodePorts(s *nodeSpec, v string) (err error) {
	if strings.Contains(v, "-") && !strings.ContainsAny(v, "[]") {
		v = "[" + v + "]"
	}
	s.ports, err = hostlist.Expand(v)
	return err
}

func nodeText(field func(*nodeSpec) *string) func(*nodeSpec, string) error {
	return func(s *nodeSpec, v string) error {
		*field(s) = v
		return nil
	}
}

func nodeMiB(field func(*nodeSpec) *uint64) func(*nodeSpec, string) error {
	return func(s *nodeSpec, v string) error { return readMiB(field(s), v) }
}

var nodeStates = []string{"UNKNOWN", "CLOUD", "DOWN", "DRAIN", "FAIL", "FAILING", "FUTURE"}

func readFeatures(s *nodeSpec, v string) error {
	s.node.Features = words(v)
	return nil
}

var nodeKeys = recordKeys(func() []recordKey[nodeSpec] {
	return []recordKey[nodeSpec]{
		{name: "NodeHostname", set: nodeList(func(s *nodeSpec) *[]string { return &s.hostnames })},
		{name: "NodeAddr", set: nodeList(func(s *nodeSpec) *[]string { return &s.addrs })},
		{name: "BcastAddr", set: nodeList(func(s *nodeSpec) *[]string { return &s.bcast }), why: "nodes connect to sbcast, not the " +
			"reverse"},
		{name: "Port", set: nodePorts},
		{name: "Boards", set: nodeNumber(func(s *nodeSpec) *int { return &s.boards }, 1)},
		{name: "Sockets", set: nodeNumber(func(s *nodeSpec) *int { return &s.sockets }, 1)},
		{name: "SocketsPerBoard", set: nodeNumber(func(s *nodeSpec) *int { return &s.perBoard }, 1)},
		{name: "CoresPerSocket", set: nodeNumber(func(s *nodeSpec) *int { return &s.cores }, 1)},
		{name: "ThreadsPerCore", set: nodeNumber(func(s *nodeSpec) *int { return &s.threads }, 1)},
		{name: "CPUs", set: nodeNumber(func(s *nodeSpec) *int { return &s.cpus }, 1)},
		{name: "Procs", set: nodeNumber(func(s *nodeSpec) *int { return &s.procs }, 1)},
		{name: "RealMemory", set: nodeMiB(func(s *nodeSpec) *uint64 { return &s.node.RealMemoryMiB })},
		{name: "TmpDisk", set: nodeMiB(func(s *nodeSpec) *uint64 { return &s.node.TmpDiskMiB })},
		{name: "MemSpecLimit", set: nodeMiB(func(s *nodeSpec) *uint64 { return &s.node.MemSpecLimitMiB })},
		{name: "CoreSpecCount", set: nodeNumber(func(s *nodeSpec) *int { return &s.node.CoreSpecCount }, 0), why: whyCoreSpec},
		{name: "CpuSpecList", set: nodeText(func(s *nodeSpec) *string { return &s.node.CPUSpecList }), why: whyCoreSpec},
		{name: "CpuBind", why: whyBind, set: func(s *nodeSpec, v string) (err error) {
			s.node.CPUBind, err = oneOf(v, "none", "socket", "ldom", "core", "thread", "off")
			return err
		}},
		{name: "Features", set: readFeatures},
		{name: "Feature", set: readFeatures},
		{name: "Gres", set: func(s *nodeSpec, v string) (err error) {
			s.node.Gres, err = tres.ParseNodeGres(v)
			return err
		}},
		{name: "Weight", set: func(s *nodeSpec, v string) error { return readNumber(&s.node.Weight, v, 0, 1<<32-1) }},
		{name: "State", set: func(s *nodeSpec, v string) (err error) {
			s.node.State, err = oneOf(v, nodeStates...)
			return err
		}},
		{name: "Reason", set: nodeText(func(s *nodeSpec) *string { return &s.node.Reason })},
		{name: "Topology", set: nodeText(func(s *nodeSpec) *string { return &s.node.Topology }), why: whyTopology},
		{name: "RestrictedCoresPerGPU", why: "cores are not reserved for GPUs"},
		{name: "Parameters", why: "there are no per-node parameters"},
		{name: "CPUBind", why: whyBind, set: func(s *nodeSpec, v string) (err error) {
			s.node.CPUBind, err = oneOf(v, "none", "socket", "ldom", "core", "thread", "off")
			return err
		}},
	}
})

// maxNodes bounds the nodes of one configuration.
const maxNodes = hostlist.Limit

// nodeLine reads a NodeName line.
func (l *loader) nodeLine(pairs []pair) {
	name := pairs[0]
	spec := nodeSpec{node: Node{Weight: 1, RealMemoryMiB: 1, State: "UNKNOWN", File: name.file, Line: name.line}}
	if strings.EqualFold(name.value, "DEFAULT") {
		readRecord(l, "NodeName", nodeKeys(), pairs[1:], &spec)
		keepDefaults(l.nodeDefault, pairs[1:])
		return
	}
	l.nodeLines++
	before := len(l.faults)
	readRecord(l, "NodeName", nodeKeys(), merge(l.nodeDefault, pairs[1:]), &spec)
	names, err := hostlist.Expand(name.value)
	switch {
	case err != nil:
		l.fault(name.place, "", "NodeName: %s", err)
	case len(names) == 0:
		l.fault(name.place, "", "NodeName has no value")
	case len(names)+len(l.c.Nodes) > maxNodes:
		l.fault(name.place, "", "more than %d nodes", maxNodes)
		return
	}
	spec.names = names
	if len(l.faults) == before && l.shape(&spec, name.place) {
		l.addNodes(&spec, name.place)
	} else {
		l.addBroken(&spec)
	}
}

// shape computes sockets, cores, threads and CPUs, and rejects inconsistent values.
func (l *loader) shape(s *nodeSpec, at place) bool {
	n := &s.node
	n.Boards, n.CoresPerSocket, n.ThreadsPerCore = max(s.boards, 1), max(s.cores, 1), max(s.threads, 1)
	if s.cpus == 0 {
		s.cpus = s.procs
	}
	if s.sockets > 0 && s.perBoard > 0 {
		l.fault(at, "give one of them", "Sockets and SocketsPerBoard are mutually exclusive")
		return false
	}
	perSocket := n.CoresPerSocket * n.ThreadsPerCore
	switch {
	case s.perBoard > 0 || s.sockets > 0:
		// With Boards, Sockets counts the sockets of one board: slurm.conf(5).
		n.Sockets = (s.perBoard + s.sockets) * n.Boards
	case s.cpus > 0:
		n.Sockets = max(s.cpus/perSocket, n.Boards)
	default:
		n.Sockets = n.Boards
	}
	total := n.Sockets * perSocket
	if n.CPUs = s.cpus; n.CPUs == 0 {
		n.CPUs = total
	}
	if n.CPUs != total && n.CPUs != n.Sockets*n.CoresPerSocket && n.CPUs != n.Sockets {
		l.fault(at, fmt.Sprintf("write CPUs=%d or leave it out", total),
			"CPUs=%d contradicts %d sockets with %d cores of %d threads", n.CPUs, n.Sockets, n.CoresPerSocket, n.ThreadsPerCore)
		return false
	}
	return l.checkReserved(n, at)
}

// checkReserved rejects a node whose specialised cores and memory leave nothing for jobs.
func (l *loader) checkReserved(n *Node, at place) bool {
	cores := n.Sockets * n.CoresPerSocket
	switch {
	case n.CoreSpecCount > 0 && n.CPUSpecList != "":
		l.fault(at, "give one of them", "CoreSpecCount and CpuSpecList are mutually exclusive")
		return false
	case n.CoreSpecCount >= cores && n.CoreSpecCount > 0:
		l.fault(at, "", "CoreSpecCount=%d leaves none of %d cores to jobs", n.CoreSpecCount, cores)
		return false
	case n.MemSpecLimitMiB >= n.RealMemoryMiB && n.MemSpecLimitMiB > 0:
		l.fault(at, "", "MemSpecLimit=%d leaves nothing of RealMemory=%d to jobs", n.MemSpecLimitMiB, n.RealMemoryMiB)
		return false
	}
	return true
}

// addNodes creates the nodes of one line.
func (l *loader) addNodes(s *nodeSpec, at place) {
	for _, list := range []struct {
		key    string
		values []string
	}{{"NodeHostname", s.hostnames}, {"NodeAddr", s.addrs}, {"BcastAddr", s.bcast}, {"Port", s.ports}} {
		if n := len(list.values); n > 1 && n != len(s.names) {
			l.fault(at, "give one, or one for each node", "%s has %d values for %d nodes", list.key, n, len(s.names))
			l.addBroken(s)
			return
		}
	}
	for i, name := range s.names {
		if first, ok := l.c.nodeByID[name]; ok {
			l.fault(at, "", "node %s is already defined at %s:%d", name, first.File, first.Line)
			continue
		}
		if strings.EqualFold(name, "ALL") || strings.EqualFold(name, "DEFAULT") {
			l.fault(at, "choose another name", "a node cannot be called %s", name)
			continue
		}
		n := s.node
		n.Name = name
		n.Hostname = pick(s.hostnames, i, name)
		n.Addr = pick(s.addrs, i, n.Hostname)
		n.BcastAddr = pick(s.bcast, i, "")
		if port := pick(s.ports, i, ""); port != "" {
			var err error
			if n.Port, err = strconv.Atoi(port); err != nil || n.Port < 1 || n.Port > 65535 {
				l.fault(at, "", "Port: %.40q is not a port number", port)
				n.Port = -1
			}
		}
		l.c.Nodes = append(l.c.Nodes, &n)
		l.c.nodeByID[name] = &n
	}
}

// addBroken keeps the names of a line with faults, so that partitions with these nodes are not reported as well.
func (l *loader) addBroken(s *nodeSpec) {
	for _, name := range s.names {
		if _, ok := l.c.nodeByID[name]; !ok {
			n := s.node
			n.Name, n.Hostname, n.Addr, n.Port = name, name, name, -1
			l.c.Nodes = append(l.c.Nodes, &n)
			l.c.nodeByID[name] = &n
		}
	}
}

// pick returns the value for node i from a list with one value in all or one per node.
func pick(values []string, i int, def string) string {
	switch len(values) {
	case 0:
		return def
	case 1:
		return values[0]
	}
	return values[i]
}

// downNodes is one DownNodes line.
type downNodes struct {
	names         []string
	state, reason string
	place
}

var downNodesKeys = recordKeys(func() []recordKey[downNodes] {
	return []recordKey[downNodes]{
		{name: "State", set: func(d *downNodes, v string) (err error) {
			d.state, err = oneOf(v, "DOWN", "DRAIN", "FAIL", "FAILING", "UNKNOWN")
			return err
		}},
		{name: "Reason", set: func(d *downNodes, v string) error {
			d.reason = v
			return nil
		}},
	}
})

func (l *loader) downNodesLine(pairs []pair) {
	d := downNodes{state: "DOWN", place: pairs[0].place}
	var err error
	if d.names, err = hostlist.Expand(pairs[0].value); err != nil {
		l.fault(d.place, "", "DownNodes: %s", err)
	}
	readRecord(l, "DownNodes", downNodesKeys(), pairs[1:], &d)
	l.downNodes = append(l.downNodes, d)
}

func (l *loader) setDownNodes() {
	for _, d := range l.downNodes {
		for _, name := range d.names {
			n, ok := l.c.nodeByID[name]
			if !ok {
				l.fault(d.place, l.nearestNode(name), "DownNodes names unknown node %s", name)
				continue
			}
			n.State, n.Reason = d.state, d.reason
		}
	}
}

// nearestNode suggests a node's name.
func (l *loader) nearestNode(name string) string {
	if len(l.c.Nodes) > 1000 || len(l.faults) > 10 {
		return "define it with NodeName"
	}
	names := make([]string, len(l.c.Nodes))
	for i, n := range l.c.Nodes {
		names[i] = n.Name
	}
	if help := didYouMean(name, names); help != "" {
		return help
	}
	return "define it with NodeName"
}
