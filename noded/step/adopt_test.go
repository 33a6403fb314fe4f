package step_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/noded/cgroup"
	"github.com/sluice-hpc/sluice/noded/step"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// session starts what is to be adopted, and waits until it says something.
func session(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	out, err := cmd.StdoutPipe()
	must(t, err)
	_, err = cmd.StdinPipe() // which says nothing, and ends when nobody waits for the session any more
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatalf("%s says nothing: %v", script, err)
	}
	return cmd
}

// awaitWork waits until a process has used more of its CPU than it has now: some clock ticks, which is how finely user time is counted.
// Nothing tells when that is, so it is asked.
func awaitWork(t *testing.T, pid int) {
	t.Helper()
	ticks := func() int {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		must(t, err)
		_, fields, _ := strings.Cut(string(text), ") ") // from the third one on; user time is the fourteenth
		n, err := strconv.Atoi(strings.Fields(fields)[11])
		must(t, err)
		return n
	}
	deadline := time.Now().Add(patience)
	for before := ticks(); ticks() <= before+3; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d does not work", pid)
		}
	}
}

// TestSessionsEndWithTheirAllocation: they are told to end, also when the script ends by itself, and killed when they do not; no other end
// waits for them.
func TestSessionsEndWithTheirAllocation(t *testing.T) {
	for _, plugin := range []string{"", cgroup.PluginV1} {
		t.Run("plugin "+plugin, func(t *testing.T) {
			n := newNodeWith(t, plugin)
			if n.r.Layout() == cgroup.Tree {
				t.Skip("needs a writable cgroup hierarchy")
			}
			end := filepath.Join(n.work, "end")
			for _, batch := range []string{"", "sleep 600", "until [ -e " + end + " ]; do sleep 0.01; done"} {
				holder, _ := n.allocation(1, batch)
				hangsUp := session(t, "echo; exec sleep 600")
				stays := session(t, "trap '' TERM HUP; echo; read line") // without a child, which would have begun before it is adopted
				works := session(t, "echo; while :; do :; done")
				for _, s := range []*exec.Cmd{hangsUp, stays, works} {
					must(t, n.r.Adopt(t.Context(), holder.Key, s.Process.Pid))
				}
				awaitWork(t, works.Process.Pid)
				n.order(&pb.StepOrder{Key: holder.Key, Want: pb.StepWant_WANT_RUN, Suspended: true})
				if err := n.r.Adopt(t.Context(), holder.Key, hangsUp.Process.Pid); !errors.Is(err, step.ErrSuspended) {
					t.Errorf("a suspended job adopts: %v", err)
				}
				n.order(&pb.StepOrder{Key: holder.Key, Want: pb.StepWant_WANT_RUN})
				if strings.HasPrefix(batch, "until") {
					must(t, os.WriteFile(end, nil, 0o644))
				} else {
					n.order(&pb.StepOrder{Key: holder.Key, Want: pb.StepWant_WANT_STOP})
				}
				for s, sig := range map[*exec.Cmd]unix.Signal{hangsUp: unix.SIGTERM, stays: unix.SIGKILL, works: unix.SIGTERM} {
					_ = s.Wait()
					if ws := s.ProcessState.Sys().(interface{ Signal() unix.Signal }); ws.Signal() != sig {
						t.Errorf("batch %q: a session ended with %v, want %v", batch, s.ProcessState, sig)
					}
				}
				rec := n.ended(holder.Key)
				if batch == "" && n.r.Layout() != cgroup.Legacy && rec.GetUsage().GetCpuUsecUser() == 0 {
					t.Errorf("what sessions have used is not in the record: %v", rec)
				}
				if err := n.r.Adopt(t.Context(), holder.Key, 1); !errors.Is(err, step.ErrEnding) {
					t.Errorf("a job that has ended adopts: %v", err)
				}
				must(t, n.r.Forget(holder.Key))
			}
		})
	}
}
