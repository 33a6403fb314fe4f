package hosttest_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/internal/test/daemontest"
	"github.com/sluice-hpc/sluice/internal/test/hosttest"
)

// The accounts of every host, and none of the machine's besides root and nobody.
const (
	passwd = `root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/bin/sh
slurm:x:5000:5000:SlurmUser:/nonexistent:/bin/sh
alice:x:5001:5001:Alice:/nonexistent:/bin/sh
bob:x:5002:5002:Bob:/nonexistent:/bin/sh
`
	group = "root:x:0:\nnogroup:x:65534:\nslurm:x:5000:\nalice:x:5001:\nbob:x:5002:\nlab:x:5010:alice\n"
)

// cluster is a controller's host, a login host and compute hosts c1, c2, ….
type cluster struct {
	t       *testing.T
	name    string
	dir     string // what all hosts share and everybody may write to: the cluster's file system
	net     *hosttest.Net
	ctl     *hosttest.Host
	login   *hosttest.Host
	compute []*hosttest.Host

	gres string // of each node, "Gres=…"; empty: none
	more string // further lines of slurm.conf
	// consumed is SelectTypeParameters; empty: CR_Core
	consumed string

	ctld  *hosttest.Process
	noded map[string]*hosttest.Process
	old   []*hosttest.Process // those that were started again since
}

const conf = `ClusterName=%s
SlurmctldHost=ctl(%s)
SlurmctldPort=6817
SlurmdPort=6818
SlurmUser=slurm
StateSaveLocation=/var/spool/sluice-ctld
SlurmdSpoolDir=/var/spool/sluiced
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=%s
ReturnToService=2
SlurmdTimeout=%d
MinJobAge=86400
KillWait=2
%s
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
`

// never is a SlurmdTimeout that no test reaches, however slow the machine is.
const never = 36000

// text is slurm.conf.
func (c *cluster) text(timeoutS int) string {
	var nodes strings.Builder
	for _, h := range c.compute {
		fmt.Fprintf(&nodes, "NodeName=%s NodeAddr=%s CPUs=8 RealMemory=4096 %s State=UNKNOWN\n", h.Name, h.Addr, c.gres)
	}
	return fmt.Sprintf(conf, c.name, c.ctl.Addr, cmp.Or(c.consumed, "CR_Core"), timeoutS, nodes.String()) + c.more
}

// newCluster boots the hosts of a cluster with n compute hosts, and starts its daemons.
func newCluster(t *testing.T, n int) *cluster {
	t.Helper()
	return newClusterWith(t, n, nil)
}

// newClusterWith lets a test say more of a cluster before its hosts are booted: of slurm.conf, and the files of every host in /etc.
func newClusterWith(t *testing.T, n int, adapt func(c *cluster, etc map[string]string)) *cluster {
	t.Helper()
	top, err := os.MkdirTemp(base, t.Name()) // another one for each of -count
	must(t, err)
	must(t, os.Chmod(top, 0o755))
	c := &cluster{t: t, name: filepath.Base(base) + "-" + strings.ToLower(t.Name()), dir: filepath.Join(top, "shared"),
		noded: map[string]*hosttest.Process{}}
	must(t, os.MkdirAll(c.dir, 0o755))
	must(t, os.Chmod(c.dir, 0o1777))
	c.net = hosttest.New(t, top, bin)
	names := []string{"ctl", "login"}
	for i := range n {
		names = append(names, fmt.Sprint("c", i+1))
	}
	etc := map[string]string{"passwd": passwd, "group": group, "hosts": "127.0.0.1 localhost\n",
		"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n"}
	etc["slurm/cgroup.conf"] = "ConstrainCores=no\nConstrainRAMSpace=no\n"
	for i, name := range names {
		etc["hosts"] += hosttest.Address(i) + " " + name + "\n"
	}
	if adapt != nil {
		adapt(c, etc)
	}
	for i, name := range names {
		h := c.net.Add(name, etc)
		switch i {
		case 0:
			c.ctl = h
		case 1:
			c.login = h
		default:
			c.compute = append(c.compute, h)
		}
	}
	c.configure(never)
	t.Cleanup(c.end) // before the hosts are switched off
	spool := filepath.Join(top, "ctl/spool/sluice-ctld")
	must(t, os.Mkdir(spool, 0o700))
	must(t, os.Chown(spool, 5000, 5000))
	c.startCtld()
	for _, h := range c.compute {
		c.issue(h, "compute")
		c.startNoded(h)
	}
	c.issue(c.login, "login")
	c.linked(n)
	return c
}

// configure writes slurm.conf on every host.
func (c *cluster) configure(timeoutS int) {
	for _, h := range append([]*hosttest.Host{c.ctl, c.login}, c.compute...) {
		h.WriteEtc("slurm/slurm.conf", c.text(timeoutS))
	}
}

