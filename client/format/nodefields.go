package format

import (
	"strconv"
	"strings"
	"sync"

	"github.com/sluice-hpc/sluice/client/msg"
)

// Nodes is the table of sinfo's fields, built on first use.
var Nodes = sync.OnceValue(func() *Table[*NodeGroup] { return NewTable(append(nodeLetters(), nodeNames()...)) })

type groupText = func(b []byte, c *Context, g *NodeGroup) []byte

// ofPart is a field of the partition, ofNode one of the nodes; unset replaces the empty text.
func ofPart(unset string, get func(p *msg.PartitionRecord) string) groupText {
	return func(b []byte, _ *Context, g *NodeGroup) []byte { return append(b, Or(get(g.Partition), unset)...) }
}

func ofNode(unset string, get func(n *msg.NodeRecord) string) groupText {
	return func(b []byte, _ *Context, g *NodeGroup) []byte { return append(b, Or(get(g.Node()), unset)...) }
}

// least shows the smallest value of the row's nodes, followed by "+" if there are larger ones.
func least[N uint32 | uint64](get func(n *msg.NodeRecord) N) groupText {
	return func(b []byte, _ *Context, g *NodeGroup) []byte {
		lo, hi := Bounds(g, get)
		b = strconv.AppendUint(b, uint64(lo), 10)
		if hi != lo {
			b = append(b, '+')
		}
		return b
	}
}

func Bounds[N uint32 | uint64](g *NodeGroup, get func(n *msg.NodeRecord) N) (lo, hi N) {
	for i, n := range g.Nodes {
		v := get(n)
		if i == 0 {
			lo, hi = v, v
		}
		lo, hi = min(lo, v), max(hi, v)
	}
	return lo, hi
}

func byLeast[N uint32 | uint64](get func(n *msg.NodeRecord) N) groupText {
	return func(b []byte, _ *Context, g *NodeGroup) []byte {
		lo, _ := Bounds(g, get)
		return appendNumberKey(b, int64(lo))
	}
}

func byPart(get func(p *msg.PartitionRecord) uint32) groupText {
	return func(b []byte, _ *Context, g *NodeGroup) []byte { return appendNumberKey(b, int64(get(g.Partition))) }
}

// slashed writes "a/i/o/t".
func slashed(b []byte, n ...uint64) []byte {
	for i, v := range n {
		if i > 0 {
			b = append(b, '/')
		}
		b = strconv.AppendUint(b, v, 10)
	}
	return b
}

func NodeTotal(g *NodeGroup) uint64 { return uint64(len(g.Nodes)) }

