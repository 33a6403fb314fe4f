package stepd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/noded/container/containertest"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// The commands of oci.conf as docs/containers.md has them.
const (
	crunRun    = "crun --cgroup-manager=disabled run --bundle %b %n.%u.%j.%s.%t"
	crunCreate = "crun --cgroup-manager=disabled create --bundle %b %n.%u.%j.%s.%t"
	crunStart  = "crun start %n.%u.%j.%s.%t"
	crunQuery  = "crun state %n.%u.%j.%s.%t"
	crunKill   = "crun kill %n.%u.%j.%s.%t KILL"
	crunDelete = "crun delete --force %n.%u.%j.%s.%t"
)

func withRun() *pb.OciRuntime {
	return &pb.OciRuntime{Run: crunRun, Query: crunQuery, Kill: crunKill, Delete: crunDelete}
}

func withCreate() *pb.OciRuntime {
	return &pb.OciRuntime{Create: crunCreate, Start: crunStart, Query: crunQuery, Kill: crunKill, Delete: crunDelete}
}

// inBundle is a step of n tasks in containers of a bundle that the test makes, root's.
func inBundle(t *testing.T, n int, o *pb.OciRuntime, change func(map[string]any)) *pb.Bundle {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the test runs a container as another user, which only root can")
	}
	dir := userFolder(t)
	if err := containertest.Bundle(dir, change, "OF_BUNDLE=bundle", "BOTH=bundle", "SLURM_JOB_ID=bundle"); err != nil {
		t.Fatal(err)
	}
	b := stepBundle(n)
	b.Container = &pb.StepContainer{Bundle: dir, Runtime: o}
	return b
}

// states are what the runtime knows of containers, and the folders of their tasks.
func states(s *aStep, b *pb.Bundle) (left []string) {
	j := containerOf(b, filepath.Join(s.base, "steps", "x"))
	for _, pattern := range []string{j.Run + "/crun/*", j.Step + "/task-*"} {
		list, _ := filepath.Glob(pattern)
		left = append(left, list...)
	}
	return left
}

// TestBundleIsWhereTasksRun: by either way of oci.conf a task runs in a container of the bundle, as its user and in the step's cgroup, with
// the bundle's variables over the job's and its own exit code; nothing is left when it has ended.
func TestBundleIsWhereTasksRun(t *testing.T) {
	if !containertest.Inside(t) {
		return
	}
	for name, o := range map[string]*pb.OciRuntime{"run": withRun(), "create and start": withCreate()} {
		t.Run(name, func(t *testing.T) {
			o.EnvExclude, o.MountSpoolDir = "^SECRET=", "/tmp/spool"
			b := inBundle(t, 2, o, nil)
			w := shell(`echo $OF_BUNDLE $BOTH $OF_JOB $SLURM_JOB_ID $SLURM_PROCID $SECRET "$(pwd)" $(id -u) "$1" $$
				ls /tmp/spool; cat /proc/1/cgroup >&2; cat; exit $((3 * SLURM_PROCID))`)
			w.Programs[0].Argv = append(w.Programs[0].Argv, "it's", "one  'word'")
			w.Env = append(w.Env, "SECRET=secret")
			s := beginStep(t, b, w)
			s.Send(stepwire.In, stepwire.All, []byte("from srun\n"))
			s.Send(stepwire.In, stepwire.All, nil)
			rec := s.end()
			s.Await("the last word", func() bool { return s.Ended != nil })
			if rec.Verdict != "exited" || rec.WaitStatus != 3<<8 || len(s.Said) > 0 {
				t.Errorf("record %v, said %q", rec, s.Said)
			}
			for i := range 2 {
				want := fmt.Sprintf("bundle bundle job 7 %d /work 0 one  'word' 1\n", i)
				folder := fmt.Sprintf("task-%d\n", i)
				if got := s.Text(fmt.Sprintf("out %d", i)); !strings.HasPrefix(got, want) || !strings.Contains(got, folder) ||
					!strings.HasSuffix(got, "from srun\n") {
					t.Errorf("task %d said %q, want %q and its folder and what srun says", i, got, want)
				}
				if text := s.Text(fmt.Sprintf("err %d", i)); !strings.Contains(text, "/job_7.1") {
					t.Errorf("task %d: the cgroup, or what is wrong: %q", i, text)
				}
			}
			if left := states(s, b); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			awaitNobody(t, b.Uid)
		})
	}
}

