package hostile

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestStoppedLink: a controller that was stopped, and a node daemon, are given up by the other side, whose kernel still has the
// connection; when they go on, the node is linked again. Of the node daemon both halves are stopped: noded-link keeps the connection.
func TestStoppedLink(t *testing.T) {
	if testing.Short() {
		t.Skip("waits five minutes for the kernel to give up connections: make nightly runs it, or go test without -short")
	}
	t.Parallel()
	c := newCluster(t)
	c.startNode()
	for _, half := range []struct {
		stopped, other *daemon
		says           string
	}{
		{c.ctld, c.node, "lost the link to the controller"},
		{c.node, c.ctld, "node disconnected"},
	} {
		links, lost := strings.Count(c.ctld.Text(), "node connected"), strings.Count(half.other.Text(), half.says)
		half.stopped.signalAll(t, syscall.SIGSTOP)
		c.await(half.other.Name+" notices", func() bool { return strings.Count(half.other.Text(), half.says) > lost })
		half.stopped.signalAll(t, syscall.SIGCONT)
		c.await("the node is linked again", func() bool { return strings.Count(c.ctld.Text(), "node connected") > links })
	}
	c.bystander()
}

// signalAll signals a daemon and its noded-link, if it has one.
func (d *daemon) signalAll(t *testing.T, sig syscall.Signal) {
	t.Helper()
	pid := d.Cmd.Process.Pid
	must(t, syscall.Kill(pid, sig))
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	must(t, err)
	for _, task := range tasks {
		children, _ := os.ReadFile(task)
		for _, child := range strings.Fields(string(children)) {
			name, _ := os.ReadFile("/proc/" + child + "/cmdline")
			if n, err := strconv.Atoi(child); err == nil && strings.HasPrefix(string(name), "sluice-noded\x00link\x00") {
				must(t, syscall.Kill(n, sig))
			}
		}
	}
}
