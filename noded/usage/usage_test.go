package usage

import (
	"bufio"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestParseStat(t *testing.T) {
	p,
		ok := parseStat(
		[]byte("42 (a) b) c) S 7 42 42 0 -1 4194304 100 200 3 4 50 60 70 80 20 0 1 0 12345 20480000 500 18446744073709551615 1 1"))
	want := process{parent: 7, total: Total{MajorFaults: 7, UserUsec: 1200000, SystemUsec: 1400000, VMKiB: 20000,
		RSSKiB: 500 * uint64(os.Getpagesize()) >> 10}}
	if !ok || p.parent != want.parent || !reflect.DeepEqual(p.total, want.total) {
		t.Errorf("%+v, want %+v", p, want)
	}
	for _, bad := range []string{"", "42", "42 (x) S 1 2", ")))"} {
		if _, ok := parseStat([]byte(bad)); ok {
			t.Errorf("%q is taken for a process", bad)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (a) S 7 42 42 0 -1 4194304 100 200 3 4 50 60 70 80 20 0 1 0 12345 20480000 500 1 1 1"))
	f.Fuzz(func(_ *testing.T, b []byte) { parseStat(b) })
}

// TestBelow: what a child and its child do is seen, while they run and after they were waited for.
func TestBelow(t *testing.T) {
	file := t.TempDir() + "/data"
	cmd := exec.Command("/bin/sh", "-c", `head -c 3000000 /dev/zero > "$0"; cat "$0" > /dev/null; echo ready; read x`, file)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || strings.TrimSpace(line) != "ready" {
		t.Fatal(line, err)
	}
	table := Read()
	if got := table.Parent(cmd.Process.Pid); got != os.Getpid() {
		t.Errorf("the parent of the child is %d", got)
	}
	sum := table.Below(os.Getpid())
	if sum.RSSKiB == 0 || sum.VMKiB < sum.RSSKiB || sum.ReadBytes < 6e6 || sum.WriteBytes < 6e6 || len(sum.PIDs) < 1 {
		t.Errorf("below this test: %+v", sum)
	}
	if r, w := IO(cmd.Process.Pid); r < 6e6 || w < 6e6 {
		t.Errorf("the child read %d and wrote %d bytes", r, w)
	}
	if !slices.Contains(sum.PIDs, uint32(cmd.Process.Pid)) {
		t.Errorf("the child is not among %v", sum.PIDs)
	}
	if read("/nonexistent").Below(1).RSSKiB != 0 {
		t.Error("something is below a process that is not there")
	}
	var p Peak
	p.See(Total{RSSKiB: 5, VMKiB: 7})
	p.See(Total{RSSKiB: 3, VMKiB: 9})
	if m := (Total{RSSKiB: 3}).Message(nil, p); m.MaxRssKib != 5 || m.MaxVmKib != 9 || m.RssKib != 3 {
		t.Errorf("message %v", m)
	}
}
