package reactor

import (
	"fmt"
	"math"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// NodeHello: a node opened its stream and reports everything it has.
type NodeHello struct {
	Hello  *pb.NodeHello
	Steps  []*pb.StepReport
	Stream uint64 // number of the stream; a later one has a greater number
	OffNS  int64  // time by which the node's clock was ahead when this came
	Serial string // of the certificate that it presented; "": certificates are not checked
	Conf   *pb.ConfigurationState
	Join   *pb.NodeRecord // set for a host that asks to be a node: the node as a NodeName line would define it
}

// Handle registers the node. Jobs that the node no longer has after a reboot are lost.
func (c NodeHello) Handle(tx *state.Tx) any {
	if c.Serial != "" && !tx.View().Accepts(c.Hello.Node, c.Serial) { // revoked since the connection was accepted
		return RevokedProblem(c.Hello.Node)
	}
	if c.Join != nil {
		if p := c.join(tx); p != nil {
			return p
		}
	}
	n := tx.Node(c.Hello.Node)
	if n == nil {
		return unknownNode(tx, c.Hello.Node)
	}
	PlainWords(c.Hello)
	register(tx, n, c)
	awake(tx, n.Name)
	markJobs(tx, tx.Node(c.Hello.Node))
	for _, r := range c.Steps {
		if r.GetExit().GetVerdict() != pb.VerdictLost || !rebooted(state.AllocOn(tx.Job(r.GetKey().GetJobId()), c.Hello.Node),
			c.Hello.BootId) {
			takeReport(tx, c.Hello.Node, r)
		}
	}
	loseRebooted(tx, c.Hello.Node, c.Hello.BootId, c.Steps)
	strangers(tx, c.Hello.Node, c.Steps)
	straysGone(tx, c.Hello.Node, c.Steps)
	return nil
}

func unknownNode(tx *state.Tx, name string) *pb.Problem {
	p := pb.NewProblem(pb.CodeInvalidNodeName, "node %s is not in the configuration of this cluster", name)
	if tx.Settings().MaxNodeCount > 0 {
		return p.WithHint("add a NodeName line to slurm.conf and run scontrol reconfigure, or start sluice-noded with -Z there")
	}
	return p.WithHint("add a NodeName line to slurm.conf and run scontrol reconfigure")
}

// rebooted reports whether the share was started in an earlier boot of its node.
func rebooted(a *pb.NodeAlloc, boot string) bool {
	return a != nil && boot != "" && a.BootId != "" && a.BootId != boot
}

func change(n *state.Node) *state.Node {
	c := *n
	c.NodeRecord = state.CloneNode(n.NodeRecord)
	return &c
}

// lowReason begins the reason of a node that reported less than its configuration, so that a later good report can undo the drain.
const lowReason = "Low "

func register(tx *state.Tx, old *state.Node, c NodeHello) {
	n, h := change(old), c.Hello
	n.LinkUp, n.LinkNS, n.Stream = true, tx.NowNS, max(n.Stream, c.Stream)
	clockOff(n, c.OffNS)
	takeConf(n, c.Conf)
	if n.StateFlags&pb.NodePoweringUp == 0 {
		n.StateFlags &^= pb.NodeNoRespond
	}
	boot := n.BootId
	rebooted := n.BootId != "" && n.BootId != h.BootId
	n.BootId, n.BootNs, n.NodedStartNs, n.Version, n.Os, n.Arch = h.BootId, h.BootNs, h.NodedStartNs, h.Version, h.Os, h.Arch
	n.LastSeenNs = tx.NowNS
	if next := tx.NextJobID(); tx.View().Restored != 0 && h.HighestJob >= next && h.HighestJob-next < maxLostIDs {
		n.HighestJob = h.HighestJob
	}
	n.RefusesRoot, n.RefusesBelow = h.Refusals.GetRoot(), h.Refusals.GetBelow()
	up := poweredUp(tx, n, boot)
	done := rebooted && rebootDone(tx, n)
	takeHardware(tx, n, h.Hardware)
	if low := short(n.NodeRecord, h.Hardware); low != "" && !tx.Settings().ConfigOverrides {
		n.StateFlags = n.StateFlags&^pb.NodePowerDrain | pb.NodeDrain | pb.NodeInvalidReg
		n.Reason, n.ReasonNs, n.ReasonUser, n.ReasonUid = low, tx.NowNS, "slurm", tx.Settings().SlurmUserUID
	} else if n.StateFlags&pb.NodeInvalidReg != 0 {
		n.StateFlags &^= pb.NodeInvalidReg
		if ofRegistration(n.Reason) {
			n.StateFlags &^= pb.NodeDrain
			n.Reason = ""
		}
	}
	switch {
	case rebooted && !done && !up && unexpected(tx.Settings().ReturnToService, n.NodeRecord):
		if n.State = pb.NodeState_NODE_DOWN; n.Reason != "" && n.Reason != notResponding {
			break
		}
		n.Reason, n.ReasonNs, n.ReasonUser, n.ReasonUid = unexpectedReboot, tx.NowNS, "slurm", tx.Settings().SlurmUserUID
	case n.State == pb.NodeState_NODE_UNKNOWN:
		n.State = pb.NodeState_NODE_IDLE
	case done, n.StateFlags&pb.NodeRebootIssued != 0: // nextstate= decides, or the reboot is still to come
	case n.State == pb.NodeState_NODE_DOWN:
		if n.Reason == revokedReason || returns(tx.Settings().ReturnToService, n.NodeRecord) {
			n.State = pb.NodeState_NODE_IDLE
			if n.StateFlags&(pb.NodeDrain|pb.NodeFail) == 0 || n.Reason == revokedReason { // otherwise it explains the drain
				n.Reason = ""
			}
		}
	}
	if n.LastBusyNs == 0 || rebooted || up {
		n.LastBusyNs = tx.NowNS
	}
	if rebooted {
		n.Strays = nil
	}
	tx.Emit(state.NodeChanged{Node: n, What: "registered", Durable: true})
}

// maxLostIDs bounds the job ids that a node can claim a restore has forgotten: a node must not use up all ids.
const maxLostIDs = 1_000_000

// notResponding is the reason Slurm gives a node that did not answer for SlurmdTimeout.
const notResponding = "Not responding"

// unexpectedReboot is the reason Slurm gives a node that rebooted without being asked to.
const unexpectedReboot = "Node unexpectedly rebooted"

// unexpected reports whether a node that has rebooted by itself is DOWN until an administrator has looked at it (slurm.conf(5),
// ReturnToService, ResumeTimeout). It is not where every node that registers is used, and not again where it is DOWN for another reason.
func unexpected(mode int, n *pb.NodeRecord) bool {
	if mode == 2 || n.StateFlags&state.PowerFlags != 0 {
		return false
	}
	return n.State != pb.NodeState_NODE_DOWN && n.State != pb.NodeState_NODE_FUTURE || n.Reason == notResponding
}

// returns reports whether a DOWN node that registers is used again (slurm.conf(5), ReturnToService).
func returns(mode int, n *pb.NodeRecord) bool {
	switch mode {
	case 1:
		return n.Reason == notResponding
	case 2:
		return true
	}
	return false
}

// short describes resources of which a node has less than configured, "" = none.
func short(cfg *pb.NodeRecord, hw *pb.Hardware) string {
	if hw == nil {
		return ""
	}
	var low []string
	lack := func(what string, has, want uint64) {
		if has < want {
			low = append(low, fmt.Sprintf("%s (reported:%d < configured:%d)", what, has, want))
		}
	}
	lack("CPUs", uint64(hw.Cpus), uint64(cfg.Cpus))
	if hw.Cpus >= cfg.Cpus {
		lack("socket*core*thread count", uint64(hw.Sockets*hw.Cores*hw.Threads), uint64(cfg.Cpus))
	}
	lack("RealMemory", hw.RealMemoryMib, cfg.RealMemoryMib)
	lack("TmpDisk", hw.TmpDiskMib, cfg.TmpDiskMib)
	if len(low) == 0 {
		return ""
	}
	return lowReason + strings.Join(low, ", ")
}

// loseRebooted ends the jobs of an earlier boot of the node: nothing of them can be left. This includes a step whose directory survived,
// but not its shim: the node failed, so the job may be requeued.
func loseRebooted(tx *state.Tx, node, boot string, steps []*pb.StepReport) {
	has, named := map[uint32]bool{}, map[uint32]bool{}
	for _, r := range steps {
		named[r.GetKey().GetJobId()] = true
		if r.GetExit().GetVerdict() != pb.VerdictLost && !state.Numbered(r.GetKey().GetStep()) {
			has[r.GetKey().GetJobId()] = true
		}
	}
	n := tx.Node(node)
	for _, id := range n.Jobs {
		j := tx.Job(id)
		a := state.AllocOn(j, node)
		if tx.View().FromBackup(j.Epoch) && !named[id] {
			continue // the node is asked: it may have ended well before the reboot
		}
		if !has[id] && rebooted(a, boot) {
			lose(tx, j, node, fmt.Sprintf("node %s was rebooted", node))
		}
	}
}

// lose gives up a job's part on a failed node: the job continues without it (--no-kill), is requeued if it may be, or becomes NODE_FAIL.
func lose(tx *state.Tx, j *pb.JobRecord, node, why string) {
	if survives(j, node) {
		shrink(tx, j, node, why)
		return
	}
	n, waited := state.CloneJob(j), j.StateFlags&pb.JobPowerUp != 0
	n.FailedNode = node
	if n.StopReason == "" {
		n.StopReason, n.StopState, n.Reason = pb.StopNodeFail, pb.JobState_JOB_NODE_FAIL, "NodeDown"
		if mayRequeue(tx, j) || waited && tx.Settings().Power != nil && tx.Settings().Power.RequeueOnFail {
			n.StopState = pb.JobState_JOB_PENDING
		} else {
			n.State = pb.JobState_JOB_NODE_FAIL
		}
		n.StateFlags = n.StateFlags&^(pb.JobConfiguring|pb.JobPowerUp) | pb.JobCompleting
		n.ReasonDetail, n.EndNs = why, max(tx.NowNS, n.StartNs)
	}
	x := &pb.ExitRecord{Verdict: pb.VerdictLost, Detail: why, EndNs: tx.NowNS, StoppedOnOrder: true}
	leave(tx, n, node, x)
	if waited {
		unlaunched(tx, j.Id, x)
	}
}

// NodeGone: a stream to a node broke.
type NodeGone struct {
	Node   string
	Stream uint64
}

// Handle notes it; the node is DOWN only after SlurmdTimeout (tick.go). The end of a stream may be noticed after the node has opened the
// next one: then it means nothing.
func (c NodeGone) Handle(tx *state.Tx) any {
	if old := tx.Node(c.Node); old != nil && old.LinkUp && old.Stream <= c.Stream {
		n := change(old)
		n.LinkUp, n.LinkNS = false, tx.NowNS
		tx.Emit(state.NodeChanged{Node: n, What: "link lost"})
	}
	return nil
}

// NodeBeats are collected heartbeats.
type NodeBeats struct {
	Beats map[string]*pb.Heartbeat
	OffNS map[string]int64 // time by which each node's clock was ahead when its heartbeat came
}

// Handle stores the values; none of them is durable.
func (c NodeBeats) Handle(tx *state.Tx) any {
	for name, b := range c.Beats {
		if old := tx.Node(name); old != nil {
			n := change(old)
			n.CpuLoad, n.CpuLoadKnown, n.FreeMemMib, n.LastSeenNs = b.CpuLoad, true, b.FreeMemMib, tx.NowNS
			if math.IsNaN(b.CpuLoad) || math.IsInf(b.CpuLoad, 0) { // JSON cannot represent it
				n.CpuLoad = 0
			}
			clockOff(n, c.OffNS[name])
			tx.Emit(state.NodeChanged{Node: n})
			if b.Fault != "" {
				nodeFault(tx, name, plain(b.Fault, maxWords))
			}
		}
	}
	return nil
}
