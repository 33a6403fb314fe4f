package step_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/noded/cgroup"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func TestExitStatus(t *testing.T) {
	n := newNode(t)
	for _, c := range []struct {
		script, verdict string
		status          uint32
		output          string
	}{
		{"exit 0", "exited", 0, ""},
		{"echo hello; exit 3", "exited", 3 << 8, "hello\n"},
		{"exit 255", "exited", 255 << 8, ""},
		{"kill -KILL $$", "signaled", 9, ""},
		{"kill -TERM $$", "signaled", 15, ""},
		{"ulimit -c 0; kill -SEGV $$", "signaled", 11, ""},
		{"#!/no/such/interpreter -x\n", "exited", 2 << 8,
			"slurmstepd: error: execve(): bad interpreter(/no/such/interpreter): No such file or directory\n"},
		{"#!/\xff\xfe/sh\n", "exited", 2 << 8, "slurmstepd: error: execve(): bad interpreter(/?/sh): No such file or directory\n"},
		{"#!/etc/passwd\n", "exited", 13 << 8, "slurmstepd: error: execve(): bad interpreter(/etc/passwd): Permission denied\n"},
	} {
		b := n.bundle()
		rec := n.run(b, c.script)
		if rec.Verdict != c.verdict || rec.WaitStatus != c.status || rec.StoppedOnOrder {
			t.Errorf("%q: %v; want %s %#x", c.script, rec, c.verdict, c.status)
		}
		if got := n.output(b); got != c.output {
			t.Errorf("%q: output %q, want %q", c.script, got, c.output)
		}
		if rec.StartNs == 0 || rec.EndNs < rec.StartNs || rec.Key.GetEpoch() != 7 {
			t.Errorf("%q: times or key are wrong: %v", c.script, rec)
		}
	}
}

// TestExactIdentity compares what the kernel says about the first process with what the bundle asked for.
func TestExactIdentity(t *testing.T) {
	n := newNode(t)
	b := n.bundle()
	b.Groups = []uint32{600, 601}
	b.Umask = 0o027
	b.Env = []string{"B=2", "A=1 with space", "EMPTY=", "SLURMD_NODENAME=n1"}
	b.Argv = []string{folder.Script, "arg one", ""}
	b.Rlimits = []*pb.Rlimit{
		{Resource: unix.RLIMIT_NOFILE, Soft: 123, Hard: 456}, {Resource: unix.RLIMIT_CORE, Soft: 0, Hard: unix.RLIM_INFINITY},
		{Resource: unix.RLIMIT_STACK, Soft: 1 << 20, Hard: 1 << 21},
	}
	rec := n.run(b, `#!/usr/bin/python3 -IS
import os, sys
st = dict(l.split(":", 1) for l in open("/proc/self/status"))
for k in ("Uid", "Gid", "Groups", "Umask", "SigIgn", "SigBlk", "CapEff", "CapPrm", "NoNewPrivs", "TracerPid"):
    print(k, st[k].split())
env = [e for e in open("/proc/self/environ").read().split("\0") if e]
print("task pid", env[0] == "SLURM_TASK_PID=%d" % os.getpid() and os.environ["SLURM_TASK_PID"] == str(os.getpid()))
print("env", env[1:])
print("argv", sys.argv[1:])
print("cwd", os.getcwd())
print("leader", os.getsid(0) == os.getpid() == os.getpgid(0))
for l in open("/proc/self/limits"):
    if l.startswith(("Max open files", "Max core", "Max stack")): print(l.split()[:5])
print("oom", open("/proc/self/oom_score_adj").read().strip())
open("made", "w")
print("mode", oct(os.stat("made").st_mode & 0o777))
`)
	// Python itself ignores SIGPIPE and SIGXFSZ.
	want := fmt.Sprintf("Uid ['%[1]d', '%[1]d', '%[1]d', '%[1]d']\nGid ['%[2]d', '%[2]d', '%[2]d', '%[2]d']\n", n.uid, n.gid) +
		`Groups ['600', '601']
Umask ['0027']
SigIgn ['0000000001001000']
SigBlk ['0000000000000000']
CapEff ['0000000000000000']
CapPrm ['0000000000000000']
NoNewPrivs ['0']
TracerPid ['0']
task pid True
env ['B=2', 'A=1 with space', 'EMPTY=', 'SLURMD_NODENAME=n1']
argv ['arg one', '']
cwd ` + n.work + `
leader True
['Max', 'stack', 'size', '1048576', '2097152']
['Max', 'core', 'file', 'size', '0']
['Max', 'open', 'files', '123', '456']
oom 0
mode 0o640
`
	if got := n.output(b); got != want || rec.WaitStatus != 0 {
		t.Errorf("record %v, output\n%s\nwant\n%s", rec, got, want)
	}
	c := n.bundle()
	n.run(c, "exec ls /proc/self/fd")
	if got := n.output(c); got != "0\n1\n2\n3\n" { // 3 is the folder being listed
		t.Errorf("open descriptors:\n%s", got)
	}
	var st unix.Stat_t
	must(t, unix.Stat(b.StdOut.Path, &st))
	if st.Uid != n.uid || st.Gid != n.gid || st.Mode&0o777 != 0o640 {
		t.Errorf("output file: uid %d gid %d mode %o, want %d %d 640", st.Uid, st.Gid, st.Mode&0o777, n.uid, n.gid)
	}
}

