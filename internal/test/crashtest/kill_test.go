package crashtest

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/internal/test/daemontest"
)

// crowdOf8 is eight submitters of all kinds.
var crowdOf8 = []submitter{persistent, persistent, persistent, careless, careless, viaSbatch, viaSbatch, viaSbatch}

// ticketsPerLife is how many jobs are submitted in one life of the daemon that is killed, at most.
const ticketsPerLife = 16

// life is how long a daemon is left alone before it is killed: mostly long enough to do some work, sometimes not even to start.
func (c *cluster) life() time.Duration {
	return time.Duration(5+c.rng.IntN(200)) * time.Millisecond
}

func progress(t *testing.T, what string, i, n int, since time.Time) {
	if step := max(n/5, 1); (i+1)%step == 0 {
		fmt.Printf("%s: %d of %d %s after %.1f s\n", t.Name(), i+1, n, what, time.Since(since).Seconds())
	}
}

// TestControllerKilled kills the controller at any moment under eight submitters.
func TestControllerKilled(t *testing.T) {
	c := newCluster(t, 2)
	c.start()
	l := newLedger(c)
	give, done := l.crowd(crowdOf8...)
	since := time.Now()
	for i := range *kills {
		give(ticketsPerLife)
		c.ctld.Wait(c.life()) // a timer; that it ends by itself is an error
		if c.ctld.Ended() {
			t.Fatalf("the controller has ended by itself: %v\n%s", c.ctld.Cmd.ProcessState, c.ctld.Tail(20))
		}
		c.ctld.kill()
		c.launchCtld()
		progress(t, "kills", i, *kills, since)
	}
	done()
	l.check()
}

// TestNodeDaemonsKilled kills node daemons, or the half of one that talks to the controller, under running jobs: no job notices, no launch
// is lost or done twice.
func TestNodeDaemonsKilled(t *testing.T) {
	c := newCluster(t, 2)
	c.start()
	var long []string
	var ids []uint32
	for i := range 4 {
		w := c.witness(fmt.Sprint("long", i))
		long = append(long, w)
		ids = append(ids, c.submit(gatedJob, func(s *msg.JobSpec) { s.Name = "long" }, w, "5"))
	}
	for _, w := range long {
		c.started(w)
	}
	l := newLedger(c)
	give, done := l.crowd(persistent, persistent, viaSbatch)
	since, links := time.Now(), 0
	for i := range *kills {
		give(ticketsPerLife)
		n := c.nodes[c.rng.IntN(len(c.nodes))]
		d := c.noded[n]
		if d.Wait(c.life()) {
			t.Fatalf("the node daemon has ended by itself: %v\n%s", d.Cmd.ProcessState, d.Tail(20))
		}
		if c.rng.IntN(2) == 0 && d.killLink() {
			links++
		} else {
			d.kill()
			c.startNoded(n)
		}
		progress(t, "kills", i, *kills, since)
	}
	done()
	fmt.Printf("%s: %d of the kills were of noded-link\n", t.Name(), links)
	for _, w := range long {
		open(c, w)
	}
	l.check()
	for i, w := range long {
		seen, err := readWitness(w)
		must(t, err)
		if err := ranOnce(seen); err != nil {
			t.Errorf("a job that ran all the time noticed: %v", err)
		}
		if j := c.wait(ids[i]); j.State != msg.JobState_JOB_FAILED || j.ExitStatus != 5<<8 || j.Attempt != 1 {
			t.Errorf("job %d: %v, exit status %#x, attempt %d", ids[i], j.State, j.ExitStatus, j.Attempt)
		}
	}
}

// TestEverythingKilled kills all daemons of the cluster, in any order, also before they have started well.
func TestEverythingKilled(t *testing.T) {
	c := newCluster(t, 2)
	c.start()
	l := newLedger(c)
	give, done := l.crowd(crowdOf8...)
	since := time.Now()
	n := max(*kills/2, 2)
	for i := range n {
		give(ticketsPerLife)
		c.ctld.Wait(c.life())
		victims := c.rng.Perm(len(c.nodes) + 1)[:1+c.rng.IntN(len(c.nodes)+1)]
		for _, v := range victims {
			if v == len(c.nodes) {
				c.ctld.kill()
				c.launchCtld()
				continue
			}
			if c.rng.IntN(3) == 0 && c.noded[c.nodes[v]].killLink() {
				continue
			}
			c.noded[c.nodes[v]].kill()
			c.startNoded(c.nodes[v])
		}
		progress(t, "rounds", i, n, since)
	}
	done()
	l.check()
}

