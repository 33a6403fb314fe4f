package gpu

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/noded/hw"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// machine is what a driver says of n GPUs of a model, with files /dev/nvidiaN.
func machine(model string, n int) (out []Info) {
	for i := range n {
		minor := minorOf(i, n)
		out = append(out, Info{UUID: fmt.Sprintf("GPU-%s-%d", model, i), Model: model, PCI: fakePCI(i, n), Minor: minor,
			Files:     []string{fmt.Sprintf("/dev/nvidia%d", minor)},
			MemoryMiB: 40960, NUMA: NA, Links: map[string]int{SwitchLinks: 12}})
	}
	return out
}

func statAll(path string) (File, error) {
	if strings.Contains(path, "missing") {
		return File{}, &os.PathError{Op: "stat", Path: path, Err: fs.ErrNotExist}
	}
	return File{Device: !strings.Contains(path, "plain"), Minor: 7}, nil
}

func found(infos ...Info) Found {
	return Found{GPUs: infos, Driver: true, Topology: hw.Build(2, 4, 2), Stat: statAll}
}

const a100 = "NVIDIA A100-SXM4-40GB"

// text is one device a line, as tests want to read it.
func text(r *pb.DeviceReport) string {
	var b strings.Builder
	for _, d := range r.Devices {
		fmt.Fprintf(&b, "%s:%s %d %s", d.Name, d.Type, d.Index, strings.Join(d.Files, "+"))
		if d.Shares > 0 {
			fmt.Fprintf(&b, " %s=%d", d.SharedAs, d.Shares)
		}
		if d.Cores != "" {
			fmt.Fprintf(&b, " cores=%s", d.Cores)
		}
		if d.Fault != "" {
			fmt.Fprintf(&b, " FAULT %s", d.Fault)
		}
		b.WriteByte('\n')
	}
	for _, m := range r.Mismatches {
		fmt.Fprintln(&b, "!", m)
	}
	return b.String()
}

