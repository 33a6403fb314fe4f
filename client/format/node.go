package format

import (
	"strings"

	pb "github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// foldNodes sorts names and writes them as one host list.
func foldNodes(names []string) string { return hostlist.FoldSorted(names) }

// nodeFlags are the flags of a node with those that the record keeps apart.
func nodeFlags(n *pb.NodeRecord) uint32 {
	flags := n.GetStateFlags()
	if n.GetMaint() {
		flags |= pb.NodeMaint
	}
	if n.GetReserved() {
		flags |= pb.NodeReserved
	}
	if n.GetPlanned() {
		flags |= pb.NodePlanned
	}
	return flags
}

// nodeBase is the base state: of a node that is up, by what is allocated on it.
func nodeBase(n *pb.NodeRecord) pb.NodeState {
	if n.GetState() != pb.NodeState_NODE_IDLE {
		return n.GetState()
	}
	switch {
	case n.GetAllocCpus() == 0:
		return pb.NodeState_NODE_IDLE
	case n.GetAllocCpus() >= n.GetCpus():
		return pb.NodeState_NODE_ALLOCATED
	}
	return pb.NodeState_NODE_MIXED
}

// busy: jobs run on the node, or are being cleaned up.
func busy(base pb.NodeState, flags uint32) bool {
	return base == pb.NodeState_NODE_ALLOCATED || base == pb.NodeState_NODE_MIXED || flags&pb.NodeCompleting != 0
}

// baseNames are the names of pb.NodeState, long and compact.
var baseNames = [...][2]string{{"unknown", "unk"}, {"down", "down"}, {"idle", "idle"}, {"allocated", "alloc"}, {"error", "error"}, {"mixed", "mix"}, {"future", "futr"}}

// suffixes stand behind a state; the first flag that is set decides (sinfo(1), "NODE STATE CODES").
var suffixes = [...]struct {
	flag uint32
	mark string
}{
	{pb.NodeMaint, "$"}, {pb.NodeRebootIssued, "^"}, {pb.NodeRebootRequested, "@"}, {pb.NodePoweringUp, "#"}, {pb.NodePoweringDown, "%"},
	{pb.NodePoweredDown, "~"}, {pb.NodePowerDownPending, "!"}, {pb.NodeNoRespond, "*"},
}

// nodeState is what sinfo's %T (form 0) and %t (form 1) print.
func nodeState(n *pb.NodeRecord, form int) string {
	base, flags := nodeBase(n), nodeFlags(n)
	name := stateWord(base, flags, form)
	if name == "maint" && flags&pb.NodeMaint != 0 {
		flags &^= pb.NodeMaint
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
	case base == pb.NodeState_NODE_ALLOCATED && flags&pb.NodeCompleting != 0 && flags&(pb.NodeDrain|pb.NodeFail) == 0:
		return name + "+"
	case base == pb.NodeState_NODE_MIXED && flags&pb.NodePlanned != 0 && flags&(pb.NodeDrain|pb.NodeFail) == 0:
		return name + "-"
	}
	return name
}

func stateWord(base pb.NodeState, flags uint32, form int) string {
	word := func(long, compact string) string { return [...]string{long, compact}[form] }
	idle := base == pb.NodeState_NODE_IDLE
	switch {
	case flags&pb.NodeInvalidReg != 0:
		return "inval"
	case flags&pb.NodeMaint != 0 && idle && flags&(pb.NodeDrain|pb.NodeCompleting) == 0:
		return "maint"
	case flags&pb.NodeRebootIssued != 0 && !busy(base, flags):
		return word("reboot", "boot")
	case flags&pb.NodeDrain != 0 && busy(base, flags):
		return word("draining", "drng")
	case flags&pb.NodeDrain != 0:
		return word("drained", "drain")
	case flags&pb.NodeFail != 0 && base != pb.NodeState_NODE_MIXED && busy(base, flags): // mixed: as 22.05 has it
		return word("failing", "failg")
	case flags&pb.NodeFail != 0:
		return "fail"
	case idle && flags&pb.NodeCompleting != 0:
		return word("completing", "comp")
	case idle && flags&pb.NodePlanned != 0:
		return word("planned", "plnd")
	case idle && flags&pb.NodeReserved != 0:
		return word("reserved", "resv")
	case int(base) >= 0 && int(base) < len(baseNames):
		return baseNames[base][form]
	}
	return "?"
}

// flagNames are the words that scontrol joins to a base state, in its order.
var flagNames = [...]struct {
	flag uint32
	name string
}{
	{pb.NodeCompleting, "COMPLETING"}, {pb.NodeDrain, "DRAIN"}, {pb.NodeDynamic, "DYNAMIC_NORM"}, {pb.NodeInvalidReg, "INVALID_REG"},
	{pb.NodeFail, "FAIL"}, {pb.NodeMaint, "MAINTENANCE"}, {pb.NodePowerDownPending, "POWER_DOWN"}, {pb.NodePoweringUp, "POWERING_UP"},
	{pb.NodePoweredDown, "POWERED_DOWN"}, {pb.NodePoweringDown, "POWERING_DOWN"}, {pb.NodeRebootIssued, "REBOOT_ISSUED"},
	{pb.NodeRebootRequested, "REBOOT_REQUESTED"}, {pb.NodeReserved, "RESERVED"}, {pb.NodeNoRespond, "NOT_RESPONDING"}, {pb.NodePlanned, "PLANNED"},
}

// NodeStateComplete is the state with all its flags, "IDLE+DRAIN", as scontrol show node prints it.
func NodeStateComplete(n *pb.NodeRecord) string {
	name := "?"
	if base := nodeBase(n); int(base) >= 0 && int(base) < len(baseNames) {
		name = strings.ToUpper(baseNames[base][0])
	}
	flags := nodeFlags(n)
	for _, f := range flagNames {
		if flags&f.flag != 0 {
			name += "+" + f.name
		}
	}
	return name
}

// stateOrder is the number that sinfo sorts states by: base and flags as in Slurm's public node_states, so that -t puts nodes
// in the order that administrators know (flagged nodes first).
func stateOrder(n *pb.NodeRecord) uint64 {
	order := uint64(nodeBase(n))
	flags := nodeFlags(n)
	for _, w := range [...]struct {
		flag  uint32
		value uint64
	}{
		{pb.NodeReserved, 0x20}, {pb.NodeDrain, 0x200}, {pb.NodeCompleting, 0x400}, {pb.NodeNoRespond, 0x800}, {pb.NodePoweredDown, 0x1000},
		{pb.NodeFail, 0x2000}, {pb.NodePoweringUp, 0x4000}, {pb.NodeMaint, 0x8000}, {pb.NodeRebootRequested, 0x10000}, {pb.NodePoweringDown, 0x40000},
		{pb.NodeDynamic, 0x80000}, {pb.NodeRebootIssued, 0x100000}, {pb.NodePlanned, 0x200000}, {pb.NodeInvalidReg, 0x400000}, {pb.NodePowerDownPending, 0x800000},
	} {
		if flags&w.flag != 0 {
			order |= w.value
		}
	}
	return order
}

// NodeFilter is a parsed -t of sinfo: any of the groups, of which all parts must hold.
type NodeFilter [][]func(n *pb.NodeRecord) bool

// Match reports whether the node is in one of the states; an empty filter matches all.
func (f NodeFilter) Match(n *pb.NodeRecord) bool {
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

// ParseNodeStates reads -t: states by "," (or), "&" or "+" (and), "~" or "!" before one (not); "all" is no filter. bad is the
// first word that is no state.
func ParseNodeStates(spec string) (f NodeFilter, bad string) {
	for _, group := range strings.Split(spec, ",") {
		var all []func(*pb.NodeRecord) bool
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
				test = func(n *pb.NodeRecord) bool { return !positive(n) }
			}
			all = append(all, test)
		}
		if len(all) > 0 {
			f = append(f, all)
		}
	}
	return f, ""
}

