package state

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"pgregory.net/rapid"
)

// gpu makes a reported GPU near core.
func gpu(index int, typ string, change ...func(*pb.Device)) *pb.Device {
	d := &pb.Device{Name: "gpu", Type: typ, Index: uint32(index), Id: fmt.Sprintf("GPU-%d", index), MemoryMib: 40960,
		Cores: fmt.Sprint(index), Model: "NVIDIA " + strings.ToUpper(typ) + "-SXM4-40GB"}
	for _, f := range change {
		f(d)
	}
	return d
}

func a100s(n int) []*pb.Device {
	var out []*pb.Device
	for i := range n {
		out = append(out, gpu(i, "a100"))
	}
	return out
}

var profiles = []*pb.MigProfile{{Name: "3g.20gb", Slices: 3, Size: 4, Starts: []uint32{0, 4}}}

func TestInventory(t *testing.T) {
	mig := func(mode string) func(*pb.Device) {
		return func(d *pb.Device) { d.MigMode, d.MigProfiles = mode, profiles }
	}
	instance := func(d *pb.Device) { d.Parent, d.Id = "GPU-0", "MIG-1" }
	tests := map[string]struct {
		gres    string
		conf    GresConfig
		found   []*pb.Device
		driver  string
		unknown bool // the node has not reported yet
		want    string
		differ  string
	}{
		"nothing anywhere":          {},
		"GPUs appear by themselves": {found: a100s(4), want: "gpu:a100:4(S:0-1)"},
		"two kinds": {found: []*pb.Device{gpu(0, "titan_xp"), gpu(1, "titan_v")},
			want: "gpu:titan_xp:1(S:0),gpu:titan_v:1(S:0)"},
		"as configured": {gres: "gpu:a100:4", found: a100s(4), want: "gpu:a100:4(S:0-1)"},
		"one is missing": {gres: "gpu:a100:4", found: a100s(3), want: "gpu:a100:4(S:0-1)",
			differ: "slurm.conf says gpu:a100:4, the node has 3: 1 less can be used"},
		"more than configured": {gres: "gpu:a100:2", found: a100s(4), want: "gpu:a100:2(S:0)",
			differ: "the node has 2 gpu:a100 that Gres= in slurm.conf does not name: not used"},
		"another type": {gres: "gpu:v100:2", found: a100s(2), want: "gpu:v100:2",
			differ: "slurm.conf says gpu:v100:2, the node has 0: 2 less can be used; the node has 2 gpu:a100 that Gres= in slurm.conf " +
				"does not name: not used"},
		"a type in slurm.conf alone": {gres: "gpu:titan_xp:2", found: []*pb.Device{gpu(0, ""), gpu(1, "")}, want: "gpu:titan_xp:2",
			differ: "slurm.conf says gpu:titan_xp:2, the node has 0: 2 less can be used; the node has 2 gpu that Gres= in slurm.conf " +
				"does not name: not used (say Type=titan_xp in gres.conf, or no type in Gres=)"},
		"by the name of the model": {gres: "gpu:nvidia_a100-sxm4-40gb:2", found: a100s(2), want: "gpu:nvidia_a100-sxm4-40gb:2(S:0)"},
		"without a type":           {gres: "gpu:2", found: a100s(2), want: "gpu:a100:2(S:0)"},
		"without a type, one missing": {gres: "gpu:3", found: a100s(2), want: "gpu:a100:3(S:0)",
			differ: "slurm.conf says gpu:3, the node has 2: 1 less can be used"},
		"not reported yet": {gres: "gpu:a100:4", unknown: true, want: "gpu:a100:4"},
		"counted": {gres: "gpu:a100:4,license:2", want: "gpu:a100:4,license:2",
			differ: "slurm.conf says gpu:a100:4, but neither a driver nor gres.conf says which devices these are, so they are only " +
				"counted"},
		"a driver and no GPU": {gres: "gpu:a100:4", driver: "550.54", want: "gpu:a100:4",
			differ: "slurm.conf says gpu:a100:4, the node has 0: 4 less can be used"},
		"files of gres.conf not there": {gres: "gpu:a100:1",
			conf: GresConfig{Lines: []*pb.GresConf{{Name: "gpu", Files: []string{"/dev/x"}}}}, want: "gpu:a100:1",
			differ: "slurm.conf says gpu:a100:1, the node has 0: 1 less can be used"},
		"no end":           {gres: "bandwidth:no_consume:4G", want: "bandwidth:no_consume:4294967296"},
		"shards by memory": {gres: "gpu:a100:2,shard:5", found: a100s(2), want: "gpu:a100:2(S:0),shard:5(S:0)"},
		"shards without GPUs": {gres: "shard:5", driver: "550.54",
			differ: "slurm.conf says shard:5, and there is no GPU to share"},
		"shards of gres.conf": {found: []*pb.Device{gpu(0, "a100", func(d *pb.Device) { d.Shares, d.SharedAs = 8, "shard" })},
			want: "gpu:a100:1(S:0),shard:8(S:0)"},
		"cut into instances": {found: []*pb.Device{gpu(0, "a100", mig("on")), gpu(1, "a100_3g.20gb", instance)},
			want: "gpu:a100_3g.20gb:1(S:0)"},
		"ready to be cut, but not here": {found: []*pb.Device{gpu(0, "a100", mig("on")), gpu(1, "a100")}, want: "gpu:a100:1(S:0)",
			differ: "gpu 0 (a100): in MIG mode without instances, so no job can use it (create some with nvidia-smi mig, or have them " +
				"created on demand: SlurmdParameters=gpu_mig=dynamic)"},
		"cut as jobs ask for it": {conf: GresConfig{DynamicMIG: true},
			found: []*pb.Device{gpu(0, "a100", mig("on")), gpu(1, "a100_3g.20gb", instance), gpu(2, "a100")}, want: "gpu:a100:2(S:0-1)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := &Node{NodeRecord: &pb.NodeRecord{Name: "n", Gres: tt.gres, Cores: 2, Sockets: 4}, GresConf: tt.conf}
			if !tt.unknown {
				n.Reported = &pb.Hardware{Devices: tt.found, Driver: tt.driver}
			}
			n.Recount()
			if n.Inv.Gres != tt.want {
				t.Errorf("Gres=%s, want %s", n.Inv.Gres, tt.want)
			}
			if got := strings.Join(n.Inv.Differ, "; "); got != tt.differ {
				t.Errorf("differences:\n%s\nwant:\n%s", got, tt.differ)
			}
		})
	}
}

