package step_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/noded/private"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// privacy is what this machine can give a node of p, or the test is skipped.
func (n *node) privacy(p *pb.Privacy) *pb.Privacy {
	n.t.Helper()
	if p.Base == "" {
		p.Base = filepath.Join(filepath.Dir(n.spool), "private", "n1")
		p.MakeBase = true
	}
	got, whys := private.Available(p, n.spool)
	if len(whys) > 0 {
		n.t.Skipf("not possible here: %v", whys)
	}
	return got
}

const leave = `#!/usr/bin/python3 -IS
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
name = sys.argv[1]
def ipc(f, *a): return f(*a) >= 0
print("shm", os.path.exists("/dev/shm/" + name), "dir", os.path.exists(sys.argv[2] + "/" + name))
print("sysv", ipc(libc.shmget, 0x51ce, 4096, 0), ipc(libc.semget, 0x51ce, 1, 0), ipc(libc.msgget, 0x51ce, 0))
print("mq", ipc(libc.mq_open, b"/" + name.encode(), 2))
for f in ("/dev/shm/" + name, sys.argv[2] + "/" + name): open(f, "w").write("secret")
print("made", ipc(libc.shmget, 0x51ce, 4096, 0o1666), ipc(libc.semget, 0x51ce, 1, 0o1666), ipc(libc.msgget, 0x51ce, 0o1666),
    ipc(libc.mq_open, b"/" + name.encode(), 0o102, 0o666, None))
st = os.stat(sys.argv[2])
print("mode", oct(st.st_mode), st.st_uid)
sys.stdout.flush()
if len(sys.argv) > 3: sys.stdin.readline()
`

// TestPrivateFolders runs jobs of two users one after the other in one shim, and one while another of the same user runs.
func TestPrivateFolders(t *testing.T) {
	n := newNode(t)
	public := filepath.Join(filepath.Dir(n.spool), "scratch")
	must(t, os.Mkdir(public, 0o777))
	must(t, os.Chmod(public, 0o777|os.ModeSticky))
	must(t, os.Chmod(n.work, 0o777))
	p := n.privacy(&pb.Privacy{Dirs: []string{"/dev/shm", public}, Ipc: true})
	name := "sluice-test-" + filepath.Base(filepath.Dir(n.spool))
	want := "shm False dir False\nsysv False False False\nmq False\nmade True True True True\nmode 0o41777 0\n"
	launch := func(i int, more ...string) *pb.Bundle {
		b := n.bundle()
		b.Privacy, b.Uid = p, n.uid+uint32(i%2)
		b.Argv = append(b.Argv, append([]string{name, public}, more...)...)
		if i == 3 {
			b.TaskProlog = []string{"/bin/true"}
		}
		return b
	}
	for i := range 4 {
		b := launch(i)
		if rec := n.run(b, leave); rec.Verdict != "exited" || n.output(b) != want {
			t.Fatalf("job %d: %v: %q, want %q", i, rec, n.output(b), want)
		}
	}
	fifo := filepath.Join(n.work, "fifo")
	must(t, unix.Mkfifo(fifo, 0o666))
	must(t, os.Chmod(fifo, 0o666))
	hold, err := os.OpenFile(fifo, os.O_RDWR, 0)
	must(t, err)
	defer hold.Close()
	// A step gets new namespaces, unless one of the same user's has left them empty (package stepd, room). They are held open, because
	// the kernel gives the numbers of those that are gone to new ones.
	spaces := func(uid uint32, script string) (ids [2]uint64) {
		b := n.bundle()
		b.Privacy, b.Uid, b.StdIn.Path = n.privacy(&pb.Privacy{Dirs: []string{"/dev/shm"}, Ipc: true}), uid, fifo
		k := n.launch(b, script+"\necho pid $$.; read line")
		n.awaitOutput(b, ".\n")
		var pid int
		if _, err := fmt.Sscanf(n.output(b), "pid %d.", &pid); err != nil {
			t.Fatalf("%q: %v", n.output(b), err)
		}
		for i, kind := range []string{"mnt", "ipc"} {
			var st unix.Stat_t
			fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, kind), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			must(t, err)
			t.Cleanup(func() { unix.Close(fd) })
			must(t, unix.Fstat(fd, &st))
			ids[i] = st.Ino
		}
		_, err := hold.WriteString("\n")
		must(t, err)
		n.ended(k)
		return ids
	}
	one := spaces(n.uid, "touch /dev/shm/x")
	for i, c := range []struct {
		uid    uint32
		script string
	}{{n.uid, "ipcmk -M 4096 >/dev/null"}, {n.uid, ""}, {n.uid + 1, ""}, {n.uid, ""}, {0, ""}, {0, ""}} {
		got := spaces(c.uid, c.script)
		if got[0] == one[0] || got[1] == one[1] {
			t.Errorf("%d: %+v: namespaces %v again", i, c, got)
		}
		one = got
	}
	first := launch(0, "stay")
	first.StdIn.Path = fifo
	n.launch(first, leave)
	n.awaitOutput(first, want)
	if second := launch(0); n.run(second, leave).Verdict != "exited" || n.output(second) != want {
		t.Errorf("beside another: %q", n.output(second))
	}
	for _, at := range []string{"/dev/shm/" + name, public + "/" + name} {
		if _, err := os.Lstat(at); err == nil {
			t.Errorf("%s is seen outside", at)
			os.Remove(at)
		}
	}
	if left, _ := os.ReadDir(p.Base); len(left) != 6 { // of four, and two at once
		t.Errorf("below BasePath: %v", left)
	}
	_, err = hold.WriteString("\n")
	must(t, err)
	n.ended(first.Key)
	for job := range n.job {
		must(t, n.r.Forget(&pb.StepKey{JobId: job + 1, Attempt: 1, Step: pb.BatchStep}))
	}
	n.awaitEmpty(p.Base)
}