func TestMerge(t *testing.T) {
	two := machine(a100, 2) // index 0 is /dev/nvidia1
	mig := machine(a100, 1)
	mig[0].MIG = "on"
	mig[0].Instances = []Instance{{UUID: "MIG-1", Profile: "3g.20gb", Start: 4, Size: 4,
		Files: []string{"/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2"}}}
	odd := []Info{{UUID: "GPU-v", Model: "NVIDIA TITAN V", PCI: "00000000:05:00.0", Minor: 0, Files: []string{"/dev/nvidia0"},
		MemoryMiB: 12288, NUMA: NA},
		{UUID: "GPU-xp", Model: "NVIDIA TITAN Xp", PCI: "00000000:01:00.0", Minor: 1, Files: []string{"/dev/nvidia1"}, MemoryMiB: 36864,
			NUMA: NA}}
	for _, c := range []struct {
		name  string
		lines []*pb.GresConf
		f     Found
		want  string
	}{
		{"no line: they appear", nil, found(two...), `
gpu:a100 0 /dev/nvidia1
gpu:a100 1 /dev/nvidia0
`},
		{"off and no line: none", []*pb.GresConf{{Autodetect: "off", Place: "gres.conf:1"}}, found(two...), "\n"},
		{"autodetect alone", []*pb.GresConf{{Autodetect: "nvml", Place: "gres.conf:1"}}, found(two...), `
gpu:a100 0 /dev/nvidia1
gpu:a100 1 /dev/nvidia0
`},
		{"another autodetect", []*pb.GresConf{{Autodetect: "rsmi", Place: "gres.conf:1"}}, found(two[0]), `
gpu:a100 0 /dev/nvidia1
! gres.conf:1 says AutoDetect=rsmi, which Sluice does not know: it looks for GPUs with nvml
`},
		{"by files, in the order of PCI",
			[]*pb.GresConf{{Name: "gpu", Type: "a100", Files: []string{"/dev/nvidia0", "/dev/nvidia1"}, Count: 2, Place: "gres.conf:1",
				Cores: "0-3"}}, found(two...), `
gpu:a100 0 /dev/nvidia1 cores=0-3
gpu:a100 1 /dev/nvidia0 cores=0-3
`},
		{"a part of the long name", []*pb.GresConf{{Name: "gpu", Type: "sxm4-40gb", Count: 2, Place: "gres.conf:1"}}, found(two...), `
gpu:sxm4-40gb 0 /dev/nvidia1
gpu:sxm4-40gb 1 /dev/nvidia0
`},
		{"fewer than there are", []*pb.GresConf{{Name: "gpu", Type: "a100", Count: 1, Place: "gres.conf:3"}}, found(two...), `
gpu:a100 0 /dev/nvidia1
! NVML sees 2 a100, gres.conf:3 says 1 of type a100
! NVML sees 2 a100, no line of gres.conf (gres.conf:3) mentions a100 /dev/nvidia0
`},
		{"more than there are", []*pb.GresConf{{Name: "gpu", Count: 4, Place: "gres.conf:3"}}, found(two...), `
gpu:a100 0 /dev/nvidia1
gpu:a100 1 /dev/nvidia0
! NVML sees 2 a100, gres.conf:3 says 4
`},
		{"another type", []*pb.GresConf{{Name: "gpu", Type: "v100", Files: []string{"/dev/nvidia0"}, Count: 1, Place: "gres.conf:3"}},
			found(two[1]), `
gpu:a100 0 /dev/nvidia0 FAULT gres.conf:3 says that /dev/nvidia0 is a v100, NVML sees an a100
! gres.conf:3 says that /dev/nvidia0 is a v100, NVML sees an a100
`},
		{"one is gone, the other stays",
			[]*pb.GresConf{{Name: "gpu", Files: []string{"/dev/nvidia0", "/dev/nvidia1"}, Count: 2, Place: "gres.conf:3"}}, found(two[0]), `
gpu:a100 0 /dev/nvidia1
gpu: 1 /dev/nvidia0 FAULT gres.conf:3 names /dev/nvidia0, NVML does not see it
! gres.conf:3 names /dev/nvidia0, NVML does not see it
`},
		{"without a driver files are enough",
			[]*pb.GresConf{{Name: "gpu", Type: "tesla", Files: []string{"/dev/nvidia0", "/dev/missing"}, Count: 2, Place: "gres.conf:3"}},
			Found{NoDriver: "no library", Stat: statAll}, `
gpu:tesla 0 /dev/nvidia0
gpu:tesla 1 /dev/missing FAULT gres.conf:3 names /dev/missing, which is not there
! gres.conf:3 names /dev/missing, which is not there
`},
		{"without a driver a count is not", []*pb.GresConf{{Name: "gpu", Count: 2, Place: "gres.conf:3"}},
			Found{NoDriver: "no library", Stat: statAll}, `
! gres.conf:3 says 2, no driver is loaded to confirm it: no library
`},
		{"two kinds", []*pb.GresConf{{Name: "gpu", Type: "titan_v", Count: 1, Place: "g:1"},
			{Name: "gpu", Type: "titan_xp", Count: 1, Place: "g:2"}}, found(odd...), `
gpu:titan_xp 0 /dev/nvidia1
gpu:titan_v 1 /dev/nvidia0
`},
		{"shards by memory", []*pb.GresConf{{Name: "shard", Count: 10, Place: "g:1"}}, found(odd...), `
gpu:titan_xp 0 /dev/nvidia1 shard=8
gpu:titan_v 1 /dev/nvidia0 shard=2
`},
		{"shards a GiB each", []*pb.GresConf{{Name: "shard", Place: "g:1"}}, found(odd...), `
gpu:titan_xp 0 /dev/nvidia1 shard=36
gpu:titan_v 1 /dev/nvidia0 shard=12
`},
		{"mps on one, shards on the other", []*pb.GresConf{{Name: "mps", Count: 100, Files: []string{"/dev/nvidia0"}, Place: "g:1"},
			{Name: "shard", Count: 4, Files: []string{"/dev/nvidia1"}, Place: "g:2"}}, found(odd...), `
gpu:titan_xp 0 /dev/nvidia1 shard=4
gpu:titan_v 1 /dev/nvidia0 mps=100
`},
		{"both on one", []*pb.GresConf{{Name: "mps", Count: 100, Place: "g:1"}, {Name: "shard", Count: 4, Place: "g:2"}}, found(odd[0]), `
gpu:titan_v 0 /dev/nvidia0 mps=100
! g:2 says shard of /dev/nvidia0, which is shared as mps already
`},
		{"shards of nothing", []*pb.GresConf{{Name: "shard", Count: 4, Place: "g:2"}}, found(), `
! g:2 says shard, there is no GPU to share
`},
		{"instances", nil, found(mig...), `
gpu:a100 0 /dev/nvidia0
gpu:a100_3g.20gb 5 /dev/nvidia0+/dev/nvidia-caps/nvidia-cap1+/dev/nvidia-caps/nvidia-cap2
`},
		{"instances alone, by type", []*pb.GresConf{{Name: "gpu", Type: "3g.20gb", Count: 1, Place: "g:1"}}, found(mig...), `
gpu:3g.20gb 0 /dev/nvidia0+/dev/nvidia-caps/nvidia-cap1+/dev/nvidia-caps/nvidia-cap2
`},
		{"instances alone, by files", []*pb.GresConf{{Name: "gpu", MultipleFiles: true,
			Files: []string{"/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2"}, Count: 1, Place: "g:1"}},
			found(mig...), `
gpu:a100_3g.20gb 0 /dev/nvidia0+/dev/nvidia-caps/nvidia-cap1+/dev/nvidia-caps/nvidia-cap2
`},
		{"instances of a GPU that is named", []*pb.GresConf{{Name: "gpu", Type: "a100", Count: 1, Place: "g:1"}}, found(mig...), `
gpu:a100 0 /dev/nvidia0
gpu:a100_3g.20gb 5 /dev/nvidia0+/dev/nvidia-caps/nvidia-cap1+/dev/nvidia-caps/nvidia-cap2
`},
		{"other names", []*pb.GresConf{{Name: "fpga", Type: "u280", Files: []string{"/dev/xdma0", "/dev/missing1"}, Count: 2, Place: "g:1"},
			{Name: "fpga", Files: []string{"/dev/a", "/dev/b"}, MultipleFiles: true, Count: 1, Place: "g:2"},
			{Name: "tape", Files: []string{"/dev/plain"}, Place: "g:3"}, {Name: "bandwidth", Count: 1000, Place: "g:4"}}, found(), `
fpga:u280 0 /dev/xdma0
fpga:u280 1 /dev/missing1 FAULT g:1 names /dev/missing1, which is not there
fpga: 2 /dev/a+/dev/b
tape: 0 /dev/plain
! g:1 names /dev/missing1, which is not there
! g:3 names /dev/plain, which is not a device file, so access to it cannot be restricted
`},
		{"a file twice", []*pb.GresConf{{Name: "gpu", Files: []string{"/dev/nvidia0"}, Place: "g:1"},
			{Name: "gpu", Files: []string{"/dev/nvidia0"}, Place: "g:2"}}, found(odd[0]), `
gpu:titan_v 0 /dev/nvidia0
! g:2 names /dev/nvidia0 a second time
`},
	} {
		if got := text(Merge(c.lines, c.f)); got != c.want[1:] {
			t.Errorf("%s:\n%swant\n%s", c.name, got, c.want[1:])
		}
	}
}