func nodeLetters() []Field[*NodeGroup] {
	partName := func(b []byte, _ *Context, g *NodeGroup) []byte { return append(append(b, g.Partition.GetName()...), 0) }
	place := func(g *NodeGroup) int64 { return int64(g.index) }
	aiot := func(b []byte, _ *Context, g *NodeGroup) []byte {
		return slashed(b, uint64(g.Allocated), uint64(g.Idle), uint64(g.Other), NodeTotal(g))
	}
	return []Field[*NodeGroup]{
		{Letter: 'a', Names: []string{"available"}, Header: "AVAIL", Text: appendAvail},
		{Letter: 'A', Names: []string{"nodeai"}, Header: "NODES(A/I)", Fold: FoldSum,
			Text: func(b []byte, _ *Context, g *NodeGroup) []byte {
				return slashed(b, uint64(g.Allocated), uint64(g.Idle))
			}},
		{Letter: 'b', Names: []string{"features_act"}, Header: "ACTIVE_FEATURES", Text: ofNode(null, (*msg.NodeRecord).GetActiveFeatures)},
		{Letter: 'B', Names: []string{"maxcpuspernode"}, Header: "MAX_CPUS_PER_NODE",
			Text: ofPart("", func(p *msg.PartitionRecord) string { return orUnlimited(p.GetMaxCpusPerNode()) })},
		{Letter: 'c', Names: []string{"cpus"}, Header: "CPUS", Fold: FoldRange, Text: least((*msg.NodeRecord).GetCpus),
			Key: byLeast((*msg.NodeRecord).GetCpus)},
		{Letter: 'C', Names: []string{"cpusstate"}, Header: "CPUS(A/I/O/T)", Fold: FoldSum,
			Text: func(b []byte, _ *Context, g *NodeGroup) []byte {
				return slashed(b, g.CpusAlloc, g.CpusIdle, g.CpusOther, g.CpusTotal)
			}},
		{Letter: 'd', Names: []string{"disk"}, Header: "TMP_DISK", Fold: FoldRange, Text: least((*msg.NodeRecord).GetTmpDiskMib),
			Key: byLeast((*msg.NodeRecord).GetTmpDiskMib)},
		{Letter: 'D', Names: []string{"nodes"}, Header: "NODES", Fold: FoldSum,
			Text: func(b []byte, _ *Context, g *NodeGroup) []byte { return strconv.AppendUint(b, NodeTotal(g), 10) },
			Key:  func(b []byte, _ *Context, g *NodeGroup) []byte { return appendNumberKey(b, int64(NodeTotal(g))) }},
		{Letter: 'e', Names: []string{"freemem"}, Header: "FREE_MEM", Fold: FoldRange, Text: appendFreeMem,
			Key: byLeast((*msg.NodeRecord).GetFreeMemMib)},
		{Letter: 'E', Names: []string{"reason"}, Header: "REASON", Text: ofNode("none", (*msg.NodeRecord).GetReason)},
		{Letter: 'f', Names: []string{"features"}, Header: "AVAIL_FEATURES", Text: ofNode(null, (*msg.NodeRecord).GetFeatures)},
		{Letter: 'F', Names: []string{"nodeaiot"}, Header: "NODES(A/I/O/T)", Fold: FoldSum, Text: aiot},
		{Letter: 'g', Names: []string{"groups"}, Header: "GROUPS", Text: ofPart("all", AllowGroups)},
		{Letter: 'G', Names: []string{"gres"}, Header: "GRES", Text: ofNode(null, (*msg.NodeRecord).GetGres)},
		{Letter: 'h', Names: []string{"oversubscribe", "share"}, Header: "OVERSUBSCRIBE",
			Text: ofPart("NO", (*msg.PartitionRecord).GetOversubscribe)},
		{Letter: 'H', Names: []string{"timestamp"}, Header: "TIMESTAMP", Text: appendReasonTime,
			Key: func(b []byte, _ *Context, g *NodeGroup) []byte { return appendNumberKey(b, g.Node().GetReasonNs()) }},
		{Letter: 'I', Names: []string{"priorityjobfactor"}, Header: "PRIO_JOB_FACTOR",
			Text: ofPart("", func(p *msg.PartitionRecord) string { return decimal(p.GetPriorityJobFactor()) }),
			Key:  byPart((*msg.PartitionRecord).GetPriorityJobFactor)},
		{Letter: 'l', Names: []string{"time"}, Header: "TIMELIMIT", Text: appendMaxTime, Key: byPart((*msg.PartitionRecord).GetMaxTimeS)},
		{Letter: 'L', Names: []string{"defaulttime"}, Header: "DEFAULTTIME", Text: appendDefaultTime,
			Key: byPart((*msg.PartitionRecord).GetDefaultTimeS)},
		{Letter: 'm', Names: []string{"memory"}, Header: "MEMORY", Fold: FoldRange, Text: least((*msg.NodeRecord).GetRealMemoryMib),
			Key: byLeast((*msg.NodeRecord).GetRealMemoryMib)},
		{Letter: 'M', Names: []string{"preemptmode"}, Header: "PREEMPT_MODE", Text: ofPart("OFF", (*msg.PartitionRecord).GetPreemptMode)},
		{Letter: 'n', Names: []string{"nodehost", "hostnames"}, Header: "HOSTNAMES", Text: ofNode("", Hostname)},
		{Letter: 'N', Names: []string{"nodelist"}, Header: "NODELIST", Fold: FoldSum,
			Text: func(b []byte, _ *Context, g *NodeGroup) []byte { return append(b, g.names()...) },
			Key:  func(b []byte, _ *Context, g *NodeGroup) []byte { return appendHostsKey(b, g.names()) }},
		{Letter: 'o', Names: []string{"nodeaddr"}, Header: "NODE_ADDR", Text: ofNode("", (*msg.NodeRecord).GetAddr)},
		{Letter: 'O', Names: []string{"cpusload"}, Header: "CPU_LOAD", Fold: FoldRange, Text: appendLoad},
		{Letter: 'p', Names: []string{"prioritytier", "priority"}, Header: "PRIO_TIER",
			Text: ofPart("", func(p *msg.PartitionRecord) string { return decimal(p.GetPriorityTier()) }),
			Key:  byPart((*msg.PartitionRecord).GetPriorityTier)},
		{Letter: 'P', Names: []string{"partition"}, Header: "PARTITION", Marked: true, Text: appendPartition, Key: partName, Config: place},
		{Letter: 'r', Names: []string{"root"}, Header: "ROOT", Text: ofPart("no",
			func(p *msg.PartitionRecord) string { return yes(p.GetRootOnly()) })},
		{Letter: 'R', Names: []string{"partitionname"}, Header: "PARTITION", Text: ofPart("", (*msg.PartitionRecord).GetName),
			Key: partName, Config: place},
		{Letter: 's', Names: []string{"size"}, Header: "JOB_SIZE", Text: appendJobSize, Key: byPart((*msg.PartitionRecord).GetMaxNodes)},
		{Letter: 'S', Names: []string{"allocnodes"}, Header: "ALLOCNODES",
			Text: ofPart("all", func(p *msg.PartitionRecord) string { return NotAll(p.GetAllowAllocNodes()) })},
		{Letter: 't', Names: []string{"statecompact"}, Header: "STATE", Text: ofState(1), Key: appendStateKey},
		{Letter: 'T', Names: []string{"statelong"}, Header: "STATE", Text: ofState(0), Key: appendStateKey},
		{Letter: 'u', Names: []string{"user"}, Header: "USER", Text: func(b []byte, c *Context,
			g *NodeGroup) []byte {
			return append(b, ReasonUser(c, g.Node())...)
		}},
		{Letter: 'U', Names: []string{"userlong"}, Header: "USER", Text: func(b []byte, c *Context, g *NodeGroup) []byte {
			return append(b, ReasonUser(c, g.Node())+"("+decimal(g.Node().GetReasonUid())+")"...)
		}},
		{Letter: 'v', Names: []string{"version"}, Header: "VERSION", Text: ofNode("N/A", (*msg.NodeRecord).GetVersion)},
		{Letter: 'V', Names: []string{"cluster"}, Header: "CLUSTER", Text: func(b []byte, c *Context,
			_ *NodeGroup) []byte {
			return append(b, Or(c.Cluster, "N/A")...)
		}},
		{Letter: 'w', Names: []string{"weight"}, Header: "WEIGHT", Fold: FoldRange, Text: least((*msg.NodeRecord).GetWeight),
			Key: byLeast((*msg.NodeRecord).GetWeight)},
		{Letter: 'X', Names: []string{"sockets"}, Header: "SOCKETS", Fold: FoldRange, Text: least((*msg.NodeRecord).GetSockets),
			Key: byLeast((*msg.NodeRecord).GetSockets)},
		{Letter: 'Y', Names: []string{"cores"}, Header: "CORES", Fold: FoldRange, Text: least((*msg.NodeRecord).GetCores),
			Key: byLeast((*msg.NodeRecord).GetCores)},
		{Letter: 'Z', Names: []string{"threads"}, Header: "THREADS", Fold: FoldRange, Text: least((*msg.NodeRecord).GetThreads),
			Key: byLeast((*msg.NodeRecord).GetThreads)},
		{Letter: 'z', Names: []string{"socketcorethread"}, Header: "S:C:T", Fold: FoldRange, Text: appendNodeSCT},
	}
}

