package stepd

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/noded/container"
	"github.com/sluice-hpc/sluice/noded/container/containertest"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// inImage is a step of n tasks in a container of an image that the test makes.
func inImage(t *testing.T, n int, spec *pb.ContainerSpec) *pb.Bundle {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the test runs a container as another user, which only root can")
	}
	if spec.Image == "" {
		path := filepath.Join(userFolder(t), "image.tar")
		if err := containertest.Archive(path, "OF_IMAGE=image", "BOTH=image", "KEPT=image", "SLURM_JOB_ID=image"); err != nil {
			t.Fatal(err)
		}
		spec.Image = "oci-archive:" + path
	}
	t.Cleanup(containertest.Tidy)
	b := stepBundle(n)
	b.Container = &pb.StepContainer{Spec: spec}
	return b
}

// userFolder is one that every user can reach, unlike t.TempDir.
func userFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "sluice-image-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func shell(script string) *pb.StepWork {
	w := stepWork("sh", "-c", script)
	w.Env = append(w.Env, "BOTH=job", "KEPT=job", "OF_JOB=job", "HOME=/nowhere")
	return w
}

// TestContainerIsWhereTasksRun: what is a task's outside of a container is its own in one: number, standard files, cgroup, exit code.
func TestContainerIsWhereTasksRun(t *testing.T) {
	if !containertest.Inside(t) {
		return
	}
	b := inImage(t, 2, &pb.ContainerSpec{Env: []string{"KEPT"}})
	s := beginStep(t, b, shell(`echo $OF_IMAGE $BOTH $KEPT $OF_JOB $SLURM_JOB_ID $(pwd) $HOME $(id -u) $(id -g)
		[ $SLURM_TASK_PID = $$ ] && [ -d /proc/$PPID ] || echo it is not the task >&2
		readlink /proc/$$/ns/mnt; echo >/work/mine && echo >/tmp/mine; cat /proc/self/cgroup >&2; exit $((3 * SLURM_PROCID))`))
	rec := s.end()
	s.Await("the last word", func() bool { return s.Ended != nil })
	if rec.Verdict != "exited" || rec.WaitStatus != 3<<8 || len(s.Said) > 0 {
		t.Errorf("record %v, said %q", rec, s.Said)
	}
	want := fmt.Sprintf("image image job job 7 /work /nowhere %d %d\n", b.Uid, b.Gid)
	first, second := s.Text("out 0"), s.Text("out 1")
	if !strings.HasPrefix(first, want+"mnt:[") || second != first {
		t.Errorf("tasks said %q and %q, want %q and the same mount namespace", first, second, want)
	}
	own, _ := os.Readlink("/proc/self/ns/mnt")
	if strings.Contains(first, own) {
		t.Errorf("the tasks are in the mount namespace of the node: %s", first)
	}
	if text := s.Text("err 0"); !strings.Contains(text, "/job_7.1") || strings.Contains(text, "it is not the task") {
		t.Errorf("the cgroup, or what is wrong: %q", text)
	}
	for i := range uint32(2) {
		if x := s.Exits[i]; x == nil || x.WaitStatus != 3*i<<8 {
			t.Errorf("task %d: %v", i, x)
		}
	}
	awaitNobody(t, b.Uid)
	spool := s.base
	if left, _ := filepath.Glob("/dev/shm/libpod*" + fmt.Sprint(b.Uid)); len(left) > 0 {
		t.Errorf("left in memory: %v", left)
	}
	if _, err := os.Stat(filepath.Join(spool, container.Folder, folder.OfContainer(b.Key))); err != nil {
		t.Errorf("the folder of the container, which stays until the step is forgotten: %v", err)
	}
}

// awaitNobody fails when processes of a user are left: those of Podman are none of the tasks'.
func awaitNobody(t *testing.T, uid uint32) {
	t.Helper()
	left := ""
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		left = ""
		all, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range all {
			var st unix.Stat_t
			if unix.Stat(dir, &st) == nil && st.Uid == uid {
				name, _ := os.ReadFile(dir + "/cmdline")
				left += dir + " " + string(bytes.ReplaceAll(name, []byte{0}, []byte{' '})) + "\n"
			}
		}
		if left == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("processes are left:\n%s", left)
		}
	}
}

