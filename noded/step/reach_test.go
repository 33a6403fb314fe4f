package step_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// asUser runs a Python program outside of any job, as the node's user or another one.
func (n *node) asUser(uid, gid uint32, program string, args ...string) string {
	n.t.Helper()
	cmd := exec.Command("/usr/bin/python3", append([]string{"-ISc", program}, args...)...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		n.t.Fatalf("%v: %s", err, out.String())
	}
	return out.String()
}

// TestShimIsOutOfReach: what a job's user can do to the shim above it, which is root's and will serve others: nothing.
func TestShimIsOutOfReach(t *testing.T) {
	n := newNode(t)
	secret := n.bundle()
	secret.Env = append(secret.Env, "SECRET=xyzzy")
	other := n.launch(secret, "sleep 600")
	n.running(other)
	b := n.bundle()
	b.Argv = append(b.Argv, n.spool)
	rec := n.run(b, `#!/usr/bin/python3 -IS
import os, sys, signal, resource, socket
shim, spool = os.getppid(), sys.argv[1]
def no(what, f):
    try: r = f()
    except OSError: return
    except Exception as e: r = e
    print("could", what, r)
def connect(path):
    s = socket.socket(socket.AF_UNIX); s.connect(path)
for sig in (0, signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL):
    no("signal the shim", lambda: os.kill(shim, sig))
for f in ("environ", "mem", "maps", "stack", "syscall", "auxv"):
    no("read the shim's " + f, lambda: open("/proc/%d/%s" % (shim, f), "rb").read(1))
for d in ("fd", "fdinfo", "map_files"):
    no("list the shim's " + d, lambda: os.listdir("/proc/%d/%s" % (shim, d)))
for l in ("cwd", "root", "exe", "ns/mnt"):
    no("follow the shim's " + l, lambda: os.readlink("/proc/%d/%s" % (shim, l)))
no("spare the shim's memory", lambda: open("/proc/%d/oom_score_adj" % shim, "w").write("1000"))
no("limit the shim", lambda: resource.prlimit(shim, resource.RLIMIT_NOFILE, (4, 4)))
for t in [shim] + [int(t) for t in os.listdir("/proc/%d/task" % shim)]:
    no("pin the shim", lambda: os.sched_setaffinity(t, {0}))
    no("slow the shim", lambda: os.setpriority(os.PRIO_PROCESS, t, 19))
    no("idle the shim", lambda: os.sched_setscheduler(t, os.SCHED_IDLE, os.sched_param(0)))
for d in (spool + "/steps", spool + "/shims"):
    no("list " + d, lambda: os.listdir(d))
    no("make a file in " + d, lambda: open(d + "/x", "w"))
for i in (1, 2):
    d = spool + "/steps/%d.1.4294967291" % i
    no("list " + d, lambda: os.listdir(d))
    no("read the bundle of job %d" % i, lambda: open(d + "/bundle.pb", "rb").read(1))
    no("add to " + d, lambda: open(d + "/x", "w"))
    no("replace the script of job %d" % i, lambda: os.rename(d + "/slurm_script", d + "/y"))
    no("delete the script of job %d" % i, lambda: os.unlink(d + "/slurm_script"))
no("call the shim", lambda: connect(spool + "/shims/%d" % shim))
try:
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    for req in (16, 0x4206):
        if libc.ptrace(req, shim, 0, 0) == 0: print("could trace the shim")
except ImportError: pass
print("done")
`)
	if got := n.output(b); got != "done\n" || rec.WaitStatus != 0 {
		t.Errorf("record %v, output\n%s", rec, got)
	}
	// Another user's eyes: the environment and the script of a job are not theirs.
	got := n.asUser(n.uid+1000, n.gid+1000, `
import sys
for f in ("/proc/%s/environ" % sys.argv[1], sys.argv[2] + "/slurm_script", sys.argv[2] + "/bundle.pb"):
    try: print("could read", f, open(f, "rb").read(1))
    except OSError: pass
`, fmt.Sprint(n.running(other).Pid), n.r.Dir(other))
	if got != "" {
		t.Error(got)
	}
	n.order(&pb.StepOrder{Key: other, Want: pb.StepWant_WANT_KILL})
	n.ended(other)
}

