package boottest_test

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/internal/test/boottest"
)

const slurmConf = `ClusterName=boot
SlurmctldHost=head
SlurmUser=sluice
StateSaveLocation=/var/lib/sluice/ctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/sluice-ctld/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ReturnToService=2
TaskPlugin=task/cgroup
JobSubmitPlugins=lua
PrologSlurmctld=/etc/slurm/bin/prolog
MailProg=/etc/slurm/bin/mail
NodeName=head CPUs=2 RealMemory=100
PartitionName=all Nodes=head Default=YES
`

// hosts are the addresses that boottest.Net gives.
const hosts = "127.0.0.1 localhost\n10.77.0.1 head\n10.77.0.2 login\n"

// site are the programs that the controller runs, which have to work in its sandbox.
var site = map[string]string{
	"/etc/slurm/bin/prolog": "#!/bin/sh\necho prolog of job $SLURM_JOB_ID as $(id -un) >>/var/log/sluice/programs\n",
	"/etc/slurm/bin/mail":   "#!/bin/sh\necho \"mail: $*\" >>/var/log/sluice/programs\n",
	"/etc/slurm/job_submit.lua": `function slurm_job_submit(job, parts, uid) job.comment = "seen by lua"; return slurm.SUCCESS end
function slurm_job_modify(job, rec, parts, uid) return slurm.SUCCESS end
slurm.log_info("job_submit.lua was read")
return slurm.SUCCESS
`,
	// So that a daemon that stands still is found within the test.
	"/etc/systemd/system/sluice-ctld.service.d/test.conf":  "[Service]\nWatchdogSec=6\n",
	"/etc/systemd/system/sluice-noded.service.d/test.conf": "[Service]\nWatchdogSec=6\n",
}

// cluster boots the controller's host, which is its compute host as well, and brings the cluster up as administrators.md says.
func cluster(t *testing.T, files, bind map[string]string, net *boottest.Net) *boottest.Host {
	t.Helper()
	files = maps.Clone(files)
	maps.Copy(files, site)
	files["/etc/slurm/slurm.conf"], files["/etc/hosts"] = slurmConf, hosts
	h := boottest.Boot(t, "head", net, files, bind)
	if net != nil {
		net.Join(h)
	} else {
		h.Do("", "ip", "address", "add", "10.77.0.1/32", "dev", "lo")
	}
	h.Do("", "useradd", "--create-home", "--uid", "1234", "ada")
	h.Do("", "systemctl", "start", "sluice-ctld")
	h.Do("", "sh", "-c", "sluice token create --node head | sluice-noded --join - --join-only")
	h.Do("", "systemctl", "start", "sluice-noded")
	h.Until("the node is idle", func() bool { return h.Run("", "sinfo", "-h", "-o", "%T").Out == "idle\n" })
	return h
}

// TestServices: the two daemons of a host as services, from their start to their end.
func TestServices(t *testing.T) {
	t.Parallel()
	files, bind := installed(t)
	h := cluster(t, files, bind, nil)
	t.Run("who they are", func(t *testing.T) { identity(t, h) })
	t.Run("reload", func(t *testing.T) { reload(t, h) })
	t.Run("jobs", func(t *testing.T) { jobs(t, h) })
	t.Run("journal", func(t *testing.T) { journal(t, h) })
	t.Run("restart under a job", func(t *testing.T) { restart(t, h) })
	t.Run("watchdog", func(t *testing.T) { watchdog(t, h) })
	t.Run("end", func(t *testing.T) { end(t, h) })
	t.Run("lines of shims", func(t *testing.T) { shimLines(t, h) })
	t.Run("syslog", func(t *testing.T) { syslog(t, h) })
}