func TestMissingWorkingFolder(t *testing.T) {
	n := newNode(t)
	b := n.bundle()
	b.Dir = "/no/such/folder"
	n.run(b, "pwd")
	want := "slurmstepd: error: couldn't chdir to `/no/such/folder': No such file or directory: going to /tmp instead\n/tmp\n"
	if got := n.output(b); got != want {
		t.Errorf("output %q, want %q", got, want)
	}
	// A folder that root could enter, but the user cannot.
	b = n.bundle()
	b.Dir = filepath.Join(n.spool, "private")
	must(t, os.Mkdir(b.Dir, 0o700))
	n.run(b, "pwd")
	if got := n.output(b); !strings.Contains(got, "Permission denied: going to /tmp instead\n/tmp\n") {
		t.Errorf("output %q, want the refusal and /tmp", got)
	}
}

func TestStandardFiles(t *testing.T) {
	n := newNode(t)
	b := n.bundle()
	must(t, os.WriteFile(n.work+"/in", []byte("from input\n"), 0o644))
	b.StdIn = &pb.StdFile{Path: n.work + "/in"}
	b.StdErr = &pb.StdFile{Path: n.work + "/deep/er/err"}
	n.run(b, "cat; echo oops >&2")
	if got := n.output(b); got != "from input\n" {
		t.Errorf("output %q", got)
	}
	raw, err := os.ReadFile(b.StdErr.Path)
	if string(raw) != "oops\n" {
		t.Errorf("error file %q, %v", raw, err)
	}
	var st unix.Stat_t
	must(t, unix.Stat(n.work+"/deep/er", &st))
	if st.Uid != n.uid || st.Mode&0o777 != 0o755 {
		t.Errorf("made folder: uid %d mode %o, want the user's and 755", st.Uid, st.Mode&0o777)
	}

	out := b.StdOut.Path
	for _, c := range []struct {
		add  bool
		want string
	}{{true, "from input\nmore\n"}, {false, "more\n"}} {
		b = n.bundle()
		b.StdOut = &pb.StdFile{Path: out, Append: c.add}
		n.run(b, "echo more")
		if got := n.output(b); got != c.want {
			t.Errorf("append=%v: %q, want %q", c.add, got, c.want)
		}
	}
	// The same path twice is one open file: nothing is overwritten.
	b = n.bundle()
	b.StdErr = &pb.StdFile{Path: b.StdOut.Path}
	n.run(b, "echo one; echo two >&2; echo three")
	if got := n.output(b); got != "one\ntwo\nthree\n" {
		t.Errorf("shared file %q", got)
	}
}

