package hosttest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-hpc/sluice/internal/test/hosttest"
	"golang.org/x/sys/unix"
)

const (
	sshd       = "/usr/sbin/sshd"
	sftpServer = "/usr/lib/openssh/sftp-server"
)

// logins is a cluster whose compute hosts run sshd, with `sluice adopt` in its PAM stack.
type logins struct {
	*cluster
	key string // the folder with the keys of the users
	gpu string // what the device files of the nodes begin with
}

// needsSSH skips where there is no real sshd.
func needsSSH(t *testing.T) {
	t.Helper()
	for file, from := range map[string]string{sshd: "openssh-server", sftpServer: "openssh-sftp-server", "/usr/bin/ssh": "openssh-client"} {
		if _, err := os.Stat(file); err != nil {
			t.Skipf("%s is missing: apt-get install %s", file, from)
		}
	}
}

func newLogins(t *testing.T, nodes int) *logins {
	t.Helper()
	needsSSH(t)
	l := &logins{}
	l.cluster = newClusterWith(t, nodes, func(c *cluster, etc map[string]string) {
		l.key, l.gpu = filepath.Join(c.dir, "keys"), filepath.Join(c.dir, "gpu")
		must(t, os.Mkdir(l.key, 0o755))
		keygen := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(l.key, "host"))
		if out, err := keygen.CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v: %s", err, out)
		}
		secret, err := os.ReadFile(filepath.Join(l.key, "host"))
		must(t, err)
		public, err := os.ReadFile(filepath.Join(l.key, "host.pub"))
		must(t, err)
		for user, uid := range map[string]int{"root": 0, "alice": 5001, "bob": 5002} {
			file := filepath.Join(l.key, user)
			must(t, os.WriteFile(file, secret, 0o600))
			must(t, os.Chown(file, uid, -1))
			etc["ssh/keys/"+user] = string(public)
		}
		for i := range 2 { // the numbers are nobody's: who may open such a file is told that there is no such device
			must(t, unix.Mknod(fmt.Sprint(l.gpu, i), unix.S_IFCHR|0o666, int(unix.Mkdev(240, uint32(i)))))
			must(t, os.Chmod(fmt.Sprint(l.gpu, i), 0o666))
		}
		etc["passwd"] += "sshd:x:105:65534::/run/sshd:/usr/sbin/nologin\n"
		etc["ssh/sshd_config"] = "HostKey " + filepath.Join(l.key, "host") + "\nUsePAM yes\nPidFile none\nPermitRootLogin yes\n" +
			"AuthorizedKeysFile /etc/ssh/keys/%u\nStrictModes no\nUseDNS no\nSubsystem sftp " + sftpServer + "\n"
		adopt := " required pam_exec.so quiet stdout " + bin + "/sluice adopt --exempt bob,%ops\n"
		etc["pam.d/sshd"] = "auth required pam_permit.so\n" +
			"account [success=1 default=ignore] pam_succeed_if.so quiet_fail quiet_success uid eq 0\naccount" + adopt + "account required pam_permit.so\n" +
			"session required pam_exec.so /bin/sh /etc/between\nsession" + adopt
		etc["between"] = fmt.Sprintf(between, bin)
		etc["slurm/cgroup.conf"] = "ConstrainCores=yes\nConstrainRAMSpace=yes\nConstrainDevices=yes\n"
		etc["slurm/gres.conf"] = "Name=gpu File=" + l.gpu + "[0-1]\n"
		c.gres, c.consumed = "Gres=gpu:2", "CR_Core_Memory"
		c.more = "GresTypes=gpu\nDefMemPerNode=512\nPrologFlags=Contain\n"
	})
	for _, h := range l.compute {
		l.ok(h.Run("", nil, "mkdir", "/run/sshd"))
		h.Start("sshd", sshd, "-D", "-e")
	}
	for _, h := range l.compute {
		l.await("sshd lets root in on "+h.Name, func() bool { return l.ssh("root", h, "true").Code == 0 })
	}
	return l
}

// sshLine is a command line of ssh or its like, as a user of the login host; of the user it needs no home.
func (l *logins) sshLine(user, program string, args ...string) []string {
	return append([]string{program, "-F", "none", "-i", filepath.Join(l.key, user), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
		"-o", "UserKnownHostsFile=/dev/null"}, args...)
}

// ssh runs a command line on a host.
func (l *logins) ssh(user string, h *hosttest.Host, line string) hosttest.Result {
	l.t.Helper()
	return l.login.Run(strings.TrimPrefix(user, "root"), nil, l.sshLine(user, "ssh", user+"@"+h.Addr, line)...)
}

