package boottest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/sluice-hpc/sluice/internal/test/daemontest"
)

// bridge is the bridge for hosts, for nspawn's --network-bridge=.
const bridge = "hosts0"

// Net is a network for hosts: they reach each other and nothing else.
type Net struct {
	pid   int // of the process that holds the namespace
	hosts int
}

// NewNet creates a network that ends with the test.
func NewNet(t testing.TB) *Net {
	t.Helper()
	hold := exec.Command("unshare", "--net", "sleep", "infinity")
	hold.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	started, done := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		err := hold.Start()
		started <- err
		if err == nil {
			_ = hold.Wait()
		}
		close(done)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hold.Process.Kill(); <-done })
	n := &Net{pid: hold.Process.Pid}
	var out []byte
	made := func() bool { // until unshare has made the namespace, this would be the machine's own
		if !apart(n.pid) {
			return false
		}
		var err error
		line := append(n.nsenter(), "ip", "link", "add", bridge, "up", "type", "bridge")
		out, err = exec.Command(line[0], line[1:]...).CombinedOutput()
		return err == nil
	}
	if !daemontest.Poll(Patience, made) {
		t.Fatalf("cannot make a bridge for the hosts: %s", out)
	}
	return n
}

func (n *Net) nsenter() []string {
	return []string{"nsenter", "-t", strconv.Itoa(n.pid), "--net", "--"}
}

// Join gives a host of this network the next address, from 10.77.0.1, and returns it.
func (n *Net) Join(h *Host) string {
	h.t.Helper()
	n.hosts++
	addr := fmt.Sprintf("10.77.0.%d", n.hosts)
	h.Do("", "ip", "address", "add", addr+"/24", "dev", "host0")
	h.Do("", "ip", "link", "set", "host0", "up")
	return addr
}

// apart reports whether a process has another network than this one.
func apart(pid int) bool {
	theirs, err1 := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	ours, err2 := os.Readlink("/proc/self/ns/net")
	return err1 == nil && err2 == nil && theirs != ours
}
