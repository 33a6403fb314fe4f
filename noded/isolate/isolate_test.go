package isolate

import (
	"bufio"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// machine is a Kernel made of a table.
type machine struct {
	files  map[string]Number
	majors map[string]int64
	draws  map[string][]string // by PCI address
}

func (m machine) File(path string) (Number, error) {
	n, ok := m.files[path]
	if !ok {
		return n, errors.New("no such file or directory")
	}
	return n, nil
}
func (m machine) Majors() map[string]int64     { return m.majors }
func (m machine) Graphics(pci string) []string { return m.draws[pci] }

// dgx has 4 GPUs whose minors are not their indexes; the first is cut into two instances.
func dgx() (Node, machine) {
	k := machine{map[string]Number{"/dev/nvidiactl": {Major: 195, Minor: 255}, "/dev/nvidia-modeset": {Major: 195, Minor: 254},
		"/dev/nvidia-uvm":       {Major: 511, Minor: 0},
		"/dev/nvidia-uvm-tools": {Major: 511, Minor: 1}}, map[string]int64{"nvidia": 195, "nvidia-uvm": 511, "nvidia-caps": 508, "mem": 1},
		nil}
	n := Node{Control: []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"}}
	for i, minor := range []int64{2, 3, 0, 1} {
		path := fmt.Sprintf("/dev/nvidia%d", minor)
		k.files[path] = Number{Major: 195, Minor: minor}
		d := &pb.Device{Name: "gpu", Type: "a100", Index: uint32(i + 1), Id: fmt.Sprintf("GPU-%d", i), Files: []string{path},
			Declared: "nvml"}
		if i > 0 {
			n.Devices = append(n.Devices, d)
			continue
		}
		for at := range 2 {
			gi, ci := fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", 10+2*at), fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", 11+2*at)
			k.files[gi], k.files[ci] = Number{Major: 508, Minor: int64(10 + 2*at)}, Number{Major: 508, Minor: int64(11 + 2*at)}
			n.Devices = append(n.Devices, &pb.Device{Name: "gpu", Type: "a100_3g.20gb", Index: uint32(at), Id: fmt.Sprintf("MIG-%d", at),
				Parent: "GPU-0", MigStart: uint32(4 * at),
				Files: []string{path, gi, ci}, Declared: "gres.conf:9"})
		}
	}
	k.files["/dev/fpga0"], k.files["/dev/fpga1"], k.files["/dev/nvme9"] = Number{Major: 240, Minor: 0}, Number{Major: 240, Minor: 1},
		Number{Block: true, Major: 259, Minor: 7}
	n.Devices = append(n.Devices, &pb.Device{Name: "fpga", Index: 0, Files: []string{"/dev/fpga0"}, Declared: "gres.conf:3"},
		&pb.Device{Name: "fpga", Index: 1, Files: []string{"/dev/fpga1", "/dev/missing"}, Declared: "gres.conf:3"},
		&pb.Device{Name: "scratch", Files: []string{"/dev/nvme9"}, Declared: "gres.conf:4"})
	return n, k
}

func text(rules []*pb.DeviceRule) string {
	var out []string
	for _, r := range rules {
		say := map[bool]string{false: "-", true: "+"}[r.Allow] + map[bool]string{false: "c", true: "b"}[r.Block]
		out = append(out, fmt.Sprintf("%s%d:%d", say, r.Major, r.Minor))
	}
	return strings.ReplaceAll(strings.Join(out, " "), ":-1", ":*")
}

func TestRules(t *testing.T) {
	n, k := dgx()
	for _, c := range []struct {
		about string
		mine  []*pb.GresDevice
		want  string
	}{
		{"nothing", nil, "-c195:* -c240:0 -c240:1 -c508:* -c511:* -b259:7"},
		{"a GPU by identity", []*pb.GresDevice{{Name: "gpu", Id: "GPU-1"}},
			"-c195:* -c240:0 -c240:1 -c508:* -b259:7 +c195:3 +c195:254 +c195:255"},
		{"two by index", []*pb.GresDevice{{Name: "gpu", Index: 3}, {Name: "gpu", Index: 4}},
			"-c195:* -c240:0 -c240:1 -c508:* -b259:7 +c195:0 +c195:1 +c195:254 +c195:255"},
		{"an instance", []*pb.GresDevice{{Name: "gpu", Id: "MIG-1"}},
			"-c195:* -c240:0 -c240:1 -c508:* -b259:7 +c195:2 +c195:254 +c195:255 +c508:12 +c508:13"},
		{"an instance by place", []*pb.GresDevice{{Name: "gpu", Parent: "GPU-0", MigStart: 4}},
			"-c195:* -c240:0 -c240:1 -c508:* -b259:7 +c195:2 +c195:254 +c195:255 +c508:12 +c508:13"},
		{"an FPGA and a disk", []*pb.GresDevice{{Name: "fpga", Index: 1}, {Name: "scratch"}}, "-c195:* -c240:0 -c508:* -c511:*"},
		{"what has no device", []*pb.GresDevice{{Name: "gpu", Index: 3, Count: 5}, {Name: "fpga", Index: 7}},
			"-c195:* -c240:0 -c240:1 -c508:* -c511:* -b259:7"},
	} {
		rules, faults := Rules(n, c.mine, k)
		if got := text(rules); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.about, got, c.want)
		}
		if len(faults) != 1 || !strings.Contains(faults[0].Error(), "/dev/missing") {
			t.Errorf("%s: faults %v", c.about, faults)
		}
	}
}