// session is one that goes on.
func (l *logins) session(user string, h *hosttest.Host, name, line string) *hosttest.Process {
	l.t.Helper()
	p := l.login.Start(name, append([]string{"setpriv", "--reuid=" + user, "--regid=" + user, "--init-groups", "--"},
		l.sshLine(user, "ssh", user+"@"+h.Addr, line+"; echo over")...)...)
	return p
}

// refused is an ssh that was not let in, with words.
func (l *logins) refused(r hosttest.Result, words string) {
	l.t.Helper()
	if r.Code != 255 || !strings.Contains(r.Err, words) || r.Out != "" {
		l.t.Errorf("not refused with %q: %v", words, r)
	}
}

// run submits a job that goes on, and waits until its script runs on all its nodes.
func (l *logins) run(args ...string) uint32 {
	l.t.Helper()
	id := l.submit(append(args, "--wrap", "sleep 100000")...)
	l.await(fmt.Sprintf("job %d runs", id), func() bool {
		return strings.TrimSpace(l.ok(l.ctl.Run("", nil, "squeue", "-h", "-j", fmt.Sprint(id), "-o", "%T"))) == "RUNNING"
	})
	return id
}

// between does what pam_systemd does, which is in most PAM stacks: it puts the session into another cgroup. Where it is asked to, it has
// all jobs of alice end before the session line that takes the session back.
const between = `export PATH=%s:/usr/bin:/bin
for top in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/freezer; do
	for pid in $PPID $$; do
		[ ! -e $top/cgroup.procs ] || echo $pid >$top/cgroup.procs
	done
done
[ "$PAM_TYPE" = open_session ] && [ -e /run/end-jobs ] || exit 0
rm /run/end-jobs
as="setpriv --reuid=alice --regid=alice --init-groups"
exec 2>/run/between
$as scancel --user=alice || exit 0
until [ "$($as squeue -h -u alice -o %%i && echo none)" = none ]; do sleep 0.1; done
`

const adoptNone = "Access denied by sluice adopt: you have no active jobs on this node"

// TestLoginsBecomePartOfJobs: sshd lets in only who has a job on the node, and the session is part of it, for as long as it lasts.
func TestLoginsBecomePartOfJobs(t *testing.T) {
	t.Parallel()
	l := newLogins(t, 2)
	c1, c2 := l.compute[0], l.compute[1]
	l.refused(l.ssh("alice", c1, "echo in"), adoptNone)
	if r := l.ssh("bob", c1, "cat /proc/self/cgroup"); r.Code != 0 || strings.Contains(r.Out, "job_") {
		t.Errorf("who is exempt: %v", r)
	}

	first := l.run("-w", "c1", "-n1", "--gpus=1", "--mem=300")
	in := fmt.Sprintf("/job_%d.1/extern\n", first)
	l.await("alice is let in", func() bool { return l.ssh("alice", c1, "true").Code == 0 })
	r := l.ssh("alice", c1, "cat /proc/self/cgroup; id -un")
	if !strings.Contains(r.Out, in) || !strings.HasSuffix(r.Out, "\nalice\n") {
		t.Errorf("alice's session is not in job %d: %v", first, r)
	}
	for line := range strings.Lines(r.Out) {
		if _, path, ok := strings.Cut(line, ":memory:"); ok && !strings.HasSuffix(path, in) {
			t.Errorf("its memory is not the job's: %s", line)
		}
	}
	l.refused(l.ssh("alice", c2, "echo in"), adoptNone) // where the job is not
	if r := l.ssh("root", c1, "cat /proc/self/cgroup"); r.Code != 0 || strings.Contains(r.Out, "job_") {
		t.Errorf("root: %v", r)
	}
	l.byPassword(c1, in)
	l.byHand(c1)
	l.devices(c1)
	l.copies(c1)
	l.ofTwo(c1, first)
	l.whileSuspended(c1, first)
	l.withoutDaemon(c1, in)

	// The end of the job ends a session that hangs up on SIGTERM, and one in which nothing does.
	hangsUp := l.session("alice", c1, "hangs-up", "echo here; exec sleep 100000")
	stays := l.session("alice", c1, "stays", "trap '' TERM HUP; echo here; while :; do sleep 100; done")
	for _, s := range []*hosttest.Process{hangsUp, stays} {
		l.await("the session is there", func() bool { return strings.Contains(s.Tail(100), "here") })
	}
	l.ok(l.ctl.Run("alice", nil, "scancel", fmt.Sprint(first)))
	for _, s := range []*hosttest.Process{hangsUp, stays} {
		if !s.Wait(hosttest.Patience) {
			t.Errorf("%s goes on without its job", s.Name)
		}
		if strings.Contains(s.Tail(100), "over") {
			t.Errorf("%s ended by itself", s.Name)
		}
	}
	l.wait(first)
	l.await("nothing of the job is left on the node", func() bool {
		name := fmt.Sprintf("sluice/%s/c1/job_%d.1", l.name, first)
		alone, _ := filepath.Glob("/sys/fs/cgroup/" + name)
		found, _ := filepath.Glob("/sys/fs/cgroup/*/" + name)
		return len(alone)+len(found) == 0 && l.ssh("alice", c1, "true").Code == 255
	})
	l.refused(l.ssh("alice", c1, "echo in"), adoptNone)
	l.ofSeveralNodes(c2)
	l.endsMeanwhile(c1)
}

