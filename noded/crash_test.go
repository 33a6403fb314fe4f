package noded

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/noded/agent"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

var (
	kills = flag.Int("kills", 10, "times that the daemon is killed under running jobs")
	seed  = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the times at which it is killed")
)

// witnessed is a job that tells an outside witness when it starts and when it ends.
func (n *realNode) witnessed(id uint32, middle string) agent.Key {
	w := filepath.Join(n.work, fmt.Sprintf("witness-%d", id))
	return n.submit(id, fmt.Sprintf("echo start $$ >> %s; %s; echo end $$ >> %s; exit %d", w, middle, w, id%100),
		func(l *pb.LaunchSpec) { l.Spec.StdOut = "none" })
}

// ranOnce compares the witness with what the controller recorded.
func (n *realNode) ranOnce(k agent.Key) {
	n.t.Helper()
	x := n.c.end(k)
	if x.Verdict != "exited" || x.WaitStatus != k.Job%100<<8 {
		n.t.Errorf("%v: recorded as %v", k, x)
	}
	f := strings.Fields(readFile(n.t, filepath.Join(n.work, fmt.Sprintf("witness-%d", k.Job))))
	if len(f) != 4 || f[0] != "start" || f[2] != "end" || f[1] != f[3] {
		n.t.Errorf("%v: the witness saw %q", k, f)
	}
}

// noneForgotten restarts the daemon and waits until the spool holds no step.
func (n *realNode) noneForgotten() {
	n.t.Helper()
	n.kill(syscall.SIGTERM)
	n.start()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		left, err := os.ReadDir(filepath.Join(n.o.Spool, "steps"))
		must(n.t, err)
		left = slices.DeleteFunc(left, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), ".free-") }) // emptied, for the next
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("the spool still holds %v", left)
		}
	}
}

func TestDaemonKilledAtEveryPlace(t *testing.T) {
	n := newRealNode(t)
	n.c.settings.Prolog = script(t, "true")
	n.c.settings.Epilog = script(t, "echo epilog $SLURM_JOB_ID >> "+n.work+"/epilogs")
	id := uint32(0)
	for _, place := range []string{"noded.launch", "noded.launched", "noded.report", "noded.forget"} {
		for _, count := range []int{1, 3} {
			t.Setenv("SLUICE_FAILPOINT", fmt.Sprint(place, ":", count))
			n.start()
			var keys []agent.Key
			for range 4 {
				id++
				keys = append(keys, n.witnessed(id, "true"))
			}
			if err := n.cmd.Wait(); n.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("%s:%d was not reached: %v", place, count, err)
			}
			os.Unsetenv("SLUICE_FAILPOINT")
			n.start()
			for _, k := range keys {
				n.ranOnce(k)
			}
			n.kill(syscall.SIGTERM)
		}
	}
	n.start()
	n.noneForgotten()
	for i := range id {
		if got := strings.Count(readFile(t, n.work+"/epilogs"), fmt.Sprintf("epilog %d\n", i+1)); got < 1 {
			t.Errorf("the epilog of job %d ran %d times", i+1, got)
		}
	}
}

func TestDaemonKilledAgainAndAgain(t *testing.T) {
	n := newRealNode(t)
	t.Logf("-seed=%d", *seed)
	rnd := rand.New(rand.NewPCG(*seed, 1))
	n.start()
	id := uint32(0)
	var keys []agent.Key
	for range *kills {
		for range 4 {
			id++
			keys = append(keys, n.witnessed(id, fmt.Sprintf("sleep 0.%02d", rnd.IntN(30))))
		}
		n.c.end(keys[rnd.IntN(len(keys))])
		n.kill(syscall.SIGKILL)
		n.start()
	}
	for _, k := range keys {
		n.ranOnce(k)
	}
	n.noneForgotten()
}
