package step_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/noded/cgroup"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Four devices as a node gives them to jobs: character devices of a major without a driver ("local use"), so that opening one gives
// ENXIO where it is open, and EPERM where the device controller closes it.
const (
	deviceMajor = 240
	deviceCount = 4
)

func (n *node) devices() (dir string) {
	n.t.Helper()
	dir = filepath.Join(filepath.Dir(n.work), "dev")
	must(n.t, os.Mkdir(dir, 0o755))
	for i := range deviceCount {
		path := fmt.Sprintf("%s/%d", dir, i)
		must(n.t, unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(deviceMajor, uint32(i)))))
		must(n.t, os.Chmod(path, 0o666))
	}
	return dir
}

// only are the rules for the holder of one of them, or of none (-1): by number, or by closing the major.
func only(mine int64, whole bool) (rules []*pb.DeviceRule) {
	if whole {
		rules = []*pb.DeviceRule{{Major: deviceMajor, Minor: -1}}
		if mine >= 0 {
			rules = append(rules, &pb.DeviceRule{Allow: true, Major: deviceMajor, Minor: mine})
		}
		return rules
	}
	for i := range int64(deviceCount) {
		if i != mine {
			rules = append(rules, &pb.DeviceRule{Major: deviceMajor, Minor: i})
		}
	}
	return rules
}

// tryAll prints what opening and making each device gives, whenever it is told to, until told to end. $1: the devices, $2: a FIFO.
const tryAll = `#!/usr/bin/python3 -IS
import os, sys, errno
def tried(f):
    try: f(); return "ok"
    except OSError as e: return errno.errorcode[e.errno]
for round in range(100):
    line = []
    for i in range(4):
        made = "made-%d-%d" % (os.getpid(), i)
        line.append(tried(lambda: os.open(sys.argv[1] + "/%d" % i, os.O_RDWR)) + "/" + tried(lambda: os.mknod(made, 0o20666, os.makedev(240, i))))
        if os.path.exists(made): os.unlink(made)
    null = tried(lambda: os.close(os.open("/dev/null", os.O_RDWR)))
    print(round, *line, null, flush=True)
    if open(sys.argv[2]).read() == "end": sys.exit(0)
`

func tell(t *testing.T, fifo, what string) {
	t.Helper()
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	must(t, err)
	_, err = w.WriteString(what)
	must(t, err)
	w.Close()
}

// TestDevicesClosed: several jobs at once, one of root's among them, each with a device of its own or none: they can open and make
// that one alone, while all is well, after the node daemon has been killed, and after its shim has been killed too.
func TestDevicesClosed(t *testing.T) {
	for _, plugin := range []string{cgroup.PluginAuto, cgroup.PluginV1, cgroup.PluginV2} {
		t.Run(strings.ReplaceAll(plugin, "/", "-"), func(t *testing.T) {
			n := newNodeWith(t, plugin)
			if n.r.Layout() == cgroup.Tree {
				t.Skip("this machine has no ", plugin)
			}
			if plugin != cgroup.PluginAuto && n.r.Layout() == autodetected(t) {
				t.Skip("this machine has nothing else: see autodetect")
			}
			must(t, n.r.Devices())
			n.devicesClosed(t, n.devices())
		})
	}
}

func autodetected(t *testing.T) cgroup.Layout {
	t.Helper()
	r, err := cgroup.Open(fmt.Sprintf("sluice-test/autodetect-%d", os.Getpid()), "")
	must(t, err)
	defer r.Tidy()
	return r.Layout()
}

type deviceJob struct {
	b    *pb.Bundle
	k    *pb.StepKey
	fifo string
	want string
}

