package doc

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/jsonout"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// NodeStateList returns a node's base state and flags, as in JSON.
func NodeStateList(n *msg.NodeRecord) []string {
	return strings.Split(format.NodeStateComplete(n), "+")
}

// csv splits a list at commas; an empty text is an empty list.
func csv(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// WriteNode writes a node as an element of "nodes" (data_parser v0.0.42, node).
func WriteNode(w *jsonout.Writer, c *format.Context, n *msg.NodeRecord) {
	w.Object("")
	nodeHardware(w, n)
	nodeNames(w, n)
	nodeState(w, c, n)
	w.End()
}

func nodeHardware(w *jsonout.Writer, n *msg.NodeRecord) {
	w.Str("architecture", n.GetArch())
	w.Str("burstbuffer_network_address", "")
	w.Int("boards", int64(max(n.GetBoards(), 1)))
	w.Seconds("boot_time", n.GetBootNs())
	w.Str("cluster_name", "")
	w.Int("cores", int64(n.GetCores()))
	w.Int("specialized_cores", int64(n.GetCoreSpec()))
	w.Int("cpu_binding", 0)
	w.Int("cpu_load", int64(n.GetCpuLoad()*100+0.5))
	w.Optional("free_mem", n.GetFreeMemMib())
	w.Int("cpus", int64(n.GetCpus()))
	w.Int("effective_cpus", int64(effectiveCPUs(n)))
	w.Str("specialized_cpus", "")
	w.Object("energy")
	w.Int("average_watts", 0)
	w.Int("base_consumed_energy", 0)
	w.Int("consumed_energy", 0)
	w.Unset("current_watts")
	w.Int("previous_consumed_energy", 0)
	w.Int("last_collected", 0)
	w.End()
	w.Object("external_sensors")
	w.End()
	w.Str("extra", n.GetExtra())
	w.Object("power")
	w.End()
	w.Strs("features", csv(n.GetFeatures())...)
	w.Strs("active_features", csv(n.GetActiveFeatures())...)
	w.Str("gpu_spec", "")
	w.Str("gres", n.GetGres())
	w.Str("gres_drained", format.Or(n.GetGresDrain(), "N/A"))
	w.Str("gres_used", n.GetGresUsed())
}

// effectiveCPUs are the CPUs available to jobs.
func effectiveCPUs(n *msg.NodeRecord) uint32 {
	return n.GetCpus() - min(n.GetCoreSpec()*max(n.GetThreads(), 1), n.GetCpus())
}

func nodeNames(w *jsonout.Writer, n *msg.NodeRecord) {
	w.Str("instance_id", "")
	w.Str("instance_type", "")
	w.Seconds("last_busy", n.GetLastBusyNs())
	w.Str("mcs_label", "")
	w.Int("specialized_memory", int64(n.GetMemSpecMib()))
	w.Str("name", n.GetName())
	w.Strs("next_state_after_reboot", cmp.Or(n.GetRebootNext(), "INVALID"))
	w.Str("address", n.GetAddr())
	w.Str("hostname", format.Hostname(n))
	w.Strs("state", NodeStateList(n)...)
	w.Str("operating_system", n.GetOs())
	w.Str("owner", "")
	w.Strs("partitions", n.GetPartitions()...)
	w.Int("port", int64(n.GetPort()))
	w.Int("real_memory", int64(n.GetRealMemoryMib()))
	w.Int("res_cores_per_gpu", 0)
}

func nodeState(w *jsonout.Writer, c *format.Context, n *msg.NodeRecord) {
	w.Str("comment", n.GetComment())
	w.Str("reason", n.GetReason())
	w.Seconds("reason_changed_at", n.GetReasonNs())
	if n.GetReason() == "" {
		w.Str("reason_set_by_user", "")
	} else {
		w.Str("reason_set_by_user", format.ReasonUser(c, n))
	}
	w.Number("resume_after", 0)
	w.Str("reservation", "")
	w.Int("alloc_memory", int64(n.GetAllocMemMib()))
	w.Int("alloc_cpus", int64(n.GetAllocCpus()))
	w.Int("alloc_idle_cpus", int64(n.GetCpus()-min(n.GetAllocCpus(), n.GetCpus())))
	w.Str("tres_used", n.GetAllocTres())
	w.Float("tres_weighted", billing(n.GetAllocTres()))
	w.Seconds("slurmd_start_time", n.GetNodedStartNs())
	w.Int("sockets", int64(n.GetSockets()))
	w.Int("threads", int64(n.GetThreads()))
	w.Int("temporary_disk", int64(n.GetTmpDiskMib()))
	w.Int("weight", int64(n.GetWeight()))
	w.Str("tres", n.GetCfgTres())
	w.Str("version", n.GetVersion())
}

// SinfoLayout has the fields that are equal for all nodes of one element of sinfo's document; all others are ranges and sums.
func SinfoLayout() format.Layout[*format.NodeGroup] {
	layout, _ := format.Nodes().ParseNames(
		"Partition,StateComplete,Gres,GresUsed,Features,features_act,Reason,User,Timestamp,Comment,Extra,Port")
	return layout
}

// WriteNodeGroup writes a row of sinfo (data_parser v0.0.42, sinfo): nodes of one partition that look the same.
func WriteNodeGroup(w *jsonout.Writer, c *format.Context, g *format.NodeGroup) {
	n := g.Node()
	w.Object("")
	w.Int("port", int64(n.GetPort()))
	w.Object("node")
	if n != nil {
		w.Strs("state", NodeStateList(n)...)
	} else {
		w.Strs("state")
	}
	w.End()
	groupNodes(w, g)
	groupCPUs(w, g)
	groupSizes(w, g)
	w.Object("features")
	w.Str("total", n.GetFeatures())
	w.Str("active", n.GetActiveFeatures())
	w.End()
	w.Object("gres")
	w.Str("total", n.GetGres())
	w.Str("used", n.GetGresUsed())
	w.End()
	w.Str("cluster", c.Cluster)
	w.Str("comment", n.GetComment())
	w.Str("extra", n.GetExtra())
	w.Object("reason")
	w.Str("description", n.GetReason())
	w.Seconds("time", n.GetReasonNs())
	if n.GetReason() == "" {
		w.Str("user", "")
	} else {
		w.Str("user", format.ReasonUser(c, n))
	}
	w.End()
	w.Str("reservation", "")
	WritePartition(w, "partition", g.Partition)
	w.End()
}

func groupNodes(w *jsonout.Writer, g *format.NodeGroup) {
	var names, hosts, addrs []string
	for _, n := range g.Nodes {
		names, hosts, addrs = append(names, n.GetName()), append(hosts, format.Hostname(n)), append(addrs, n.GetAddr())
	}
	slices.SortFunc(names, hostlist.Compare)
	hosts, addrs = distinct(hosts), distinct(addrs)
	w.Object("nodes")
	w.Int("allocated", int64(g.Allocated))
	w.Int("idle", int64(g.Idle))
	w.Int("other", int64(g.Other))
	w.Int("total", int64(format.NodeTotal(g)))
	w.Strs("hostnames", hosts...)
	w.Strs("addresses", addrs...)
	w.Strs("nodes", names...)
	w.End()
}

// distinct sorts names naturally and removes duplicates.
func distinct(names []string) []string {
	slices.SortFunc(names, hostlist.Compare)
	return slices.Compact(names)
}

func groupCPUs(w *jsonout.Writer, g *format.NodeGroup) {
	w.Object("cpus")
	w.Int("allocated", int64(g.CpusAlloc))
	w.Int("idle", int64(g.CpusIdle))
	w.Int("other", int64(g.CpusOther))
	w.Int("total", int64(g.CpusTotal))
	lo, hi := format.Bounds(g, (*msg.NodeRecord).GetCpus)
	w.Int("minimum", int64(lo))
	w.Int("maximum", int64(hi))
	w.Object("load")
	lo, hi = format.Bounds(g, func(n *msg.NodeRecord) uint32 { return uint32(n.GetCpuLoad()*100 + 0.5) })
	w.Int("minimum", int64(lo))
	w.Int("maximum", int64(hi))
	w.End()
	w.Object("per_node")
	perNode := g.Partition.GetMaxCpusPerNode()
	w.Limit("max", uint64(perNode), perNode == 0 || perNode == msg.Unlimited)
	w.End()
	w.End()
}

func groupSizes(w *jsonout.Writer, g *format.NodeGroup) {
	spread(w, "disk", g, (*msg.NodeRecord).GetTmpDiskMib)
	w.Object("memory")
	lo, hi := format.Bounds(g, (*msg.NodeRecord).GetRealMemoryMib)
	w.Int("minimum", int64(lo))
	w.Int("maximum", int64(hi))
	w.Object("free")
	lo, hi = format.Bounds(g, (*msg.NodeRecord).GetFreeMemMib)
	w.Optional("minimum", lo)
	w.Optional("maximum", hi)
	w.End()
	allocated := uint64(0)
	for _, n := range g.Nodes {
		allocated += n.GetAllocMemMib()
	}
	w.Int("allocated", int64(allocated))
	w.End()
	small := func(get func(*msg.NodeRecord) uint32) func(*msg.NodeRecord) uint64 {
		return func(n *msg.NodeRecord) uint64 { return uint64(get(n)) }
	}
	spread(w, "weight", g, small((*msg.NodeRecord).GetWeight))
	spread(w, "sockets", g, small((*msg.NodeRecord).GetSockets))
	spread(w, "cores", g, small((*msg.NodeRecord).GetCores))
	spread(w, "threads", g, small((*msg.NodeRecord).GetThreads))
}

func spread(w *jsonout.Writer, key string, g *format.NodeGroup, get func(*msg.NodeRecord) uint64) {
	lo, hi := format.Bounds(g, get)
	w.Object(key)
	w.Int("minimum", int64(lo))
	w.Int("maximum", int64(hi))
	w.End()
}