// TestShardsFollowMemory: a GPU with more memory is worth more shards, and none is lost.
func TestShardsFollowMemory(t *testing.T) {
	small, big := gpu(0, "v100", func(d *pb.Device) { d.MemoryMib = 16384 }), gpu(1, "a100", func(d *pb.Device) { d.MemoryMib = 81920 })
	n := &Node{NodeRecord: &pb.NodeRecord{Gres: "gpu:2,shard:13", Reported: &pb.Hardware{Devices: []*pb.Device{small, big}}}}
	n.Recount()
	if a, b := n.Inv.Device("GPU-0").Shares, n.Inv.Device("GPU-1").Shares; a != 3 || b != 10 {
		t.Errorf("%d and %d shares, want 3 and 10", a, b)
	}
	if small.Shares != 0 || big.Shares != 0 {
		t.Error("what the node reported was changed")
	}
}

// TestCurrentIsByIdentity: a job's device is found by its UUID wherever it has gone, and never by the index it had.
func TestCurrentIsByIdentity(t *testing.T) {
	n := &Node{NodeRecord: &pb.NodeRecord{Reported: &pb.Hardware{Devices: []*pb.Device{
		gpu(0, "a100", func(d *pb.Device) { d.Id = "B" }), gpu(1, "a100", func(d *pb.Device) { d.Id = "A" })}}}}
	n.Recount()
	for _, tt := range []struct {
		held *pb.GresDevice
		want string
	}{
		{&pb.GresDevice{Name: "gpu", Index: 0, Id: "A"}, "A"},
		{&pb.GresDevice{Name: "gpu", Index: 1, Id: "gone"}, ""},
		{&pb.GresDevice{Name: "gpu", Index: 1}, "A"},
		{&pb.GresDevice{Name: "gpu", Index: 7}, ""},
		{&pb.GresDevice{Name: "gpu", Type: "3g.20gb", Index: 1, Id: "MIG-9", Parent: "B"}, "B"},
	} {
		if got := n.Inv.Current(tt.held).GetId(); got != tt.want {
			t.Errorf("%v is %q now, want %q", tt.held, got, tt.want)
		}
	}
}

