package crashtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/internal/test/daemontest"
	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/client/msg"
)

// end is how a job ends.
type end struct {
	script string
	change func(*msg.JobSpec)
	state  msg.JobState
	status uint32
	lines  int // of the witness, at most: a job that is killed does not say end, and one that ends at once may not even say start
}

// TestEndsWhileNodeDaemonIsDown: jobs end in every way while there is nobody to tell; afterwards the truth is known.
func TestEndsWhileNodeDaemonIsDown(t *testing.T) {
	c := newCluster(t, 1)
	c.start()
	killed := witnessed + `while [ ! -e "$w.go" ]; do sleep 0.05; done; kill -9 $$`
	cases := []end{
		{gatedJob, nil, msg.JobState_JOB_COMPLETED, 0, 2},
		{gatedJob, nil, msg.JobState_JOB_FAILED, 7 << 8, 2},
		{gatedJob, nil, msg.JobState_JOB_FAILED, 255 << 8, 2},
		{killed, nil, msg.JobState_JOB_FAILED, 9, 1},
		{witnessed + "sleep 600", func(s *msg.JobSpec) { s.TimeLimitS = 1 }, msg.JobState_JOB_TIMEOUT, 0, 1},
		{witnessed + "trap 'exit 0' TERM; while :; do sleep 0.05; done", func(s *msg.JobSpec) { s.TimeLimitS = 1 },
			msg.JobState_JOB_TIMEOUT, 0, 1},
	}
	// Of those with a time limit each is the last that the daemon launches: it ends then, by a failpoint, well before the limit.
	c.endsUnseen(cases[:5])
	c.endsUnseen(cases[5:])
	c.settled()
	c.nodesUp()
}

// endsUnseen runs jobs of which the last has a time limit, and kills the node daemon before any of them ends.
func (c *cluster) endsUnseen(cases []end) {
	c.t.Helper()
	var ids []uint32
	var paths []string
	for i, e := range cases {
		if i == len(cases)-1 {
			c.noded["n1"].kill()
			c.startNoded("n1", "SLUICE_FAILPOINT=noded.offered:1")
			c.awaitNodes()
		}
		w := c.witness(requestID()[:8])
		ids, paths = append(ids, c.submit(e.script, e.change, w, fmt.Sprint(e.status>>8))), append(paths, w)
		if i < len(cases)-1 {
			c.started(w)
		}
	}
	c.died(c.noded["n1"], "noded.offered:1")
	for i, e := range cases {
		open(c, paths[i])
		c.await(fmt.Sprintf("the exit record of job %d (%v)", ids[i], e.state), func() bool {
			found, _ := filepath.Glob(filepath.Join(c.spool("n1"), "steps", fmt.Sprintf("%d.1.*", ids[i]), "exit.pb"))
			return len(found) == 1
		})
	}
	for id, j := range c.jobs(ids...) {
		if j.State != msg.JobState_JOB_RUNNING {
			c.t.Errorf("job %d is %v, and nobody can have told the controller of its end", id, j.State)
		}
	}
	c.ctld.kill() // nor is it a matter of the controller's memory
	c.startCtld()
	c.startNoded("n1")
	for i, e := range cases {
		j := c.wait(ids[i])
		if j.State != e.state || e.status != 0 && j.ExitStatus != e.status || j.Attempt != 1 {
			c.t.Errorf("job %d: %v with status %#x, attempt %d; it ended as %v with %#x", j.Id, j.State, j.ExitStatus, j.Attempt, e.state,
				e.status)
		}
		seen, err := readWitness(paths[i])
		if err != nil || len(seen) > e.lines || len(seen) < e.lines && e.state != msg.JobState_JOB_TIMEOUT {
			c.t.Errorf("job %d: witness %v, %v", j.Id, seen, err)
		}
	}
}

// parent is the parent of a process.
func parent(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	ppid, err := strconv.Atoi(f[1])
	must(t, err)
	return ppid
}

// groupsOfJob are the cgroups of all attempts and steps of a job.
func (c *cluster) groupsOfJob(id uint32) (dirs []string) {
	for _, g := range daemontest.GroupsOf(c.name) {
		if strings.HasPrefix(filepath.Base(g), fmt.Sprintf("job_%d.", id)) {
			dirs = append(dirs, g)
		}
	}
	return dirs
}

