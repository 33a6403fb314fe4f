package hosttest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/internal/test/hosttest"
)

// gated is a job that testifies in the file $1: a line when it starts, and one when it ends, which is when $1.go is there.
const gated = `#!/bin/sh
say() { echo "$SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0} $(cat /proc/sys/kernel/hostname) $1" >>"$w"; }
w=$1
say start
while [ ! -e "$w.go" ]; do sleep 0.1; done
say end
`

// witness is a job and what it has testified.
type witness struct {
	c    *cluster
	path string
	job  uint32
}

// gate submits a job that waits to be let go on.
func (c *cluster) gate(name string, args ...string) *witness {
	c.t.Helper()
	script := filepath.Join(c.dir, "gated.sh")
	must(c.t, os.WriteFile(script, []byte(gated), 0o755))
	w := &witness{c: c, path: filepath.Join(c.dir, name)}
	w.job = c.submit(append(append(args, script), w.path)...)
	return w
}

// seen are the lines so far: restarts, host, what.
func (w *witness) seen() (all [][3]string) {
	text, err := os.ReadFile(w.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.c.t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		if f := strings.Fields(line); len(f) == 4 {
			all = append(all, [3]string(f[1:]))
		}
	}
	return all
}

// says waits for a line.
func (w *witness) says(line [3]string) {
	w.c.t.Helper()
	w.c.await(fmt.Sprintf("%v of job %d", line, w.job), func() bool { return count(w.seen(), line) > 0 })
}

// open lets the job end.
func (w *witness) open() { must(w.c.t, os.WriteFile(w.path+".go", nil, 0o644)) }

func count(all [][3]string, line [3]string) (n int) {
	for _, l := range all {
		if l == line {
			n++
		}
	}
	return n
}

// once: the job has completed, and has run exactly once, on that host.
func (w *witness) once(host string) {
	w.c.t.Helper()
	j := w.c.wait(w.job)
	seen := w.seen()
	if j.State != msg.JobState_JOB_COMPLETED || j.Restarts != 0 || len(seen) != 2 || seen[0] != [3]string{"0", host, "start"} ||
		seen[1] != [3]string{"0", host, "end"} {
		w.c.t.Errorf("job %d is %v (%s) after %d restarts, and its witness says %v; want one whole run on %s", w.job, j.State,
			j.ReasonDetail, j.Restarts, seen, host)
	}
}

// TestCables cuts the cable of each compute host in another way: in both directions, from the host, and to it. First for less than
// anybody notices, then until the controller has given up all streams, then for longer than SlurmdTimeout. The times are not waited for:
// what makes a cut a long one is what the daemons have concluded, and that is waited for.
func TestCables(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	cut := func() {
		c.compute[0].Cable.Cut(hosttest.FromHost, hosttest.ToHost)
		c.compute[1].Cable.Cut(hosttest.FromHost)
		c.compute[2].Cable.Cut(hosttest.ToHost)
	}
	repair := func(hosts ...*hosttest.Host) {
		for _, h := range hosts {
			h.Cable.Repair()
		}
	}
	// gates are a job on each compute host, which runs.
	gates := func(name string) (all []*witness) {
		for _, h := range c.compute {
			all = append(all, c.gate(name+h.Name, "-w", h.Name))
		}
		for i, w := range all {
			w.says([3]string{"0", c.compute[i].Name, "start"})
		}
		return all
	}
	// apart lets jobs end while nobody can say so, and submits others, which cannot start.
	apart := func(name string, running []*witness) (waiting []*witness) {
		for i, h := range c.compute {
			waiting = append(waiting, c.gate(name+h.Name, "-w", h.Name))
			waiting[i].open()
			running[i].open()
			running[i].says([3]string{"0", h.Name, "end"})
		}
		return waiting
	}
	c.wait(c.submit("--wrap", "true")) // has what is opened for the first job opened
	bare := c.footprint()

	running := gates("short.")
	cut()
	waiting := apart("short2.", running)
	for i, h := range c.compute {
		if seen := waiting[i].seen(); len(seen) > 0 && h.Cable.Lost(hosttest.ToHost) > 0 {
			t.Errorf("the order to start job %d has passed through a cut cable: %v", waiting[i].job, seen)
		}
	}
	repair(c.compute...)
	for i, h := range c.compute {
		running[i].once(h.Name)
		waiting[i].once(h.Name)
	}

	running = gates("long.")
	kept := c.gate("kept", "-w", "c3", "--no-requeue")
	kept.says([3]string{"0", "c3", "start"})
	cut()
	waiting = apart("long2.", running)
	c.linked(0)
	for i, h := range c.compute {
		if h.Cable.Lost(hosttest.FromHost)+h.Cable.Lost(hosttest.ToHost) == 0 {
			t.Errorf("the cable of %s was cut, and nothing has met that", h.Name)
		}
		if seen := waiting[i].seen(); i != 1 && len(seen) > 0 {
			t.Errorf("job %d cannot have been started: %v", waiting[i].job, seen)
		}
	}
	repair(c.compute[:2]...)
	c.linked(2)
	for i, h := range c.compute[:2] {
		running[i].once(h.Name)
		waiting[i].once(h.Name)
	}
	c.down(kept)
	repair(c.compute[2])
	c.linked(3)
	// The run that the controller has given up has ended on its host, whatever became of the job: there is no other.
	for _, w := range []*witness{running[2], waiting[2]} {
		// A job that its node has lost waits for two minutes, as in Slurm, unless its user is in a hurry.
		c.ctl.Run("alice", nil, "scontrol", "update", fmt.Sprint("JobId=", w.job), "StartTime=now")
		if j := c.wait(w.job); j.State != msg.JobState_JOB_COMPLETED {
			t.Errorf("job %d is %v: %s", w.job, j.State, j.ReasonDetail)
		}
		if n := count(w.seen(), [3]string{"0", "c3", "start"}); n > 1 {
			t.Errorf("job %d has started %d times on c3: %v", w.job, n, w.seen())
		}
	}
	c.noMoreThan(bare)
}