// TestContainerSignals: standard input and signals reach the program itself, and a signal that ends it is told as one.
func TestContainerSignals(t *testing.T) {
	if !containertest.Inside(t) {
		return
	}
	s := beginStep(t, inImage(t, 1, &pb.ContainerSpec{RemapRoot: true, ReadOnly: true, Workdir: "/tmp"}),
		shell(`trap "echo caught; exec sleep 1000" USR1; cat; pwd; id -u; (echo >/x) || echo is read-only; while :; do sleep 0.1; done`))
	s.Send(stepwire.In, stepwire.All, []byte("from srun\n"))
	s.Send(stepwire.In, stepwire.All, nil)
	s.Await("that it waits", func() bool { return strings.Contains(text(s, "out 0"), "is read-only\n") })
	s.SendMessage(stepwire.Signal, &pb.StepSignal{Signal: uint32(unix.SIGUSR1)})
	s.Await("the signal", func() bool { return strings.Contains(text(s, "out 0"), "caught\n") })
	s.SendMessage(stepwire.Signal, &pb.StepSignal{Signal: uint32(unix.SIGTERM)})
	rec := s.end()
	if rec.WaitStatus != uint32(unix.SIGTERM) {
		t.Errorf("record %v, want the signal %d", rec, unix.SIGTERM)
	}
	if got := s.Text("out 0"); got != "from srun\n/tmp\n0\nis read-only\ncaught\n" {
		t.Errorf("said %q", got)
	}
}

// text is what a task has written so far; within Await.
func text(s *aStep, stream string) string {
	if s.Out[stream] == nil {
		return ""
	}
	return s.Out[stream].String()
}

// TestContainerThatCannotBe: the reason is told, and nothing is left.
func TestContainerThatCannotBe(t *testing.T) {
	if !containertest.Inside(t) {
		return
	}
	for name, c := range map[string]struct {
		spec *pb.ContainerSpec
		argv string
		want string // of the failed launch; empty: the task's own end
		code uint32
	}{
		"no image": {&pb.ContainerSpec{Image: "oci-archive:/nonexistent.tar"}, "true",
			"cannot pull the image oci-archive:/nonexistent.tar", 1},
		"no name":    {&pb.ContainerSpec{Image: " ", Name: "none"}, "true", "--container-image= ", 1},
		"no source":  {&pb.ContainerSpec{Mounts: []string{"/nonexistent:/x"}}, "true", "--container-mounts=/nonexistent:/x: ", 1},
		"no program": {&pb.ContainerSpec{}, "nosuch", "", 2},
		"no workdir": {&pb.ContainerSpec{Workdir: "/nonexistent"}, "true", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := inImage(t, 1, c.spec)
			s := beginStep(t, b, stepWork(c.argv))
			rec := s.end()
			s.Await("the last word", func() bool { return s.Ended != nil })
			if rec.WaitStatus != c.code<<8 {
				t.Errorf("record %v, want the exit code %d", rec, c.code)
			}
			failed := ""
			if s.Failed != nil {
				failed = s.Failed.Detail
			}
			if !strings.Contains(failed, c.want) || (failed == "") != (c.want == "") {
				t.Errorf("failed: %q, want %q", failed, c.want)
			}
			if text := s.Text("err 0"); c.want == "" && !strings.Contains(text, c.argv) && !strings.Contains(text, c.spec.Workdir) {
				t.Errorf("standard error: %q", text)
			}
			awaitNobody(t, b.Uid)
		})
	}
}

// TestContainerStopped: a step can be ended while its image is pulled, and its time limit does not count until it is there.
func TestContainerStopped(t *testing.T) {
	if !containertest.Inside(t) {
		return
	}
	fifo := filepath.Join(userFolder(t), "image.tar") // which nobody ever writes
	if err := unix.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	b := inImage(t, 1, &pb.ContainerSpec{Image: "oci-archive:" + fifo})
	b.LimitS, b.KillWaitS, b.BegunBootNs = 1, 600, 1 // when the machine was started
	s := beginStep(t, b, stepWork("true"))
	w, err := -1, error(nil)
	for { // until Podman reads it
		if w, err = unix.Open(fifo, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != unix.ENXIO {
			break
		}
		select {
		case <-s.r.ended:
			t.Fatalf("the step has ended: %v", s.r.board.get())
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(w)
	s.order(&pb.StepOrder{Want: pb.StepWant_WANT_STOP, StopReason: "cancel"})
	rec := s.end()
	if rec.Verdict != "cancelled" || syscall.WaitStatus(rec.WaitStatus).Exited() {
		t.Errorf("record %v", rec)
	}
	awaitNobody(t, b.Uid)
}