// awaitEmpty waits until what was below BasePath is deleted, which happens in the background.
func (n *node) awaitEmpty(dir string) {
	n.t.Helper()
	for deadline := time.Now().Add(patience); ; runtime.Gosched() {
		left, err := os.ReadDir(dir)
		if err == nil && len(left) == 0 {
			return
		}
		if err != nil || time.Now().After(deadline) {
			n.t.Errorf("left in %s: %v %v", dir, left, err)
			return
		}
	}
}

// TestPrivateFilesAreOpenedInside: the working folder and output files are those that the job sees, and its TaskEpilog sees what it left.
func TestPrivateFilesAreOpenedInside(t *testing.T) {
	n := newNode(t)
	public := filepath.Join(filepath.Dir(n.spool), "scratch")
	must(t, os.Mkdir(public, 0o777))
	must(t, os.Mkdir(public+"/here", 0o777))
	must(t, os.Chmod(public, 0o777|os.ModeSticky))
	epilog := filepath.Join(filepath.Dir(n.spool), "epilog")
	must(t, os.WriteFile(epilog, []byte("#!/bin/sh\ncat "+public+"/out /dev/shm/mine >"+n.work+"/kept\n"), 0o755))
	b := n.bundle()
	b.Privacy = n.privacy(&pb.Privacy{Dirs: []string{public, "/dev/shm"}, Ipc: true})
	b.Dir, b.StdOut.Path, b.TaskEpilog = public+"/here", public+"/out", epilog
	b.StdErr = &pb.StdFile{Path: n.work + "/err"}
	rec := n.run(b, "pwd; echo mine >/dev/shm/mine")
	kept, _ := os.ReadFile(n.work + "/kept")
	if want := "/tmp\nmine\n"; rec.Verdict != "exited" || string(kept) != want {
		t.Errorf("%v: the epilog saw %q, want %q", rec, kept, want)
	}
	errs, _ := os.ReadFile(n.work + "/err")
	missing := "couldn't chdir to `" + public + "/here': No such file or directory: going to /tmp instead\n"
	if !strings.HasSuffix(string(errs), missing) {
		t.Errorf("%q, want %q", errs, missing)
	}
	if left, _ := os.ReadDir(public); len(left) != 1 {
		t.Errorf("outside: %v", left)
	}
}

// TestPrivateFoldersAreClearedAway after the shim was killed, after its node daemon was, and when the spool knows nothing of it any more.
func TestPrivateFoldersAreClearedAway(t *testing.T) {
	n := newNode(t)
	public := filepath.Join(filepath.Dir(n.spool), "scratch")
	must(t, os.Mkdir(public, 0o777))
	must(t, os.Chmod(public, 0o777|os.ModeSticky))
	b := n.bundle()
	b.Privacy = n.privacy(&pb.Privacy{Dirs: []string{public, "/dev/shm"}, Ipc: true})
	base := b.Privacy.Base
	outside := filepath.Join(n.work, "outside")
	must(t, os.WriteFile(outside, nil, 0o600))
	n.launch(b, fmt.Sprintf("mkdir -p %[1]s/a/b; ln -s %[2]s %[1]s/a/link; ln -s / %[1]s/a/root; chmod 0 %[1]s/a; echo ready; exec sleep 1000",
		public, n.work))
	n.awaitOutput(b, "ready")
	unix.Kill(n.shimOf(b.Key), unix.SIGKILL)
	if rec := n.ended(b.Key); rec.Verdict != "lost" {
		t.Errorf("%v", rec)
	}
	n.restart()
	must(t, n.r.Forget(b.Key))
	n.awaitEmpty(base)
	n.restart()
	must(t, os.MkdirAll(base+"/job_7.1/0/x", 0o700))
	must(t, os.MkdirAll(base+"/job_8.1/0/x", 0o700))
	must(t, os.MkdirAll(base+"/.ended-job_6.1/0/x", 0o700))
	must(t, private.Sweep(base, func(name string) bool { return name == "job_8.1" }))
	must(t, private.Purge(t.Context(), base))
	if left, _ := os.ReadDir(base); len(left) != 1 || left[0].Name() != "job_8.1" {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
}

// TestRestricted: what a job can gain, and that the next one of the same shim is free of that.
func TestRestricted(t *testing.T) {
	n := newNode(t)
	const script = `grep -E '^(CapBnd|CapInh|NoNewPrivs|CapPrm)' /proc/self/status | tr -d '\n'`
	plain := n.bundle()
	n.run(plain, script)
	free := n.output(plain)
	for _, c := range []struct {
		p    *pb.Privacy
		uid  uint32
		want string
	}{
		{&pb.Privacy{NoNewPrivs: true}, n.uid, strings.Replace(free, "NoNewPrivs:\t0", "NoNewPrivs:\t1", 1)},
		{&pb.Privacy{Bounded: true, Capabilities: 1 << unix.CAP_KILL}, n.uid,
			"CapInh:\t0000000000000000CapPrm:\t0000000000000000CapBnd:\t0000000000000020NoNewPrivs:\t0"},
		{&pb.Privacy{Bounded: true}, 0, "CapInh:\t0000000000000000CapPrm:\t0000000000000000CapBnd:\t0000000000000000NoNewPrivs:\t0"},
		{nil, n.uid, free},
	} {
		for _, prolog := range [][]string{nil, {"/bin/true"}} {
			b := n.bundle()
			b.Privacy, b.Uid, b.TaskProlog = c.p, c.uid, prolog
			n.run(b, script)
			if got := n.output(b); got != c.want {
				t.Errorf("%v: %q, want %q", c.p, got, c.want)
			}
		}
	}
}
