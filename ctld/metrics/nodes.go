package metrics

import (
	"slices"

	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/metrics"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// nodeTally holds the figures of one node.
type nodeTally struct {
	*state.Node
	base       pb.NodeState // with ALLOCATED and MIXED
	cpus       uint32       // available to jobs
	idle       uint32       // of them
	gpus       int          // existing ones, including faulty ones
	gpusHeld   int          // held by jobs, whole or in part
	gpusFaulty int          // withheld
	gpusFree   int          // available to a job now
}

func tallyOf(v *state.View, n *state.Node) nodeTally {
	t := nodeTally{Node: n, base: n.State, cpus: n.Cpus}
	if n.State == pb.NodeState_NODE_IDLE && n.AllocCpus > 0 {
		t.base = pb.NodeState_NODE_MIXED
		if n.AllocCpus >= t.cpus {
			t.base = pb.NodeState_NODE_ALLOCATED
		}
	}
	if n.Up() {
		t.idle = t.cpus - min(t.cpus, n.AllocCpus)
	}
	t.devices(v)
	return t
}

// devices counts GPUs, and those held.
func (t *nodeTally) devices(v *state.View) {
	if t.Inv == nil || !t.Inv.Has("gpu") {
		return
	}
	var held []uint32
	for _, id := range t.Jobs {
		for _, d := range state.AllocOn(v.Jobs.Get(id), t.Name).GetDevices() {
			if d.Name == "gpu" && d.Count > 0 {
				t.gpusHeld += int(d.Count)
			} else if have := t.Inv.Current(d); d.Count == 0 && have != nil && have.Name == "gpu" && !slices.Contains(held, have.Index) {
				held = append(held, have.Index)
			}
		}
	}
	counted := t.gpusHeld > 0
	t.gpusHeld += len(held)
	for i := range t.Inv.Kinds {
		k := &t.Inv.Kinds[i]
		if k.Name != "gpu" || k.Shared {
			continue
		}
		t.gpus += int(k.Count)
		for _, d := range k.Devices {
			switch {
			case d.Fault != "" || d.Foreign != "":
				t.gpusFaulty++
			case t.Up() && !slices.Contains(held, d.Index):
				t.gpusFree++
			}
		}
	}
	if counted && t.Up() {
		t.gpusFree = max(0, t.gpus-t.gpusHeld-t.gpusFaulty)
	}
}

// nodes adds up nodes: all, or those of a partition.
type nodes struct {
	all                                    float64
	base                                   [pb.NodeState_NODE_FUTURE + 1]float64
	flags                                  [32]float64 // by bit
	drained, draining                      float64
	cpus, cpusAll, cpusAlloc, idle, gpus   float64
	gpusHeld, gpusFaulty, gpusFree, linked float64
	memMiB, memAlloc, memFree              float64
	words                                  map[string]float64 // by sinfo's word for the state
}

func (c *nodes) add(t *nodeTally) {
	c.all++
	c.base[t.base]++
	for bit := range c.flags {
		if t.StateFlags&(1<<bit) != 0 {
			c.flags[bit]++
		}
	}
	if t.StateFlags&pb.NodeDrain != 0 {
		if len(t.Jobs) > 0 {
			c.draining++
		} else {
			c.drained++
		}
	}
	if t.LinkUp {
		c.linked++
	}
	c.cpus, c.cpusAll, c.cpusAlloc, c.idle = c.cpus+float64(t.cpus), c.cpusAll+float64(t.Cpus), c.cpusAlloc+float64(t.AllocCpus),
		c.idle+float64(t.idle)
	c.gpus, c.gpusHeld = c.gpus+float64(t.gpus), c.gpusHeld+float64(t.gpusHeld)
	c.gpusFaulty, c.gpusFree = c.gpusFaulty+float64(t.gpusFaulty), c.gpusFree+float64(t.gpusFree)
	c.memMiB, c.memAlloc, c.memFree = c.memMiB+float64(t.RealMemoryMib), c.memAlloc+float64(t.AllocMemMib), c.memFree+float64(t.FreeMemMib)
	if c.words == nil {
		c.words = map[string]float64{}
	}
	c.words[t.word()]++
}

// flag returns the number of nodes with a flag.
func (c *nodes) flag(f uint32) float64 {
	for bit, n := range c.flags {
		if f == 1<<bit {
			return n
		}
	}
	return 0
}

// word returns the exporter's state of a node, one word for each node.
func (t *nodeTally) word() string {
	switch f := t.StateFlags; {
	case f&pb.NodeMaint != 0:
		return "maint"
	case f&pb.NodeDrain != 0:
		return "drain"
	case f&pb.NodeFail != 0:
		return "fail"
	case t.base == pb.NodeState_NODE_DOWN || t.base == pb.NodeState_NODE_UNKNOWN:
		return "down"
	case t.base == pb.NodeState_NODE_ERROR || f&pb.NodeInvalidReg != 0:
		return "err"
	case f&pb.NodeCompleting != 0:
		return "comp"
	case t.base == pb.NodeState_NODE_ALLOCATED:
		return "alloc"
	case t.base == pb.NodeState_NODE_MIXED:
		return "mix"
	case f&pb.NodeReserved != 0:
		return "resv"
	case f&pb.NodePlanned != 0:
		return "planned"
	case t.base == pb.NodeState_NODE_IDLE:
		return "idle"
	}
	return "other"
}

func (t *tally) countNodes() {
	t.nodes = make([]nodeTally, 0, len(t.view.Nodes()))
	for _, p := range t.view.Partitions() {
		t.partNodes[p.Name] = &nodes{}
	}
	for _, n := range t.view.Nodes() {
		one := tallyOf(t.view, n)
		t.nodes = append(t.nodes, one)
		t.allNodes.add(&one)
		for _, p := range n.Partitions {
			if c := t.partNodes[p]; c != nil {
				c.add(&one)
			}
		}
	}
}

// nodeRow is a family of Slurm's metrics about nodes.
type nodeRow struct {
	name, part, help string // the cluster's name, a partition's where it differs, and the help text
	value            func(*nodes) float64
}

func flagRow(name, part string, flag uint32, help string) nodeRow {
	return nodeRow{name, part, help, func(c *nodes) float64 { return c.flag(flag) }}
}

func baseRow(name string, base pb.NodeState, help string) nodeRow {
	return nodeRow{name, "", help, func(c *nodes) float64 { return c.base[base] }}
}

func none(name, help string) nodeRow {
	return nodeRow{name, "", help, func(*nodes) float64 { return 0 }}
}

// nodeRows are slurm_nodes_* and slurm_partition_nodes_* of Slurm 25.11.
var nodeRows = []nodeRow{
	baseRow("alloc", pb.NodeState_NODE_ALLOCATED, "Nodes with all CPUs allocated."),
	none("blocked", "Always 0: exclusive use is a property of jobs."),
	flagRow("completing", "cg", pb.NodeCompleting, "Nodes on which a job is ending."),
	flagRow("cloud", "", pb.NodeCloud, "Nodes with State=CLOUD in slurm.conf."),
	baseRow("down", pb.NodeState_NODE_DOWN, "Nodes that are DOWN."),
	flagRow("drain", "", pb.NodeDrain, "Nodes that accept no new jobs (DRAIN)."),
	{"drained", "", "Nodes that accept no new jobs and run none.", func(c *nodes) float64 { return c.drained }},
	{"draining", "", "Nodes that accept no new jobs but still run some.", func(c *nodes) float64 { return c.draining }},
	none("dyn_future", "Always 0: there are no dynamic future nodes."),
	flagRow("dyn_normal", "", pb.NodeDynamic, "Nodes that joined as dynamic nodes or were created with scontrol."),
	none("external", "Always 0: there are no external nodes."),
	flagRow("fail", "", pb.NodeFail, "Nodes with the flag FAIL."),
	baseRow("future", pb.NodeState_NODE_FUTURE, "Nodes in the state FUTURE."),
	baseRow("idle", pb.NodeState_NODE_IDLE, "Idle nodes, including those that accept no new jobs."),
	flagRow("invalid_reg", "", pb.NodeInvalidReg, "Nodes with less hardware than slurm.conf defines."),
	flagRow("maint", "", pb.NodeMaint, "Nodes in a reservation for maintenance."),
	baseRow("mixed", pb.NodeState_NODE_MIXED, "Nodes with some CPUs allocated."),
	flagRow("noresp", "no_resp", pb.NodeNoRespond, "Nodes that do not answer."),
	flagRow("planned", "", pb.NodePlanned, "Nodes reserved for a pending job."),
	flagRow("power_down", "", pb.NodePowerDownPending, "Nodes waiting to be powered down."),
	flagRow("power_up", "", pb.NodePowerUpPending, "Nodes waiting to be powered up."),
	flagRow("powered_down", "", pb.NodePoweredDown, "Nodes that are powered down."),
	flagRow("powering_down", "", pb.NodePoweringDown, "Nodes that are being powered down."),
	flagRow("powering_up", "", pb.NodePoweringUp, "Nodes that are being powered up."),
	flagRow("reboot_issued", "", pb.NodeRebootIssued, "Rebooting nodes."),
	flagRow("reboot_req", "reboot_requested", pb.NodeRebootRequested, "Nodes waiting to reboot."),
	flagRow("resv", "", pb.NodeReserved, "Nodes in a reservation."),
	baseRow("unknown", pb.NodeState_NODE_UNKNOWN, "Nodes that have never reported."),
}

const mib = 1 << 20

// nodesPage is /metrics/nodes.
func (s *Source) nodesPage(p *metrics.Page, t *tally) {
	p.Gauge("slurm_nodes", "Nodes of the cluster.").Add(t.allNodes.all)
	for _, r := range nodeRows {
		p.Gauge("slurm_nodes_"+r.name, r.help).Add(r.value(&t.allNodes))
	}
	for _, r := range []struct {
		name, help string
		value      func(*nodeTally) float64
	}{
		{"cpus", "CPUs of the node.", func(n *nodeTally) float64 { return float64(n.Cpus) }},
		{"cpus_alloc", "CPUs allocated to jobs.", func(n *nodeTally) float64 { return float64(n.AllocCpus) }},
		{"cpus_effective", "CPUs that can be allocated to jobs.", func(n *nodeTally) float64 { return float64(n.cpus) }},
		{"cpus_idle", "CPUs available to a job now; 0 where no job can start.", func(n *nodeTally) float64 { return float64(n.idle) }},
		{"gpus", "GPUs of the node.", func(n *nodeTally) float64 { return float64(n.gpus) }},
		{"gpus_alloc", "GPUs allocated to jobs, at least in part.", func(n *nodeTally) float64 { return float64(n.gpusHeld) }},
		{"memory_bytes", "Memory of the node.", func(n *nodeTally) float64 { return float64(n.RealMemoryMib) * mib }},
		{"memory_alloc_bytes", "Memory allocated to jobs.", func(n *nodeTally) float64 { return float64(n.AllocMemMib) * mib }},
		{"memory_effective_bytes", "Memory that can be allocated to jobs.",
			func(n *nodeTally) float64 { return float64(n.RealMemoryMib-min(n.RealMemoryMib, n.MemSpecMib)) * mib }},
		{"memory_free_bytes", "Memory not used by any process.", func(n *nodeTally) float64 { return float64(n.FreeMemMib) * mib }},
	} {
		p.Gauge("slurm_node_"+r.name, r.help, "node")
		for i := range t.nodes {
			p.Add(r.value(&t.nodes[i]), t.nodes[i].Name)
		}
	}
}