// TestLauncherIsNotSlowed: while the shim's thread opens a job's files it has the user's effective id, and the user decides how long
// that takes. A thread of the same effective id may be scheduled otherwise by its user, and what is forked from it inherits that: the next
// job, of another user. The kernel forbids it because the thread keeps capabilities in its permitted set, which the user has not.
func TestLauncherIsNotSlowed(t *testing.T) {
	n := newNode(t)
	fifo := n.work + "/fifo"
	must(t, unix.Mkfifo(fifo, 0o666))
	must(t, n.chown(fifo))
	b := n.bundle()
	b.StdOut.Path = fifo
	k := n.launch(b, "echo opened")
	got := n.asUser(n.uid, n.gid, `
import os, sys, time
def me(t):
    try: return open(t + "/status").read().split("\nUid:\t")[1].split()[1] == str(os.getuid())
    except OSError: return False
while True:
    tids = [int(t) for p in os.listdir("/proc") if p.isdigit() and p != str(os.getpid()) and os.path.isdir("/proc/%s/task" % p)
        for t in os.listdir("/proc/%s/task" % p) if me("/proc/%s/task/%s" % (p, t))]
    if tids: break
for t in tids:
    for f in (lambda: os.setpriority(os.PRIO_PROCESS, t, 19), lambda: os.sched_setscheduler(t, os.SCHED_IDLE, os.sched_param(0)), lambda: os.sched_setaffinity(t, {0})):
        try: f()
        except OSError as e: print(e)
with open(sys.argv[1]) as f: print(f.read(), end="")
`, fifo)
	if n := strings.Count(got, "not permitted"); !strings.HasSuffix(got, "opened\n") || n == 0 || n%3 != 0 {
		t.Errorf("the first job: %q", got)
	}
	n.ended(k)
	cpus, err := os.ReadFile("/proc/self/status")
	must(t, err)
	_, mine, _ := strings.Cut(string(cpus), "Cpus_allowed_list:\t")
	mine, _, _ = strings.Cut(mine, "\n")
	nice, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // as the kernel has it, 1 to 40
	must(t, err)
	for range 4 { // whichever shim each gets, the slowed one is among them
		b := n.bundle()
		n.run(b, `#!/usr/bin/python3 -IS
import os
print(os.nice(0), os.sched_getscheduler(0), open("/proc/self/status").read().split("Cpus_allowed_list:\t")[1].split("\n")[0])
`)
		if got, want := n.output(b), fmt.Sprintf("%d 0 %s\n", 20-nice, mine); got != want {
			t.Errorf("job %d: nice, policy and CPUs are %q, want %q", b.Key.JobId, got, want)
		}
	}
}

// TestNothingOfTheUsersBeforeItsLimits: a library of the user's would run in the trampoline before that is in its cgroups, and what it
// forked there would stay outside. The dynamic loader complains once for each program that it could not give the library to.
func TestNothingOfTheUsersBeforeItsLimits(t *testing.T) {
	n := newNode(t)
	prolog := n.work + "/prolog"
	must(t, os.WriteFile(prolog, []byte("#!/bin/sh\necho export A=1\n"), 0o755))
	b := n.bundle()
	b.TaskProlog = []string{prolog}
	b.Env = append(b.Env, "LD_PRELOAD=/no/such/library.so", "B=2 and more", "EMPTY=")
	rec := n.run(b, `echo "$A $B ${EMPTY-unset} $SLURM_TASK_PID $$" >&2; tr '\0' '\n' </proc/$$/environ | grep -c .`)
	var said []string
	for line := range strings.Lines(n.output(b)) {
		if !strings.Contains(line, "/no/such/library.so") {
			said = append(said, strings.TrimSpace(line))
		}
	}
	// The shell, tr and grep; that of TaskProlog has no standard error.
	if got := strings.Count(n.output(b), "/no/such/library.so"); got > 3 || rec.WaitStatus != 0 {
		t.Errorf("record %v, %d programs were to have the library:\n%s", rec, got, n.output(b))
	}
	if len(said) != 2 || said[1] != "8" {
		t.Fatalf("%q", said)
	}
	if f := strings.Split(said[0], " "); strings.Join(f[:4], " ") != "1 2 and more" || f[len(f)-1] != f[len(f)-2] {
		t.Errorf("%q", said[0])
	}
}