func (c *cluster) startCtld() {
	c.t.Helper()
	c.ctld = c.ctl.Start("ctld", filepath.Join(bin, "sluice-ctld"))
	c.await("the controller answers", func() bool {
		if c.ctld.Ended() {
			c.t.Fatalf("the controller has ended: %v\n%s", c.ctld.Cmd.ProcessState, c.ctld.Tail(20))
		}
		cl, err := client.Dial(context.Background(), c.socket())
		if err != nil {
			return false
		}
		defer cl.Close()
		_, err = cl.Ping(context.Background(), &msg.PingRequest{})
		return err == nil
	})
}

// socket is the controller's, as seen from the machine.
func (c *cluster) socket() string { return c.ctl.Path("/run/sluice/" + c.name + "/ctld.sock") }

// issue brings a host its certificate, as an administrator does by hand.
func (c *cluster) issue(h *hosttest.Host, role string) {
	c.t.Helper()
	out := filepath.Join("/run", "issued-"+h.Name)
	c.ok(c.ctl.Run("", nil, "sluice-ctld", "issue", "--node", h.Name, "--role", role, "--out", out))
	dir := h.Etc("sluice/tls")
	must(c.t, os.MkdirAll(filepath.Dir(dir), 0o755))
	if text, err := exec.Command("cp", "-a", c.ctl.Path(out), dir).CombinedOutput(); err != nil {
		c.t.Fatalf("%v: %s", err, text)
	}
}

func (c *cluster) startNoded(h *hosttest.Host) {
	c.t.Helper()
	if d := c.noded[h.Name]; d != nil {
		c.old = append(c.old, d)
	}
	c.noded[h.Name] = h.Start("noded", filepath.Join(bin, "sluice-noded"))
}

// daemons are all that were started.
func (c *cluster) daemons() []*hosttest.Process {
	all := slices.Collect(maps.Values(c.noded))
	if c.ctld != nil {
		all = append(all, c.ctld)
	}
	return append(all, c.old...)
}

// end stops the daemons, and looks for races in them.
func (c *cluster) end() {
	for _, d := range c.daemons() {
		if d.Ended() {
			continue
		}
		if d.Signal(syscall.SIGTERM); !d.Wait(hosttest.Patience) {
			c.t.Errorf("%s does not end on SIGTERM", d.Name)
		}
	}
	for i, d := range c.daemons() {
		if race := d.Race(); race != "" {
			c.t.Errorf("a race in %s:%s", d.Log, race)
		}
		if c.t.Failed() {
			c.t.Logf("%s\n%s", d.Log, d.Tail(25))
			if *logs != "" {
				_ = daemontest.CopyProgram(d.Log, filepath.Join(*logs, fmt.Sprintf("%s.%d.%s.log", c.t.Name(), i, d.Name)))
			}
		}
	}
}

// await polls until cond holds.
func (c *cluster) await(what string, cond func() bool) {
	c.t.Helper()
	if !daemontest.Poll(hosttest.Patience, cond) {
		c.t.Fatalf("waited %v in vain: %s", hosttest.Patience, what)
	}
}

// ok is what a command has said that has succeeded.
func (c *cluster) ok(r hosttest.Result) string {
	c.t.Helper()
	if r.Code != 0 {
		c.t.Fatal(r)
	}
	return r.Out
}

func (c *cluster) dial() *client.Client {
	c.t.Helper()
	cl, err := client.Dial(context.Background(), c.socket())
	must(c.t, err)
	return cl
}

// linked waits until so many nodes have a stream to the controller, and no more streams are open.
func (c *cluster) linked(n int) {
	c.t.Helper()
	cl := c.dial()
	defer cl.Close()
	links := 0.0
	c.await(fmt.Sprintf("%d nodes are linked", n), func() bool {
		r, err := cl.Stats(context.Background(), &msg.StatsRequest{})
		must(c.t, err)
		links = r.Values["links"]
		return links == float64(n)
	})
}

func (c *cluster) nodes() map[string]*msg.NodeRecord {
	c.t.Helper()
	cl := c.dial()
	defer cl.Close()
	stream, err := cl.Nodes(context.Background(), &msg.NodesRequest{})
	must(c.t, err)
	all := map[string]*msg.NodeRecord{}
	for {
		r, err := stream.Recv()
		if err == io.EOF {
			return all
		}
		must(c.t, err)
		for _, n := range r.Nodes {
			all[n.Name] = n
		}
	}
}

// submit is sbatch on the controller's host, by alice.
func (c *cluster) submit(args ...string) uint32 {
	c.t.Helper()
	out := c.ok(c.ctl.Run("alice", nil, append([]string{"sbatch", "--parsable", "-D", "/", "-o", "/dev/null"}, args...)...))
	id, err := strconv.ParseUint(strings.TrimSpace(out), 10, 32)
	must(c.t, err)
	return uint32(id)
}

// wait returns a job's record once it has ended.
func (c *cluster) wait(id uint32) *msg.JobRecord {
	c.t.Helper()
	cl := c.dial()
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), hosttest.Patience)
	defer cancel()
	r, err := cl.WaitJob(ctx, &msg.WaitJobRequest{JobId: id})
	if err != nil {
		c.t.Fatalf("job %d does not end: %v", id, err)
	}
	return r.Job
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
