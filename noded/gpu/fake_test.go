package gpu

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSpecs(t *testing.T) {
	for text, want := range map[string]int{"a100:8": 8, "titan_xp:1,titan_v:1": 2, "none": 0, "H100": 1, "h100:4:mig": 4,
		" a100:1 , v100:2": 3} {
		items, err := ParseSpec(text)
		n := 0
		for _, i := range items {
			n += i.Count
		}
		if err != nil || n != want {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
	for text, want := range map[string]string{"": "known are", "a200:1": "known are a100, ", "a100:0": "a number from 1",
		"a100:x": "a number from 1", "a100:1000": "to 64", "titan_v:1:mig": "no MIG",
		"a100:1:gim": "only mig", "a100:64,h100:64": "at most 64"} {
		if _, err := ParseSpec(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	for _, s := range []string{"a100:8", "titan_xp:1,titan_v:1", "h100:4:mig", "none", "a100:99999999999999999999", ",", ":"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		items, err := ParseSpec(s)
		n := 0
		for _, i := range items {
			n += i.Count
			if _, ok := models[i.Model]; !ok || i.Count < 1 {
				t.Fatalf("%q: %+v", s, i)
			}
		}
		if n > maxFakes || err != nil && items != nil {
			t.Fatalf("%q: %d, %v", s, n, err)
		}
	})
}

func FuzzParseScript(f *testing.F) {
	for _, s := range []string{"0 util=90 mem=20000 temp=70 power=300000",
		"1 xid=79@2\n\n# none\n0 lost=yes ecc=1 remap=failed pids=4242,777 na=util,energy busy=yes", "9", "0 util=-1", "0 x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		lines, err := ParseScript(s, 2)
		if err != nil && lines != nil {
			t.Fatal("both")
		}
		for i, l := range lines {
			if i < 0 || i > 1 || l.State.Util < 0 || l.State.MemMiB < 0 || l.State.ECC < 0 {
				t.Fatalf("%q: %d %+v", s, i, l)
			}
		}
	})
}

// The devices are real, each has a number of its own, also beside those of another node, and opening one that nothing closes
// says that no driver is there.
func TestDeviceFilesAreReal(t *testing.T) {
	seen := map[uint64]string{}
	for _, node := range []string{"n1", "n2"} {
		items, _ := ParseSpec("a100:8:mig")
		f, err := NewFake(items, FakeOptions{Dir: filepath.Join(t.TempDir(), node)})
		if err != nil {
			t.Fatal(err)
		}
		if f.Plain() != nil {
			t.Skipf("only root can create devices: %v", f.Plain())
		}
		devices, _ := f.Devices()
		files := f.Control()
		for _, d := range devices {
			in, _ := d.Info()
			for _, start := range []uint32{0, 4} {
				if err := d.CreateInstance(profileNamed(in.Profiles, "3g.20gb"), start); err != nil {
					t.Fatal(err)
				}
			}
			in, _ = d.Info()
			files = append(files, in.Files...)
			for _, i := range in.Instances {
				files = append(files, i.Files[1:]...)
			}
		}
		for _, path := range files {
			var st unix.Stat_t
			if err := unix.Stat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Mode&0o666 != 0o666 {
				t.Fatalf("%s: %v, mode %o", path, err, st.Mode)
			}
			if other := seen[st.Rdev]; other != "" {
				t.Fatalf("%s and %s are the same device", path, other)
			}
			seen[st.Rdev] = path
			if fd, err := unix.Open(path, unix.O_RDWR, 0); err != unix.ENXIO {
				t.Fatalf("opening %s: %d, %v", path, fd, err)
			}
		}
	}
	if len(seen) != 2*(4+8+8*4) {
		t.Errorf("%d devices", len(seen))
	}
}

func TestScript(t *testing.T) {
	r := newRig(t, "a100:2", nil)
	script := filepath.Join(r.dir, "gpus", "script")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(script, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		r.after(time.Second)
	}
	next := func() uint64 {
		e, _, _ := r.fake.Wait(0)
		return e.XID
	}
	write("0 util=90 mem=2000\n1 xid=79\n")
	if s := r.Samples(); s[0].UtilPercent != 90 || s[0].MemoryUsedMib != 2000 || s[1].UtilPercent != 0 {
		t.Errorf("%v", s)
	}
	if x := next(); x != 79 {
		t.Errorf("XID %d", x)
	}
	write("0 util=10\n1 xid=79 util=1\n")
	if x := next(); x != 0 {
		t.Errorf("XID %d once more", x)
	}
	write("1 xid=79@2 # again\n")
	if x := next(); x != 79 {
		t.Errorf("XID %d", x)
	}
	if s := r.Samples(); s[0].UtilPercent != 0 {
		t.Errorf("%v: a line that has gone is an idle GPU", s[0])
	}
	write("7 util=1\n")
	if b, _ := os.ReadFile(script + ".error"); !strings.Contains(string(b), "not the index of a GPU") {
		t.Errorf("%q", b)
	}
	write("")
	if _, err := os.Stat(script + ".error"); err == nil {
		t.Error("the old error is there still")
	}
}

// procTree is a /proc in which 10 is a shim of node n1, 11 its child, 12 a process in a job's cgroup, 13 somebody else's,
// 16 a user's that looks like a shim.
func procTree(t *testing.T) string {
	root := t.TempDir()
	for path, text := range map[string]string{
		"10/cmdline": "/usr/sbin/sluice-noded\x00stepd\x00--spool\x00/spool/n1\x00", "10/stat": "10 (sluice noded) S 1 1 1",
		"10/cgroup":  "0::/\n",
		"10/status":  fmt.Sprintf("Name:\tsluice noded\nUid:\t%d\t0\t0\t0\n", os.Getuid()),
		"16/cmdline": "x\x00stepd\x00/spool/n1\x00", "16/stat": "16 (x) S 1 1 1", "16/cgroup": "0::/user.slice\n",
		"16/status":  "Name:\tx\nUid:\t987654\t0\t0\t0\n",
		"11/cmdline": "python3\x00", "11/stat": "11 (a) b) S 10 1 1", "11/cgroup": "0::/user.slice\n",
		"12/cmdline": "python3\x00", "12/stat": "12 (x) S 1 1 1", "12/cgroup": "5:devices:/docker/sluice/c/n1/job_7.1\n0::/\n",
		"13/cmdline": "python3\x00", "13/stat": "13 (x) S 1 1 1", "13/cgroup": "0::/sluice/c/n10/job_7.1\n",
		"13/status": "Name:\tpy\x1bthon|3\nState:\tR (running)\nUid:\t0\t0\t0\t0\n",
		"14/status": "Name:\tgone\nState:\tZ (zombie)\nUid:\t0\t0\t0\t0\n", "15/status": "Name:\tx\nUid:\t987654\t0\t0\t0\n",
	} {
		p := filepath.Join(root, path)
		_ = os.MkdirAll(filepath.Dir(p), 0o755)
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestProc(t *testing.T) {
	p := Proc{Root: procTree(t), Cgroup: "sluice/c/n1", Spool: "/spool/n1"}
	for pid, want := range map[int]bool{10: true, 11: true, 12: true, 13: false, 16: false, 99: false} {
		if got := p.Ours(pid); got != want {
			t.Errorf("%d: %v", pid, got)
		}
	}
	for pid, want := range map[int]string{13: "py?thon?3 of root", 15: "x of uid 987654"} {
		name, owner, ok := p.Who(pid)
		if got := name + " of " + owner; got != want || !ok {
			t.Errorf("%d: %q, %v", pid, got, ok)
		}
	}
	for _, pid := range []int{14, 99} {
		if name, _, ok := p.Who(pid); ok {
			t.Errorf("%d is %s", pid, name)
		}
	}
	if (Proc{}).Ours(os.Getpid()) {
		t.Error("this test is no job")
	}
}