func (n *node) devicesClosed(t *testing.T, dir string) {
	var jobs []*deviceJob
	for i, c := range []struct {
		mine  int64
		root  bool
		whole bool
		want  string
	}{
		{0, false, false, "ENXIO/EPERM EPERM/EPERM EPERM/EPERM EPERM/EPERM ok"}, // an ordinary user makes none in any case
		{1, false, true, "EPERM/EPERM ENXIO/EPERM EPERM/EPERM EPERM/EPERM ok"},
		{2, true, false, "EPERM/EPERM EPERM/EPERM ENXIO/ok EPERM/EPERM ok"},
		{3, true, true, "EPERM/EPERM EPERM/EPERM EPERM/EPERM ENXIO/ok ok"},
		{-1, true, true, "EPERM/EPERM EPERM/EPERM EPERM/EPERM EPERM/EPERM ok"},
	} {
		j := &deviceJob{b: n.bundle(), fifo: fmt.Sprintf("%s/go-%d", n.work, i), want: c.want}
		must(t, unix.Mkfifo(j.fifo, 0o666))
		must(t, os.Chmod(j.fifo, 0o666))
		j.b.Limits = &pb.Limits{Devices: only(c.mine, c.whole)}
		j.b.Argv = append(j.b.Argv, dir, j.fifo)
		if c.root {
			j.b.Uid, j.b.Gid = 0, 0
		}
		j.k = n.launch(j.b, tryAll)
		jobs = append(jobs, j)
	}
	round := 0
	see := func(when string) {
		t.Helper()
		for _, j := range jobs {
			awaitFile(t, j.b.StdOut.Path, func(s string) bool { return strings.Count(s, "\n") == round+1 })
			if got, want := strings.Split(n.output(j.b), "\n")[round], fmt.Sprint(round, " ", j.want); got != want {
				t.Errorf("%s: job %d: %s, want %s", when, j.k.JobId, got, want)
			}
		}
		round++
	}
	next := func() {
		for _, j := range jobs {
			tell(t, j.fifo, "go")
		}
	}
	see("at first")
	n.restart()
	next()
	see("after a restart of the node daemon")
	var shims []int
	for _, j := range jobs {
		shims = append(shims, n.shimOf(j.k))
	}
	n.r.Close()
	next()
	see("without a node daemon")
	for _, pid := range shims[1:] {
		must(t, unix.Kill(pid, unix.SIGKILL))
		awaitDeath(t, pid)
	}
	next()
	see("without a shim")
	n.start()
	for _, j := range jobs[1:] {
		if rec := n.ended(j.k); rec.Verdict != "lost" {
			t.Errorf("a job whose shim was killed: %v", rec)
		}
	}
	tell(t, jobs[0].fifo, "end")
	if rec := n.ended(jobs[0].k); rec.Verdict != "exited" || rec.WaitStatus != 0 {
		t.Errorf("record %v", rec)
	}
}

// TestDevicesStayClosed: what a job's user could try to have them opened.
func TestDevicesStayClosed(t *testing.T) {
	for _, plugin := range []string{cgroup.PluginAuto, cgroup.PluginV1} {
		t.Run(strings.ReplaceAll(plugin, "/", "-"), func(t *testing.T) {
			n := newNodeWith(t, plugin)
			if n.r.Layout() == cgroup.Tree {
				t.Skip("this machine has no ", plugin)
			}
			if plugin != cgroup.PluginAuto && n.r.Layout() == autodetected(t) {
				t.Skip("this machine has nothing else: see autodetect")
			}
			b := n.bundle()
			b.Limits = &pb.Limits{Devices: only(0, false)}
			b.Argv = append(b.Argv, n.devices())
			rec := n.run(b, `dev=$1
try() { if (: <>"$dev/$2") 2>err || ! grep -q 'ermission\|not permitted' err; then echo "$1: $(cat err)"; fi; }
sed -n 's/^[0-9]*:[^:]*:\(.*job_.*\)/\1/p' /proc/self/cgroup | sort -u >groups
while read g; do for m in /sys/fs/cgroup /sys/fs/cgroup/*; do
	[ -d "$m$g" ] || continue
	seen=yes
	for f in devices.allow cgroup.procs tasks cgroup.subtree_control; do for d in "$m$g" "$m${g%/*}" "$m"; do
		for v in a 'c *:* rwm' $$ '+devices'; do (echo "$v" >"$d/$f") 2>/dev/null && echo "could write $d/$f"; done
	done; done
	mkdir "$m$g/mine" 2>/dev/null && echo "could make a group in $m$g"
	rmdir "$m$g" 2>/dev/null && echo "could delete $m$g"
done; done <groups
[ "$seen" ] || echo "found no group of this job: $(cat /proc/self/cgroup)"
try "the group's files" 1
setsid sh -c 'exec 2>err; (: <>"$0/1") && echo "a session of its own"' "$dev"
unshare -U -r -m true 2>/dev/null && unshare -U -r -m sh -c '
	mkdir -p m; mount -t cgroup2 none m 2>/dev/null && echo $$ 2>/dev/null >m/cgroup.procs
	for v in devices; do mount -t cgroup -o $v none m 2>/dev/null && echo a >m/devices.allow; done
	mknod made c 240 1 2>/dev/null && echo "made a device in a namespace"
	(: <>"$0/1") 2>/dev/null && echo "a user namespace"
' "$dev" 2>/dev/null
ln "$dev/1" mine 2>/dev/null && (: <>mine) 2>/dev/null && echo "a hard link"
ln -s "$dev/1" soft; (: <>soft) 2>/dev/null && echo "a symlink"
(: <>"/proc/self/root$dev/1") 2>/dev/null && echo "by /proc"
try "after all" 1
(: <>"$dev/0") 2>&1 | sed 's/.*: //'
echo end
`)
			want := "No such device or address\nend\n"
			if got := n.output(b); got != want || rec.WaitStatus != 0 {
				t.Errorf("record %v, output\n%swant\n%s", rec, got, want)
			}
		})
	}
}

