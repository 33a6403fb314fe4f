package reactor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

func gpus(ids ...string) []*pb.Device {
	var out []*pb.Device
	for i, id := range ids {
		out = append(out, &pb.Device{Name: "gpu", Type: "a100", Index: uint32(i), Id: id, MemoryMib: 40960})
	}
	return out
}

// gpuBench has two nodes, and GPUs on n1.
func gpuBench(t *testing.T, set func(*state.Settings), ids ...string) *bench {
	t.Helper()
	b := newBench(t, set)
	b.do(DeviceReport{Node: "n1", Report: &pb.DeviceReport{Devices: gpus(ids...)}})
	b.trace = nil
	return b
}

// give starts a job with devices of n1, as a plan would.
func (b *bench) give(devices ...*pb.GresDevice) (id uint32, started bool) {
	b.t.Helper()
	return b.giveAs("", devices...)
}

// giveAs is give with the text that is shown of the devices.
func (b *bench) giveAs(text string, devices ...*pb.GresDevice) (id uint32, started bool) {
	b.t.Helper()
	id = b.submit(&pb.JobSpec{Name: "g", NumTasks: 1, TresPerNode: "gres/gpu:1"})
	s := PlannedStart{ID: id, Spec: b.job(id).Spec, Partition: "debug", NodeList: "n1", LimitS: 60,
		Alloc: []*pb.NodeAlloc{{Node: "n1", Cpus: 0, MemMib: 1, Gres: text, Devices: devices}}}
	return id, b.do(ApplyPlan{Starts: []PlannedStart{s}}).(Applied).Started == 1
}

func dev(index uint32, id string) *pb.GresDevice {
	return &pb.GresDevice{Name: "gpu", Type: "a100", Index: index, Id: id}
}

func TestDevicesHaveOneOwner(t *testing.T) {
	b := gpuBench(t, nil, "A", "B")
	if _, ok := b.give(dev(0, "A")); !ok {
		t.Fatal("a free device was not given")
	}
	if _, ok := b.give(dev(0, "A")); ok {
		t.Error("a device was given twice")
	}
	if _, ok := b.give(dev(1, "B"), dev(1, "B")); ok {
		t.Error("a device was given twice to one job")
	}
	if _, ok := b.give(dev(0, "C")); ok {
		t.Error("a device was given that the node does not have")
	}

	// The node is opened up: A is now behind B. Index 0 in the plan means B, whichever device had it when A was allocated.
	b.do(DeviceReport{Node: "n1", Report: &pb.DeviceReport{Devices: gpus("B", "A")}})
	if _, ok := b.give(dev(1, "A")); ok {
		t.Error("a device that has moved was given twice")
	}
	if _, ok := b.give(dev(0, "B")); !ok {
		t.Error("a free device that has moved was not given")
	}
}

// TestReportsAreBounded: a node cannot fill the journal with its devices, nor write to the terminals of those who look at them.
func TestReportsAreBounded(t *testing.T) {
	b := newBench(t, nil)
	list := make([]*pb.Device, 2*maxReported)
	for i := range list {
		list[i] = &pb.Device{Name: "gpu", Index: uint32(i), Id: fmt.Sprint("G", i), Fault: "\x1b[2J\nx" + strings.Repeat("y", 2*maxWords)}
	}
	b.do(DeviceReport{Node: "n1", Report: &pb.DeviceReport{Devices: list, Mismatches: make([]string, 2*maxMismatches)}})
	r := b.view.Node("n1").Reported
	if len(r.Devices) != maxReported || len(r.Mismatches) != maxMismatches {
		t.Errorf("%d devices, %d mismatches are kept", len(r.Devices), len(r.Mismatches))
	}
	if f := r.Devices[0].Fault; !strings.HasPrefix(f, "?[2J?xy") || len(f) > maxWords {
		t.Errorf("%d bytes: %.20q", len(f), f)
	}
}

