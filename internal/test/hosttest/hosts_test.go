package hosttest_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/internal/test/hosttest"
)

// TestJobsOnEveryHost: a cluster over real TCP, with certificates that were brought to the hosts by hand. A job runs on the host that it
// was meant for, as its user and with the groups of the controller's host.
func TestJobsOnEveryHost(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for _, h := range c.compute {
		out := filepath.Join(c.dir, h.Name+".out")
		id := c.submit("-w", h.Name, "-o", out, "--wrap",
			"cat /proc/sys/kernel/hostname /etc/hostname; id -un; id -Gn; echo $SLURMD_NODENAME")
		if j := c.wait(id); j.State != msg.JobState_JOB_COMPLETED {
			t.Errorf("the job on %s is %v: %s", h.Name, j.State, j.ReasonDetail)
		}
		text, err := os.ReadFile(out)
		must(t, err)
		if want := strings.Join([]string{h.Name, h.Name, "alice", "alice lab", h.Name, ""}, "\n"); string(text) != want {
			t.Errorf("the job on %s says %q, want %q", h.Name, text, want)
		}
	}
}

// TestCommandsEverywhere: an ordinary user works on the login host, and in a job on a compute host, as on the controller's. Nothing in the
// environment says where the controller is.
func TestCommandsEverywhere(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	c.noded["login"] = c.login.Start("noded", filepath.Join(bin, "sluice-noded"), "--login")
	c.await("the login host serves commands", func() bool {
		return c.login.Run("alice", nil, "squeue").Code == 0
	})
	says := func(want string, args ...string) string {
		t.Helper()
		out := c.ok(c.login.Run("alice", nil, args...))
		if !strings.Contains(out, want) {
			t.Errorf("%v on the login host: %q has no %q", args, out, want)
		}
		return strings.TrimSpace(out)
	}
	says("c[1-2]", "sinfo")
	script := filepath.Join(c.dir, "follow.sh")
	must(t, os.WriteFile(script, []byte(follow), 0o755))
	out := filepath.Join(c.dir, "follow.out")
	id := says("", "sbatch", "--parsable", "-D", "/", "-w", "c1", "-o", out, script)
	n, err := strconv.ParseUint(id, 10, 32)
	must(t, err)
	j := c.wait(uint32(n))
	text, err := os.ReadFile(out)
	must(t, err)
	for _, want := range []string{"sinfo c[1-2]", "squeue " + id + " alice RUNNING", "show UserId=alice(5001)", "comment from the job",
		"cancelled 0"} {
		if !strings.Contains(string(text), want+"\n") {
			t.Errorf("the job has not said %q", want)
		}
	}
	if t.Failed() {
		t.Logf("the job is %v: %s", j.State, text)
	}
	says("JobState=COMPLETED", "scontrol", "show", "job", id)
	says("Comment=from the job", "scontrol", "show", "job", id)
	for _, user := range []string{"root", "slurm"} {
		if r := c.login.Run(user, nil, "squeue"); r.Code == 0 || !strings.Contains(r.Err, "login") {
			t.Errorf("squeue by %s on the login host: %v", user, r)
		}
	}
	// alice may use c1 for as long as she has a job there.
	w := c.gate("allowed", "-w", "c1")
	w.says([3]string{"0", "c1", "start"})
	defer w.open()
	for _, q := range []struct {
		args   []string
		varies bool // says what time it is, or the like
	}{
		{[]string{"sacct", "-j", id, "-o", "jobid,user,state,exitcode"}, false}, {[]string{"sacctmgr", "show", "cluster"}, false},
		{[]string{"sshare"}, false}, {[]string{"sreport", "cluster", "utilization"}, true}, {[]string{"sstat", "-j", id}, false},
		{[]string{"seff", id}, false}, {[]string{"sluice", "gpus"}, false}, {[]string{"sluice", "explain", id}, false},
		{[]string{"sluice", "certs"}, false}, {[]string{"squeue", "--json"}, true}, {[]string{"squeue", "-h", "-o", "%i %u %T %N"}, false},
		{[]string{"sinfo"}, false}, {[]string{"sinfo", "-R"}, false}, {[]string{"sprio"}, false}, {[]string{"sdiag"}, true},
		{[]string{"scrontab", "-l"}, false}, {[]string{"scontrol", "ping"}, true}, {[]string{"scontrol", "show", "config"}, true},
		{[]string{"scontrol", "show", "node", "c2"}, true}, {[]string{"scontrol", "show", "partition"}, false},
		{[]string{"scontrol", "hold", id}, false}, {[]string{"scancel", "4000000"}, false},
	} {
		here := c.ctl.Run("alice", nil, q.args...)
		for _, h := range []*hosttest.Host{c.login, c.compute[0]} {
			there := h.Run("alice", nil, q.args...)
			if here.Code != there.Code || !q.varies && (here.Out != there.Out || here.Err != there.Err) {
				t.Errorf("%v: %v on the controller's host, %v on %s", q.args, here, there, h.Name)
			}
		}
	}
}