// down has the controller declare c3, whose cable is cut, DOWN: SlurmdTimeout becomes short now, when the other nodes are linked. What
// runs there is lost when it must not be started again.
func (c *cluster) down(kept *witness) {
	t := c.t
	t.Helper()
	again := c.gate("again", "--requeue", "-w", "c3")
	c.configure(3)
	c.ok(c.ctl.Run("", nil, "scontrol", "reconfigure"))
	c.await("c3 is DOWN", func() bool { return c.nodes()["c3"].State == msg.NodeState_NODE_DOWN })
	c.configure(never)
	c.ok(c.ctl.Run("", nil, "scontrol", "reconfigure"))
	if j := c.wait(kept.job); j.State != msg.JobState_JOB_NODE_FAIL {
		t.Errorf("the job on the node that is DOWN is %v", j.State)
	}
	if len(again.seen()) != 0 {
		t.Errorf("a job has started on a host whose cable is cut: %v", again.seen())
	}
	again.open()
	t.Cleanup(func() {
		if seen := kept.seen(); len(seen) != 1 {
			t.Errorf("the job that was lost with its node says %v: it has been killed when the node was back", seen)
		}
	})
}

// footprint is what the controller holds open for nodes and commands.
type footprint struct{ conns, files int }

func (c *cluster) footprint() (f footprint) {
	c.t.Helper()
	pid := c.ctld.PID()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	must(c.t, err)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", pid))
	must(c.t, err)
	for _, line := range strings.Split(string(text), "\n") {
		if f2 := strings.Fields(line); len(f2) > 3 && f2[3] != "0A" && f2[3] != "06" { // neither listening nor TIME_WAIT
			f.conns++
		}
	}
	f.files = len(fds)
	return f
}

// noMoreThan waits until the controller holds no more open than it did, and then has it say what its goroutines do, of which it dies.
func (c *cluster) noMoreThan(bare footprint) {
	c.t.Helper()
	var now footprint
	c.await(fmt.Sprintf("the controller holds no more than %+v", bare), func() bool {
		now = c.footprint()
		return now.conns <= bare.conns && now.files <= bare.files+2 // of a backup, say
	})
	for range 2 { // what was closed meanwhile has had its turn
		c.wait(c.submit("--wrap", "true"))
	}
	c.ctld.Signal(syscall.SIGQUIT)
	if !c.ctld.Wait(hosttest.Patience) {
		c.t.Fatal("the controller survives SIGQUIT")
	}
	streams := strings.Count(c.ctld.Text(), "rpc.(*NodeServer).Sync(") // less those that are running just now, which show no frames
	if streams == 0 || streams > len(c.compute) {
		c.t.Errorf("the controller serves %d streams of nodes, want %d", streams, len(c.compute))
	}
	if n := strings.Count(c.ctld.Text(), "rpc.(*RelayServer).Call("); n > 0 {
		c.t.Errorf("the controller serves %d connections of relays, want none", n)
	}
}

// TestLossyCables: every cable loses a part of the packets and is slow; jobs come and end meanwhile, and the daemons are started again.
func TestLossyCables(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	hosts := append([]*hosttest.Host{c.ctl}, c.compute...)
	for _, h := range hosts {
		h.Cable.Set(hosttest.Line{Loss: 0.05, Delay: 10e6}, hosttest.FromHost, hosttest.ToHost)
	}
	var all []*witness
	for i := range 12 {
		w := c.gate(fmt.Sprint("w", i), "-w", c.compute[i%2].Name)
		if i%3 > 0 {
			w.open()
		}
		all = append(all, w)
	}
	d := c.noded["c1"]
	if d.Signal(syscall.SIGTERM); !d.Wait(hosttest.Patience) {
		t.Fatal("the node daemon does not end")
	}
	c.startNoded(c.compute[0])
	for i, w := range all {
		w.open()
		w.once(c.compute[i%2].Name)
	}
	lost := 0
	for _, h := range hosts {
		lost += h.Cable.Lost(hosttest.FromHost) + h.Cable.Lost(hosttest.ToHost)
	}
	if t.Logf("%d packets were lost", lost); lost == 0 {
		t.Error("no packet was lost: this has shown nothing")
	}
	// What cannot be lost is not left to chance: a host that is switched off and on is another boot, and what ran is gone.
	for _, h := range hosts {
		h.Cable.Repair()
	}
	gone := c.gate("gone", "-w", "c2", "--no-requeue")
	gone.says([3]string{"0", "c2", "start"})
	c.compute[1].PowerOff()
	c.compute[1].PowerOn()
	c.startNoded(c.compute[1])
	if j := c.wait(gone.job); j.State != msg.JobState_JOB_NODE_FAIL {
		t.Errorf("the job whose host was switched off is %v", j.State)
	}
	if seen := gone.seen(); len(seen) != 1 {
		t.Errorf("its witness says %v", seen)
	}
	c.wait(c.submit("-w", "c2", "--wrap", "true"))
}
