package format

import (
	"strings"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// foldNodes sorts names and writes them as one host list.
func foldNodes(names []string) string { return hostlist.FoldSorted(names) }

// nodeBase is the base state; that of a node that is up depends on its allocation.
func nodeBase(n *msg.NodeRecord) msg.NodeState {
	if n.GetState() != msg.NodeState_NODE_IDLE {
		return n.GetState()
	}
	switch {
	case n.GetAllocCpus() == 0:
		return msg.NodeState_NODE_IDLE
	case n.GetAllocCpus() >= n.GetCpus():
		return msg.NodeState_NODE_ALLOCATED
	}
	return msg.NodeState_NODE_MIXED
}

// busy reports whether jobs run on the node or are being cleaned up.
func busy(base msg.NodeState, flags uint32) bool {
	return base == msg.NodeState_NODE_ALLOCATED || base == msg.NodeState_NODE_MIXED || flags&msg.NodeCompleting != 0
}

// baseNames are the names of msg.NodeState, long and compact.
var baseNames = [...][2]string{{"unknown", "unk"}, {"down", "down"}, {"idle", "idle"}, {"allocated", "alloc"}, {"error", "error"},
	{"mixed", "mix"}, {"future", "futr"}}

// suffixes follow a state; the first flag that is set decides (sinfo(1), "NODE STATE CODES").
var suffixes = [...]struct {
	flag uint32
	mark string
}{
	{msg.NodeMaint, "$"}, {msg.NodeRebootIssued, "^"}, {msg.NodeRebootRequested, "@"}, {msg.NodePoweringUp, "#"},
	{msg.NodePoweringDown, "%"},
	{msg.NodePoweredDown, "~"}, {msg.NodePowerDownPending, "!"}, {msg.NodeNoRespond, "*"},
}

// nodeState is sinfo's %T (form 0) or %t (form 1).
func nodeState(n *msg.NodeRecord, form int) string {
	base, flags := nodeBase(n), n.GetStateFlags()
	name := stateWord(base, flags, form)
	if name == "maint" && flags&msg.NodeMaint != 0 {
		flags &^= msg.NodeMaint
	}
	if strings.HasPrefix(name, "boot") || strings.HasPrefix(name, "reboot") {
		return name + "^"
	}
	for _, s := range suffixes {
		if flags&s.flag != 0 {
			return name + s.mark
		}
	}
	switch {
	case base == msg.NodeState_NODE_ALLOCATED && flags&msg.NodeCompleting != 0 && flags&(msg.NodeDrain|msg.NodeFail) == 0:
		return name + "+"
	case base == msg.NodeState_NODE_MIXED && flags&msg.NodePlanned != 0 && flags&(msg.NodeDrain|msg.NodeFail) == 0:
		return name + "-"
	}
	return name
}

func stateWord(base msg.NodeState, flags uint32, form int) string {
	word := func(long, compact string) string { return [...]string{long, compact}[form] }
	idle := base == msg.NodeState_NODE_IDLE
	switch {
	case flags&msg.NodeInvalidReg != 0:
		return "inval"
	case flags&msg.NodeMaint != 0 && idle && flags&(msg.NodeDrain|msg.NodeCompleting) == 0:
		return "maint"
	case flags&msg.NodeRebootIssued != 0 && !busy(base, flags):
		return word("reboot", "boot")
	case flags&msg.NodeDrain != 0 && busy(base, flags):
		return word("draining", "drng")
	case flags&msg.NodeDrain != 0:
		return word("drained", "drain")
	case flags&msg.NodeFail != 0 && base != msg.NodeState_NODE_MIXED && busy(base, flags): // mixed: as in 22.05
		return word("failing", "failg")
	case flags&msg.NodeFail != 0:
		return "fail"
	case idle && flags&msg.NodeCompleting != 0:
		return word("completing", "comp")
	case idle && flags&msg.NodePlanned != 0:
		return word("planned", "plnd")
	case idle && flags&msg.NodeReserved != 0:
		return word("reserved", "resv")
	case int(base) >= 0 && int(base) < len(baseNames):
		return baseNames[base][form]
	}
	return "?"
}

// flagNames are the words that scontrol appends to a base state, in order.
var flagNames = [...]struct {
	flag uint32
	name string
}{
	{msg.NodeCloud, "CLOUD"}, {msg.NodeCompleting, "COMPLETING"}, {msg.NodeDrain, "DRAIN"}, {msg.NodeDynamic, "DYNAMIC_NORM"},
	{msg.NodeInvalidReg, "INVALID_REG"},
	{msg.NodeFail, "FAIL"}, {msg.NodeMaint, "MAINTENANCE"}, {msg.NodePowerDownPending, "POWER_DOWN"},
	{msg.NodePowerUpPending, "POWER_UP"}, {msg.NodePoweredDown, "POWERED_DOWN"}, {msg.NodeRebootIssued, "REBOOT_ISSUED"},
	{msg.NodeRebootRequested, "REBOOT_REQUESTED"}, {msg.NodeReserved, "RESERVED"}, {msg.NodeNoRespond, "NOT_RESPONDING"},
	{msg.NodePlanned, "PLANNED"}, {msg.NodePoweringUp, "POWERING_UP"}, {msg.NodePoweringDown, "POWERING_DOWN"},
}

// NodeStateComplete is the state with all flags, "IDLE+DRAIN", as in scontrol show node.
func NodeStateComplete(n *msg.NodeRecord) string {
	name := "?"
	if base := nodeBase(n); int(base) >= 0 && int(base) < len(baseNames) {
		name = strings.ToUpper(baseNames[base][0])
	}
	flags := n.GetStateFlags()
	for _, f := range flagNames {
		if flags&f.flag != 0 {
			name += "+" + f.name
		}
	}
	return name
}

// NodeStateNumber is base and flags as in Slurm's public node_states. sinfo sorts states by it, so that -t gives the order that
// administrators know (flagged nodes first).
func NodeStateNumber(n *msg.NodeRecord) uint64 {
	order := uint64(nodeBase(n))
	flags := n.GetStateFlags()
	for _, w := range [...]struct {
		flag  uint32
		value uint64
	}{
		{msg.NodeReserved, 0x20}, {msg.NodeCloud, 0x80}, {msg.NodeDrain, 0x200}, {msg.NodeCompleting, 0x400}, {msg.NodeNoRespond, 0x800},
		{msg.NodePoweredDown, 0x1000},
		{msg.NodeFail, 0x2000}, {msg.NodePoweringUp, 0x4000}, {msg.NodeMaint, 0x8000}, {msg.NodeRebootRequested, 0x10000},
		{msg.NodePoweringDown, 0x40000},
		{msg.NodeDynamic, 0x80000}, {msg.NodeRebootIssued, 0x100000}, {msg.NodePlanned, 0x200000}, {msg.NodeInvalidReg, 0x400000},
		{msg.NodePowerDownPending, 0x800000},
	} {
		if flags&w.flag != 0 {
			order |= w.value
		}
	}
	return order
}

// NodeFilter is a parsed -t of sinfo: one of the groups must match, with all of its parts.
type NodeFilter [][]func(n *msg.NodeRecord) bool

// Match reports whether the node is in one of the states; an empty filter matches all.
func (f NodeFilter) Match(n *msg.NodeRecord) bool {
	if len(f) == 0 {
		return true
	}
	for _, all := range f {
		ok := true
		for _, part := range all {
			ok = ok && part(n)
		}
		if ok {
			return true
		}
	}
	return false
}

// ParseNodeStates reads -t: states by "," (or), "&" or "+" (and), "~" or "!" before one (not); "all" is no filter. bad is the first
// word that is not a state.
func ParseNodeStates(spec string) (f NodeFilter, bad string) {
	for _, group := range strings.Split(spec, ",") {
		var all []func(*msg.NodeRecord) bool
		for _, word := range strings.FieldsFunc(group, func(r rune) bool { return r == '&' || r == '+' }) {
			name, not := strings.CutPrefix(word, "~")
			if !not {
				name, not = strings.CutPrefix(word, "!")
			}
			if strings.EqualFold(name, "all") && !not {
				return nil, ""
			}
			test := stateTest(strings.ToLower(name))
			if test == nil {
				return nil, word
			}
			if not {
				positive := test
				test = func(n *msg.NodeRecord) bool { return !positive(n) }
			}
			all = append(all, test)
		}
		if len(all) > 0 {
			f = append(f, all)
		}
	}
	return f, ""
}

// NodeStateNames is the list in the error about an invalid -t.
const NodeStateNames = "unknown,down,idle,allocated,mixed,future,drain,drained,draining,no_respond,reserved,planned,cloud,completing," +
	"powering_down,powered_down,power_down,powering_up,fail,failing,maint,inval,reboot_issued,reboot_requested"

func stateTest(name string) func(*msg.NodeRecord) bool {
	is := func(want msg.NodeState) func(*msg.NodeRecord) bool {
		return func(n *msg.NodeRecord) bool { return nodeBase(n) == want }
	}
	has := func(flag uint32) func(*msg.NodeRecord) bool {
		return func(n *msg.NodeRecord) bool { return n.GetStateFlags()&flag != 0 }
	}
	while := func(flag uint32, wantBusy bool) func(*msg.NodeRecord) bool {
		return func(n *msg.NodeRecord) bool {
			return n.GetStateFlags()&flag != 0 && busy(nodeBase(n), n.GetStateFlags()) == wantBusy
		}
	}
	switch name {
	case "unknown", "unk":
		return is(msg.NodeState_NODE_UNKNOWN)
	case "down":
		return is(msg.NodeState_NODE_DOWN)
	case "idle":
		return is(msg.NodeState_NODE_IDLE)
	case "alloc", "allocated":
		// Slurm includes mixed nodes, because they are partly allocated.
		return func(n *msg.NodeRecord) bool {
			return nodeBase(n) == msg.NodeState_NODE_ALLOCATED || nodeBase(n) == msg.NodeState_NODE_MIXED
		}
	case "error":
		return is(msg.NodeState_NODE_ERROR)
	case "mix", "mixed": // draining nodes match only "allocated"
		return func(n *msg.NodeRecord) bool {
			return nodeBase(n) == msg.NodeState_NODE_MIXED && n.GetStateFlags()&msg.NodeDrain == 0
		}
	case "future", "futr":
		return is(msg.NodeState_NODE_FUTURE)
	case "drain":
		return has(msg.NodeDrain)
	case "drained":
		return while(msg.NodeDrain, false)
	case "draining", "drng":
		return while(msg.NodeDrain, true)
	case "fail":
		return has(msg.NodeFail)
	case "failing", "failg":
		return while(msg.NodeFail, true)
	case "no_respond":
		return has(msg.NodeNoRespond)
	case "reserved", "resv":
		return has(msg.NodeReserved)
	case "planned", "plnd":
		return has(msg.NodePlanned)
	case "completing", "comp":
		return has(msg.NodeCompleting)
	case "powering_down":
		return has(msg.NodePoweringDown)
	case "powered_down", "pow_dn":
		return has(msg.NodePoweredDown)
	case "power_down":
		return has(msg.NodePowerDownPending)
	case "powering_up", "pow_up", "power_up":
		return has(msg.NodePoweringUp)
	case "maint", "maintenance":
		return has(msg.NodeMaint)
	case "inval", "invalid_reg":
		return has(msg.NodeInvalidReg)
	case "reboot_issued", "boot":
		return has(msg.NodeRebootIssued)
	case "reboot_requested", "reboot":
		return has(msg.NodeRebootRequested)
	case "cloud":
		return has(msg.NodeCloud)
	case "perfctrs", "npc":
		return func(*msg.NodeRecord) bool { return false }
	}
	return nil
}

// NoRespond reports whether a node is not responding (sinfo -d and -r).
func NoRespond(n *msg.NodeRecord) bool { return n.GetStateFlags()&msg.NodeNoRespond != 0 }

// Unavailable reports whether sinfo -R lists the node: it is down, drained or failing.
func Unavailable(n *msg.NodeRecord) bool {
	return nodeBase(n) == msg.NodeState_NODE_DOWN || n.GetStateFlags()&(msg.NodeDrain|msg.NodeFail|msg.NodeInvalidReg) != 0
}