// byPassword: sshd has another process ask PAM where PAM authenticates as well.
func (l *logins) byPassword(h *hosttest.Host, in string) {
	l.t.Helper()
	r := l.login.Run("alice", nil, "ssh", "-F", "none", "-o", "PreferredAuthentications=keyboard-interactive",
		"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "alice@"+h.Addr, "cat /proc/self/cgroup")
	if !strings.Contains(r.Out, in) {
		l.t.Errorf("a session that PAM has authenticated: %v", r)
	}
}

// byHand: only root can have processes adopted.
func (l *logins) byHand(h *hosttest.Host) {
	l.t.Helper()
	r := h.Run("bob", []string{"PAM_USER=alice", "PAM_TYPE=account"}, filepath.Join(bin, "sluice"), "adopt")
	if r.Code != 1 || !strings.Contains(r.Err, "only root can make a session part of a job") {
		l.t.Errorf("sluice adopt by a user: %v", r)
	}
	info, err := os.Stat(h.Path("/run/sluice/" + l.name + "/" + h.Name + ".sessions"))
	if err != nil || info.Mode().Perm() != 0o600 {
		l.t.Errorf("the socket of sessions: %v, %v", info, err)
	}
}

// endsMeanwhile: a session whose job ends between the two lines in PAM ends as well.
func (l *logins) endsMeanwhile(h *hosttest.Host) {
	l.t.Helper()
	l.run("-w", h.Name, "-n1")
	l.await("alice is let in", func() bool { return l.ssh("alice", h, "true").Code == 0 })
	l.ok(h.Run("", nil, "touch", "/run/end-jobs"))
	if r := l.ssh("alice", h, "echo in"); r.Code != 255 || r.Out != "" {
		l.t.Errorf("a session outside of any job: %v; %v", r, h.Run("", nil, "cat", "/run/between"))
	}
}

// devices: a session can open the job's devices and no others.
func (l *logins) devices(h *hosttest.Host) {
	l.t.Helper()
	r := l.ssh("alice", h, fmt.Sprintf("for i in 0 1; do (: <%s$i) 2>&1; done", l.gpu))
	if strings.Count(r.Out, "No such device or address") != 1 || strings.Count(r.Out, "Operation not permitted") != 1 {
		l.t.Errorf("a session in a job with one of two devices: %v", r)
	}
}

// copies: scp and sftp are sessions as well.
func (l *logins) copies(h *hosttest.Host) {
	l.t.Helper()
	from := filepath.Join(l.dir, "to-copy")
	must(l.t, os.WriteFile(from, []byte("what is copied\n"), 0o644))
	l.ok(l.login.Run("alice", nil, l.sshLine("alice", "scp", "-q", from, "alice@"+h.Addr+":/tmp/copied")...))
	if got := l.ok(l.ssh("alice", h, "cat /tmp/copied")); got != "what is copied\n" {
		l.t.Errorf("scp has copied %q", got)
	}
	batch := filepath.Join(l.dir, "batch")
	must(l.t, os.WriteFile(batch, []byte("rename /tmp/copied /tmp/renamed\nls /tmp/renamed\n"), 0o644))
	if r := l.login.Run("alice", nil, l.sshLine("alice", "sftp", "-q", "-b", batch, "alice@"+h.Addr)...); r.Code != 0 {
		l.t.Errorf("sftp: %v", r)
	}
}

// ofTwo: of two jobs it is the one that started last; a session stays in its own, and ends with that.
func (l *logins) ofTwo(h *hosttest.Host, first uint32) {
	l.t.Helper()
	older := l.session("alice", h, "older", "echo here; exec sleep 100000")
	l.await("the first session is there", func() bool { return strings.Contains(older.Tail(100), "here") })
	second := l.run("-w", h.Name, "-n1")
	newer := l.session("alice", h, "newer", "cat /proc/self/cgroup; echo here; exec sleep 100000")
	l.await("the second session is there", func() bool { return strings.Contains(newer.Tail(100), "here") })
	if in := fmt.Sprintf("/job_%d.1/extern\n", second); !strings.Contains(newer.Tail(100), in) {
		l.t.Errorf("with jobs %d and %d, a session is not in the newer: %s", first, second, newer.Tail(100))
	}
	l.ok(l.ctl.Run("alice", nil, "scancel", fmt.Sprint(second)))
	if !newer.Wait(hosttest.Patience) {
		l.t.Error("a session goes on without its job")
	}
	l.wait(second)
	if older.Ended() {
		l.t.Errorf("with another job's end a session has ended: %s", older.Tail(100))
	}
	older.Signal(syscall.SIGTERM)
	older.Wait(hosttest.Patience)
	if r := l.ssh("alice", h, "cat /proc/self/cgroup"); !strings.Contains(r.Out, fmt.Sprintf("/job_%d.1/extern\n", first)) {
		l.t.Errorf("with the newer job gone, a session is not in the older: %v", r)
	}
}

// whileSuspended: a suspended job's sessions stand still, and new ones are refused.
func (l *logins) whileSuspended(h *hosttest.Host, id uint32) {
	l.t.Helper()
	l.ok(l.ctl.Run("", nil, "scontrol", "suspend", fmt.Sprint(id)))
	words := fmt.Sprintf("Access denied by sluice adopt: your job %d on this node is suspended", id)
	l.await("the node has suspended the job", func() bool { return strings.Contains(l.ssh("alice", h, "true").Err, words) })
	l.refused(l.ssh("alice", h, "echo in"), words)
	l.ok(l.ctl.Run("", nil, "scontrol", "resume", fmt.Sprint(id)))
	l.await("alice is let in again", func() bool { return l.ssh("alice", h, "true").Code == 0 })
}

// withoutDaemon: while the node daemon is away, sessions go on, users are not let in, and root is; the next daemon knows the job.
func (l *logins) withoutDaemon(h *hosttest.Host, in string) {
	l.t.Helper()
	s := l.session("alice", h, "goes-on", "echo here; exec sleep 100000")
	l.await("the session is there", func() bool { return strings.Contains(s.Tail(100), "here") })
	d := l.noded[h.Name]
	d.Signal(syscall.SIGTERM)
	d.Wait(hosttest.Patience)
	l.refused(l.ssh("alice", h, "echo in"), "Access denied by sluice adopt: the node daemon is not running on this node")
	if r := l.ssh("root", h, "echo in"); r.Out != "in\n" {
		l.t.Errorf("root without a node daemon: %v", r)
	}
	l.startNoded(h)
	l.await("alice is let in by the next daemon", func() bool {
		return strings.Contains(l.ssh("alice", h, "cat /proc/self/cgroup").Out, in)
	})
	l.noded[h.Name].Signal(syscall.SIGKILL)
	l.noded[h.Name].Wait(hosttest.Patience)
	l.refused(l.ssh("alice", h, "echo in"), "Access denied by sluice adopt: the node daemon does not answer on this node")
	l.startNoded(h)
	l.await("alice is let in after kill -9", func() bool {
		return strings.Contains(l.ssh("alice", h, "cat /proc/self/cgroup").Out, in)
	})
	if s.Ended() {
		l.t.Errorf("with the daemon a session has ended: %s", s.Tail(100))
	}
}

// ofSeveralNodes: on a node without the script, where the job's allocation is empty, too; what a session uses is the job's.
func (l *logins) ofSeveralNodes(h *hosttest.Host) {
	l.t.Helper()
	id := l.run("-N2", "--gpus-per-node=1")
	l.await("alice is let in", func() bool { return l.ssh("alice", h, "true").Code == 0 })
	r := l.ssh("alice", h, "cat /proc/self/cgroup; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done")
	if !strings.Contains(r.Out, fmt.Sprintf("/job_%d.1/extern\n", id)) {
		l.t.Errorf("a session on a node without the script is not in job %d: %v", id, r)
	}
	l.devices(h)
	s := l.session("alice", h, "elsewhere", "echo here; exec sleep 100000")
	l.await("the session is there", func() bool { return strings.Contains(s.Tail(100), "here") })
	l.ok(l.ctl.Run("alice", nil, "scancel", fmt.Sprint(id)))
	if !s.Wait(hosttest.Patience) {
		l.t.Error("a session goes on without its job")
	}
	l.wait(id)
	l.await("what the session used is the job's", func() bool {
		used := strings.TrimSpace(l.ok(l.ctl.Run("alice", nil, "sacct", "-n", "-P", "-j", fmt.Sprintf("%d.extern", id), "-o", "TotalCPU")))
		return used != "" && strings.Trim(used, "0:.") != ""
	})
}