// TestBundleSignals: signals reach the program.
func TestBundleSignals(t *testing.T) {
	if !containertest.Inside(t) {
		return
	}
	for name, o := range map[string]*pb.OciRuntime{"run": withRun(), "create and start": withCreate()} {
		t.Run(name, func(t *testing.T) {
			b := inBundle(t, 1, o, nil)
			// The first process of a PID namespace is deaf to what it does not catch.
			s := beginStep(t, b, shell(`trap "echo caught" USR1; trap "exit 9" TERM; echo ready; while :; do sleep 0.1; done`))
			s.Await("that it waits", func() bool { return strings.Contains(text(s, "out 0"), "ready\n") })
			s.SendMessage(stepwire.Signal, &pb.StepSignal{Signal: uint32(unix.SIGUSR1)})
			s.Await("the signal", func() bool { return strings.Contains(text(s, "out 0"), "caught\n") })
			s.SendMessage(stepwire.Signal, &pb.StepSignal{Signal: uint32(unix.SIGTERM)})
			if rec := s.end(); rec.WaitStatus != 9<<8 {
				t.Errorf("record %v, want exit code 9", rec)
			}
			awaitNobody(t, b.Uid)
		})
	}
}

// TestBundleSignalsMeetTheRuntime: signals to all processes of a step may end the runtime that has just started the container, and the one
// that is asked whether it did; the container runs on.
func TestBundleSignalsMeetTheRuntime(t *testing.T) {
	if !containertest.Inside(t) {
		return
	}
	o := withCreate()
	b := inBundle(t, 1, o, nil)
	const mark = "$XDG_RUNTIME_DIR/started"
	o.Start = crunStart + " && touch " + mark + " && kill -USR1 $$"
	o.Query = "if rm " + mark + " 2>/dev/null; then kill -TERM $$; fi; " + crunQuery
	s := beginStep(t, b, shell("sleep 0.1; exit 9"))
	if rec := s.end(); rec.WaitStatus != 9<<8 {
		t.Errorf("record %v, want exit code 9; said %q", rec, s.Said)
	}
	awaitNobody(t, b.Uid)
}

// TestBundleKilled: a step that is cancelled leaves nothing behind, although the runtime could not clear up.
func TestBundleKilled(t *testing.T) {
	if !containertest.Inside(t) {
		return
	}
	for name, o := range map[string]*pb.OciRuntime{"run": withRun(), "create and start": withCreate()} {
		t.Run(name, func(t *testing.T) {
			b := inBundle(t, 1, o, nil)
			b.KillWaitS = 0
			s := beginStep(t, b, shell("echo ready; exec sleep 1000"))
			s.Await("that it runs", func() bool { return strings.Contains(text(s, "out 0"), "ready\n") })
			if left := states(s, b); len(left) != 2 {
				t.Errorf("of a container that runs there is %v", left)
			}
			s.order(&pb.StepOrder{Want: pb.StepWant_WANT_STOP, StopReason: "cancel"})
			if rec := s.end(); rec.Verdict != "cancelled" {
				t.Errorf("record %v", rec)
			}
			if left := states(s, b); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			awaitNobody(t, b.Uid)
		})
	}
}

