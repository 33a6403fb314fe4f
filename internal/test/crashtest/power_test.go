package crashtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/internal/test/daemontest"
)

// The programs end and start the daemons of nodes, whose machine stays the same: another daemon is what another boot is. Both may be run
// again for the same nodes. A process that has ended, but that nobody has taken notice of, has no program any more.
const powerSuspend = `#!/bin/sh
for n in $(CONTROL show hostnames "$1"); do
	[ -e "DIR/$n.pid" ] || continue
	pid=$(cat "DIR/$n.pid")
	kill "$pid"
	while [ -e "/proc/$pid/exe" ]; do sleep 0.1; done
done
exit 0
`

const powerResume = `#!/bin/sh
cat "$SLURM_RESUME_FILE" >>DIR/resumed
for n in $(CONTROL show hostnames "$1"); do
	[ -e "DIR/$n.pid" ] && [ -e "/proc/$(cat "DIR/$n.pid")/exe" ] && continue
	setsid NODED </dev/null >>"DIR/noded.$n.log" 2>&1 &
	echo $! >"DIR/$n.pid.new"
	mv "DIR/$n.pid.new" "DIR/$n.pid"
done
exit 0
`

// newPowerCluster has a node that is always up, one that is powered down when it has nothing to do, and one of the cloud.
func newPowerCluster(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t, 3)
	nodes, rest, _ := strings.Cut(c.text(), "NodeName=")
	_, rest, _ = strings.Cut(rest, "\n")
	for i, state := range []string{"UNKNOWN", "UNKNOWN", "CLOUD"} {
		nodes += fmt.Sprintf("NodeName=n%d NodeHostname=%s NodeAddr=127.0.0.1 Port=%d CPUs=8 RealMemory=4096 State=%s\n", i+1,
			daemontest.Host(t), c.port+1+i, state)
	}
	nodes += fmt.Sprintf("SuspendProgram=%[1]s/suspend\nResumeProgram=%[1]s/resume\nSuspendExcNodes=n1\n", c.dir)
	must(t, os.WriteFile(c.conf, []byte(nodes+"SuspendTime=1\nSuspendTimeout=2\nResumeTimeout=600\n"+rest), 0o644))
	noded := filepath.Join(bin, "sluice-noded")
	for _, arg := range c.nodedArgs("NODE") {
		noded += ` "` + strings.ReplaceAll(arg, "NODE", "$n") + `"`
	}
	fill := strings.NewReplacer("NODED", noded, "CONTROL", filepath.Join(bin, "scontrol"), "DIR", c.dir)
	for name, text := range map[string]string{"suspend": powerSuspend, "resume": powerResume} {
		must(t, os.WriteFile(filepath.Join(c.dir, name), []byte(fill.Replace(text)), 0o755))
	}
	t.Cleanup(c.switchOff)
	return c
}

// pidOf is the process of a node's daemon that ResumeProgram started, 0 when it does not run.
func (c *cluster) pidOf(node string) int {
	b, _ := os.ReadFile(filepath.Join(c.dir, node+".pid"))
	pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid)); pid == 0 || err != nil {
		return 0
	}
	return pid
}

func (c *cluster) switchOff() {
	for _, n := range c.nodes {
		if pid := c.pidOf(n); pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGTERM)
			daemontest.Poll(patience, func() bool { return c.pidOf(n) == 0 })
		}
	}
}

// asleep waits until a node is powered down, and its daemon has ended.
func (c *cluster) asleep(node string) {
	c.t.Helper()
	c.await(node+" is powered down", func() bool {
		n := c.node(node)
		return n.StateFlags&msg.NodePoweredDown != 0 && n.State == msg.NodeState_NODE_IDLE && c.pidOf(node) == 0
	})
}

