package crashtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-hpc/sluice/client/msg"
)

func (c *cluster) scontrol(args ...string) {
	c.t.Helper()
	cmd := exec.Command(filepath.Join(bin, "scontrol"), args...)
	cmd.Env = c.clientEnv()
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("scontrol %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// node is the record of a node.
func (c *cluster) node(name string) *msg.NodeRecord {
	c.t.Helper()
	for _, n := range c.nodeRecords() {
		if n.Name == name {
			return n
		}
	}
	c.t.Fatalf("there is no node %s", name)
	return nil
}

// endsWell waits until a daemon has ended as one that was asked to.
func (c *cluster) endsWell(d *daemon) {
	c.t.Helper()
	if !d.Wait(patience) {
		c.t.Fatalf("%s does not end", d.Name)
	}
	if !d.Cmd.ProcessState.Success() {
		c.t.Errorf("%s: %v", d.Name, d.Cmd.ProcessState)
	}
}

// TestScontrolShutdown: all daemons end, or the controller alone; jobs go on and are found again.
func TestScontrolShutdown(t *testing.T) {
	c := newCluster(t, 2)
	c.start()
	var witnesses []string
	var ids []uint32
	for _, n := range c.nodes {
		w := c.witness(n)
		witnesses = append(witnesses, w)
		ids = append(ids, c.submit(gatedJob, func(s *msg.JobSpec) { s.ReqNodes = n }, w, "7"))
		c.started(w)
	}
	c.scontrol("shutdown")
	for _, d := range c.daemons() {
		c.endsWell(d)
	}
	for _, w := range witnesses {
		if pid := c.started(w).pid; syscall.Kill(pid, 0) != nil {
			t.Errorf("process %d of a job has ended with the daemons", pid)
		}
	}
	open(c, witnesses[0]) // this job ends while nobody looks
	c.line(witnesses[0], 1)
	c.startCtld()
	for _, n := range c.nodes {
		c.startNoded(n)
	}
	c.awaitNodes()
	c.scontrol("shutdown", "slurmctld")
	c.endsWell(c.ctld)
	c.startCtld()
	for _, d := range c.noded {
		if d.Ended() {
			t.Errorf("%s has ended with the controller", d.Name)
		}
	}
	open(c, witnesses[1])
	for i, id := range ids {
		j := c.wait(id)
		all, err := readWitness(witnesses[i])
		if err == nil {
			err = ranOnce(all)
		}
		if err != nil || j.State != msg.JobState_JOB_FAILED || j.ExitStatus != 7<<8 || j.Attempt != 1 {
			t.Errorf("job %d: %v, attempt %d, status %#x; %v", id, j.State, j.Attempt, j.ExitStatus, err)
		}
	}
}

// TestRebootAcrossRestart: a controller that is started anew while nodes reboot, or are to, goes on with that.
func TestRebootAcrossRestart(t *testing.T) {
	c := newCluster(t, 2)
	text, err := os.ReadFile(c.conf)
	must(t, err)
	must(t, os.WriteFile(c.conf, append(text, "RebootProgram=/bin/true\nResumeTimeout=3600\n"...), 0o644))
	c.start()
	w := c.witness("busy")
	id := c.submit(gatedJob, func(s *msg.JobSpec) { s.ReqNodes = "n2" }, w)
	c.started(w)
	c.scontrol("reboot", "asap", "nextstate=resume", "n1,n2")
	if n := c.node("n1"); n.StateFlags&msg.NodeRebootIssued == 0 {
		t.Fatalf("the reboot of an idle node is not issued: %v", n)
	}
	c.noded["n1"].kill() // the machine goes down
	c.ctld.kill()
	c.startCtld()
	open(c, w)
	c.wait(id)
	c.await("the reboot of n2, for which all nodes have been looked at",
		func() bool { return c.node("n2").StateFlags&msg.NodeRebootIssued != 0 })
	if n := c.node("n1"); n.StateFlags&msg.NodeRebootIssued == 0 || !n.RebootAsap || n.RebootNext != "RESUME" || n.RebootNs == 0 {
		t.Errorf("after the restart of the controller n1 is %v, flags %#x, reason %q", n.State, n.StateFlags, n.Reason)
	}
	c.noded["n2"].kill()
	for _, n := range c.nodes {
		c.rebooted(n)
	}
	c.awaitNodes()
	for _, n := range c.nodeRecords() {
		if n.State != msg.NodeState_NODE_IDLE || n.StateFlags != 0 || n.Reason != "" {
			t.Errorf("after its reboot %s is %v, flags %#x, reason %q", n.Name, n.State, n.StateFlags, n.Reason)
		}
	}
}

// rebooted starts a node daemon that finds itself in another boot: it has a file of its own over the kernel's boot id.
func (c *cluster) rebooted(node string) {
	c.t.Helper()
	id := filepath.Join(c.dir, node+".boot_id")
	must(c.t, os.WriteFile(id, []byte("00000000-0000-4000-8000-"+requestID()[:12]+"\n"), 0o644))
	program := filepath.Join(c.dir, "noded."+node)
	must(c.t, os.WriteFile(program, []byte("#!/bin/sh\nmount --bind "+id+" /proc/sys/kernel/random/boot_id && exec "+
		filepath.Join(bin, "sluice-noded")+" \"$@\"\n"), 0o755))
	d := c.launch("noded."+node, nil, "/usr/bin/unshare", append([]string{"--mount", program}, c.nodedArgs(node)...)...)
	c.noded[node] = d
}
