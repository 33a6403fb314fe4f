package hw

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestThisMachine(t *testing.T) {
	inv, err := Linux{}.Inventory()
	if err != nil {
		t.Fatal(err)
	}
	if len(inv.Topology) != runtime.NumCPU() {
		t.Errorf("%d processors, the runtime has %d", len(inv.Topology), runtime.NumCPU())
	}
	if inv.MemoryMiB < 64 || inv.TmpMiB == 0 || len(inv.BootID) != 36 || inv.BootNS < 1e18 || inv.Arch == "" ||
		!strings.HasPrefix(inv.OS, "Linux ") || inv.Hostname == "" {
		t.Errorf("%+v", inv)
	}
	load, err := Linux{}.Load()
	if err != nil || load.FreeMemMiB == 0 || load.FreeMemMiB > inv.MemoryMiB {
		t.Errorf("%+v, %v", load, err)
	}
}

// tree writes files below a new folder.
func tree(t *testing.T, files map[string]string) string {
	root := t.TempDir()
	for name, text := range files {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// Two sockets of two cores of two threads; core_id would repeat from socket to socket, CPU 7 is offline.
func sysfsTree() map[string]string {
	files := map[string]string{"sys/devices/system/cpu/online": "0-6\n"}
	for id := range 8 {
		core := id % 4
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/", id)
		files[dir+"physical_package_id"] = fmt.Sprintln(core / 2)
		files[dir+"thread_siblings_list"] = fmt.Sprintf("%d,%d\n", core, core+4)
	}
	return files
}

func all() (map[int]bool, error) { return nil, nil }

func TestTopologyFromSysfs(t *testing.T) {
	l := Linux{Root: tree(t, sysfsTree()), Allowed: all}
	top, err := l.topology()
	if err != nil {
		t.Fatal(err)
	}
	var ids []int
	for _, c := range top {
		ids = append(ids, c.ID)
	}
	if want := []int{0, 4, 1, 5, 2, 6, 3}; !slices.Equal(ids, want) {
		t.Errorf("order %v, want %v", ids, want)
	}
	if s, c, th := top.Counts(); s != 2 || c != 2 || th != 1 {
		t.Errorf("%d sockets, %d cores, %d threads; the smallest core has one thread left", s, c, th)
	}
}

func TestConfinedDaemonOffersOnlyItsCPUs(t *testing.T) {
	l := Linux{Root: tree(t, sysfsTree()), Allowed: func() (map[int]bool, error) { return map[int]bool{2: true, 6: true}, nil }}
	top, err := l.topology()
	if err != nil {
		t.Fatal(err)
	}
	if s, c, th := top.Counts(); s != 1 || c != 1 || th != 2 {
		t.Errorf("%d sockets, %d cores, %d threads", s, c, th)
	}
	if got, err := top.CPUSet("0", 1); err != nil || got != "2,6" {
		t.Errorf("%q, %v: one configured CPU is the one core", got, err)
	}
}

func TestTopologyFromCpuinfo(t *testing.T) {
	ht := ""
	for id := range 4 {
		ht += fmt.Sprintf("processor\t: %d\nflags\t: %s\nphysical id\t: 0\ncore id\t\t: %d\n\n", id, strings.Repeat("x ", 3000), id%2)
	}
	arm := "processor\t: 0\nBogoMIPS\t: 50\n\nprocessor\t: 1\n\n"
	for _, c := range []struct {
		text                   string
		sockets, cores, thread int
	}{{ht, 1, 2, 2}, {arm, 1, 2, 1}} {
		l := Linux{Root: tree(t, map[string]string{"proc/cpuinfo": c.text}), Allowed: all}
		top, err := l.topology()
		if err != nil {
			t.Fatal(err)
		}
		if s, co, th := top.Counts(); s != c.sockets || co != c.cores || th != c.thread {
			t.Errorf("%d, %d, %d; want %+v", s, co, th, c)
		}
	}
}

func TestEmptyMachineIsAnError(t *testing.T) {
	_, err := Linux{Root: t.TempDir()}.Inventory()
	if err == nil || !strings.Contains(err.Error(), "cpuinfo") || !strings.Contains(err.Error(), "meminfo") {
		t.Errorf("%v: every fault is to be named", err)
	}
}

func TestCPUSet(t *testing.T) {
	ht := Build(2, 2, 2) // kernel numbers by socket, core, thread: 0,4 1,5 2,6 3,7
	for _, c := range []struct {
		top        Topology
		ids        string
		configured uint32
		want       string
	}{
		{ht, "0-1", 8, "0,4"},
		{ht, "2-5", 8, "1-2,5-6"},
		{ht, "0-1", 4, "0-1,4-5"}, // CPUs = cores: whole cores
		{ht, "0-1", 3, "0,4"},
		{ht, "", 8, ""},
		{ht, "0-63", 64, ""}, // config_overrides
		{Build(1, 2, 1), "1", 2, "1"},
	} {
		if got, err := c.top.CPUSet(c.ids, c.configured); err != nil || got != c.want {
			t.Errorf("%q of %d: %q, %v; want %q", c.ids, c.configured, got, err, c.want)
		}
	}
	for _, bad := range []string{"8", "x", "3-1", "0-99999", "-1"} {
		if got, err := ht.CPUSet(bad, 8); err == nil {
			t.Errorf("%q gave %q", bad, got)
		}
	}
}

func FuzzParseList(f *testing.F) {
	for _, s := range []string{"0-3,6", "", "1,1", "5-", "0-8191\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ids, err := ParseList(s)
		if err != nil {
			return
		}
		again, err := ParseList(FormatList(ids))
		if err != nil || !slices.Equal(ids, again) {
			t.Fatalf("%q: %v, then %v (%v)", s, ids, again, err)
		}
	})
}