// nodeNames returns the fields that only -O has.
func nodeNames() []Field[*NodeGroup] {
	return []Field[*NodeGroup]{
		{Names: []string{"allocmem"}, Header: "ALLOCMEM", Text: ofNode("",
			func(n *msg.NodeRecord) string { return strconv.FormatUint(n.GetAllocMemMib(), 10) })},
		{Names: []string{"comment"}, Header: "COMMENT", Text: ofNode(null, (*msg.NodeRecord).GetComment)},
		{Names: []string{"extra"}, Header: "EXTRA", Text: ofNode(null, (*msg.NodeRecord).GetExtra)},
		{Names: []string{"gresused"}, Header: "GRES_USED", Text: ofNode(null, (*msg.NodeRecord).GetGresUsed)},
		{Names: []string{"port"}, Header: "PORT", Text: ofNode("", func(n *msg.NodeRecord) string { return decimal(n.GetPort()) })},
		{Names: []string{"statecomplete"}, Header: "STATECOMPLETE", Text: func(b []byte, _ *Context, g *NodeGroup) []byte {
			if g.Node() == nil {
				return append(b, "n/a"...)
			}
			return append(b, strings.ToLower(NodeStateComplete(g.Node()))...)
		}},
	}
}

func decimal(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

func orUnlimited(n uint32) string {
	if n == 0 || n == msg.Unlimited {
		return "UNLIMITED"
	}
	return decimal(n)
}

func yes(set bool) string {
	if set {
		return "yes"
	}
	return "no"
}

// NotAll replaces the word for everybody by the empty text.
func NotAll(s string) string {
	if strings.EqualFold(s, "all") {
		return ""
	}
	return s
}

func AllowGroups(p *msg.PartitionRecord) string { return NotAll(p.GetAllowGroups()) }

func Hostname(n *msg.NodeRecord) string { return Or(n.GetHostname(), n.GetName()) }

func appendAvail(b []byte, _ *Context, g *NodeGroup) []byte {
	return append(b, Or(strings.ToLower(g.Partition.GetState()), "up")...)
}

func appendPartition(b []byte, _ *Context, g *NodeGroup) []byte {
	b = append(b, g.Partition.GetName()...)
	if g.Partition.GetIsDefault() {
		b = append(b, '*')
	}
	return b
}

func appendMaxTime(b []byte, _ *Context, g *NodeGroup) []byte {
	if s := g.Partition.GetMaxTimeS(); s != msg.Unlimited && s != 0 {
		return appendElapsed(b, LimitSeconds(s))
	}
	return append(b, "infinite"...)
}

func appendDefaultTime(b []byte, _ *Context, g *NodeGroup) []byte {
	switch s := g.Partition.GetDefaultTimeS(); s {
	case 0:
		return append(b, "n/a"...)
	case msg.Unlimited:
		return append(b, "infinite"...)
	default:
		return appendElapsed(b, LimitSeconds(s))
	}
}

func appendJobSize(b []byte, _ *Context, g *NodeGroup) []byte {
	lo, hi := max(g.Partition.GetMinNodes(), 1), g.Partition.GetMaxNodes()
	b = strconv.AppendUint(b, uint64(lo), 10)
	switch {
	case hi == msg.Unlimited || hi == 0:
		return append(b, "-infinite"...)
	case hi != lo:
		b = strconv.AppendUint(append(b, '-'), uint64(hi), 10)
	}
	return b
}

func ofState(form int) groupText {
	return func(b []byte, _ *Context, g *NodeGroup) []byte {
		if g.Node() == nil {
			return append(b, "n/a"...)
		}
		return append(b, nodeState(g.Node(), form)...)
	}
}

// appendStateKey sorts partitions without nodes first.
func appendStateKey(b []byte, _ *Context, g *NodeGroup) []byte {
	if g.Node() == nil {
		return appendNumberKey(b, -1)
	}
	return appendNumberKey(b, int64(NodeStateNumber(g.Node())))
}

func ReasonUser(c *Context, n *msg.NodeRecord) string {
	if n.GetReasonUser() != "" {
		return n.GetReasonUser()
	}
	return c.user(n.GetReasonUid())
}

func appendReasonTime(b []byte, c *Context, g *NodeGroup) []byte {
	return c.AppendTime(b, g.Node().GetReasonNs(), "Unknown")
}

func appendFreeMem(b []byte, _ *Context, g *NodeGroup) []byte {
	lo, hi := Bounds(g, (*msg.NodeRecord).GetFreeMemMib)
	b = strconv.AppendUint(b, lo, 10)
	if hi != lo {
		b = strconv.AppendUint(append(b, '-'), hi, 10)
	}
	return b
}

// appendLoad writes the smallest and the largest load of the row.
func appendLoad(b []byte, _ *Context, g *NodeGroup) []byte {
	var lo, hi float64
	known := false
	for _, n := range g.Nodes {
		if !n.GetCpuLoadKnown() && n.GetCpuLoad() == 0 {
			continue
		}
		if !known {
			lo, hi, known = n.GetCpuLoad(), n.GetCpuLoad(), true
		}
		lo, hi = min(lo, n.GetCpuLoad()), max(hi, n.GetCpuLoad())
	}
	switch {
	case len(g.Nodes) == 0:
		return append(b, "0.00"...)
	case !known:
		return append(b, "N/A"...)
	}
	b = strconv.AppendFloat(b, lo, 'f', 2, 64)
	if hi != lo {
		b = strconv.AppendFloat(append(b, '-'), hi, 'f', 2, 64)
	}
	return b
}

func appendNodeSCT(b []byte, c *Context, g *NodeGroup) []byte {
	b = least((*msg.NodeRecord).GetSockets)(b, c, g)
	b = least((*msg.NodeRecord).GetCores)(append(b, ':'), c, g)
	return least((*msg.NodeRecord).GetThreads)(append(b, ':'), c, g)
}