// TestBundleThatCannotBe: the reason is told.
func TestBundleThatCannotBe(t *testing.T) {
	if !containertest.Inside(t) {
		return
	}
	write := func(name, text string) func(*testing.T, *pb.Bundle) {
		return func(t *testing.T, b *pb.Bundle) {
			if err := os.WriteFile(filepath.Join(b.Container.Bundle, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*testing.T, *pb.Bundle)
		want   string
	}{
		"no bundle": {func(_ *testing.T, b *pb.Bundle) { b.Container.Bundle = "/nonexistent" },
			"--container=/nonexistent: open /nonexistent/config.json: no such file or directory"},
		"broken":     {write("config.json", `{"process":`), "config.json: it is no configuration of an OCI bundle: unexpected EOF"},
		"a list":     {write("config.json", `[]`), "config.json: it is no configuration of an OCI bundle"},
		"no process": {write("config.json", `{"process":1}`), "config.json: process is no object"},
		"no root":    {write("config.json", `{}`), "config.json: root.path is missing"},
		"no rootfs":  {write("config.json", `{"root":{"path":"x"}}`), "root.path: stat "},
		"no file": {func(t *testing.T, b *pb.Bundle) {
			path := filepath.Join(b.Container.Bundle, "config.json")
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mkfifo(path, 0o666); err != nil {
				t.Fatal(err)
			}
		}, "config.json: it is no regular file"},
		"a key": {func(_ *testing.T, b *pb.Bundle) { b.Container.Runtime.EnvExclude = "(" },
			"EnvExclude of oci.conf: error parsing regexp"},
		"root": {func(_ *testing.T, b *pb.Bundle) { b.Uid = 0 }, "root's jobs run in no containers"},
	} {
		t.Run(name, func(t *testing.T) {
			b := inBundle(t, 1, withRun(), nil)
			c.change(t, b)
			s := beginStep(t, b, stepWork("true"))
			rec := s.end()
			s.Await("the last word", func() bool { return s.Ended != nil })
			if rec.WaitStatus != 1<<8 || s.Failed == nil || !strings.Contains(s.Failed.Detail, c.want) {
				t.Errorf("record %v, failed %v, want %q", rec, s.Failed, c.want)
			}
		})
	}
}

// TestBundleOfBatch: a batch script runs in a container, which has it where Slurm's have it.
func TestBundleOfBatch(t *testing.T) {
	if !containertest.Inside(t) {
		return
	}
	for name, o := range map[string]*pb.OciRuntime{"run": withRun(), "create and start": withCreate()} {
		t.Run(name, func(t *testing.T) {
			b := inBundle(t, 1, o, nil)
			b.Step, b.Key, b.Cgroup, b.Env = nil, nil, "", append(b.Env, "PATH=/usr/bin:/bin")
			b.Argv, b.TaskEpilog = []string{folder.Script, "one", "two three"}, writeProgram(t, "echo $SLURM_TASK_PID >$0.ran")
			l := testLauncher(t)
			l.run(nil)
			rec, out := runStep(t, l, testRoot(t), b, "#!/bin/sh\necho $0 $# \"$2\" $OF_BUNDLE; exit 5\n")
			if rec.WaitStatus != 5<<8 || !strings.HasSuffix(out, "/tmp/slurm/startup 2 two three bundle\n") {
				t.Errorf("record %v, output %q", rec, out)
			}
			if b, err := os.ReadFile(b.TaskEpilog + ".ran"); err != nil || len(b) < 2 {
				t.Errorf("TaskEpilog: %q, %v", b, err)
			}
		})
	}
}

// writeProgram writes a shell script that every user may execute, and write beside.
func writeProgram(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(userFolder(t), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestBundleDevices: what the step has of the node's devices is there, and nothing else.
func TestBundleDevices(t *testing.T) {
	if !containertest.Inside(t) {
		return
	}
	dir, err := os.MkdirTemp("/dev", "sluice-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gpu0", "gpu1"} {
		path := filepath.Join(dir, name)
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))); err != nil { // as /dev/zero
			t.Skip("the test makes device files: ", err)
		}
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	b := inBundle(t, 1, withRun(), nil)
	b.Container.Devices = []*pb.ContainerDevice{{Id: "x", Files: []string{filepath.Join(dir, "gpu1"), "/etc/passwd"}}}
	s := beginStep(t, b, shell("ls "+dir+"; head -c 2 "+dir+"/gpu1; ls /etc/passwd"))
	rec := s.end()
	s.Await("the last word", func() bool { return s.Ended != nil })
	if got := s.Text("out 0"); got != "gpu1\n\x00\x00" || rec.WaitStatus != 1<<8 {
		t.Errorf("record %v, said %q %q", rec, got, s.Text("err 0"))
	}
}

// TestBundleIsAdapted: what an administrator or another user has made runs as its user, with what the keys of oci.conf say.
func TestBundleIsAdapted(t *testing.T) {
	if !containertest.Inside(t) {
		return
	}
	o := withRun()
	o.DisableHooks, o.EnvFile, o.MountSpoolDir = []string{"prestart", "poststop"}, "newline", "/tmp/spool"
	o.Run = "FROM_SHELL=1 " + o.Run + " <&0 ; exit $?" // the shell has something to do
	o.RuntimeEnvExclude = "^OF_JOB="
	b := inBundle(t, 1, o, func(c map[string]any) {
		linux := c["linux"].(map[string]any)
		linux["namespaces"] = append(linux["namespaces"].([]any), map[string]any{"type": "user"})
		other := []any{map[string]any{"containerID": 0, "hostID": 4711, "size": 1}}
		linux["uidMappings"], linux["gidMappings"] = other, other
		c["process"].(map[string]any)["user"].(map[string]any)["additionalGids"] = []int{5}
		c["hooks"] = map[string]any{"prestart": []any{map[string]any{"path": "/nonexistent"}}}
		c["mounts"] = append(c["mounts"].([]any), map[string]any{"destination": "/tmp/own", "type": "bind", "source": "rootfs/bin",
			"options": []string{"bind", "ro"}})
		delete(c["process"].(map[string]any), "cwd")
	})
	w := shell("pwd; id -u; head -n 100 /tmp/spool/task-0/environment; ls /tmp/own")
	w.Env = append(w.Env, "TWO=a\nb")
	s := beginStep(t, b, w)
	rec := s.end()
	s.Await("the last word", func() bool { return s.Ended != nil })
	got := s.Text("out 0")
	if rec.WaitStatus != 0 || !strings.HasPrefix(got, "/\n0\n") || !strings.Contains(got, "\nOF_JOB=job\n") ||
		!strings.Contains(got, "\nPWD=/\n") || strings.Contains(got, "TWO=") || !strings.Contains(got, "\nbusybox\n") {
		t.Errorf("record %v, said %q %q", rec, got, s.Text("err 0"))
	}
}

// TestBundleWithoutConfig: with IgnoreFileConfigJson the runtime is told everything by its arguments.
func TestBundleWithoutConfig(t *testing.T) {
	if !containertest.Inside(t) {
		return
	}
	b := inBundle(t, 1, nil, nil)
	if err := os.Remove(filepath.Join(b.Container.Bundle, "config.json")); err != nil {
		t.Fatal(err)
	}
	b.Container.Runtime = &pb.OciRuntime{IgnoreConfig: true, Run: "unshare --user --root=%r -- %@"}
	w := shell("exit 3")
	w.Programs[0].Argv = []string{"/bin/echo", "it's", "$HOME", "a  b"}
	s := beginStep(t, b, w)
	rec := s.end()
	s.Await("the last word", func() bool { return s.Ended != nil })
	if got := s.Text("out 0"); rec.WaitStatus != 0 || got != "it's $HOME a  b\n" {
		t.Errorf("record %v, said %q %q", rec, got, s.Text("err 0"))
	}
}
