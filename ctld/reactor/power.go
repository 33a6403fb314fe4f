package reactor

import (
	"fmt"
	"slices"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/tcp"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Power saving (slurm.conf(5), SuspendProgram and following). A node that has been idle for SuspendTime is POWERING_DOWN and SuspendProgram
// runs for it; after SuspendTimeout it is POWERED_DOWN, whatever the program did. A job on such a node, or POWER_UP, makes it POWERING_UP,
// and ResumeProgram runs for it, until a new instance of the daemon registers; after ResumeTimeout without one the node is DOWN and
// ResumeFailProgram runs. Its jobs are CONFIGURING meanwhile: the dispatcher leaves them out, so no node hears of an attempt before all its
// nodes are up, and an attempt that is given up leaves nothing anywhere.
//
// All of this is in the durable record of the node, including the program that still has to run: package ctld/powersave runs it, again if
// the controller was killed. A powered down node may be silent.

// Programs that have still to run for a node (NodeRecord.PowerProgram).
const (
	PowerSuspend = "suspend"
	PowerResume  = "resume"
	PowerFail    = "fail"
)

const minuteNS = 60e9

// powers applies the passing of time to nodes that are powered down and up.
func powers(tx *state.Tx) {
	p := tx.Settings().Power
	var down, up []*state.Node
	var downs, ups uint32 // in the last minute
	for _, n := range tx.Nodes() {
		if n = tx.Node(n.Name); p == nil { // giving up one node may have changed others, which its jobs had too
			unpowered(tx, n)
			continue
		}
		late := func(s uint32) bool { return s != pb.Unlimited && tx.NowNS-n.PowerNs >= int64(s)*1e9 }
		counts := &ups
		switch {
		case n.StateFlags&pb.NodePoweringDown != 0:
			if counts = &downs; late(n.Power.DownS) && !doubtful(tx, n) {
				poweredDown(tx, n)
			}
		case n.StateFlags&pb.NodePoweringUp != 0:
			if late(n.Power.UpS) {
				resumeFailed(tx, n)
			}
		case n.StateFlags&pb.NodePoweredDown != 0:
			switch counts = &downs; {
			case n.GoesDown(): // ordered while a job had it, which has ended
				down = append(down, n)
			case wanted(n) && n.PowerProgram != PowerSuspend:
				up = append(up, n)
			}
		case idle(tx, n):
			down = append(down, n)
		}
		if n.PowerNs != 0 && tx.NowNS-n.PowerNs < minuteNS {
			*counts++
		}
	}
	if len(down) > 0 {
		suspendNodes(tx, p, down, downs)
	}
	for _, n := range up {
		if p.ResumeRate > 0 && ups >= p.ResumeRate {
			break
		}
		if n = tx.Node(n.Name); !wanted(n) {
			continue
		}
		ups++
		resumeNode(tx, n)
	}
}

// wanted reports whether a powered down node has to be powered up, for a job or by order. The caller waits until SuspendProgram has ended
// for it, which may take longer than SuspendTimeout: until then ResumeProgram would not run, but ResumeTimeout would.
func wanted(n *state.Node) bool { return len(n.Jobs) > 0 || n.StateFlags&pb.NodePowerUpPending != 0 }

// unpowered handles nodes after power saving was removed from slurm.conf. A node with a running daemon is up; any other stays down until
// its daemon runs.
func unpowered(tx *state.Tx, n *state.Node) {
	const all = state.PowerFlags | pb.NodePowerDownPending | pb.NodePowerUpPending | pb.NodePowerDrain
	if n.StateFlags&all == 0 || !n.LinkUp {
		return
	}
	c := change(n)
	if c.StateFlags&pb.NodePowerDrain != 0 {
		c.StateFlags &^= pb.NodeDrain
		c.Reason = ""
	}
	c.StateFlags &^= all
	c.PowerNs, c.PowerNodedNs, c.PowerProgram = 0, 0, ""
	tx.Emit(state.NodeChanged{Node: c, What: "no power saving", Durable: true})
	awake(tx, n.Name)
}

// idle reports whether a node has to be powered down: by order once nothing runs on it, or because it has been idle or DOWN for
// SuspendTime.
func idle(tx *state.Tx, n *state.Node) bool {
	const busy = pb.NodeRebootRequested | pb.NodeRebootIssued
	p := tx.Settings().Power
	switch {
	case len(n.Jobs) > 0 || n.StateFlags&busy != 0 || n.State == pb.NodeState_NODE_FUTURE:
		return false
	case n.StateFlags&pb.NodePowerDownPending != 0:
		return true
	case n.Power.Stays || n.Power.IdleS == pb.Unlimited || n.StateFlags&p.ExceptFlags != 0:
		return false
	}
	since := n.LastBusyNs
	switch n.State {
	case pb.NodeState_NODE_DOWN:
		if since = max(since, n.LinkNS, n.ReasonNs); p.ExceptDown {
			return false
		}
	case pb.NodeState_NODE_IDLE:
		if !n.LinkUp || len(n.Strays) > 0 {
			return false
		}
	default:
		return false
	}
	return since != 0 && tx.NowNS-since >= int64(n.Power.IdleS)*1e9
}

// suspendNodes powers down nodes that are due: at most SuspendRate a minute, and of nodes with a count in SuspendExcNodes it leaves as many
// usable.
func suspendNodes(tx *state.Tx, p *state.PowerSettings, due []*state.Node, lately uint32) {
	usable := func(n *state.Node) bool { return n.LinkUp && n.Up() }
	spare := make([]int, len(p.Except)) // how many may be powered down
	for i, x := range p.Except {
		for _, name := range x.Nodes {
			if n := tx.Node(name); x.Count > 0 && n != nil && usable(n) {
				spare[i]++
			}
		}
		spare[i] -= x.Count
	}
	for _, n := range due {
		n = tx.Node(n.Name)
		if p.SuspendRate > 0 && lately >= p.SuspendRate {
			return
		}
		counted := func(i int) bool {
			return p.Except[i].Count > 0 && usable(n) && slices.Contains(p.Except[i].Nodes, n.Name)
		}
		stays := false
		for i := range p.Except {
			stays = stays || counted(i) && spare[i] <= 0
		}
		if stays {
			continue
		}
		for i := range p.Except {
			if counted(i) {
				spare[i]--
			}
		}
		lately++
		c := change(n)
		powerDown(tx, c)
		tx.Emit(state.NodeChanged{Node: c, What: "powering down", Durable: true})
	}
}

// unknownStart stands for a daemon of which only the boot is known.
const unknownStart = -1

// powerDown begins to power a node down; n is a copy of its record.
func powerDown(tx *state.Tx, n *state.Node) {
	n.StateFlags = n.StateFlags&^(state.PowerFlags|pb.NodePowerDownPending|pb.NodePowerUpPending|pb.NodeNoRespond) | pb.NodePoweringDown
	if n.StateFlags&pb.NodePowerDrain != 0 { // drained for the power-down: its reason is shown until it is up again, as in Slurm
		n.StateFlags &^= pb.NodeDrain
	}
	if n.State == pb.NodeState_NODE_UNKNOWN { // it has never been up
		n.State = pb.NodeState_NODE_IDLE
	}
	n.PowerNs, n.PowerProgram = tx.NowNS, PowerSuspend
	if n.PowerNodedNs = n.NodedStartNs; n.PowerNodedNs == 0 {
		n.PowerNodedNs = unknownStart
	}
}

// openNS is the time for which the stream of a switched off host may seem to be open, with a margin.
const openNS = int64(2 * tcp.Gone)

// doubtful reports whether a daemon that registered during the power-down may have been switched off with its host: its stream may not show
// that yet.
func doubtful(tx *state.Tx, n *state.Node) bool {
	return n.LinkUp && !sleeper(n) && tx.NowNS-n.PowerNs < openNS
}

// sleeper reports whether the last registered daemon is the one that should end with the host.
func sleeper(n *state.Node) bool {
	return n.PowerNodedNs == unknownStart || n.PowerNodedNs == n.NodedStartNs
}

// poweredDown handles the end of SuspendTimeout. A node that somebody else has started again meanwhile is up.
func poweredDown(tx *state.Tx, old *state.Node) {
	n := change(old)
	n.StateFlags = n.StateFlags&^pb.NodePoweringDown | pb.NodePoweredDown
	if tx.Settings().Power.IdleOnSuspend {
		n.State, n.Reason = pb.NodeState_NODE_IDLE, ""
		n.StateFlags &^= pb.NodeDrain | pb.NodeFail
	}
	if !n.LinkUp || !poweredUp(tx, n, n.BootId) {
		forgetUse(tx, n)
	}
	tx.Emit(state.NodeChanged{Node: n, What: "powered down", Durable: true})
	awake(tx, n.Name)
}

// resumeNode begins to power a node up. A host that has been silent for SuspendTimeout is off or asleep: any daemon that registers then is
// up, even the same one after a sleep.
func resumeNode(tx *state.Tx, old *state.Node) {
	n := change(old)
	n.StateFlags = n.StateFlags&^(state.PowerFlags|pb.NodePowerUpPending) | pb.NodePoweringUp | pb.NodeNoRespond
	if !n.LinkUp && n.LinkNS != 0 && tx.NowNS-n.LinkNS >= int64(n.Power.DownS)*1e9 {
		n.PowerNodedNs = 0
	}
	n.PowerNs, n.PowerProgram = tx.NowNS, PowerResume
	tx.Emit(state.NodeChanged{Node: n, What: "powering up", Durable: true})
}

// poweredUp handles the registration of a daemon on a powered down node, and reports whether that makes the node up. n is a copy of its
// record with the daemon's start, boot is the previously known boot.
func poweredUp(tx *state.Tx, n *state.Node, boot string) bool {
	if sleeper(n) && boot == n.BootId { // the daemon that should end, and perhaps will
		if n.StateFlags&state.PowerFlags != 0 {
			n.PowerNodedNs = n.NodedStartNs
		}
		return false
	}
	if n.StateFlags&(pb.NodePoweredDown|pb.NodePoweringUp) == 0 || n.PowerProgram == PowerSuspend { // SuspendProgram may switch it off
		return false
	}
	if n.StateFlags&pb.NodePowerDrain != 0 && n.StateFlags&(pb.NodeDrain|pb.NodeFail) == 0 && n.State == pb.NodeState_NODE_IDLE {
		n.Reason = ""
	}
	n.StateFlags &^= state.PowerFlags | pb.NodePowerUpPending | pb.NodeNoRespond | pb.NodePowerDrain
	n.PowerNodedNs, n.PowerProgram, n.LastBusyNs = 0, "", tx.NowNS
	return true
}

// resumeReason is Slurm's reason for a node that did not register in time.
const resumeReason = "ResumeTimeout reached"

// resumeFailed handles the end of ResumeTimeout.
func resumeFailed(tx *state.Tx, old *state.Node) {
	p := tx.Settings().Power
	nodeDown(tx, old.Name, resumeReason, Caller{UID: tx.Settings().SlurmUserUID, Operator: true}, "slurm")
	n := change(tx.Node(old.Name))
	n.StateFlags &^= pb.NodePoweringUp | pb.NodePowerDownPending | pb.NodePowerUpPending | pb.NodeDrain | pb.NodePowerDrain
	n.StateFlags |= pb.NodePoweredDown | pb.NodeNoRespond
	n.PowerNs, n.PowerProgram = tx.NowNS, ""
	if p.FailProgram {
		n.PowerProgram = PowerFail
	}
	tx.Emit(state.NodeChanged{Node: n, What: "resume timed out", Durable: true})
}

// awake releases the jobs that waited for a node, if all their nodes are up now.
func awake(tx *state.Tx, name string) {
	n := tx.Node(name)
	if !ready(n) {
		return
	}
	settleAsleep(tx, name)
	for _, id := range tx.Node(name).Jobs {
		j := tx.Job(id)
		if j.GetStateFlags()&pb.JobPowerUp == 0 {
			continue
		}
		c := state.CloneJob(j)
		c.Alloc = slices.Clone(j.Alloc)
		all := true
		for i, a := range c.Alloc {
			if a.Node == name {
				c.Alloc[i] = state.CloneAlloc(a)
				c.Alloc[i].BootId = n.BootId
			}
			all = all && (a.Ended || ready(tx.Node(a.Node)))
		}
		if all {
			c.StateFlags &^= pb.JobPowerUp
			if !tx.Settings().PrologSlurmctld {
				c.StateFlags &^= pb.JobConfiguring
			}
			c.ReasonDetail = ""
			if c.EndNs != 0 { // its time limit begins now
				c.EndNs = tx.NowNS + int64(c.TimeLimitS)*1e9
			}
		}
		tx.Emit(state.JobChanged{Job: c, What: "node is up"})
	}
}

// ready reports whether jobs that were given to a powered down node can be launched there.
func ready(n *state.Node) bool {
	return n != nil && n.LinkUp && n.StateFlags&state.PowerFlags == 0 && len(n.Strays) == 0 && !n.Reported.GetUnread()
}

// waitForNodes makes a starting job CONFIGURING until its powered down nodes are up; n is its record.
func waitForNodes(n *pb.JobRecord, asleep []*state.Node) {
	if len(asleep) == 0 {
		return
	}
	names, upS := make([]string, len(asleep)), uint32(0)
	for i, on := range asleep {
		names[i], upS = on.Name, max(upS, on.Power.UpS)
	}
	n.StateFlags |= pb.JobConfiguring | pb.JobPowerUp
	n.ReasonDetail = "waits until powered up: " + hostlist.FoldSorted(names)
	if n.EndNs != 0 && upS != pb.Unlimited { // at the latest; its time limit begins when all nodes are up
		n.EndNs += int64(upS) * 1e9
	}
}

// unlaunched takes a job off its nodes, none of which has heard of it.
func unlaunched(tx *state.Tx, id uint32, x *pb.ExitRecord) {
	for _, a := range tx.Job(id).GetAlloc() {
		if j := tx.Job(id); state.AllocOn(j, a.Node) != nil {
			leave(tx, j, a.Node, x)
		}
	}
}

// powerDownASAP is Slurm's reason for a node that is drained in order to be powered down.
const powerDownASAP = "POWER_DOWN_ASAP"

// setPower implements State=POWER_… of scontrol(1) for one node; n is a copy of its record.
func (c UpdateNode) setPower(tx *state.Tx, n *state.Node, value string, force map[string]bool) *pb.Problem {
	if !n.Power.On || n.State == pb.NodeState_NODE_FUTURE {
		return pb.NewProblem(pb.CodeInvalidNodeState, "node %s cannot be powered down and up", n.Name).WithHint(
			"set SuspendProgram and ResumeProgram in slurm.conf, and run scontrol reconfigure")
	}
	switch value {
	case "POWER_UP":
		n.StateFlags &^= pb.NodePowerDownPending
		if n.StateFlags&pb.NodePowerDrain != 0 {
			n.StateFlags &^= pb.NodeDrain | pb.NodePowerDrain
			n.Reason = ""
		}
		if n.StateFlags&(pb.NodePoweredDown|pb.NodePoweringDown) != 0 {
			n.StateFlags |= pb.NodePowerUpPending
		}
		return nil
	case "POWER_DOWN_FORCE":
		n.State = pb.NodeState_NODE_IDLE
		n.StateFlags &^= pb.NodeDrain | pb.NodeFail | pb.NodePowerDrain
		force[n.Name] = true
		return nil
	case "POWER_DOWN_ASAP":
		if n.StateFlags&pb.NodeDrain != 0 { // drained by an administrator: it stays drained
			break
		}
		n.StateFlags |= pb.NodeDrain | pb.NodePowerDrain
		if !c.sets("reason") {
			n.Reason, n.ReasonNs, n.ReasonUid, n.ReasonUser = powerDownASAP, tx.NowNS, c.Caller.UID, c.UserName
		}
	}
	if n.StateFlags&pb.NodePoweringDown != 0 {
		n.StateFlags &^= pb.NodePowerUpPending
		return nil
	}
	if n.StateFlags&pb.NodePoweredDown != 0 && len(n.Jobs) == 0 { // SuspendProgram runs again, and the node is never shown as up in between
		powerDown(tx, n)
		return nil
	}
	n.StateFlags = n.StateFlags&^pb.NodePowerUpPending | pb.NodePowerDownPending
	return nil
}

// forceDown powers a node down at once and gives up its jobs.
func (c UpdateNode) forceDown(tx *state.Tx, name string) {
	n := change(tx.Node(name))
	n.Strays = withStrays(tx, n)
	powerDown(tx, n)
	tx.Emit(state.NodeChanged{Node: n, What: "powering down by force", Durable: true})
	for _, id := range n.Jobs {
		if j := tx.Job(id); j != nil && state.AllocOn(j, name) != nil {
			lose(tx, j, name, fmt.Sprintf("node %s was powered down by force", name))
		}
	}
}

// PowerProgramDone: a program for nodes has ended, with any result. Each node comes with its PowerNs of that time.
type PowerProgramDone struct {
	Program string
	Nodes   map[string]int64
}

// Handle marks the program as done.
func (c PowerProgramDone) Handle(tx *state.Tx) any {
	for _, old := range tx.Nodes() {
		if at, named := c.Nodes[old.Name]; named && old.PowerProgram == c.Program && old.PowerNs == at {
			n := change(old)
			n.PowerProgram = ""
			if n.LinkUp && !sleeper(n) && c.Program == PowerSuspend &&
				n.StateFlags&(pb.NodePoweredDown|pb.NodePoweringDown) != 0 {
				// the host may need SuspendTimeout to go down
				n.StateFlags = n.StateFlags&^pb.NodePoweredDown | pb.NodePoweringDown
				n.PowerNs = tx.NowNS
			}
			tx.Emit(state.NodeChanged{Node: n, What: c.Program + " program ended", Durable: true})
		}
	}
	return nil
}
