package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func deny(major, minor int64) *pb.DeviceRule { return &pb.DeviceRule{Major: major, Minor: minor} }
func allow(major, minor int64) *pb.DeviceRule {
	return &pb.DeviceRule{Allow: true, Major: major, Minor: minor}
}

func TestTranslate(t *testing.T) {
	for _, c := range []struct {
		about string
		rules []*pb.DeviceRule
		only  bool
		want  string
		more  int // further lines
	}{
		{"nothing", nil, false, "", 0},
		{"two", []*pb.DeviceRule{deny(240, 1), deny(240, 2), {Block: true, Major: 240, Minor: 1}}, false, "c 240:1;c 240:2;b 240:1", 0},
		{"taken back", []*pb.DeviceRule{deny(240, 1), allow(240, 1), deny(240, 2)}, false, "c 240:2", 0},
		{"a major", []*pb.DeviceRule{deny(240, 3), deny(240, -1)}, false, "c 240:*", 0},
		{"a major, opened again", []*pb.DeviceRule{deny(240, -1), allow(240, -1)}, false, "", 0},
		{"NVIDIA's but two", []*pb.DeviceRule{deny(2, -1), allow(2, 0), allow(2, 255)}, true, "c 0:*;c 1:*;c 2:0;c 2:255", 510},
		{"and one of another major", []*pb.DeviceRule{deny(1, 1), deny(2, -1), allow(2, 0)}, true, "c 0:*;c 1:0;c 1:2", 1021 + 1 + 509 + 1},
	} {
		l := translate(c.rules)
		got := strings.Join(l.lines[:max(0, len(l.lines)-c.more)], ";")
		if got != c.want || l.only != c.only {
			t.Errorf("%s: %s and %d more (only %v), want %s (only %v)", c.about, got, c.more, l.only, c.want, c.only)
		}
	}
}

// rules of a few majors, with holes and holes in holes.
func drawRules(t *rapid.T) []*pb.DeviceRule {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) *pb.DeviceRule {
		return &pb.DeviceRule{Allow: rapid.Bool().Draw(t, "allow"), Block: rapid.IntRange(0, 3).Draw(t, "block") == 0,
			Major: rapid.SampledFrom([]int64{1, 195, 240}).Draw(t, "major"), Minor: rapid.Int64Range(-1, 5).Draw(t, "minor")}
	}), 0, 12).Draw(t, "rules")
}

// TestWaysAgree: the lines for cgroup v1 and the program for v2 say the same as Allowed.
func TestWaysAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := drawRules(t)
		l, code := translate(rules), program(rules)
		for _, block := range []bool{false, true} {
			for _, major := range []int64{1, 2, 195, 240} {
				for minor := range int64(8) {
					want := Allowed(rules, block, major, minor)
					v1 := l.only == slices.ContainsFunc([]number{{block, major, minor}, {block, major, -1}, {block, -1, -1}},
						func(n number) bool { return slices.Contains(l.lines, n.String()) })
					v2 := interpret(t, code, block, uint32(major), uint32(minor))
					if v1 != want || v2 != want {
						t.Fatalf("%v: %v: allowed %v, v1 %v, v2 %v", rules, number{block, major, minor}, want, v1, v2)
					}
				}
			}
		}
	})
}

// interpret runs a program as the kernel would.
func interpret(t *rapid.T, p []instruction, block bool, maj, min uint32) bool {
	kindWord := uint32(unix.BPF_DEVCG_DEV_CHAR)
	if block {
		kindWord = unix.BPF_DEVCG_DEV_BLOCK
	}
	context := map[int16]uint32{0: kindWord | unix.BPF_DEVCG_ACC_READ<<16, 4: maj, 8: min}
	var reg [11]uint64
	for at := 0; at < len(p); at++ {
		switch i := p[at]; i.code {
		case loadWord:
			reg[i.dst] = uint64(context[i.offset])
		case and:
			reg[i.dst] &= uint64(uint32(i.imm))
		case move:
			reg[i.dst] = uint64(i.imm)
		case jumpUnless:
			if reg[i.dst] != uint64(i.imm) {
				at += int(i.offset)
			}
		case exit:
			return reg[answer] == 1
		default:
			t.Fatalf("instruction %#x", i.code)
		}
	}
	t.Fatal("ran off the end")
	return false
}

func TestStillOpen(t *testing.T) {
	rules := []*pb.DeviceRule{deny(195, -1), allow(195, 0), deny(240, 3)}
	for list, open := range map[string]bool{
		"a *:* rwm\n":                     false,
		"c 1:3 rwm\nc 195:0 rwm\n":        false,
		"c 1:3 rwm\nc 195:* rwm\n":        true,
		"c *:* m\nb *:* m\nc 136:* rwm\n": true,
		"c 240:3 r\n":                     true,
		"b 240:3 rwm\nc 240:4 rwm\n":      false,
		"c 195:1 rwm\n":                   true,
	} {
		if err := stillOpen(list, rules); (err != nil) != open {
			t.Errorf("%q: %v, still open %v", list, err, open)
		}
	}
}