// TestHostileOutput: paths that would harm somebody if the shim opened them with its own rights.
func TestHostileOutput(t *testing.T) {
	n := newNode(t)
	foreign := filepath.Join(n.spool, "foreign")
	must(t, os.WriteFile(foreign, []byte("precious"), 0o644))
	private := filepath.Join(n.spool, "private")
	must(t, os.Mkdir(private, 0o700))
	link := func(name, to string) string {
		p := filepath.Join(n.work, name)
		must(t, os.Symlink(to, p))
		must(t, n.chown(p))
		return p
	}
	for name, path := range map[string]string{
		"another user's file":        foreign,
		"symlink to it":              link("link", foreign),
		"symlink into a root folder": link("link2", private+"/new"),
		"root folder":                private + "/deep/er/new",
		"a folder":                   n.work,
		"kernel file":                "/proc/sys/kernel/core_pattern",
		"another process":            "/proc/1/mem",
		"loop":                       link("loop", "loop"),
		"file as folder":             foreign + "/x",
		"no access in between":       "/root/.ssh/authorized_keys",
	} {
		b := n.bundle()
		b.StdOut.Path = path
		rec := n.run(b, "echo evil")
		if rec.Verdict != "output_failed" || !strings.Contains(rec.Detail, "cannot open output file "+path) || rec.WaitStatus != 53 {
			t.Errorf("%s: %v; want output_failed, naming %s", name, rec, path)
		}
	}
	if raw, _ := os.ReadFile(foreign); string(raw) != "precious" {
		t.Errorf("another user's file now holds %q", raw)
	}
	if left, _ := os.ReadDir(private); len(left) > 0 {
		t.Errorf("made in root's folder: %v", left)
	}
	b := n.bundle()
	b.StdIn.Path = n.work + "/none"
	if rec := n.run(b, "true"); rec.Verdict != "output_failed" || !strings.Contains(rec.Detail, "input file") {
		t.Errorf("missing input: %v", rec)
	}
	if rec := n.run(n.bundle(), "exit 4"); rec.WaitStatus != 4<<8 {
		t.Errorf("the next job: %v", rec)
	}
}

func TestFIFOOutput(t *testing.T) {
	n := newNode(t)
	b := n.bundle()
	must(t, unix.Mkfifo(b.StdOut.Path, 0o600))
	must(t, n.chown(b.StdOut.Path))
	k := n.launch(b, "echo through the pipe")
	n.await(k, "preparing", func(r *pb.StepReport) bool { return r.Phase == pb.StepPhase_STEP_PREPARING })
	// Nobody reads: the open hangs, and the node goes on meanwhile.
	if rec := n.run(n.bundle(), "exit 5"); rec.WaitStatus != 5<<8 {
		t.Errorf("another job meanwhile: %v", rec)
	}
	if got := n.output(b); got != "through the pipe\n" { // reading lets it go
		t.Errorf("read %q", got)
	}
	if rec := n.ended(k); rec.Verdict != "exited" || rec.WaitStatus != 0 {
		t.Errorf("record %v", rec)
	}
	// One that is never read can be cancelled, and does not live on in a later job.
	b = n.bundle()
	must(t, unix.Mkfifo(b.StdOut.Path, 0o600))
	must(t, n.chown(b.StdOut.Path))
	k = n.launch(b, "echo never")
	n.await(k, "preparing", func(r *pb.StepReport) bool { return r.Phase == pb.StepPhase_STEP_PREPARING })
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_STOP})
	if rec := n.ended(k); rec.Verdict != "cancelled" || !rec.StoppedOnOrder {
		t.Errorf("cancelled while opening: %v", rec)
	}
	for range 4 {
		if rec := n.run(n.bundle(), "exit 6"); rec.WaitStatus != 6<<8 {
			t.Errorf("after it: %v", rec)
		}
	}
}

func TestEscapes(t *testing.T) {
	n := newNode(t)
	for name, script := range map[string]string{
		"background": "sleep 600 &",
		"nohup":      "nohup sleep 600 >/dev/null 2>&1 &",
		"setsid":     "setsid sleep 600 >/dev/null 2>&1 </dev/null &",
		"double fork": "#!/usr/bin/python3 -IS\nimport os,time,signal\n" +
			"if os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n" +
			"for s in (1,2,15): signal.signal(s, signal.SIG_IGN)\ntime.sleep(600)\n",
		"trap": "sh -c 'trap : TERM HUP INT; while :; do sleep 1; done' &\nexit 0",
		"fork loop": "#!/usr/bin/python3 -IS\nimport os,time\nif os.fork(): os._exit(0)\nwhile True:\n  if os.fork(): os._exit(0)\n  " +
			"time.sleep(0.001)\n",
	} {
		b := n.bundle()
		b.KillWaitS = 3600 // nobody waits for it: the script has ended
		rec := n.run(b, script)
		if rec.Verdict != "exited" || rec.WaitStatus != 0 {
			t.Errorf("%s: %v", name, rec)
		}
		if left := ofUser(n.uid); len(left) > 0 {
			t.Fatalf("%s: left running after the end: %v", name, left)
		}
	}
}

