package gpufiles

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/internal/test/leaktest"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func node() []*pb.Device {
	return []*pb.Device{
		{Name: "gpu", Index: 0, Id: "GPU-b", Pci: "00000000:0F:00.0"}, {Name: "gpu", Index: 1, Id: "GPU-a", Pci: "00000000:07:00.0"},
		{Name: "gpu", Index: 2, Id: "MIG-1", Parent: "GPU-c", Pci: "00000000:47:00.0"},
		{Name: "gpu", Index: 3, Id: "MIG-2", Parent: "GPU-c", Pci: "00000000:47:00.0", MigStart: 4},
		{Name: "fpga", Index: 0, Id: "/dev/fpga0"},
	}
}

func gpu(index uint32) *pb.GresDevice { return &pb.GresDevice{Name: "gpu", Index: index} }

// read gives a folder as "name=content" with lines joined by ";".
func read(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	var out []string
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if os.IsNotExist(err) {
			continue // it was about to be renamed
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e.Name()+"="+strings.ReplaceAll(strings.TrimSuffix(string(b), "\n"), "\n", ";"))
	}
	return strings.Join(out, " ")
}

func TestWrite(t *testing.T) {
	base := t.TempDir()
	s := State{Dirs: Dirs{filepath.Join(base, "jobs"), filepath.Join(base, "stat")}, Devices: node()}
	see := func(about, jobs, stat string, uses ...Use) {
		t.Helper()
		s.Uses = uses
		if err := Write(s); err != nil {
			t.Errorf("%s: %v", about, err)
		}
		if got := read(t, s.Dirs.JobMap); got != jobs {
			t.Errorf("%s: jobs %q, want %q", about, got, jobs)
		}
		if got := read(t, s.Dirs.Stat); got != stat {
			t.Errorf("%s: stat %q, want %q", about, got, stat)
		}
	}
	see("nothing", "", "")
	if _, err := os.Stat(s.Dirs.JobMap); err == nil {
		t.Error("a folder was made for nothing")
	}
	see("two jobs", "0=12 1=7", "0=12 1000 1=7 1001", Use{12, 1000, []*pb.GresDevice{gpu(1), {Name: "fpga"}}},
		Use{7, 1001, []*pb.GresDevice{gpu(0)}})
	see("instances", "2=3;4 MIG-1=3 MIG-2=3;4", "MIG-1=3 1 MIG-2=3 1;4 2", Use{3, 1, []*pb.GresDevice{gpu(2), gpu(3)}},
		Use{4, 2, []*pb.GresDevice{{Name: "shard", Index: 3, Id: "MIG-2", Share: 1}}})
	// What others keep there stays; what a crash left does not.
	for _, name := range []string{"README", ".sluice-0", "5", "MIG-9"} {
		if err := os.WriteFile(filepath.Join(s.Dirs.Stat, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	see("after a crash", "", "README=x")
	if err := os.Chmod(s.Dirs.Stat, 0o755); err != nil {
		t.Fatal(err)
	}
	see("again", "0=9", "0=9 5 README=x", Use{9, 5, []*pb.GresDevice{gpu(1)}})
	if st, err := os.Stat(filepath.Join(s.Dirs.Stat, "0")); err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v: exporters run as other users", st.Mode(), err)
	}
}

// TestReadersSeeWholeFiles: while the content changes, a reader sees one of the two.
func TestReadersSeeWholeFiles(t *testing.T) {
	dir := t.TempDir()
	s := State{Dirs: Dirs{Stat: dir}, Devices: node()}
	stop, bad := make(chan struct{}), make(chan string, 1)
	go func() {
		defer close(bad)
		for {
			select {
			case <-stop:
				return
			default:
			}
			b, err := os.ReadFile(filepath.Join(dir, "0"))
			if err == nil && string(b) != "1 1\n" && string(b) != "22222 22222\n" {
				bad <- string(b)
				return
			}
		}
	}()
	for i := range 200 {
		n := []uint32{1, 22222}[i%2]
		s.Uses = []Use{{n, n, []*pb.GresDevice{gpu(1)}}}
		if err := Write(s); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if b, ok := <-bad; ok {
		t.Errorf("a reader saw %q", b)
	}
}

func TestKeeper(t *testing.T) {
	base := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	k := NewKeeper(slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	await := func(dir, want string) {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Minute); read(t, dir) != want; {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %q, want %q", dir, read(t, dir), want)
			}
		}
	}
	first, second := Dirs{base + "/a", base + "/b"}, Dirs{base + "/c", ""}
	for job := range uint32(50) {
		k.Show(State{Dirs: first, Devices: node(), Uses: []Use{{job, 1, []*pb.GresDevice{gpu(1)}}}})
	}
	await(first.JobMap, "0=49")
	await(first.Stat, "0=49 1")
	k.Show(State{Dirs: second, Devices: node(), Uses: []Use{{50, 1, []*pb.GresDevice{gpu(1)}}}})
	await(second.JobMap, "0=50")
	await(first.JobMap, "")
	await(first.Stat, "")
	cancel()
	<-done
}

// TestFolderOfOthers: a folder that an ordinary user has made, or linked to one of root's, is left alone.
func TestFolderOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a folder away")
	}
	base := t.TempDir()
	target, link, theirs, mine := base+"/target", base+"/link", base+"/theirs", base+"/mine"
	for _, dir := range []string{target, theirs} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/0", []byte("precious"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range []string{link, mine} {
		if err := os.Symlink(target, l); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{os.Lchown(link, 65534, 65534), os.Lchown(theirs, 65534, 65534)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{link, theirs} {
		err := Write(State{Dirs: Dirs{Stat: dir}, Devices: node(), Uses: []Use{{1, 1, []*pb.GresDevice{gpu(1)}}}})
		if err == nil || !strings.Contains(err.Error(), "belongs to uid 65534") || read(t, dir) != "0=precious" {
			t.Errorf("%s: %v, %s", dir, err, read(t, dir))
		}
	}
	if err := Write(State{Dirs: Dirs{Stat: mine}, Devices: node(), Uses: []Use{{1, 1, []*pb.GresDevice{gpu(1)}}}}); err != nil ||
		read(t, target) != "0=1 1" {
		t.Errorf("a link of root's: %v, %s", err, read(t, target))
	}
}

// TestOrdinalsCountAll: GPUs that gres.conf leaves out have their numbers, as in nvidia-smi and DCGM.
func TestOrdinalsCountAll(t *testing.T) {
	s := State{Devices: node()[:2], Spare: []*pb.Device{{Name: "gpu", Id: "GPU-x", Pci: "00000000:01:00.0"},
		{Name: "gpu", Id: "GPU-y", Pci: "00000000:0A:00.0"}},
		Uses: []Use{{5, 1000, []*pb.GresDevice{gpu(0)}}, {6, 1001, []*pb.GresDevice{gpu(1)}}}}
	jobs, stat := s.Files()
	if fmt.Sprint(jobs) != "map[1:6\n 3:5\n]" || fmt.Sprint(stat) != "map[1:6 1001\n 3:5 1000\n]" {
		t.Errorf("%q, %q; want job 6 on the GPU at 07 as 1, job 5 on that at 0F as 3", jobs, stat)
	}
}

func TestOrdinals(t *testing.T) {
	o := ordinals(node())
	var got []string
	for a, n := range o {
		got = append(got, fmt.Sprint(n, "@", a))
	}
	slices.Sort(got)
	if strings.Join(got, " ") != "0@00000000:07:00.0 1@00000000:0F:00.0 2@00000000:47:00.0" {
		t.Errorf("%v", got)
	}
}