// TestDeclaredGPUs: GPUs by gres.conf alone, on a machine whose driver says nothing.
func TestDeclaredGPUs(t *testing.T) {
	k := machine{files: map[string]Number{"/dev/nvidia0": {Major: 195, Minor: 0}, "/dev/nvidia1": {Major: 195, Minor: 1}}}
	n := Node{Devices: []*pb.Device{{Name: "gpu", Index: 0, Files: []string{"/dev/nvidia0"}, SharedAs: "shard"},
		{Name: "gpu", Index: 1, Files: []string{"/dev/nvidia1"}}}}
	rules, faults := Rules(n, []*pb.GresDevice{{Name: "shard", Share: 2}}, k)
	if got := text(rules); got != "-c195:* +c195:0 +c195:254 +c195:255" || faults != nil {
		t.Errorf("%s, %v", got, faults)
	}
	// One that no line names is nobody's: also where its number is not the driver's usual one.
	k.files["/dev/pretended0"] = Number{Major: 120, Minor: 7}
	rules, _ = Rules(Node{Devices: n.Devices[:1], Spare: []*pb.Device{n.Devices[1],
		{Name: "gpu", Declared: "nvml", Files: []string{"/dev/pretended0"}}}}, []*pb.GresDevice{{Name: "gpu"}}, k)
	if got := text(rules); got != "-c120:* -c195:* +c195:0 +c195:254 +c195:255" {
		t.Errorf("with spare ones: %s", got)
	}
	if rules, _ := Rules(Node{}, nil, k); rules != nil {
		t.Errorf("a node without devices: %s", text(rules))
	}
}