func TestOutOfMemory(t *testing.T) {
	n := newNode(t)
	needController(t, "memory")
	hog := `#!/usr/bin/python3 -IS
x = bytearray(200 << 20)
`
	b := n.bundle()
	b.Limits = &pb.Limits{MemoryMib: 50, MemorySwapMib: 50}
	rec := n.run(b, hog)
	if rec.Verdict != "oom" || !strings.Contains(rec.Detail, "50 MiB") {
		t.Errorf("over the limit: %v", rec)
	}
	if got := n.output(b); !strings.Contains(got, "oom_kill event in StepId=1.batch") {
		t.Errorf("stderr: %q", got)
	}
	// A child of the script dies, the script goes on: still out of memory, as in Slurm.
	b = n.bundle()
	b.Limits = &pb.Limits{MemoryMib: 50, MemorySwapMib: 50}
	if rec := n.run(b, "python3 -ISc 'x = bytearray(200<<20)'\nexit 0"); rec.Verdict != "oom" {
		t.Errorf("a child over the limit: %v", rec)
	}
	b = n.bundle()
	b.Limits = &pb.Limits{MemoryMib: 400, MemorySwapMib: 400}
	if rec := n.run(b, hog); rec.Verdict != "exited" || rec.MaxRssKib < 200<<10 {
		t.Errorf("within the limit: %v", rec)
	}
}

func needController(t *testing.T, name string) {
	t.Helper()
	if _, err := os.Stat("/sys/fs/cgroup/" + name); err == nil {
		return
	}
	raw, _ := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	if !strings.Contains(string(raw), name) {
		t.Skip("this machine has no cgroup controller ", name)
	}
}

func TestProcessLimit(t *testing.T) {
	n := newNode(t)
	needController(t, "pids")
	b := n.bundle()
	b.Limits = &pb.Limits{Pids: 10}
	n.run(b, `#!/usr/bin/python3 -IS
import os, time
n = 0
try:
    while n < 50:
        if os.fork() == 0: time.sleep(60)
        n += 1
except OSError as e: print("refused after", n, e.errno)
`)
	if got := n.output(b); got != "refused after 9 11\n" {
		t.Errorf("output %q", got)
	}
}

// TestUserProcessLimit: the kernel counts all processes of a user against this limit, so that many jobs of one leave some to others.
func TestUserProcessLimit(t *testing.T) {
	n := newNode(t)
	share := cgroup.PidsShare()
	var own unix.Rlimit // on a machine with little memory the kernel's own limit is lower
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &own); err != nil {
		t.Fatal(err)
	}
	share = min(share, own.Max)
	for _, c := range []struct {
		asked *pb.Rlimit
		want  string
	}{
		{nil, fmt.Sprintf("%d %[1]d\n", share)},
		{&pb.Rlimit{Resource: unix.RLIMIT_NPROC, Soft: unix.RLIM_INFINITY, Hard: unix.RLIM_INFINITY}, fmt.Sprintf("%d %[1]d\n", share)},
		{&pb.Rlimit{Resource: unix.RLIMIT_NPROC, Soft: 100, Hard: unix.RLIM_INFINITY}, fmt.Sprintf("100 %d\n", share)},
		{&pb.Rlimit{Resource: unix.RLIMIT_NPROC, Soft: 50, Hard: 60}, "50 60\n"},
	} {
		b := n.bundle()
		if c.asked != nil {
			b.Rlimits = []*pb.Rlimit{c.asked}
		}
		n.run(b, "#!/bin/bash\necho $(ulimit -Su) $(ulimit -Hu)\n")
		if got := n.output(b); got != c.want {
			t.Errorf("%v: %q, want %q", c.asked, got, c.want)
		}
	}
}