// TestGresOfAPendingJob: devices that nodes report count, also without Gres= in slurm.conf. A job that loses its GPUs by an update also
// loses its memory per GPU and gets the default memory.
func TestGresOfAPendingJob(t *testing.T) {
	b := gpuBench(t, func(s *state.Settings) { s.CountMemory, s.DefMemPerCPUMiB = true, 100 }, "A", "B")
	id := b.submit(&pb.JobSpec{Name: "g", NumTasks: 1, TresPerNode: "gres/gpu:1", MemPerGpuMib: 500})
	for _, tt := range []struct{ value, tres string }{
		{"gpu:2", "cpu=1,mem=1000M,node=1,billing=1,gres/gpu=2"}, {"tpu:1", "cpu=1,mem=1000M,node=1,billing=1,gres/gpu=2"},
		{"", "cpu=1,mem=100M,node=1,billing=1"},
	} {
		b.do(UpdateJob{Caller: root, IDs: []string{fmt.Sprint(id)}, Set: []*pb.KeyValue{{Key: "gres", Value: tt.value}}})
		if got := b.job(id).ReqTres; got != tt.tres {
			t.Errorf("gres=%s: %s, want %s", tt.value, got, tt.tres)
		}
	}
}

func TestSharesOfADevice(t *testing.T) {
	b := newBench(t, nil)
	list := gpus("A", "B")
	for _, d := range list {
		d.Shares, d.SharedAs = 4, "shard"
	}
	b.do(DeviceReport{Node: "n1", Report: &pb.DeviceReport{Devices: list}})
	shard := func(n uint32, id string) *pb.GresDevice {
		return &pb.GresDevice{Name: "shard", Type: "a100", Id: id, Share: n}
	}
	for _, tt := range []struct {
		d    *pb.GresDevice
		want bool
	}{{shard(3, "A"), true}, {shard(2, "A"), false}, {shard(1, "A"), true}, {dev(0, "A"), false}, {dev(1, "B"), true},
		{shard(1, "B"), false}} {
		if _, ok := b.give(tt.d); ok != tt.want {
			t.Errorf("%v: given %v, want %v", tt.d, ok, tt.want)
		}
	}
}

func TestInstancesDoNotOverlap(t *testing.T) {
	b := newBench(t, nil)
	list := gpus("A")
	list[0].MigProfiles = []*pb.MigProfile{{Name: "3g.20gb", Size: 4, Starts: []uint32{0, 4}},
		{Name: "1g.5gb", Size: 1, Starts: []uint32{0, 1, 2, 3, 4, 5, 6}}}
	b.do(DeviceReport{Node: "n1", Report: &pb.DeviceReport{Devices: list}})
	part := func(typ string, start uint32) *pb.GresDevice {
		return &pb.GresDevice{Name: "gpu", Type: typ, Index: 1 + start, Parent: "A", MigStart: start}
	}
	for _, tt := range []struct {
		d    *pb.GresDevice
		want bool
	}{{part("a100_3g.20gb", 4), true}, {part("1g.5gb", 4), false}, {part("3g.20gb", 4), false}, {part("1g.5gb", 3), true},
		{part("3g.20gb", 0), false}, {dev(0, "A"), false}} {
		if _, ok := b.give(tt.d); ok != tt.want {
			t.Errorf("%v: given %v, want %v", tt.d, ok, tt.want)
		}
	}
}