// TestCoresOfTheNode: cores that the node does not have are near to nothing, and said where a file names them.
func TestCoresOfTheNode(t *testing.T) {
	n := &Node{NodeRecord: &pb.NodeRecord{Sockets: 2, Cores: 4, Reported: &pb.Hardware{Driver: "1", Devices: []*pb.Device{
		gpu(0, "a100", func(d *pb.Device) { d.Cores, d.Declared = "6-7,64-99", "gres.conf:1" }),
		gpu(1, "a100", func(d *pb.Device) { d.Cores, d.Declared = "99", "gres.conf:2" }),
		gpu(2, "a100", func(d *pb.Device) { d.Cores, d.Declared = "7-8", "nvml" }),
		gpu(3, "a100", func(d *pb.Device) { d.Cores, d.Declared = "4-7", "gres.conf:3" })}}}}
	n.Recount()
	var got []string
	for _, d := range n.Inv.Kinds[0].Devices {
		got = append(got, d.Cores)
	}
	if want := []string{"6-7", "", "7", "4-7"}; !slices.Equal(got, want) || n.Inv.Gres != "gpu:a100:4(S:1)" {
		t.Errorf("%q, %s, want %q", got, n.Inv.Gres, want)
	}
	if want := []string{"gres.conf:1 says Cores=6-7,64-99, the node has cores 0-7",
		"gres.conf:2 says Cores=99, the node has cores 0-7"}; !slices.Equal(n.Inv.Differ, want) {
		t.Errorf("%q, want %q", n.Inv.Differ, want)
	}
	if n.Reported.Devices[1].Cores != "99" {
		t.Error("what the node reports was changed")
	}
}

// TestManyShards: a count with which products of counts and memory do not fit 64 bits is spread all the same, at once.
func TestManyShards(t *testing.T) {
	n := &Node{NodeRecord: &pb.NodeRecord{Gres: "gpu:2,shard:4000000000000000000", Reported: &pb.Hardware{Driver: "1", Devices: a100s(2)}}}
	n.Recount()
	for _, d := range n.Inv.Kinds[0].Devices {
		if d.Shares != 2e18 {
			t.Errorf("%d shares", d.Shares)
		}
	}
}

// TestInventoryCounts: for any configuration and any devices found, no device has two kinds, no more are used than configured, and devices
// that both sides agree on are there.
func TestInventoryCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		types := rapid.SampledFrom([]string{"a100", "v100"})
		n := &Node{NodeRecord: &pb.NodeRecord{Reported: &pb.Hardware{Driver: "1"}}}
		for i := range rapid.IntRange(0, 8).Draw(t, "found") {
			n.Reported.Devices = append(n.Reported.Devices, gpu(i, types.Draw(t, "type")))
		}
		want := map[string]int{}
		var said []string
		for _, typ := range []string{"a100", "v100"} {
			if k := rapid.IntRange(0, 5).Draw(t, typ); k > 0 {
				want[typ] = k
				said = append(said, fmt.Sprintf("gpu:%s:%d", typ, k))
			}
		}
		n.Gres = strings.Join(said, ",")
		n.Recount()
		seen := map[string]bool{}
		have := map[string]int{}
		for _, d := range n.Reported.Devices {
			have[d.Type]++
		}
		for _, k := range n.Inv.Kinds {
			for _, d := range k.Devices {
				if seen[d.Id] {
					t.Fatalf("%s twice", d.Id)
				}
				seen[d.Id] = true
			}
			agreed := have[k.Type]
			if len(said) > 0 {
				agreed = min(agreed, want[k.Type])
			}
			if len(k.Devices) != agreed {
				t.Fatalf("%d %s, want %d", len(k.Devices), k.Type, agreed)
			}
		}
		if differs := slices.ContainsFunc([]string{"a100", "v100"}, func(s string) bool {
			return len(said) > 0 &&
				have[s] != want[s]
		}); differs != (len(n.Inv.Differ) > 0) {
			t.Fatalf("configured %v, found %v, said to differ: %q", want, have, n.Inv.Differ)
		}
	})
}
