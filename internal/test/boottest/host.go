package boottest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/internal/test/daemontest"
	"github.com/sluice-hpc/sluice/internal/test/output"
)

// Patience is the timeout for every state: a loaded machine is slow.
const Patience = 3 * time.Minute

// Root builds the hosts' root file system, if it is not cached yet, or returns the reason why that is impossible. It is for
// packages two directories below the module's root.
var Root = sync.OnceValues(func() (string, error) {
	switch {
	case os.Geteuid() != 0:
		return "", errors.New("booting hosts needs root")
	case exec.Command("systemd-nspawn", "--version").Run() != nil:
		return "", errors.New("booting hosts needs systemd-nspawn (apt-get install systemd-container)")
	case exec.Command("unshare", "--mount", "true").Run() != nil:
		return "", errors.New("this kernel or container gives no mount namespaces")
	}
	var said bytes.Buffer
	cmd := exec.Command("../../../.ci/host-root")
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", errors.New(strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(string(out)), nil
})

// Host is a booted host. Its methods may be called from any goroutine.
type Host struct {
	Name string

	t      testing.TB
	leader int           // the host's first process, as seen by the machine
	done   chan struct{} // closed at its end
	cmd    *exec.Cmd
	said   *output.Buffer
	cgroup string
}

// booted counts the hosts of this process.
var booted atomic.Int32

// script creates the host's file system in a private mount namespace and boots it: ROOT WORK FILES CGROUP ARGUMENT… The content of
// FILES is copied over the root.
const script = `set -e
root=$1 work=$2 files=$3 cgroup=$4; shift 4
` + OwnGroups + `mount -t tmpfs -o mode=755 tmpfs "$work"
mkdir "$work/upper" "$work/work" "$work/host"
chmod 755 "$work/upper"
cp -a "$files/." "$work/upper/"
mount -t overlay -o "lowerdir=$root,upperdir=$work/upper,workdir=$work/work" overlay "$work/host"
exec systemd-nspawn --quiet --directory="$work/host" --boot --register=no --keep-unit --console=pipe --link-journal=no "$@"`

// Boot boots a host and waits until it is up. files are written to it, by absolute path: a text that begins with "-> " is a
// symbolic link, and files in directories named bin or sbin get mode 0755. bind are files of the machine, by their path on the
// host. The host is switched off at the end of the test. net may be nil: the host has no network.
func Boot(t testing.TB, name string, net *Net, files, bind map[string]string) *Host {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	h := &Host{Name: name, t: t, done: make(chan struct{}), said: &output.Buffer{}}
	over := t.TempDir()
	h.must(putFiles(over, files))
	h.must(putFiles(over, map[string]string{"/etc/hostname": name + "\n"}))
	h.cgroup = fmt.Sprintf("sluice-boot-%d-%d", os.Getpid(), booted.Add(1))
	args := []string{"-c", script, "boot", root, t.TempDir(), over, h.cgroup, "--machine=" + name}
	if net == nil {
		args = append(args, "--private-network")
	} else {
		args = append(args, "--network-bridge="+bridge)
	}
	for at, file := range bind {
		args = append(args, "--bind-ro="+file+":"+at)
	}
	line := append([]string{"unshare", "--mount", "--propagation", "slave", "sh"}, args...)
	if net != nil {
		line = append(net.nsenter(), line...)
	}
	h.cmd = exec.Command(line[0], line[1:]...)
	h.cmd.Stdout, h.cmd.Stderr = h.said, h.said
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // Pdeathsig is tied to this thread, which lives as long as the host
		err := h.cmd.Start()
		started <- err
		if err == nil {
			_ = h.cmd.Wait()
		}
		close(h.done)
	}()
	h.must(<-started)
	t.Cleanup(h.PowerOff)
	h.await("the first process", func() bool { h.leader = h.findLeader(); return h.leader != 0 })
	// "degraded": a unit of Debian's does not work in a container.
	h.await("the end of its boot", func() bool {
		out := strings.TrimSpace(h.Run("", "systemctl", "is-system-running").Out)
		return out == "running" || out == "degraded"
	})
	return h
}

func putFiles(dir string, files map[string]string) error {
	for path, text := range files {
		at := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			if err := os.Symlink(target, at); err != nil {
				return err
			}
			continue
		}
		mode := fs.FileMode(0o644)
		if strings.HasSuffix(filepath.Dir(path), "bin") {
			mode = 0o755
		}
		if err := os.WriteFile(at, []byte(text), mode); err != nil {
			return err
		}
	}
	return nil
}

func (h *Host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatalf("host %s: %v\n%s", h.Name, err, h.said)
	}
}