func TestCPUSet(t *testing.T) {
	n := newNode(t)
	needController(t, "cpuset")
	for _, c := range []struct{ cpus, want string }{{"0", "0"}, {"0,700-800", "0"}, {"700-800", ""}} {
		b := n.bundle()
		b.Limits = &pb.Limits{CpusetCpus: c.cpus}
		rec := n.run(b, "grep Cpus_allowed_list /proc/self/status | cut -f2")
		own, _ := os.ReadFile("/proc/self/status")
		_, all, _ := strings.Cut(string(own), "Cpus_allowed_list:\t")
		all, _, _ = strings.Cut(all, "\n")
		want := c.want
		if want == "" {
			want = all // none of them exists: not constrained
		}
		if got := strings.TrimSpace(n.output(b)); got != want {
			t.Errorf("cpuset %q: runs on %q, want %q (%v)", c.cpus, got, want, rec)
		}
	}
}

func TestUsage(t *testing.T) {
	n := newNode(t)
	b := n.bundle()
	rec := n.run(b, "#!/usr/bin/python3 -IS\nimport time\nx = bytearray(100 << 20)\nwhile time.process_time() < 0.3: pass\n")
	if rec.CpuUsecUser+rec.CpuUsecSystem < 200_000 || rec.CpuUsecUser+rec.CpuUsecSystem > 5_000_000 || rec.MaxRssKib < 100<<10 ||
		rec.MaxRssKib > 300<<10 {
		t.Errorf("usage %v, want about 0.3 s and 110 MiB", rec)
	}
	if rec := n.run(n.bundle(), "true"); rec.MaxRssKib > 8<<10 {
		t.Errorf("a job that does nothing used %d KiB: the shim's own memory was counted", rec.MaxRssKib)
	}
}

// What the node daemon itself once used is not the job's, and hides nothing that the job uses.
func TestUsageUnderABigDaemon(t *testing.T) {
	big := make([]byte, 200<<20)
	for i := 0; i < len(big); i += 4096 {
		big[i] = 1
	}
	runtime.KeepAlive(big)
	n := newNode(t)
	rec := n.run(n.bundle(), "#!/usr/bin/python3 -IS\nx = bytearray(100 << 20)\n")
	if rec.MaxRssKib < 100<<10 || rec.MaxRssKib > 190<<10 {
		t.Errorf("a job of 110 MiB used %d KiB", rec.MaxRssKib)
	}
	if rec := n.run(n.bundle(), "true"); rec.MaxRssKib > 8<<10 {
		t.Errorf("a job that does nothing used %d KiB", rec.MaxRssKib)
	}
}

func TestScriptIsBusy(t *testing.T) {
	// Every launch while other launches fork: none may fail with "text file busy".
	n := newNode(t)
	var keys []*pb.StepKey
	var bundles []*pb.Bundle
	for i := range 40 {
		b := n.bundle()
		bundles = append(bundles, b)
		keys = append(keys, n.launch(b, fmt.Sprintf("echo %d", i)))
	}
	for i, k := range keys {
		if rec := n.ended(k); rec.WaitStatus != 0 || n.output(bundles[i]) != fmt.Sprintf("%d\n", i) {
			t.Errorf("job %d: %v %q", i, rec, n.output(bundles[i]))
		}
	}
}

// TestShimsAreRecycled: jobs that run one after another do not have a shim each.
func TestShimsAreRecycled(t *testing.T) {
	n := newNode(t)
	shims := map[int]bool{}
	const jobs = 20
	for range jobs {
		b := n.bundle()
		k := n.launch(b, "echo $PPID")
		if rec := n.ended(k); rec.WaitStatus != 0 {
			t.Errorf("%v", rec)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(n.output(b)))
		must(t, err)
		shims[pid] = true
	}
	if len(shims) > jobs/2 { // one may be taken before the one before is back
		t.Errorf("%d shims for %d short jobs", len(shims), jobs)
	}
}