// TestDeviceAsOutput: a job's files are opened outside of its cgroup, by a thread that is its user: what is closed to the job is
// closed to that one too, through a symlink as well.
func TestDeviceAsOutput(t *testing.T) {
	n := newNode(t)
	dir := n.devices()
	for _, c := range []struct {
		set  func(b *pb.Bundle, path string)
		path string
		want string
	}{
		{func(b *pb.Bundle, p string) { b.StdOut.Path = p }, dir + "/1", "that is not allocated to the job"},
		{func(b *pb.Bundle, p string) { b.StdErr = &pb.StdFile{Path: p} }, dir + "/1", "that is not allocated to the job"},
		{func(b *pb.Bundle, p string) { b.StdIn.Path = p }, dir + "/1", "that is not allocated to the job"},
		{func(b *pb.Bundle, p string) { b.StdIn.Path = p }, "link", "that is not allocated to the job"},
		{func(b *pb.Bundle, p string) { b.StdIn.Path = p }, dir + "/0", "no such device or address"},
	} {
		if c.path == "link" {
			c.path = n.work + "/link"
			must(t, os.Symlink(dir+"/1", c.path))
		}
		b := n.bundle()
		b.Limits = &pb.Limits{Devices: only(0, true)}
		c.set(b, c.path)
		if rec := n.run(b, "echo ran"); rec.Verdict != "output_failed" || !strings.Contains(rec.Detail, c.want) {
			t.Errorf("%s: %v, want %s", c.path, rec, c.want)
		}
	}
}

// TestShimsOwnFiles: /proc/self, where a job's files are opened, is the shim: nothing of it gets to the job.
func TestShimsOwnFiles(t *testing.T) {
	n := newNode(t)
	self := "/proc/self/"
	link := filepath.Join(n.work, "link")
	must(t, os.Symlink("/proc/self/fd/4", link))
	for _, c := range []struct{ in, err string }{
		{in: self + "environ"}, {in: self + "mem"}, {in: self + "status"}, {in: "/proc/thread-self/environ"}, {in: self + "fd/3"},
		{in: self + "fd/5"}, {in: "/dev/fd/5"}, {in: "/proc/thread-self/fd/7"}, {in: link}, {in: self + "root/etc/passwd"},
		{err: self + "status"}, {err: "/proc/thread-self/attr/current"}, {err: self + "fd/4"}, {err: self + "fd/6"},
		{err: self + "cwd/made"}, {err: self + "root" + n.work + "/made"},
	} {
		b := n.bundle()
		if c.in != "" {
			b.StdIn.Path = c.in
		} else {
			b.StdErr = &pb.StdFile{Path: c.err, Append: true}
		}
		rec := n.run(b, "readlink /proc/self/fd/0 /proc/self/fd/2; echo ran")
		through := strings.Contains(rec.Detail, "a path through /proc") || strings.Contains(rec.Detail, "permission denied")
		if rec.Verdict != "output_failed" || !through {
			out, _ := os.ReadFile(b.StdOut.Path)
			t.Errorf("%+v: %v; the job has %q", c, rec, out)
		}
	}
	// The three that a daemon always has are nothing, as in Slurm.
	for _, c := range [][3]string{{"/dev/stdin", "", "/dev/stderr"}, {"/proc/self/fd/0", "", "/dev/fd/2"}} {
		b := n.bundle()
		b.StdIn.Path, b.StdErr = c[0], &pb.StdFile{Path: c[2]}
		n.run(b, "readlink /proc/self/fd/0 /proc/self/fd/2")
		if got := n.output(b); got != "/dev/null\n/dev/null\n" {
			t.Errorf("%q: the job has %q", c, got)
		}
	}
	b := n.bundle()
	b.Dir = self + "fd/1/.."
	n.run(b, "pwd -P")
	if got := n.output(b); !strings.HasSuffix(got, "going to /tmp instead\n/tmp\n") {
		t.Errorf("--chdir=%s: %q", b.Dir, got)
	}
}