// identity: the controller has SlurmUser's rights and none besides; status lines say how they are.
func identity(t *testing.T, h *boottest.Host) {
	if got := h.Shown("sluice-ctld", "StatusText"); got != "cluster boot, nodes: 1" {
		t.Errorf("status of the controller: %q", got)
	}
	if got := h.Shown("sluice-noded", "StatusText"); got != "host head" {
		t.Errorf("status of the node daemon: %q", got)
	}
	status := h.Do("", "cat", "/proc/"+h.Shown("sluice-ctld", "MainPID")+"/status")
	uid := h.Do("", "id", "-u", "sluice")
	for _, want := range []string{"Uid:\t" + strings.Repeat(uid+"\t", 3) + uid, "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000",
		"NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(status, want) {
			t.Errorf("the controller's process lacks %q:\n%s", want, status)
		}
	}
	if got := h.Do("", "stat", "-c", "%U %a", "/var/lib/sluice/ctld", "/run/sluice-ctld", "/run/sluice-ctld/boot/ctld.sock"); got !=
		"sluice 700\nsluice 755\nsluice 777" {
		t.Errorf("state directory, run-time directory and socket: %s", got)
	}
	for unit, path := range map[string]string{"sluice-ctld": "/run/sluice-ctld/slurmctld.pid", "sluice-noded": "/run/slurmd.pid"} {
		if got, want := h.Do("", "cat", path), h.Shown(unit, "MainPID"); got != want {
			t.Errorf("the pid file of %s has %q, want %s", unit, got, want)
		}
	}
	if got := h.Journal("sluice-ctld"); !strings.Contains(got, "controller started") {
		t.Errorf("the journal lacks the controller's start:\n%s", got)
	}
}

