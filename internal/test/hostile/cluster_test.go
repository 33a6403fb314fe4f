package hostile

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/internal/test/daemontest"
)

// Users of the suite. They are in a directory of its own, which getent(1) asks for the daemons; nobody has an account for stranger.
const (
	alice    = 56001
	mallory  = 56002
	stranger = 56003
)

// cluster is a controller, and a node when it is started.
type cluster struct {
	t    *testing.T
	dir  string
	name string
	conf string
	sock string
	port int
	ctld *daemon
	node *daemon // when it is started
	idle int     // sockets of a controller that nobody is connected to
}

// daemon is a process that a test started.
type daemon struct{ *daemontest.Daemon }

// newCluster starts a controller. more are lines of its slurm.conf.
func newCluster(t *testing.T, more ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: filepath.Join(base, clusterName(t)), port: daemontest.FreePorts(t, 17000, 18000, 2)}
	c.name = filepath.Base(base) + "-" + clusterName(t)
	c.conf, c.sock = filepath.Join(c.dir, "slurm.conf"), filepath.Join(c.dir, "ctld.sock")
	must(t, os.MkdirAll(filepath.Join(c.dir, "bin"), 0o755))
	host := daemontest.Host(t)
	must(t, os.WriteFile(c.conf, []byte(fmt.Sprintf(`ClusterName=%s
SlurmctldHost=%s(127.0.0.1)
SlurmctldPort=%d
SlurmUser=root
StateSaveLocation=%s/state
SlurmdSpoolDir=%s/spool/%%n
SlurmdParameters=config_overrides
MetricsType=none
NodeName=n1 NodeHostname=%s NodeAddr=127.0.0.1 Port=%d CPUs=8 RealMemory=4096 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
%s
`, c.name, host, c.port, c.dir, c.dir, host, c.port+1, strings.Join(more, "\n"))), 0o644))
	must(t, os.WriteFile(filepath.Join(c.dir, "cgroup.conf"), []byte("ConstrainCores=no\nConstrainRAMSpace=no\n"), 0o644))
	must(t, os.WriteFile(filepath.Join(c.dir, "bin/getent"), []byte(fmt.Sprintf(directory, alice, mallory)), 0o755))
	t.Cleanup(c.cleanUp)
	c.ctld = c.launch("ctld", "sluice-ctld", "--conf", c.conf, "--socket", c.sock, "--listen", fmt.Sprintf("127.0.0.1:%d", c.port))
	c.await("the controller has started", func() bool {
		if c.ctld.Ended() {
			t.Fatalf("the controller has ended:\n%s", c.ctld.Tail(20))
		}
		return strings.Contains(c.ctld.Text(), "controller started")
	})
	c.idle = c.sockets()
	must(t, c.ping())
	return c
}

// clusterName is the test's, without what a path or a cluster cannot have.
func clusterName(t *testing.T) string {
	return strings.ToLower(strings.NewReplacer("/", "-", "_", "", "'", "", " ", "").Replace(t.Name()))
}

// directory is getent(1) with users who are in no file.
const directory = `#!/bin/sh
case "$1 $3" in
"passwd alice" | "passwd %[1]d") echo 'alice:*:%[1]d:%[1]d::/:/bin/sh' ;;
"passwd mallory" | "passwd %[2]d") echo 'mallory:*:%[2]d:%[2]d::/:/bin/sh' ;;
*) exec /usr/bin/getent "$@" ;;
esac
`

func (c *cluster) launch(name, program string, args ...string) *daemon {
	c.t.Helper()
	attr := syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return &daemon{daemontest.Launch(c.t, c.dir, name, attr, []string{c.path()}, filepath.Join(bin, program), args...)}
}

func (c *cluster) await(what string, cond func() bool) {
	c.t.Helper()
	if !poll(cond) {
		c.t.Fatalf("waited in vain: %s\n%s", what, c.ctld.Tail(20))
	}
}

// dial is root's client.
func (c *cluster) dial() *client.Client {
	c.t.Helper()
	cl, err := client.Dial(context.Background(), c.sock)
	must(c.t, err)
	c.t.Cleanup(func() { _ = cl.Close() })
	return cl
}

func (c *cluster) ping() error {
	cl, err := client.Dial(context.Background(), c.sock)
	if err != nil {
		return err
	}
	defer cl.Close()
	_, err = cl.Ping(context.Background(), &msg.PingRequest{})
	return err
}

// path has the directory of the suite's users in it.
func (c *cluster) path() string {
	return "PATH=" + filepath.Join(c.dir, "bin") + ":/usr/sbin:/usr/bin:/sbin:/bin"
}

// env is that of commands and attackers.
func (c *cluster) env() []string {
	return []string{c.path(), "SLURM_CONF=" + c.conf, "SLUICE_SOCKET=" + c.sock, "TZ=UTC",
		"NODES_AT=" + fmt.Sprintf("127.0.0.1:%d", c.port)}
}

// attack starts an attacker.
func (c *cluster) attack(uid uint32, name string, args ...string) *process {
	c.t.Helper()
	if attacks[name] == nil {
		c.t.Fatalf("there is no attack %q", name)
	}
	return start(c.t, uid, append(c.env(), attackEnv+"="+name), filepath.Join(bin, "attacker"), args...)
}