// NodeStateNames is the list that a refusal of -t shows.
const NodeStateNames = "unknown,down,idle,allocated,mixed,future,drain,drained,draining,no_respond,reserved,planned,cloud,completing," +
	"powering_down,powered_down,power_down,powering_up,fail,failing,maint,inval,reboot_issued,reboot_requested"

func stateTest(name string) func(*pb.NodeRecord) bool {
	is := func(want pb.NodeState) func(*pb.NodeRecord) bool {
		return func(n *pb.NodeRecord) bool { return nodeBase(n) == want }
	}
	has := func(flag uint32) func(*pb.NodeRecord) bool {
		return func(n *pb.NodeRecord) bool { return nodeFlags(n)&flag != 0 }
	}
	while := func(flag uint32, wantBusy bool) func(*pb.NodeRecord) bool {
		return func(n *pb.NodeRecord) bool {
			return nodeFlags(n)&flag != 0 && busy(nodeBase(n), nodeFlags(n)) == wantBusy
		}
	}
	switch name {
	case "unknown", "unk":
		return is(pb.NodeState_NODE_UNKNOWN)
	case "down":
		return is(pb.NodeState_NODE_DOWN)
	case "idle":
		return is(pb.NodeState_NODE_IDLE)
	case "alloc", "allocated":
		// Mixed nodes are in part allocated, and Slurm counts them in.
		return func(n *pb.NodeRecord) bool {
			return nodeBase(n) == pb.NodeState_NODE_ALLOCATED || nodeBase(n) == pb.NodeState_NODE_MIXED
		}
	case "error":
		return is(pb.NodeState_NODE_ERROR)
	case "mix", "mixed": // what drains counts as allocated alone
		return func(n *pb.NodeRecord) bool {
			return nodeBase(n) == pb.NodeState_NODE_MIXED && nodeFlags(n)&pb.NodeDrain == 0
		}
	case "future", "futr":
		return is(pb.NodeState_NODE_FUTURE)
	case "drain":
		return has(pb.NodeDrain)
	case "drained":
		return while(pb.NodeDrain, false)
	case "draining", "drng":
		return while(pb.NodeDrain, true)
	case "fail":
		return has(pb.NodeFail)
	case "failing", "failg":
		return while(pb.NodeFail, true)
	case "no_respond":
		return has(pb.NodeNoRespond)
	case "reserved", "resv":
		return has(pb.NodeReserved)
	case "planned", "plnd":
		return has(pb.NodePlanned)
	case "completing", "comp":
		return has(pb.NodeCompleting)
	case "powering_down":
		return has(pb.NodePoweringDown)
	case "powered_down", "pow_dn":
		return has(pb.NodePoweredDown)
	case "power_down":
		return has(pb.NodePowerDownPending)
	case "powering_up", "pow_up", "power_up":
		return has(pb.NodePoweringUp)
	case "maint", "maintenance":
		return has(pb.NodeMaint)
	case "inval", "invalid_reg":
		return has(pb.NodeInvalidReg)
	case "reboot_issued", "boot":
		return has(pb.NodeRebootIssued)
	case "reboot_requested", "reboot":
		return has(pb.NodeRebootRequested)
	case "cloud", "perfctrs", "npc":
		return func(*pb.NodeRecord) bool { return false }
	}
	return nil
}

// NoRespond reports whether a node does not answer (sinfo -d and -r).
func NoRespond(n *pb.NodeRecord) bool { return nodeFlags(n)&pb.NodeNoRespond != 0 }

// Unavailable reports whether sinfo -R lists the node: it is down, drained or failing.
func Unavailable(n *pb.NodeRecord) bool {
	return nodeBase(n) == pb.NodeState_NODE_DOWN || nodeFlags(n)&(pb.NodeDrain|pb.NodeFail|pb.NodeInvalidReg) != 0
}