// TestShimKilled kills the shim of a running job: nobody can tell any more how the job ends, so it is ended, and it has failed.
func TestShimKilled(t *testing.T) {
	c := newCluster(t, 1)
	c.start()
	bystander := c.witness("bystander")
	other := c.submit(gatedJob, nil, bystander)
	c.started(bystander)
	script := witnessed + "(setsid sleep 600 &)\nnohup sleep 600 >/dev/null 2>&1 &\nsay up\nwait; sleep 600\n"
	for _, down := range []bool{false, true} {
		w := c.witness(fmt.Sprint("victim", down))
		id := c.submit(script, nil, w)
		first := c.line(w, 1)
		var pids []int
		for _, g := range c.groupsOfJob(id) {
			pids = append(pids, daemontest.ProcsIn(g)...)
		}
		if len(pids) < 3 {
			t.Fatalf("the job should have three processes: %v", pids)
		}
		shim := parent(t, first.pid)
		if !strings.Contains(daemontest.CommandLine(shim), "stepd") {
			t.Fatalf("the parent of the job is %q", daemontest.CommandLine(shim))
		}
		if down {
			c.noded["n1"].kill()
		}
		must(t, unix.Kill(shim, unix.SIGKILL))
		if down {
			c.startNoded("n1")
		}
		j := c.wait(id)
		if j.State != msg.JobState_JOB_NODE_FAIL || j.Attempt != 1 {
			t.Errorf("daemon down %v: the job is %v, attempt %d, want NODE_FAIL", down, j.State, j.Attempt)
		}
		for _, pid := range pids { // ended for the controller means ended
			if unix.Kill(pid, 0) == nil && !zombie(pid) {
				t.Errorf("daemon down %v: process %d is left: %s", down, pid, daemontest.CommandLine(pid))
			}
		}
		if left := c.groupsOfJob(id); len(left) > 0 {
			t.Errorf("daemon down %v: cgroups left: %v", down, left)
		}
	}
	open(c, bystander)
	if j := c.wait(other); j.State != msg.JobState_JOB_COMPLETED {
		t.Errorf("the job beside it is %v", j.State)
	}
	seen, err := readWitness(bystander)
	must(t, err)
	if err := ranOnce(seen); err != nil {
		t.Error(err)
	}
	c.settled()
	c.nodesUp()
}

func zombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	rest := text[strings.LastIndexByte(string(text), ')')+1:]
	return len(rest) > 1 && rest[1] == 'Z'
}

// TestTornBundle: what a node daemon finds in its spool may have been cut by a power failure (nothing there is synced but exit
// records). A step that cannot be read has failed; it is not started again, and nothing of it is left.
func TestTornBundle(t *testing.T) {
	c := newCluster(t, 1)
	c.start()
	older := c.witness("older")
	id := c.submit(gatedJob, nil, older)
	c.started(older)
	oldBundle := readFile(t, c.bundle(id))
	for i, content := range []string{"", "\xff\xff\xff\xff torn", oldBundle} {
		w := c.witness(fmt.Sprint("torn", i))
		torn := c.submit(gatedJob, nil, w)
		first := c.started(w)
		bundle := c.bundle(torn)
		c.noded["n1"].kill()
		must(t, unix.Kill(parent(t, first.pid), unix.SIGKILL))
		must(t, os.WriteFile(bundle, []byte(content), 0o600))
		c.startNoded("n1")
		if j := c.wait(torn); j.State != msg.JobState_JOB_NODE_FAIL || j.Attempt != 1 {
			t.Errorf("case %d: the job is %v, attempt %d, %q, want NODE_FAIL", i, j.State, j.Attempt, j.ReasonDetail)
		}
		if unix.Kill(first.pid, 0) == nil && !zombie(first.pid) {
			t.Errorf("case %d: the job has ended, its process %d is left", i, first.pid)
		}
		if left := c.groupsOfJob(torn); len(left) > 0 {
			t.Errorf("case %d: cgroups left: %v", i, left)
		}
		if seen, err := readWitness(w); len(seen) != 1 || err != nil {
			t.Errorf("case %d: the witness has %v, %v", i, seen, err)
		}
	}
	open(c, older)
	if j := c.wait(id); j.State != msg.JobState_JOB_COMPLETED {
		t.Errorf("the job beside them is %v", j.State)
	}
	c.settled()
	c.nodesUp()
}

// bundle is the file that says what the first attempt of a job is.
func (c *cluster) bundle(job uint32) string {
	c.t.Helper()
	found, _ := filepath.Glob(filepath.Join(c.spool("*"), "steps", fmt.Sprintf("%d.1.*", job), "bundle.pb"))
	if len(found) != 1 {
		c.t.Fatalf("job %d has the bundles %v", job, found)
	}
	return found[0]
}