// follow is a job that uses the commands: it looks at itself, and submits and cancels another.
const follow = `#!/bin/sh
echo "sinfo $(sinfo -h -o %N)"
echo "squeue $(squeue -h -j $SLURM_JOB_ID -o '%i %u %T')"
scontrol update JobId=$SLURM_JOB_ID Comment="from the job"
scontrol show job $SLURM_JOB_ID | sed -n 's/^ *\(UserId=[^ ]*\).*/show \1/p; s/^ *Comment=\(.*[^ ]\) *$/comment \1/p'
next=$(sbatch --parsable -H -D / -o /dev/null --wrap true)
scancel $next
echo cancelled $?
`

// TestLoginHostWithoutFiles: a login host that has an address and a certificate has the controller's slurm.conf, follows it, and keeps it
// for the time without a controller.
func TestLoginHostWithoutFiles(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	must(t, os.Remove(c.login.Etc("slurm/slurm.conf")))
	must(t, os.Remove(c.login.Etc("slurm/cgroup.conf")))
	start := func() {
		if d := c.noded["login"]; d != nil {
			c.old = append(c.old, d)
		}
		c.noded["login"] = c.login.Start("noded", filepath.Join(bin, "sluice-noded"), "--login", "--conf-server", "ctl", "--spool",
			"/var/spool/login") // of the hosts alone: they share /var/lib
	}
	start()
	// shown is what a command on the login host takes for the configuration: its environment says nothing.
	shown := func() string { return c.login.Run("alice", nil, "scontrol", "show", "config").Out }
	c.await("the login host has the configuration", func() bool { return strings.Contains(shown(), "= "+c.name+"\n") })
	text, err := os.ReadFile(c.login.Path("/run/sluice/conf/slurm.conf"))
	must(t, err)
	if string(text) != c.text(never) {
		t.Errorf("the login host has been given %s", text)
	}
	c.ctl.WriteEtc("slurm/slurm.conf", c.text(never)+"MailDomain=other.example\n")
	c.ok(c.ctl.Run("", nil, "scontrol", "reconfigure"))
	has := func() bool {
		text, err := os.ReadFile(c.login.Path("/run/sluice/conf/slurm.conf"))
		return err == nil && strings.Contains(string(text), "MailDomain=other.example\n")
	}
	c.await("the login host has what is new", has)

	must(t, os.RemoveAll(c.login.Path("/run/sluice/conf")))
	c.noded["login"].Signal(syscall.SIGTERM)
	c.ctld.Signal(syscall.SIGTERM)
	if !c.noded["login"].Wait(hosttest.Patience) || !c.ctld.Wait(hosttest.Patience) {
		t.Fatal("a daemon does not end")
	}
	start()
	c.await("the login host has what it had last", has)
	c.old = append(c.old, c.ctld)
	c.startCtld()
	c.await("commands work again", func() bool { return strings.Contains(shown(), "other.example") })
}