// died waits for the daemon to reach its failpoint.
func (c *cluster) died(d *daemon, point string) {
	c.t.Helper()
	if !d.Wait(patience) {
		c.t.Fatalf("%s does not come to %s\n%s", d.Name, point, c.stands())
	}
	if ws, ok := d.Cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		c.t.Fatalf("%s should end at %s by SIGKILL, it ended by %v\n%s", d.Name, point, d.Cmd.ProcessState, d.Tail(20))
	}
}

// TestFailpointsOfController ends the controller before and after the n-th commit and the n-th message to a node.
func TestFailpointsOfController(t *testing.T) {
	c := newCluster(t, 2)
	c.start()
	l := newLedger(c)
	for _, point := range []string{"commit.before", "commit.redo", "commit.after", "send.before", "send.after"} {
		for _, n := range rounds(1, 2, 3, 5, 8) {
			c.ctld.kill()
			d := c.launchCtld(fmt.Sprintf("SLUICE_FAILPOINT=%s:%d", point, n))
			give, done := l.crowd(persistent, persistent, viaSbatch)
			give(12)
			c.died(d, fmt.Sprintf("%s:%d", point, n))
			c.startCtld()
			done()
		}
		fmt.Printf("%s: %s\n", t.Name(), point)
	}
	l.check()
}

// TestFailpointsOfNodeDaemon ends a node daemon around a launch, a report and the last cleaning up.
func TestFailpointsOfNodeDaemon(t *testing.T) {
	c := newCluster(t, 1)
	c.start()
	l := newLedger(c)
	for _, point := range nodeFailpoints {
		for _, n := range rounds(1, 2, 5) {
			c.noded["n1"].kill()
			killed := c.noded["n1"].linksKilled()
			d := c.startNoded("n1", fmt.Sprintf("SLUICE_FAILPOINT=%s:%d", point, n))
			give, done := l.crowd(persistent, viaSbatch)
			give(8)
			if rootFailpoints[point] {
				c.died(d, fmt.Sprintf("%s:%d", point, n))
				c.startNoded("n1")
			} else {
				c.await("noded-link is killed at "+point, func() bool { return d.linksKilled() > killed })
			}
			done()
		}
		fmt.Printf("%s: %s\n", t.Name(), point)
	}
	l.check()
}

// rootFailpoints are in noded-root; at the others noded-link ends, and noded-root starts another one.
var rootFailpoints = map[string]bool{"noded.written": true, "noded.offered": true}

var nodeFailpoints = []string{"noded.launch", "noded.written", "noded.offered", "noded.launched", "noded.report", "noded.forget"}

// killLink is kill -9 of a daemon's noded-link; false: there is none at the moment.
func (d *daemon) killLink() bool {
	for _, pid := range daemontest.AllProcesses() {
		if p, line := parentOf(pid), daemontest.CommandLine(pid); p == d.Cmd.Process.Pid && strings.HasPrefix(line, "sluice-noded link ") {
			return syscall.Kill(pid, syscall.SIGKILL) == nil
		}
	}
	return false
}

// parentOf is 0 for a process that is not there.
func parentOf(pid int) (ppid int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	var state string
	_, _ = fmt.Sscan(string(text[bytes.LastIndexByte(text, 0x29)+1:]), &state, &ppid)
	return ppid
}

// linksKilled counts how often a noded-link has ended by SIGKILL, by the log of all daemons of this name so far.
func (d *daemon) linksKilled() int {
	text, _ := os.ReadFile(d.Log)
	n := 0
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "noded-link") && strings.Contains(line, "signal: killed") {
			n++
		}
	}
	return n
}