// instances without a GPU of the node keep to a place of their own.
func TestLinksFollowTheGPUs(t *testing.T) {
	infos := machine("Tesla V100-SXM2-16GB", 4)
	for i := range infos { // a ring of bridges
		infos[i].Links = map[string]int{infos[(i+1)%4].PCI: 1 + i, infos[(i+3)%4].PCI: 1 + (i+3)%4}
	}
	lines := []*pb.GresConf{{Name: "gpu", Files: []string{infos[3].Files[0], infos[1].Files[0], infos[2].Files[0]}, Place: "g:1"}}
	r := Merge(lines, found(infos...))
	want := [][]uint32{{0, 2, 0}, {2, 0, 3}, {0, 3, 0}}
	for i, d := range r.Devices {
		if !slices.Equal(d.Links, want[i]) {
			t.Errorf("links of %d: %v, want %v", i, d.Links, want[i])
		}
	}
	for i := range infos {
		infos[i].Links, infos[i].Near = nil, map[string]int{infos[i^1].UUID: 4}
	}
	if got := Merge(nil, found(infos...)).Devices[2].Links; !slices.Equal(got, []uint32{0, 0, 0, 4}) {
		t.Errorf("by PCIe: %v", got)
	}
}

func TestNearCores(t *testing.T) {
	top := hw.Build(2, 4, 2) // cores 0-7, of which 4-7 are on the second socket with processors 4-7 and 12-15
	for _, c := range []struct {
		cpus string
		want string
	}{{"4-7,12-15", "4-7"}, {"4", "4"}, {"0-15", ""}, {"", ""}} {
		cpus, _ := hw.ParseList(c.cpus)
		if got := nearCores(cpus, top); got != c.want {
			t.Errorf("%q: %q, want %q", c.cpus, got, c.want)
		}
	}
}