// TestTaskProlog: what it prints changes the task's environment and output, as Slurm 22.05 did with the same program.
func TestTaskProlog(t *testing.T) {
	n := newNode(t)
	prolog := n.work + "/prolog"
	must(t, os.WriteFile(prolog, []byte(`#!/bin/sh
echo "export TPVAR=hello world"
echo "print from the prolog"
echo "unset GONE"
echo noise
echo hidden >&2
[ -z "$FAIL" ] || exit 7
`), 0o755))
	b := n.bundle()
	b.TaskProlog = []string{prolog}
	b.Env = append(b.Env, "GONE=1")
	b.Rlimits = []*pb.Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 77, Hard: 88}}
	rec := n.run(b, `echo "v=$TPVAR g=$GONE $(ulimit -n)"; [ $SLURM_TASK_PID = $$ ] && echo same; exit 3`)
	if want := "from the prolog\nv=hello world g= 77\nsame\n"; n.output(b) != want || rec.WaitStatus != 3<<8 {
		t.Errorf("%v, output %q, want %q", rec, n.output(b), want)
	}
	b = n.bundle()
	b.TaskProlog = []string{prolog}
	b.Env = append(b.Env, "FAIL=1")
	rec = n.run(b, "echo ran")
	if want := "slurmstepd: error: TaskProlog failed status=7\n"; n.output(b) != want || rec.WaitStatus != 7<<8 {
		t.Errorf("%v, output %q, want %q", rec, n.output(b), want)
	}
	b = n.bundle()
	b.TaskProlog = []string{n.work + "/none"}
	if rec = n.run(b, "echo ran"); rec.WaitStatus != 1<<8 || !strings.Contains(n.output(b), "cannot run TaskProlog") {
		t.Errorf("missing: %v, output %q", rec, n.output(b))
	}
	b = n.bundle()
	must(t, os.WriteFile(prolog, []byte("#!/bin/sh\nsleep 600\n"), 0o755))
	b.TaskProlog = []string{prolog}
	b.KillWaitS = 600
	k := n.launch(b, "true")
	n.running(k)
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_STOP})
	if rec := n.ended(k); rec.Verdict != "cancelled" {
		t.Errorf("stopped in its prolog: %v", rec)
	}
}

// TestTaskEpilog: it runs as the job's user, in its cgroup and folder, once its first process has ended, and changes nothing of
// the result; what the job left behind ends after it.
func TestTaskEpilog(t *testing.T) {
	n := newNode(t)
	epilog, said := n.work+"/epilog", n.work+"/said"
	must(t, os.WriteFile(epilog, []byte("#!/bin/sh\n(id -u; pwd; umask; echo \"$SLURM_TASK_PID $X\"; grep -c job_ /proc/self/cgroup) >"+
		said+"; echo lost; exit 9\n"), 0o755))
	b := n.bundle()
	b.TaskEpilog, b.Umask = epilog, 0o026
	b.Env = append(b.Env, "X=1")
	rec := n.run(b, "echo $$; sleep 600 & exit 3")
	if rec.Verdict != "exited" || rec.WaitStatus != 3<<8 {
		t.Errorf("%v", rec)
	}
	got, _ := os.ReadFile(said)
	want := fmt.Sprintf("%d\n%s\n0026\n%s 1\n", b.Uid, b.Dir, strings.TrimSpace(n.output(b)))
	if !strings.HasPrefix(string(got), want) || strings.HasSuffix(string(got), "\n0\n") && os.Getuid() == 0 {
		t.Errorf("the epilog saw %q, want %q", got, want)
	}
	for _, bad := range []string{n.work + "/none", n.work} {
		b = n.bundle()
		b.TaskEpilog = bad
		if rec := n.run(b, "sleep 600 & exit 4"); rec.Verdict != "exited" || rec.WaitStatus != 4<<8 {
			t.Errorf("TaskEpilog=%s: %v", bad, rec)
		}
	}
	must(t, os.WriteFile(epilog, []byte("#!/bin/sh\nsleep 600\n"), 0o755))
	limit := n.limit()
	b = n.bundle()
	b.TaskEpilog, b.LimitS, b.KillWaitS = epilog, limit, 1
	if rec := n.run(b, "exit 0"); rec.WaitStatus != 0 {
		t.Errorf("an epilog beyond the time limit: %v", rec)
	}
}

// TestMissingFolderIsNotMade: parents of output files are made, but not a working folder that is not there.
func TestMissingFolderIsNotMade(t *testing.T) {
	n := newNode(t)
	b := n.bundle()
	b.Dir = n.work + "/gone"
	b.StdOut = &pb.StdFile{Path: b.Dir + "/sub/out"}
	if rec := n.run(b, "true"); rec.Verdict != "output_failed" || !strings.Contains(rec.Detail, "the working directory "+b.Dir+
		" does not exist") {
		t.Errorf("%v", rec)
	}
	if _, err := os.Stat(b.Dir); err == nil {
		t.Errorf("%s has been made", b.Dir)
	}
}
