package reactor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// DeviceReport: the devices of a node have changed. It lists all of them.
type DeviceReport struct {
	Node   string
	Report *pb.DeviceReport
}

// Handle stores the list. It is durable: a controller that has just started must not give out faulty devices.
func (c DeviceReport) Handle(tx *state.Tx) any {
	c.Report.Devices, c.Report.Mismatches = boundDevices(c.Report.Devices, c.Report.Mismatches)
	old := tx.Node(c.Node)
	if old == nil || sameDevices(old.Reported, c.Report) {
		return nil
	}
	n := change(old)
	hw := &pb.Hardware{}
	if old.Reported != nil {
		hw = proto.Clone(old.Reported).(*pb.Hardware)
	}
	hw.Devices, hw.Mismatches, hw.Unread = c.Report.Devices, c.Report.Mismatches, c.Report.Unread
	takeHardware(tx, n, hw)
	tx.Emit(state.NodeChanged{Node: n, What: "devices", Durable: true})
	awake(tx, n.Name)
	markJobs(tx, tx.Node(n.Name))
	return nil
}

func sameDevices(hw *pb.Hardware, r *pb.DeviceReport) bool {
	return hw != nil && hw.Unread == r.Unread && slices.Equal(hw.Mismatches, r.Mismatches) && slices.EqualFunc(hw.Devices, r.Devices,
		func(a, b *pb.Device) bool { return proto.Equal(a, b) })
}

// takeHardware notes the devices that the node has found. Where a faulty GPU drains its node (gpu_fault=drain), it drains the node or
// undoes that.
func takeHardware(tx *state.Tx, n *state.Node, hw *pb.Hardware) {
	if hw != nil {
		hw.Devices, hw.Mismatches = boundDevices(hw.Devices, hw.Mismatches)
	}
	n.Reported = hw
	n.Recount()
	fault := faultOf(hw)
	ours := n.StateFlags&pb.NodeDrain != 0 && strings.HasPrefix(n.Reason, faultReason)
	switch {
	case fault != "" && tx.Settings().GPUFaultDrains && (n.StateFlags&pb.NodeDrain == 0 || ours && n.Reason != faultReason+fault):
		n.StateFlags = n.StateFlags&^pb.NodePowerDrain | pb.NodeDrain
		n.Reason, n.ReasonNs, n.ReasonUser, n.ReasonUid = faultReason+fault, tx.NowNS, "slurm", tx.Settings().SlurmUserUID
	case fault == "" && ours:
		n.StateFlags &^= pb.NodeDrain
		n.Reason = ""
	}
}

// faultReason begins the reason of a node that was drained for a device, so that a later good report can undo the drain.
const faultReason = "Device fault: "

// faultOf names the faulty devices, "" = there are none. A device that could not be read yet is not faulty.
func faultOf(hw *pb.Hardware) string {
	var out []string
	for _, d := range hw.GetDevices() {
		if d.Fault != "" && d.Fault != pb.GresUnread {
			out = append(out, state.DeviceName(d)+": "+d.Fault)
		}
	}
	return strings.Join(out, "; ")
}

// markJobs notes in the record of each job on the node what is wrong with its devices. The job is kept: it may not notice, it may end by
// itself, and its owner knows best.
func markJobs(tx *state.Tx, n *state.Node) {
	for _, id := range n.Jobs {
		j := tx.Job(id)
		a := state.AllocOn(j, n.Name)
		if a == nil || len(a.Devices) == 0 || j.StateFlags&pb.JobPowerUp != 0 { // a job that waits for power-up gets other devices
			continue
		}
		detail := troubled(n, a)
		if own := strings.HasPrefix(j.ReasonDetail, deviceDetail); detail == j.ReasonDetail || detail == "" && !own {
			continue
		}
		c := state.CloneJob(j)
		c.ReasonDetail = detail
		if detail != "" && !strings.Contains(c.SystemComment, detail) {
			c.SystemComment = joinText(c.SystemComment, detail)
		}
		tx.Emit(state.JobChanged{Job: c, What: "devices"})
	}
}

// deviceDetail begins the detail of a job whose devices have faults.
const deviceDetail = "device trouble: "

// maxComment bounds the length of a job's system comment.
const maxComment = 1024

func joinText(a, b string) string {
	if a == "" {
		return b
	}
	if len(a)+len(b) > maxComment {
		return a
	}
	return a + "; " + b
}

// troubled describes the faults of a share's devices, "" = none.
func troubled(n *state.Node, a *pb.NodeAlloc) string {
	var out []string
	for _, d := range a.Devices {
		if d.Count > 0 {
			continue
		}
		have := n.Inv.Current(d)
		switch {
		case have == nil && d.Id != "":
			out = append(out, fmt.Sprintf("%s %d (%s) of %s is gone", d.Name, d.Index, d.Id, n.Name))
		case have != nil && state.Withheld(have) != "":
			out = append(out, fmt.Sprintf("%s of %s: %s", state.DeviceName(have), n.Name, state.Withheld(have)))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return deviceDetail + strings.Join(out, "; ")
}

// holding is the part of one device that jobs hold.
type holding struct {
	whole  bool
	shares uint64
	parts  []*pb.GresDevice // MIG instances
}

// devicesFree reports whether the devices of a share exist, work and are free.
func devicesFree(tx *state.Tx, n *state.Node, a *pb.NodeAlloc) bool {
	if !slices.ContainsFunc(a.Devices, func(d *pb.GresDevice) bool { return d.Count == 0 }) {
		return true
	}
	held := map[string]*holding{}
	for _, id := range n.Jobs {
		if s := state.AllocOn(tx.Job(id), n.Name); s != nil {
			for _, d := range s.Devices {
				if d.Count == 0 {
					hold(n, held, d)
				}
			}
		}
	}
	for _, d := range a.Devices {
		if d.Count > 0 {
			continue
		}
		have := n.Inv.Current(d)
		if have == nil || state.Withheld(have) != "" || !hold(n, held, d) {
			return false
		}
	}
	return true
}

// heldKey returns the key of a device in a map of holdings.
func heldKey(have *pb.Device, d *pb.GresDevice) string {
	switch {
	case have != nil:
		return fmt.Sprintf("%s %d", have.Name, have.Index)
	case d.Id != "":
		return d.Id
	}
	return fmt.Sprintf("%s %d", d.Name, d.Index)
}

// room reports whether the requested part of a device is free.
func room(n *state.Node, held map[string]*holding, d *pb.GresDevice) bool {
	have, part := n.Inv.Part(d)
	h := held[heldKey(have, d)]
	switch {
	case h == nil:
		h = &holding{}
	case h.whole:
		return false
	}
	switch {
	case d.Share > 0:
		return len(h.parts) == 0 && (have == nil || h.shares+uint64(d.Share) <= have.Shares)
	case part != nil:
		return h.shares == 0 && !slices.ContainsFunc(h.parts, func(o *pb.GresDevice) bool { return state.Overlap(have, o, part) })
	}
	return h.shares == 0 && len(h.parts) == 0
}

// hold adds a device to the holdings, and reports whether it was free.
func hold(n *state.Node, held map[string]*holding, d *pb.GresDevice) bool {
	free := room(n, held, d)
	have, part := n.Inv.Part(d)
	key := heldKey(have, d)
	h := held[key]
	if h == nil {
		h = &holding{}
		held[key] = h
	}
	switch {
	case d.Share > 0:
		h.shares += uint64(d.Share)
	case part != nil:
		h.parts = append(h.parts, part)
	default:
		h.whole = true
	}
	return free
}