// TestOnlyOwn: whatever a step is given, of the node's devices it can open exactly those files, and no other number of the driver's.
func TestOnlyOwn(t *testing.T) {
	n, k := dgx()
	allowed := func(rules []*pb.DeviceRule, x Number) bool {
		for _, r := range slices.Backward(rules) {
			if r.Block == x.Block && r.Major == x.Major && (r.Minor < 0 || r.Minor == x.Minor) {
				return r.Allow
			}
		}
		return true
	}
	rapid.Check(t, func(t *rapid.T) {
		var mine []*pb.GresDevice
		own, gpu := map[Number]bool{}, false
		for _, d := range n.Devices {
			if !rapid.Bool().Draw(t, d.Name) {
				continue
			}
			mine = append(mine, &pb.GresDevice{Name: d.Name, Index: d.Index, Id: d.Id})
			gpu = gpu || d.Name == "gpu"
			for _, f := range d.Files {
				own[k.files[f]] = true
			}
		}
		rules, _ := Rules(n, mine, k)
		for path, x := range k.files {
			control := slices.Contains(n.Control, path)
			if want := own[x] || control && gpu; allowed(rules, x) != want {
				t.Fatalf("%v: %s: open %v, want %v", mine, path, !want, want)
			}
		}
		for _, later := range []Number{{Major: 195, Minor: 9}, {Major: 508, Minor: 99}} {
			if allowed(rules, later) {
				t.Fatalf("%v: %v is open", mine, later)
			}
		}
		for _, other := range []Number{{Major: 1, Minor: 3}, {Major: 136, Minor: 0}, {Major: 240, Minor: 9},
			{Block: true, Major: 195, Minor: 0}} {
			if !allowed(rules, other) {
				t.Fatalf("%v: %v is closed, and none of ours", mine, other)
			}
		}
	})
}

// TestGraphics: the graphics driver's files go with their GPU.
func TestGraphics(t *testing.T) {
	n, k := dgx()
	k.draws = map[string][]string{"a": {"/dev/dri/card0", "/dev/dri/renderD128"}, "b": {"/dev/dri/card1", "/dev/dri/gone"}}
	k.files["/dev/dri/card0"], k.files["/dev/dri/renderD128"], k.files["/dev/dri/card1"] = Number{Major: 226, Minor: 0},
		Number{Major: 226, Minor: 128}, Number{Major: 226, Minor: 1}
	n.Devices = n.Devices[2:4]
	n.Devices[0].Pci, n.Devices[1].Pci = "a", "b"
	rules, faults := Rules(n, []*pb.GresDevice{{Name: "gpu", Id: n.Devices[0].Id}}, k)
	if got, want := text(rules), "-c195:* -c226:1 -c508:* +c195:3 +c195:254 +c195:255"; got != want || faults != nil {
		t.Errorf("got %s, %v, want %s", got, faults, want)
	}
	if files := (Linux{}).Graphics("00000000:ff:1f.7"); files != nil {
		t.Errorf("of no device: %v", files)
	}
	if files := (Linux{}).Graphics("../../../etc"); files != nil {
		t.Errorf("of a strange address: %v", files)
	}
}

func TestMajors(t *testing.T) {
	got := readMajors(bufio.NewScanner(
		strings.NewReader(
			"Character devices:\n  1 mem\n  4 /dev/vc/0\n195 nvidia\n508 nvidia-caps\n\nBlock devices:\n  7 loop\n  8 sd\nnonsense\n")))
	if fmt.Sprint(got) != "map[/dev/vc/0:4 mem:1 nvidia:195 nvidia-caps:508]" {
		t.Errorf("%v", got)
	}
	if m := (Linux{}).Majors(); m["mem"] != 1 {
		t.Errorf("of this machine: %v", m)
	}
	if n, err := (Linux{}).File("/dev/null"); err != nil || n != (Number{Major: 1, Minor: 3}) {
		t.Errorf("%v, %v", n, err)
	}
	if _, err := (Linux{}).File("/etc/passwd"); err == nil {
		t.Error("a plain file is a device")
	}
}

func FuzzMajors(f *testing.F) {
	for _, s := range []string{"Character devices:\n195 nvidia\n", "Block devices:\n195 nvidia\n", "195 nvidia",
		"Character devices:\n  -1 x\n99999999999999999999 y\n5  /dev/tty\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name := range readMajors(bufio.NewScanner(strings.NewReader(text))) {
			if name == "" || !strings.Contains(text, "devices:") {
				t.Errorf("%q: %q", text, name)
			}
		}
	})
}