// TestPowerSaving: a job wakes the node that it is given and runs there once, and the node sleeps again when it has nothing to do; also
// when the controller is killed at each place where a node is half way down or up.
func TestPowerSaving(t *testing.T) {
	c := newPowerCluster(t)
	c.startCtld()
	c.issue()
	c.startNoded("n1")
	c.awaitNodes()
	c.scontrol("update", "nodename=n2", "state=power_down")
	run := func(name, node, waking, ending string) {
		t.Helper()
		c.asleep(node)
		at := func(point string) *daemon {
			c.ctld.kill()
			d := c.launchCtld("SLUICE_FAILPOINT=" + point)
			c.await("the controller answers", c.ping)
			return d
		}
		var dying *daemon
		if waking != "" {
			dying = at(waking)
		}
		w := c.witness(name)
		id := c.submit(gatedJob, func(s *msg.JobSpec) { s.ReqNodes = node }, w)
		if waking != "" {
			c.died(dying, waking)
			c.startCtld()
		}
		if ran := c.started(w); ran.job != id {
			t.Errorf("job %d runs for job %d", ran.job, id)
		}
		if n := c.node(node); n.StateFlags&(msg.NodePoweredDown|msg.NodePoweringDown|msg.NodePoweringUp) != 0 {
			t.Errorf("a job runs on %s, which has the flags %#x", node, n.StateFlags)
		}
		c.await(node+"'s process is known", func() bool { return c.pidOf(node) != 0 }) // ResumeProgram notes it after the start
		if ending != "" {
			dying = at(ending)
		}
		open(c, w)
		if ending != "" {
			c.died(dying, ending)
			c.startCtld()
		}
		if j := c.wait(id); j.State != msg.JobState_JOB_COMPLETED || j.Attempt != 1 {
			t.Errorf("job %d: %v, attempt %d", id, j.State, j.Attempt)
		}
		seen, err := readWitness(w)
		must(t, err)
		if err := ranOnce(seen); err != nil {
			t.Error(err)
		}
	}
	run("cloud", "n3", "", "")
	run("begin", "n2", "power.resume", "power.suspend")
	run("end", "n2", "power.resume.end", "power.suspend.end")
	c.asleep("n2")
	c.asleep("n3")
	if text := readFile(t, filepath.Join(c.dir, "resumed")); !strings.Contains(text, `"all_nodes":"n3"`) ||
		!strings.Contains(text, `"job_id":1`) {
		t.Errorf("SLURM_RESUME_FILE had:\n%s", text)
	}
	// What is still to be cleaned up is cleaned up by daemons that run.
	text := strings.Replace(readFile(t, c.conf), "SuspendTime=1", "SuspendTime=INFINITE", 1)
	must(t, os.WriteFile(c.conf, []byte(text), 0o644))
	c.scontrol("reconfigure")
	c.scontrol("update", "nodename=n[2-3]", "state=power_up")
	for _, n := range []string{"n2", "n3"} {
		c.await(n+" is up", func() bool {
			return c.node(n).StateFlags&(msg.NodePoweredDown|msg.NodePoweringUp) == 0 && c.pidOf(n) != 0
		})
	}
	c.await("the jobs are forgotten", c.forgotten)
}

// TestResumeFails: a node that does not come up is DOWN, and its job goes elsewhere; a program that fails hangs nothing.
func TestResumeFails(t *testing.T) {
	c := newPowerCluster(t)
	text := strings.Replace(readFile(t, c.conf), "ResumeTimeout=600", "ResumeTimeout=1\nResumeFailProgram="+c.dir+"/fail", 1)
	must(t, os.WriteFile(c.conf, []byte(text), 0o644))
	must(t, os.WriteFile(filepath.Join(c.dir, "resume"), []byte("#!/bin/sh\necho no such host\nexit 3\n"), 0o755))
	must(t, os.WriteFile(filepath.Join(c.dir, "fail"), []byte("#!/bin/sh\necho \"$1\" >>"+c.dir+"/failed\n"), 0o755))
	c.startCtld()
	c.issue()
	id := c.submit(plainJob, func(s *msg.JobSpec) { s.ReqNodes = "n3" }, c.witness("never"))
	c.await("n3 is DOWN", func() bool {
		n := c.node("n3")
		return n.State == msg.NodeState_NODE_DOWN && n.Reason == "ResumeTimeout reached" && n.StateFlags&msg.NodePoweredDown != 0
	})
	c.await("the job is requeued", func() bool {
		j := c.jobs(id)[id]
		return j.State == msg.JobState_JOB_PENDING && j.Reason == "BeginTime" && j.StateFlags == 0
	})
	c.await("ResumeFailProgram has run", func() bool {
		b, _ := os.ReadFile(filepath.Join(c.dir, "failed"))
		return string(b) == "n3\n"
	})
	c.await("the failure is in the log", func() bool { return c.ctld.Said("exit status 3") && c.ctld.Said("no such host") })
	c.cancel(id)
}

