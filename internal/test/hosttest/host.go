package hosttest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-hpc/sluice/internal/test/daemontest"
	"golang.org/x/sys/unix"
)

// Missing returns the reason why this machine cannot run hosts; nil if it can.
func Missing() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("hosts of their own need root (namespaces, TUN devices)")
	}
	tun, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("the hosts' cables need TUN devices: %w", err)
	}
	tun.Close()
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("this kernel or container gives no namespaces: %w", err)
	}
	return nil
}

// namespaces are private to each host.
const namespaces = unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC

// Host is one host. Its methods are for one goroutine at a time, except those of its Cable.
type Host struct {
	Name  string
	Addr  string // its address in the hosts' network
	Cable *Cable

	t     testing.TB
	net   *Net
	dir   string
	env   []string
	init  *exec.Cmd // nil: it is off
	stdin io.Closer
}

// Add creates a host with these files in /etc, by name, and switches it on. Its address is Address(n), where n is the number of
// existing hosts.
func (n *Net) Add(name string, etc map[string]string) *Host {
	n.t.Helper()
	h := &Host{Name: name, Addr: Address(len(n.hosts)), t: n.t, net: n, dir: filepath.Join(n.dir, name),
		env: []string{"PATH=" + n.Bin + ":/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}}
	h.Cable = &Cable{}
	etc = maps.Clone(etc)
	etc["hostname"] = name + "\n"
	for _, d := range []string{"etc", "machine-etc", "spool", "log"} {
		n.must(os.MkdirAll(filepath.Join(h.dir, d), 0o755))
	}
	entries, err := os.ReadDir("/etc")
	n.must(err)
	for _, e := range entries {
		own := slices.ContainsFunc(slices.Collect(maps.Keys(etc)), func(p string) bool {
			return p == e.Name() || strings.HasPrefix(p, e.Name()+"/")
		})
		if !own && e.Name() != "slurm" && e.Name() != "sluice" {
			n.must(os.Symlink(filepath.Join(h.dir, "machine-etc", e.Name()), filepath.Join(h.dir, "etc", e.Name())))
		}
	}
	for path, text := range etc {
		h.WriteEtc(path, text)
	}
	h.PowerOn()
	return h
}

// WriteEtc writes a file of the host's /etc.
func (h *Host) WriteEtc(path, text string) {
	h.t.Helper()
	file := h.Etc(path)
	h.net.must(os.MkdirAll(filepath.Dir(file), 0o755))
	h.net.must(os.WriteFile(file+".new", []byte(text), 0o644))
	h.net.must(os.Rename(file+".new", file))
}

// Etc returns the path of a file in the host's /etc for the test.
func (h *Host) Etc(path string) string { return filepath.Join(h.dir, "etc", path) }

// Path returns the path of a host's file, such as one in /run, for the test while the host is on.
func (h *Host) Path(path string) string {
	return fmt.Sprintf("/proc/%d/root%s", h.init.Process.Pid, path)
}

// PowerOn boots the host: it gets a new boot id and an empty /run; /etc and /var/spool are kept.
func (h *Host) PowerOn() {
	h.t.Helper()
	boot := fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x\n", rand.Uint32(), rand.Uint32N(1<<16), rand.Uint32N(1<<12), rand.Uint32N(1<<12),
		rand.Uint64N(1<<48))
	h.net.must(os.WriteFile(filepath.Join(h.dir, "boot_id"), []byte(boot), 0o444))
	text, err := json.Marshal(spec{h.Name, h.dir})
	h.net.must(err)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(slices.Clone(h.env), specEnv+"="+string(text))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Setsid: true}
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	h.net.must(err)
	h.stdin, err = cmd.StdinPipe()
	h.net.must(err)
	h.net.must(cmd.Start())
	h.init = cmd
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		_ = cmd.Wait()
		h.init = nil
		h.t.Fatalf("host %s does not boot: %s", h.Name, said.String())
	}
	h.net.plug(h)
}

// PowerOff kills every process of the host at once, like a power failure.
func (h *Host) PowerOff() {
	if h.init == nil {
		return
	}
	h.net.unplug(h)
	h.stdin.Close()
	_ = h.init.Process.Kill()
	_ = h.init.Wait()
	h.init = nil
}

// In calls f on a thread in the host's network: sockets created by f belong to the host.
func (h *Host) In(f func()) error {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", h.init.Process.Pid))
	if err != nil {
		return err
	}
	defer ns.Close()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			f()
		}
		done <- err
	}()
	return <-done
}

// Dial connects from this host to an address in the hosts' network.
func (h *Host) Dial(address string) (c net.Conn, err error) {
	if failed := h.In(func() { c, err = net.Dial("tcp", address) }); failed != nil {
		return nil, failed
	}
	return c, err
}

// commandLine returns the command line that runs a command on the host; user "" is root.
func (h *Host) commandLine(user string, args []string) []string {
	line := []string{"nsenter", "-t", strconv.Itoa(h.init.Process.Pid), "-m", "-u", "-n", "-p", "-i", "-r", "--"}
	if user != "" {
		line = append(line, "setpriv", "--reuid="+user, "--regid="+user, "--init-groups", "--")
	}
	return append(line, args...)
}

// Result is the outcome of a command.
type Result struct {
	Out, Err string
	Code     int
}

// String formats the result for messages.
func (r Result) String() string { return fmt.Sprintf("exit code %d: %s%s", r.Code, r.Out, r.Err) }

// Run runs a command on the host as one of its users; user "" is root. env is added to a minimal environment.
func (h *Host) Run(user string, env []string, args ...string) Result {
	h.t.Helper()
	line := h.commandLine(user, args)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(slices.Clone(h.env), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		h.t.Fatalf("host %s: %v: %v", h.Name, args, err)
	}
	return Result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// Process is a daemon of a host.
type Process struct {
	*daemontest.Daemon
}

// Start starts a daemon on the host, as root. It ends at the latest with the host.
func (h *Host) Start(name string, args ...string) *Process {
	h.t.Helper()
	line := h.commandLine("", args)
	return &Process{daemontest.Launch(h.t, filepath.Join(h.dir, "log"), name, syscall.SysProcAttr{}, h.env, line[0], line[1:]...)}
}

// PID returns the daemon's process id on the machine, where nsenter is its parent; 0 if it has none (yet).
func (p *Process) PID() int {
	n := p.Cmd.Process.Pid
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", n, n))
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}

// Signal sends a signal to the daemon once it exists.
func (p *Process) Signal(sig syscall.Signal) {
	daemontest.Poll(Patience, func() bool {
		pid := p.PID()
		return p.Ended() || pid != 0 && unix.Kill(pid, sig) == nil
	})
}