// await waits for a state of the host.
func (h *Host) await(what string, cond func() bool) {
	h.t.Helper()
	gone := false
	if !daemontest.Poll(Patience, func() bool { gone = h.ended(); return gone || cond() }) || gone {
		h.t.Fatalf("host %s: no sign of %s:\n%s", h.Name, what, h.said)
	}
}

func (h *Host) ended() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

// findLeader looks for the host's init among the children of systemd-nspawn, which the process has executed by now.
func (h *Host) findLeader() int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", h.cmd.Process.Pid, h.cmd.Process.Pid))
	for _, f := range strings.Fields(string(text)) {
		pid, _ := strconv.Atoi(f)
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if strings.TrimSpace(string(comm)) == "systemd" && daemontest.CommandLine(pid) != "" {
			return pid
		}
	}
	return 0
}

// PowerOff kills every process of the host at once, like a power failure.
func (h *Host) PowerOff() {
	_ = h.cmd.Process.Kill() // the kernel kills the rest: the leader's death ends its PID namespace
	if h.leader != 0 {
		_ = syscall.Kill(h.leader, syscall.SIGKILL)
	}
	<-h.done
	RemoveGroups(h.cgroup)
}

// RemoveGroups removes the cgroups of a host that is off once its last process is gone. They are below one named cgroup.
func RemoveGroups(cgroup string) {
	for _, mount := range []string{"", "unified", "systemd"} {
		top := filepath.Join("/sys/fs/cgroup", mount, cgroup)
		daemontest.Poll(Patience, func() bool { return removeGroups(top) })
	}
}

// OwnGroups is a shell script that puts a host's units below the cgroup $cgroup if the host is booted after it. Otherwise all hosts
// share one cgroup, which nobody removes.
const OwnGroups = `for mount in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/systemd; do
	[ -e "$mount/cgroup.procs" ] || continue
	mkdir "$mount/$cgroup"
	echo $$ >"$mount/$cgroup/cgroup.procs"
done
`

// removeGroups removes a cgroup with everything below it and reports whether it is gone.
func removeGroups(top string) bool {
	var dirs []string
	_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for _, dir := range slices.Backward(dirs) {
		_ = syscall.Rmdir(dir)
	}
	_, err := os.Stat(top)
	return errors.Is(err, fs.ErrNotExist)
}

// Path returns the path of a host's file for the test.
func (h *Host) Path(path string) string { return fmt.Sprintf("/proc/%d/root%s", h.leader, path) }

// Result is the outcome of a command.
type Result struct {
	Out, Err string
	Code     int
}

// String formats the result for messages.
func (r Result) String() string { return fmt.Sprintf("exit code %d: %s%s", r.Code, r.Out, r.Err) }

// Run runs a command on the host as one of its users; user "" is root.
func (h *Host) Run(user string, args ...string) Result {
	h.t.Helper()
	line := []string{"-t", strconv.Itoa(h.leader), "--mount", "--uts", "--net", "--pid", "--ipc", "--root=" + h.Path(""),
		"--wd=" + h.Path("/"), "--"}
	if user != "" {
		line = append(line, "setpriv", "--reuid="+user, "--regid="+user, "--init-groups", "--")
	}
	cmd := exec.Command("nsenter", append(line, args...)...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "SYSTEMD_PAGER=cat",
		"SYSTEMD_COLORS=0"}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		h.t.Fatalf("host %s: %v: %v", h.Name, args, err)
	}
	return Result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// Do is Run for a command that must succeed; it returns its output without surrounding white space.
func (h *Host) Do(user string, args ...string) string {
	h.t.Helper()
	r := h.Run(user, args...)
	if r.Code != 0 {
		h.t.Fatalf("host %s: %s: %s%s", h.Name, strings.Join(args, " "), r, h.Journal("sluice-*", "--lines=40"))
	}
	return strings.TrimSpace(r.Out)
}

// Shown returns a property of a unit, from systemctl show.
func (h *Host) Shown(unit, property string) string {
	h.t.Helper()
	return h.Do("", "systemctl", "show", "--property="+property, "--value", unit)
}

// Journal returns the log of a unit since the boot; more are further arguments of journalctl.
func (h *Host) Journal(unit string, more ...string) string {
	h.t.Helper()
	r := h.Run("", append([]string{"journalctl", "--boot", "--no-pager", "--quiet", "--unit=" + unit}, more...)...)
	return r.Out + r.Err
}

// Until waits for a state of the host. On a timeout it fails with what and the journals of our units.
func (h *Host) Until(what string, cond func() bool) {
	h.t.Helper()
	if !daemontest.Poll(Patience, cond) {
		h.t.Fatalf("host %s: not so after %v: %s\n%s", h.Name, Patience, what, h.Journal("sluice-*", "--lines=60"))
	}
}