// run starts a command of a user.
func (c *cluster) run(uid uint32, command string, args ...string) *process {
	c.t.Helper()
	return start(c.t, uid, c.env(), filepath.Join(bin, command), args...)
}

// bystander submits a job as somebody else, finds it in the queue and cancels it; and root is served.
func (c *cluster) bystander() {
	c.t.Helper()
	out, code := c.run(alice, "sbatch", "--parsable", "--hold", "--wrap=true").end()
	id := strings.TrimSpace(out)
	if code != 0 {
		c.t.Fatalf("another user cannot submit: %s", out)
	}
	if out, code := c.run(alice, "squeue", "-h", "-o%i", "-u", fmt.Sprint(alice)).end(); code != 0 || !strings.Contains(out, id) {
		c.t.Errorf("another user cannot see his job %s: %s", id, out)
	}
	if out, code := c.run(alice, "scancel", id).end(); code != 0 {
		c.t.Errorf("another user cannot cancel his job: %s", out)
	}
	if err := c.ping(); err != nil {
		c.t.Errorf("root: %v", err)
	}
}

// memory is the most that the controller has had, in bytes.
func (c *cluster) memory() int {
	c.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.ctld.Cmd.Process.Pid))
	must(c.t, err)
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	must(c.t, err)
	return n << 10
}

// costs: the controller has taken at most so many bytes more than it had, or ten times as much with the detector of data races.
func (c *cluster) costs(before, most int) {
	c.t.Helper()
	if daemontest.Raced {
		most *= 10
	}
	more := c.memory() - before
	c.t.Logf("%d MiB of %d", more>>20, most>>20)
	if more > most {
		c.t.Errorf("this has cost %d MiB, at most %d were expected", more>>20, most>>20)
	}
}

// unharmed: once the attackers have gone, the controller serves others and has nothing left of them. It is ended, so as to tell what its
// goroutines are doing.
func (c *cluster) unharmed(gone ...*process) {
	c.t.Helper()
	for _, p := range gone {
		p.kill()
	}
	if c.node != nil {
		c.end(c.node)
	}
	c.bystander()
	c.await("the connections are closed", func() bool { return c.sockets() <= c.idle })
	c.await("the controller has nothing to do", c.atRest)
	must(c.t, c.ctld.Cmd.Process.Signal(syscall.SIGQUIT))
	<-c.ctld.Done
	for g := range strings.SplitSeq(c.ctld.Text(), "\n\n") {
		state, _, _ := strings.Cut(g, "\n")
		ours := strings.HasPrefix(g, "goroutine ") && (strings.Contains(g, "ttrpc.") || strings.Contains(g, "rpc.(*Local).") &&
			!strings.Contains(g, "rpc.(*Local).Serve(") || strings.Contains(g, "credentials.(*tlsCreds)"))
		ending := strings.Contains(state, "[runn") || strings.Contains(state, "[syscall]") // it has been woken, and told to end
		if ours && !ending {
			c.t.Errorf("left over:\n%s", g)
		}
	}
}

// atRest reports whether all threads of the controller sleep, and none was woken meanwhile: its goroutines have then done what was to be
// done about connections that were closed.
func (c *cluster) atRest() bool {
	before, asleep := c.switches()
	after, still := c.switches()
	return asleep && still && before == after
}

// switches counts how often threads of the controller were put on a processor, and looks whether all sleep.
func (c *cluster) switches() (n int, asleep bool) {
	c.t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", c.ctld.Cmd.Process.Pid))
	must(c.t, err)
	asleep = true
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for line := range strings.Lines(string(text)) {
			switch key, value, _ := strings.Cut(line, ":"); key {
			case "State":
				asleep = asleep && strings.HasPrefix(strings.TrimSpace(value), "S")
			case "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches":
				k, _ := strconv.Atoi(strings.TrimSpace(value))
				n += k
			}
		}
	}
	return n, asleep && len(tasks) > 0
}

// sockets are those that the controller has open.
func (c *cluster) sockets() (n int) {
	c.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", c.ctld.Cmd.Process.Pid)
	list, err := os.ReadDir(dir)
	must(c.t, err)
	for _, fd := range list {
		if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// cleanUp ends the daemons.
func (c *cluster) cleanUp() {
	for _, d := range []*daemon{c.node, c.ctld} {
		if d == nil {
			continue
		}
		c.end(d)
		if race := d.Race(); race != "" {
			c.t.Errorf("a race in %s:%s", d.Name, race)
		}
		if c.t.Failed() {
			c.t.Log("\n" + d.Tail(15))
		}
	}
	must(c.t, os.RemoveAll(c.dir))
}

// end is SIGTERM, also for one that was stopped.
func (c *cluster) end(d *daemon) {
	c.t.Helper()
	_, _ = d.Cmd.Process.Signal(syscall.SIGCONT), d.Cmd.Process.Signal(syscall.SIGTERM)
	if !poll(d.Ended) {
		c.t.Errorf("%s does not end", d.Name)
		_ = d.Cmd.Process.Kill()
		<-d.Done
	}
}
