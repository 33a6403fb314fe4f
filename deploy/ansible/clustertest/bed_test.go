package clustertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/internal/test/boottest"
	"github.com/sluice-hpc/sluice/internal/test/output"
)

// patience is how long is waited for a state: a loaded machine is slow, and one that is emulated on it slower.
const patience = 10 * time.Minute

const (
	bridge  = "hosts0"
	network = "10.78.0." // the hosts' addresses begin so
	outside = network + "254"
)

// bed is where the hosts stand.
type bed struct {
	t     testing.TB
	root  string // what hosts are booted from
	dir   string // keys, homes, inventories
	debs  string // the packages
	net   int    // process that holds the network
	hosts map[string]*host
}

// host is a booted one.
type host struct {
	bed      *bed
	name     string
	addr     string
	vars     []string // of the inventory
	extra    []string // further arguments of systemd-nspawn
	cgroupV1 bool
	cmd      *exec.Cmd
	done     chan struct{}
	said     *output.Buffer
}

// start starts a process that dies with this one.
func start(t testing.TB, cmd *exec.Cmd) chan struct{} {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	started, done := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // which the kernel's word is tied to: it lives as long as the process
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(done)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	return done
}

// poll waits until something holds.
func poll(cond func() bool) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if cond() {
			return true
		}
	}
	return cond()
}

// newBed makes the network and a key for ssh.
func newBed(t testing.TB, root string) *bed {
	t.Helper()
	b := &bed{t: t, root: root, dir: t.TempDir(), debs: twoArchitectures(t), hosts: map[string]*host{}}
	hold := exec.Command("unshare", "--net", "sleep", "infinity")
	done := start(t, hold)
	t.Cleanup(func() { _ = hold.Process.Kill(); <-done })
	b.net = hold.Process.Pid
	mine, _ := os.Readlink("/proc/self/ns/net")
	var out []byte
	if !poll(func() bool {
		if theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", b.net)); err != nil || theirs == mine {
			return false
		}
		var err error
		out, err = b.inside("sh", "-c", "ip link set lo up; ip link add "+bridge+" up type bridge && ip address add "+
			outside+"/24 dev "+bridge).CombinedOutput()
		return err == nil
	}) {
		t.Fatalf("cannot make a bridge for the hosts: %s", out)
	}
	b.must(exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(b.dir, "key")).Run())
	b.must(os.Mkdir(filepath.Join(b.dir, "home"), 0o755))
	// It asks its workers a thousand times a second otherwise, which is a tenth of all that a play costs.
	b.must(os.WriteFile(filepath.Join(b.dir, "ansible.cfg"), []byte("[defaults]\ninternal_poll_interval = 0.02\n"), 0o644))
	b.must(os.Chmod(b.dir, 0o755))
	return b
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// inside is a command in the hosts' network.
func (b *bed) inside(args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"-t", strconv.Itoa(b.net), "--net", "--"}, args...)...)
}

// script makes a host's file system and boots it, again after each reboot: ROOT WORK FILES CGROUP ARGUMENT…
// What is in FILES is copied over the root. 133 is systemd-nspawn's way to say that the host wants to be booted again.
const script = `set -e
root=$1 work=$2 files=$3 cgroup=$4; shift 4
` + boottest.OwnGroups + `mount -t tmpfs -o mode=755 tmpfs "$work"
mkdir "$work/upper" "$work/work" "$work/host"
chmod 755 "$work/upper"
cp -a "$files/." "$work/upper/"
mount -t overlay -o "lowerdir=$root,upperdir=$work/upper,workdir=$work/work" overlay "$work/host"
rc=133
while [ "$rc" = 133 ]; do
	rc=0
	systemd-nspawn --quiet --directory="$work/host" --boot --register=no --keep-unit --console=pipe --link-journal=no "$@" || rc=$?
done`

// users are the accounts of all hosts: their home is shared.
const users = `alice:x:2001:2001::/home/alice:/bin/bash
bob:x:2002:2002::/home/bob:/bin/bash
`