// device makes a character device without a driver behind it: opening it is ENXIO, or EPERM where it is closed.
func device(t *testing.T, dir string, major, minor uint32) string {
	t.Helper()
	path := filepath.Join(dir, fmt.Sprintf("dev-%d-%d", major, minor))
	if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(major, minor))); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Open(path); !errors.Is(err, unix.ENXIO) {
		t.Fatalf("device %d:%d is not one without a driver: %v", major, minor, err)
	}
	return path
}

// noDriver is a major for "local use" (the kernel's devices.txt).
const noDriver = 240

// TestDevicesClosed: what is closed cannot be opened or made by anybody in the group, root included, nor below it; it holds for what
// is in the group when it is shut, and for what comes in later.
func TestDevicesClosed(t *testing.T) {
	all := roots(t)
	if l, ok := all[Hybrid.String()].(*linuxRoot); ok && l.devices != "" { // where the kernel takes no programs from this process
		r := &linuxRoot{layout: Hybrid, track: l.track, kill: l.kill, devices: l.devices, name: l.name}
		r.tryDevices.Do(func() {})
		all["mount without programs"] = r
	}
	for name, r := range all {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			if err := r.Devices(); err != nil {
				t.Fatal(err)
			}
			dir, err := os.MkdirTemp("/var/tmp", "sluice-devices-")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			for minor := range uint32(4) {
				device(t, dir, noDriver, minor)
			}
			for _, rules := range [][]*pb.DeviceRule{
				{deny(noDriver, 0), deny(noDriver, 2), deny(noDriver, 3)},
				{deny(noDriver, -1), allow(noDriver, 1)},
			} {
				devicesClosed(t, r, dir, rules)
			}
		})
	}
}

func devicesClosed(t *testing.T, r Root, dir string, rules []*pb.DeviceRule) {
	g, err := r.Create("job_7.1", &pb.Limits{Devices: rules, Pids: 100})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("python3", "-ISc", `
import os, sys, errno
dir = sys.argv[1]
input()
def tried(f):
    try: return "ok" if f() is None else "opened"
    except OSError as e: return errno.errorcode[e.errno]
for n in range(4):
    made = dir + "/made-%d" % n
    print(n, tried(lambda: os.open(dir + "/dev-240-%d" % n, os.O_RDWR)), tried(lambda: os.mknod(made, 0o20666, os.makedev(240, n))), flush=True)
    if os.path.exists(made): os.unlink(made)
print(tried(lambda: os.open("/dev/null", os.O_RDWR)))
`, dir)
	in, _ := cmd.StdinPipe()
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	start(t, g, cmd)
	fmt.Fprintln(in, "go")
	err = cmd.Wait()
	want := "0 EPERM EPERM\n1 ENXIO ok\n2 EPERM EPERM\n3 EPERM EPERM\nopened\n"
	if out.String() != want || err != nil {
		t.Errorf("%v: %v\n%swant\n%s", rules, err, out.String(), want)
	}
	if err := killUntilEmpty(g, 5*time.Minute); err != nil {
		t.Error(err)
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
}

func TestTreeClosesNothing(t *testing.T) {
	r := newTree(errors.New("an ordinary user"))
	if err := r.Devices(); err == nil || !strings.Contains(err.Error(), "an ordinary user") {
		t.Errorf("%v", err)
	}
	if _, err := r.Create("job_1.1", &pb.Limits{Devices: []*pb.DeviceRule{deny(240, 1)}}); err == nil {
		t.Error("made a group that leaves open what was to be closed")
	}
}

// TestFilterForbidden: where a folder above has a program that allows no others below, closing is refused in words, at the start
// and not with each step.
func TestFilterForbidden(t *testing.T) {
	for name, r := range roots(t) {
		l, ok := r.(*linuxRoot)
		if !ok || l.layout == Legacy {
			continue
		}
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			prog, err := loadFilter([]*pb.DeviceRule{deny(noDriver, 7)})
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(prog)
			dir, child := filepath.Join(l.track, "strict"), filepath.Join(l.track, "strict", "node")
			if err := os.MkdirAll(child, 0o755); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Rmdir(child); _ = unix.Rmdir(dir) }()
			if err := tryFilter(child); err != nil {
				t.Fatalf("before: %v", err)
			}
			if err := onFolder(unix.BPF_PROG_ATTACH, dir, prog, 0); err != nil {
				t.Fatal(err)
			}
			if err := tryFilter(child); err == nil || !strings.Contains(err.Error(), child) {
				t.Errorf("%v", err)
			}
		})
	}
}

func FuzzStillOpen(f *testing.F) {
	for _, s := range []string{"", "a *:* rwm", "c 195:* rwm\n", "b *:*", "c", "c 1:", "c :1 r\nx"} {
		f.Add(s)
	}
	rules := []*pb.DeviceRule{deny(195, -1), allow(195, 0)}
	f.Fuzz(func(t *testing.T, list string) {
		open := stillOpen(list, rules) != nil
		if want := strings.Contains("\n"+list, "\nc 195:1 rwm\n"); want && !open && !strings.HasPrefix(list, "a ") {
			t.Errorf("%q: taken for closed", list)
		}
	})
}