func genLines(t *rapid.T) (lines []*pb.GresConf) {
	for i := range rapid.IntRange(0, 6).Draw(t, "lines") {
		l := &pb.GresConf{Name: rapid.SampledFrom([]string{"gpu", "gpu", "shard", "mps", "fpga", ""}).Draw(t, "name"),
			Place:      fmt.Sprintf("gres.conf:%d", i+1),
			Autodetect: rapid.SampledFrom([]string{"", "", "nvml", "off"}).Draw(t, "auto"),
			Type:       rapid.SampledFrom([]string{"", "a100", "v100", "3g.20gb"}).Draw(t, "type"),
			Count:      rapid.Uint64Range(0, 10).Draw(t, "count"), MultipleFiles: rapid.Bool().Draw(t, "multiple"),
			Cores: rapid.SampledFrom([]string{"", "0-3"}).Draw(t, "cores")}
		l.Files = rapid.SliceOfN(rapid.SampledFrom([]string{"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3", "/dev/missing",
			"/dev/plain", "/dev/nvidia9"}), 0, 4).Draw(t, "files")
		lines = append(lines, l)
	}
	return lines
}

// Whatever the lines and the machine: no GPU is listed twice, indexes and identities are unique, and no file opens two GPUs.
func TestMergeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		infos := machine(rapid.SampledFrom([]string{a100, "Tesla V100-SXM2-16GB"}).Draw(t, "model"), rapid.IntRange(0, 4).Draw(t, "gpus"))
		for i := range infos {
			if rapid.Bool().Draw(t, "mig") {
				infos[i].MIG = "on"
				infos[i].Instances = []Instance{{UUID: fmt.Sprint("MIG-", i), Profile: "3g.20gb", Start: 4,
					Files: append(slices.Clone(infos[i].Files), fmt.Sprint("/dev/cap", i))}}
			}
		}
		lines, f := genLines(t), found(infos...)
		f.Driver = len(infos) > 0
		r := Merge(lines, f)
		ids, places, files := map[string]bool{}, map[string]bool{}, map[string]bool{}
		shares := map[string]uint64{}
		for _, d := range r.Devices {
			place := fmt.Sprint(d.Name, d.Index)
			if ids[d.Name+d.Id] || places[place] {
				t.Fatalf("twice: %v in\n%s", d, text(r))
			}
			ids[d.Name+d.Id], places[place] = true, true
			if d.Parent == "" && d.Name == "gpu" && len(d.Files) == 1 {
				if files[d.Files[0]] {
					t.Fatalf("%s opens two:\n%s", d.Files[0], text(r))
				}
				files[d.Files[0]] = true
			}
			shares[d.SharedAs] += d.Shares
		}
		for _, m := range r.Mismatches {
			if strings.Contains(m, "%!") || strings.ContainsAny(m, "\n") {
				t.Fatalf("%q", m)
			}
		}
		if again := Merge(lines, f); !proto.Equal(r, again) {
			t.Fatal("not the same twice")
		}
	})
}

func TestSpreadOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.Uint64Range(1, 200), 1, 16).Draw(t, "weights")
		count := rapid.Uint64Range(0, 1<<40).Draw(t, "count")
		var sum, all uint64
		for _, w := range weights {
			all += w
		}
		for i, n := range spreadOver(count, weights) {
			sum += n
			if fair := count * weights[i] / all; n < fair || n > fair+1 {
				t.Fatalf("%d of weight %d gets %d, fair is %d", i, weights[i], n, fair)
			}
		}
		if sum != count {
			t.Fatalf("%d instead of %d", sum, count)
		}
	})
}