// files makes a folder with what a host has beside the root: its name and address, the users, the key of ssh, and files by their absolute
// paths.
func (b *bed) files(h *host, files map[string]string) string {
	b.t.Helper()
	h.bed, h.said = b, &output.Buffer{}
	h.addr = network + strconv.Itoa(len(b.hosts)+1)
	b.hosts[h.name] = h
	over := b.t.TempDir()
	put := func(path, text string, mode os.FileMode) {
		at := filepath.Join(over, path)
		b.must(os.MkdirAll(filepath.Dir(at), 0o755))
		b.must(os.WriteFile(at, []byte(text), mode))
	}
	read := func(path string) string {
		text, err := os.ReadFile(path)
		b.must(err)
		return string(text)
	}
	put("/etc/hostname", h.name+"\n", 0o644)
	put("/etc/systemd/network/10-host0.network", "[Match]\nName=host0\n[Network]\nAddress="+h.addr+"/24\nLinkLocalAddressing=no\n", 0o644)
	b.must(os.MkdirAll(filepath.Join(over, "/etc/systemd/system/multi-user.target.wants"), 0o755))
	b.must(os.Symlink("/lib/systemd/system/systemd-networkd.service",
		filepath.Join(over, "/etc/systemd/system/multi-user.target.wants/systemd-networkd.service")))
	put("/etc/passwd", read(b.root+"/etc/passwd")+users, 0o644)
	put("/etc/group", read(b.root+"/etc/group")+"alice:x:2001:\nbob:x:2002:\n", 0o644)
	put("/etc/shadow", read(b.root+"/etc/shadow")+"alice:*:19000:0:99999:7:::\nbob:*:19000:0:99999:7:::\n", 0o640) // sshd asks for it
	put("/root/.ssh/authorized_keys", read(filepath.Join(b.dir, "key.pub")), 0o600)
	for path, text := range files {
		put(path, text, 0o644)
	}
	for i, name := range []string{"alice", "bob"} {
		home := filepath.Join(b.dir, "home", name)
		b.must(os.MkdirAll(home, 0o755))
		b.must(os.Chown(home, 2001+i, 2001+i))
	}
	return over
}

// boot starts a host, with files as above. It is switched off at the end of the test.
func (b *bed) boot(h *host, files map[string]string) *host {
	b.t.Helper()
	over := b.files(h, files)
	cgroup := fmt.Sprintf("sluice-cluster-%d-%s", os.Getpid(), h.name)
	args := append([]string{"-c", script, "boot", b.root, b.t.TempDir(), over, cgroup, "--machine=" + h.name, "--network-bridge=" + bridge,
		"--bind=" + filepath.Join(b.dir, "home") + ":/home", "--capability=all"}, h.extra...)
	h.cmd = b.inside(append([]string{"unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "slave",
		"sh"}, args...)...)
	h.cmd.Env = os.Environ()
	if !h.cgroupV1 {
		h.cmd.Env = append(h.cmd.Env, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1")
	}
	h.cmd.Stdout, h.cmd.Stderr = h.said, h.said
	h.done = start(b.t, h.cmd)
	b.t.Cleanup(func() {
		_ = h.cmd.Process.Kill()
		<-h.done
		boottest.RemoveGroups(cgroup)
	})
	return h
}

// up waits until a host answers by ssh and has ended its boot; degraded is a unit of Debian's that a container cannot have.
func (h *host) up() *host {
	h.bed.t.Helper()
	var out string
	if !poll(func() bool {
		out, _ = h.run("root", "systemctl is-system-running")
		out = strings.TrimSpace(out)
		return out == "running" || out == "degraded" || h.ended()
	}) || h.ended() {
		h.bed.t.Fatalf("host %s does not come up: %s\n%s", h.name, out, h.said)
	}
	return h
}

func (h *host) ended() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

// run runs a command line on the host as a user, over ssh.
func (h *host) run(user, line string) (string, error) {
	if user != "root" {
		line = "runuser -l " + user + " -c '" + strings.ReplaceAll(line, "'", `'\''`) + "'"
	}
	cmd := h.bed.inside(append(append([]string{"ssh"}, h.bed.sshArgs()...), "root@"+h.addr, line)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// login is run, but by sshd as the user.
func (h *host) login(user, line string) (string, error) {
	args := append([]string{"ssh", "-o", "LogLevel=INFO"}, h.bed.sshArgs()...) // of two the first counts; with INFO banners are shown
	cmd := h.bed.inside(append(args, user+"@"+h.addr, line)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// publicKey is that of the key by which hosts are reached.
func (b *bed) publicKey() string {
	b.t.Helper()
	key, err := os.ReadFile(filepath.Join(b.dir, "key.pub"))
	b.must(err)
	return strings.TrimSpace(string(key))
}

// do is run for what has to succeed; it gives the output without white space around it.
func (h *host) do(user, line string) string {
	h.bed.t.Helper()
	out, err := h.run(user, line)
	if err != nil {
		h.bed.t.Fatalf("host %s: %s: %v\n%s", h.name, line, err, out)
	}
	return strings.TrimSpace(out)
}

// until waits for a command to say something that satisfies ok.
func (h *host) until(what, user, line string, ok func(out string) bool) string {
	h.bed.t.Helper()
	var out string
	if !poll(func() bool { out, _ = h.run(user, line); return ok(strings.TrimSpace(out)) }) {
		h.bed.t.Fatalf("host %s: not so after %v: %s; %s says:\n%s", h.name, patience, what, line, out)
	}
	return strings.TrimSpace(out)
}

func (b *bed) sshArgs() []string {
	return []string{"-i", filepath.Join(b.dir, "key"), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o",
		"LogLevel=ERROR", "-o", "ConnectTimeout=10", "-o", "BatchMode=yes"}
}