// TestCloudGPUs: a node that has never been up is woken for a job that asks for the GPUs that slurm.conf says it has; the next host of that
// name has other GPUs, and the next job gets those. One that has fewer than slurm.conf says is not what a job gets that needs all of them.
func TestCloudGPUs(t *testing.T) {
	c := newPowerCluster(t)
	text := strings.Replace(readFile(t, c.conf), "State=CLOUD", "State=CLOUD Gres=gpu:a100:2", 1)
	must(t, os.WriteFile(c.conf, []byte(text+"GresTypes=gpu\n"), 0o644))
	program := filepath.Join(c.dir, "resume")
	another := strings.NewReplacer(filepath.Join(c.dir, "spool", "$n"), filepath.Join(c.dir, "spool", "$n.$$"), // which names the GPUs
		`"--controller"`, fmt.Sprintf(`"--gpus" "$(cat %s/gpus)" "--no-gpu-files" "--controller"`, c.dir)).Replace(readFile(t, program))
	must(t, os.WriteFile(program, []byte(another), 0o755))
	gpus := func(spec string) { must(t, os.WriteFile(filepath.Join(c.dir, "gpus"), []byte(spec), 0o644)) }
	gpus("a100:2")
	c.startCtld()
	c.issue()
	seen := map[string]bool{}
	ask := func(s *msg.JobSpec) { s.TresPerNode = "gres/gpu:a100:2" }
	for i, name := range []string{"first", "next"} {
		c.asleep("n3")
		w := c.witness(name)
		id := c.submit(gatedJob, ask, w)
		c.started(w)
		j := c.jobs(id)[id]
		for _, d := range j.Alloc[0].Devices {
			seen[d.Id] = d.Id != ""
		}
		if len(seen) != 2*(i+1) || seen[""] || j.Alloc[0].Gres != "gpu:a100:2(IDX:0-1)" {
			t.Errorf("%s job has %v, all so far had %v", name, j.Alloc, seen)
		}
		open(c, w)
		if j := c.wait(id); j.State != msg.JobState_JOB_COMPLETED || j.Attempt != 1 {
			t.Errorf("%s job: %v, attempt %d", name, j.State, j.Attempt)
		}
	}
	c.asleep("n3")
	gpus("a100:1")
	id := c.submit(plainJob, ask, c.witness("short"))
	c.await("the job is requeued", func() bool {
		j := c.jobs(id)[id]
		return j.State == msg.JobState_JOB_PENDING && j.Restarts == 1 && strings.Contains(j.SystemComment, "it lacks some of gpu:a100:2")
	})
	if n := c.node("n3"); n.StateFlags&msg.NodeDrain != 0 {
		t.Errorf("a node that lacks one GPU is drained: %s", n.Reason)
	}
	c.cancel(id)
}

// TestDynamicCloud: nodes of the cloud that slurm.conf does not name, made by scontrol, with daemons that ResumeProgram starts with -Z.
// They stay what scontrol said they are, sleep and wake as others, also after the controller was killed, and can be deleted while they
// sleep.
func TestDynamicCloud(t *testing.T) {
	c := newPowerCluster(t)
	must(t, os.WriteFile(c.conf, []byte(readFile(t, c.conf)+"MaxNodeCount=5\n"), 0o644))
	program := filepath.Join(c.dir, "resume")
	joins := strings.Replace(readFile(t, program), `"--conf"`, `"-Z" "--node-conf" "Feature=own" "--conf"`, 1)
	if !strings.Contains(joins, `"-Z"`) {
		t.Fatalf("no -Z in %s", joins)
	}
	must(t, os.WriteFile(program, []byte(joins), 0o755))
	c.nodes = append(c.nodes, "d1", "d2")
	c.startCtld()
	c.issue()
	c.scontrol("create", "nodename=d[1-2]", "state=cloud", "cpus=8", "realmemory=4096", "feature=burst")
	for _, killed := range []bool{false, true} {
		for _, n := range []string{"d1", "d2"} {
			c.asleep(n)
		}
		if killed {
			c.ctld.kill()
			c.startCtld()
		}
		w := c.witness(fmt.Sprintf("killed.%v", killed))
		id := c.submit(gatedJob, func(s *msg.JobSpec) { s.Features = "burst" }, w)
		c.started(w)
		node := c.jobs(id)[id].BatchHost
		n := c.node(node)
		if !strings.HasPrefix(node, "d") || n.StateFlags != msg.NodeCloud|msg.NodeDynamic || n.Cpus != 8 || n.Features != "burst" {
			t.Errorf("job %d runs on %v", id, n)
		}
		open(c, w)
		if j := c.wait(id); j.State != msg.JobState_JOB_COMPLETED || j.Attempt != 1 {
			t.Errorf("job %d: %v, attempt %d", id, j.State, j.Attempt)
		}
	}
	c.asleep("d1")
	c.scontrol("delete", "nodename=d1")
	for _, n := range c.nodeRecords() {
		if n.Name == "d1" {
			t.Errorf("d1 is deleted, and there is %v", n)
		}
	}
}