func TestFaultOfADevice(t *testing.T) {
	b := gpuBench(t, nil, "A", "B")
	id, _ := b.give(dev(0, "A"))
	other, _ := b.give(dev(1, "B"))
	b.trace = nil
	list := gpus("A", "B")
	list[0].Fault = "XID 79: fallen off the bus"
	report := DeviceReport{Node: "n1", Report: &pb.DeviceReport{Devices: list}}
	b.do(report)
	b.expect("NodeChanged n1 devices", "JobChanged devices")
	want := "device trouble: gpu 0 (a100) of n1: XID 79: fallen off the bus"
	if j := b.job(id); j.ReasonDetail != want || j.SystemComment != want || b.state(id) != "RUNNING None" {
		t.Errorf("%s %q %q, want RUNNING and %q", b.state(id), j.ReasonDetail, j.SystemComment, want)
	}
	if j := b.job(other); j.ReasonDetail != "" {
		t.Errorf("the other job: %q", j.ReasonDetail)
	}
	b.do(DeviceReport{Node: "n1", Report: proto.Clone(report.Report).(*pb.DeviceReport)})
	b.expect() // the same again is no news
	b.ended(id, "n1", "exit", 0)
	if _, ok := b.give(dev(0, "A")); ok {
		t.Error("a faulty device was given")
	}

	list = gpus("B") // and now it is gone
	b.trace = nil
	b.do(DeviceReport{Node: "n1", Report: &pb.DeviceReport{Devices: list}})
	if j := b.job(other); j.ReasonDetail != "" {
		t.Errorf("a job whose device has got another index: %q", j.ReasonDetail)
	}
	b.do(DeviceReport{Node: "n1", Report: &pb.DeviceReport{Devices: gpus("A")}})
	if j := b.job(other); !strings.Contains(j.ReasonDetail, "gpu 1 (B) of n1 is gone") {
		t.Errorf("a job whose device is gone: %q", j.ReasonDetail)
	}
	b.do(DeviceReport{Node: "n1", Report: &pb.DeviceReport{Devices: gpus("A", "B")}})
	if j := b.job(other); j.ReasonDetail != "" || j.SystemComment == "" {
		t.Errorf("a job whose device is back: %q, remembered %q", j.ReasonDetail, j.SystemComment)
	}
}

func TestFaultDrainsNode(t *testing.T) {
	for _, policy := range []bool{false, true} {
		t.Run(fmt.Sprint(policy), func(t *testing.T) {
			b := gpuBench(t, func(s *state.Settings) { s.GPUFaultDrains = policy }, "A", "B")
			list := gpus("A", "B")
			list[1].Fault = "uncorrectable ECC errors"
			b.do(DeviceReport{Node: "n1", Report: &pb.DeviceReport{Devices: list}})
			n := b.view.Node("n1")
			if drained := n.StateFlags&pb.NodeDrain != 0; drained != policy || policy &&
				n.Reason != "Device fault: gpu 1 (a100): uncorrectable ECC errors" {
				t.Errorf("drained %v (%s), want %v", drained, n.Reason, policy)
			}
			b.do(DeviceReport{Node: "n1", Report: &pb.DeviceReport{Devices: gpus("A", "B")}})
			if n := b.view.Node("n1"); n.StateFlags&pb.NodeDrain != 0 || n.Reason != "" {
				t.Errorf("healthy again: still drained (%s)", n.Reason)
			}
		})
	}
	b := gpuBench(t, func(s *state.Settings) { s.GPUFaultDrains = true }, "A")
	fresh := gpus("A")
	fresh[0].Fault = pb.GresUnread
	b.do(DeviceReport{Node: "n1", Report: &pb.DeviceReport{Devices: fresh}})
	if n := b.view.Node("n1"); n.StateFlags&pb.NodeDrain != 0 {
		t.Errorf("a node that has not been told of gres.conf is drained: %q", n.Reason)
	}
	b.do(UpdateNode{Caller: root, Nodes: []string{"n1"}, Set: []*pb.KeyValue{{Key: "State", Value: "DRAIN"},
		{Key: "Reason", Value: "dust"}}})
	list := gpus("A")
	list[0].Fault = "x"
	b.do(DeviceReport{Node: "n1", Report: &pb.DeviceReport{Devices: list}})
	b.do(DeviceReport{Node: "n1", Report: &pb.DeviceReport{Devices: gpus("A")}})
	if n := b.view.Node("n1"); n.StateFlags&pb.NodeDrain == 0 || n.Reason != "dust" {
		t.Errorf("an administrator's drain was touched: %q", n.Reason)
	}
}