// reload fails where slurm.conf has faults, says which, and changes nothing.
func reload(t *testing.T, h *boottest.Host) {
	pid := h.Shown("sluice-ctld", "MainPID")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(h.Path("/etc/slurm/slurm.conf"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.Replace(slurmConf, "CPUs=2", "CPUs=two", 1))
	if r := h.Run("", "systemctl", "reload", "sluice-ctld"); r.Code == 0 {
		t.Error("a slurm.conf with a fault was reloaded")
	}
	h.Until("the journal names the fault", func() bool { return strings.Contains(h.Journal("sluice-ctld"), "slurm.conf:13") })
	write(slurmConf + "PartitionName=more Nodes=head\n")
	h.Do("", "systemctl", "reload", "sluice-ctld")
	if got := h.Do("ada", "sinfo", "-h", "-o", "%R"); got != "all\nmore" {
		t.Errorf("partitions after a reload: %q", got)
	}
	h.Do("", "systemctl", "reload", "sluice-noded")
	if got := h.Shown("sluice-ctld", "MainPID"); got != pid {
		t.Errorf("another process after the reload: %s, was %s", got, pid)
	}
}

// jobs: users are who the kernel says they are, and the site's programs run.
func jobs(t *testing.T, h *boottest.Host) {
	h.Do("ada", "sbatch", "--wait", "--chdir=/home/ada", "--output=out", "--mail-type=END", "--wrap", "id -u; id -un")
	if got := h.Do("", "cat", "/home/ada/out"); got != "1234\nada" {
		t.Errorf("the job ran as %q", got)
	}
	got := h.Do("", "scontrol", "show", "job", "1")
	if !strings.Contains(got, "UserId=ada(1234)") || !strings.Contains(got, "seen by lua") {
		t.Errorf("the job is not ada's, or job_submit.lua has not seen it: %s", got)
	}
	var ran string
	h.Until("the programs of the site have run", func() bool {
		ran = h.Run("", "cat", "/var/log/sluice/programs").Out
		return strings.Contains(ran, "prolog of job 1 as sluice\n") && strings.Contains(ran, "mail: ")
	})
	if !strings.Contains(ran, " ada\n") {
		t.Errorf("the mail is for somebody else: %s", ran)
	}
	if r := h.Run("ada", "scontrol", "reconfigure"); r.Code == 0 {
		t.Error("an ordinary user may reconfigure")
	}
}

// journal: lines have priorities, no second time, and of a job there are two.
func journal(t *testing.T, h *boottest.Host) {
	var all string
	h.Until("the end of the job is in the journal", func() bool {
		all = h.Journal("sluice-*", "--output=cat")
		return strings.Contains(all, "msg=JobEnded")
	})
	for _, line := range strings.Split(all, "\n") {
		if strings.HasPrefix(line, "time=") || strings.HasPrefix(line, "<") {
			t.Errorf("a line with a time or a priority of its own: %s", line)
		}
	}
	if n := strings.Count(all, " job=1 "); n != 2 || !strings.Contains(all, "msg=JobStarted job=1 attempt=1 user=ada uid=1234") {
		t.Errorf("%d lines about the job:\n%s", n, all)
	}
	warned := h.Journal("sluice-ctld", "--priority=warning")
	h.Do("", "scontrol", "update", "nodename=head", "state=drain", "reason=disk")
	h.Do("", "scontrol", "update", "nodename=head", "state=resume")
	h.Until("the drained node is a warning", func() bool {
		return strings.Contains(h.Journal("sluice-ctld", "--priority=warning"), "what=drained reason=disk")
	})
	if strings.Contains(warned, "JobStarted") || strings.Contains(warned, "controller started") {
		t.Errorf("a line at info is a warning:\n%s", warned)
	}
}

// submitLong starts a job that ends when a file is there, and gives its process id.
func submitLong(t *testing.T, h *boottest.Host, id string) (pid string) {
	t.Helper()
	h.Do("ada", "sbatch", "--chdir=/home/ada", "--output=long", "--wrap",
		fmt.Sprintf("echo $$ >pid.%[1]s; while [ ! -e go.%[1]s ]; do sleep 0.1; done; echo whole", id))
	h.Until("the job runs", func() bool {
		pid = strings.TrimSpace(h.Run("", "cat", "/home/ada/pid."+id).Out)
		return pid != ""
	})
	return pid
}

// restart: the job is the same process before and after, and its end is recorded.
func restart(t *testing.T, h *boottest.Host) {
	pid := submitLong(t, h, "restart")
	h.Do("", "systemctl", "restart", "sluice-noded")
	h.Do("", "systemctl", "restart", "sluice-ctld")
	h.Do("", "sh", "-c", "kill -0 "+pid)
	h.Do("ada", "touch", "/home/ada/go.restart")
	h.Until("the job has completed", func() bool {
		return strings.Contains(h.Run("", "sacct", "-X", "-n", "-o", "State", "-j", "2").Out, "COMPLETED")
	})
	if got := h.Do("", "cat", "/home/ada/long"); got != "whole" {
		t.Errorf("the job wrote %q", got)
	}
}

// watchdog: a daemon that stands still is replaced, and jobs go on meanwhile.
func watchdog(t *testing.T, h *boottest.Host) {
	job := submitLong(t, h, "watchdog")
	frozen := map[string]string{}
	for _, unit := range []string{"sluice-ctld", "sluice-noded"} {
		frozen[unit] = h.Shown(unit, "MainPID")
		h.Do("", "sh", "-c", "kill -STOP "+frozen[unit])
	}
	for unit, pid := range frozen {
		h.Until(unit+" has been started again", func() bool {
			now := h.Shown(unit, "MainPID")
			return now != "0" && now != pid && h.Shown(unit, "ActiveState") == "active"
		})
		if got := h.Journal(unit); !strings.Contains(got, "Watchdog timeout") {
			t.Errorf("%s: the journal says nothing of the watchdog", unit)
		}
	}
	h.Do("", "sh", "-c", "kill -0 "+job)
	h.Do("ada", "touch", "/home/ada/go.watchdog")
	h.Until("the job has completed", func() bool {
		return strings.Contains(h.Run("", "sacct", "-X", "-n", "-o", "State", "-j", "3").Out, "COMPLETED")
	})
}

// end: jobs stay when the services are stopped, and nothing of the services does.
func end(t *testing.T, h *boottest.Host) {
	job := submitLong(t, h, "end")
	h.Do("", "systemctl", "stop", "sluice-noded", "sluice-ctld")
	for _, unit := range []string{"sluice-ctld", "sluice-noded"} {
		if got := h.Shown(unit, "Result") + " " + h.Shown(unit, "ActiveState"); got != "success inactive" {
			t.Errorf("%s after its stop: %s", unit, got)
		}
	}
	if r := h.Run("", "ls", "/run/slurmd.pid"); r.Code == 0 {
		t.Errorf("the pid file of the node daemon is still there: %s", r)
	}
	if r := h.Run("", "ls", "/run/sluice-ctld"); r.Code == 0 {
		t.Errorf("the run-time directory is still there: %s", r)
	}
	h.Do("", "sh", "-c", "kill -0 "+job)
	h.Do("", "systemctl", "start", "sluice-ctld", "sluice-noded")
	h.Do("ada", "touch", "/home/ada/go.end")
	h.Until("the job has completed", func() bool {
		return strings.Contains(h.Run("", "sacct", "-X", "-n", "-o", "State", "-j", "4").Out, "COMPLETED")
	})
}

// shimLines: what a shim logs has a priority in the journal, too. It complains while it cannot write down how its job has ended.
func shimLines(t *testing.T, h *boottest.Host) {
	submitLong(t, h, "shim")
	h.Do("", "sh", "-c", "cd /var/spool/slurmd/steps && for d in */; do [ -e $d/exit.pb ] || mkdir -v $d/exit.pb; done")
	h.Do("ada", "touch", "/home/ada/go.shim")
	const complaint = "cannot write the exit record"
	said := func(more ...string) string { // not by unit: a shim is in the cgroup of jobs
		return h.Run("", append([]string{"journalctl", "--no-pager", "--output=cat", "-t", "sluice-noded"}, more...)...).Out
	}
	h.Until("the shim has complained", func() bool { return strings.Contains(said(), complaint) })
	h.Run("", "sh", "-c", "rmdir /var/spool/slurmd/steps/*/exit.pb") // or the step's folder has gone with it
	h.Until("the job has completed", func() bool {
		return strings.Contains(h.Run("", "sacct", "-X", "-n", "-o", "State", "-j", "5").Out, "COMPLETED")
	})
	for _, line := range strings.Split(said("--priority=err"), "\n") {
		if strings.HasPrefix(line, "level=ERROR") && strings.Contains(line, complaint) {
			return
		}
	}
	t.Errorf("no line of the shim is an error:\n%s", said())
}

// syslog: SlurmctldSyslogDebug and SlurmdSyslogDebug send lines to the syslog socket, whatever the log's own level, and LogTimeFormat has
// those of the log begin with the time.
func syslog(t *testing.T, h *boottest.Host) {
	sent := func(tag string) string {
		return h.Run("", "journalctl", "--no-pager", "--output=cat", "_TRANSPORT=syslog", "-t", tag).Out
	}
	if got := sent("sluice-ctld") + sent("sluice-noded"); strings.Contains(got, "level=") {
		t.Errorf("by default syslog has\n%s", got)
	}
	text := slurmConf + "SlurmctldSyslogDebug=debug\nSlurmdSyslogDebug=info\nLogTimeFormat=short,format_stderr\n"
	if err := os.WriteFile(h.Path("/etc/slurm/slurm.conf"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	h.Do("", "systemctl", "reload", "sluice-ctld")
	h.Do("", "systemctl", "reload", "sluice-noded")
	h.Do("ada", "sbatch", "--wait", "--chdir=/home/ada", "--wrap", "true")
	for tag, want := range map[string]string{"sluice-ctld": "level=DEBUG", "sluice-noded": "SIGHUP: registering again"} {
		h.Until("syslog has lines of "+tag, func() bool { return strings.Contains(sent(tag), want) })
		if got := h.Journal(tag, "--output=cat", "_TRANSPORT=stdout"); strings.Contains(got, "level=DEBUG") ||
			!strings.Contains(got, "\ntime=\"") {
			t.Errorf("the log of %s itself:\n%s", tag, got)
		}
	}
}

// TestLoginHost: users of a login host, whose service has no rights, reach the controller as who they are.
func TestLoginHost(t *testing.T) {
	t.Parallel()
	files, bind := installed(t)
	net := boottest.NewNet(t)
	head := cluster(t, files, bind, net)
	files = maps.Clone(files)
	files["/etc/hosts"] = hosts
	h := boottest.Boot(t, "login", net, files, bind)
	net.Join(h)
	h.Do("", "useradd", "--create-home", "--uid", "1234", "ada")
	token := head.Do("", "sluice", "token", "create", "--node", "login", "--role", "login")
	h.Do("", "sluice-noded", "--login", "--join", token, "--join-only")
	h.Do("", "systemctl", "start", "sluice-login")
	if got := h.Shown("sluice-login", "StatusText"); got != "host login" {
		t.Errorf("its status: %q", got)
	}
	h.Do("ada", "sbatch", "--wait", "--chdir=/home/ada", "--output=out", "--wrap", "id -u")
	if got := head.Do("", "cat", "/home/ada/out"); got != "1234" {
		t.Errorf("the job ran as %s", got)
	}
	if r := h.Run("", "scontrol", "reconfigure"); r.Code == 0 {
		t.Error("root of the login host may reconfigure")
	}
	h.Do("", "systemctl", "reload", "sluice-login")
	h.Do("", "systemctl", "restart", "sluice-login")
	h.Do("ada", "sinfo")
}
