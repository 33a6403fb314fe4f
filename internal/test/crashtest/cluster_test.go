package crashtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/internal/test/daemontest"
)

// patience bounds every wait for a state; nothing takes as long unless something is wrong.
const patience = 5 * time.Minute

// killWait is KillWait of the clusters here, but for those of newPatientCluster.
const killWait = 2 * time.Second

// cluster is one controller and its nodes on this machine.
type cluster struct {
	t     *testing.T
	dir   string
	name  string
	conf  string
	state string
	sock  string
	port  int
	nodes []string
	rng   *rand.Rand
	grace time.Duration // KillWait
	ctld  *daemon
	noded map[string]*daemon
}

// newCluster writes the configuration of a cluster with n nodes of 8 CPUs; nothing runs yet. The folder of the state may be a
// mount point already.
func newCluster(t *testing.T, n int) *cluster {
	t.Helper()
	return newClusterWith(t, n, killWait)
}

// newPatientCluster has a KillWait far beyond what is waited for anything: nothing that ends here has waited for it.
func newPatientCluster(t *testing.T, n int) *cluster {
	t.Helper()
	return newClusterWith(t, n, time.Hour)
}

func newClusterWith(t *testing.T, n int, grace time.Duration) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: filepath.Join(base, t.Name()), rng: newRand(t.Name()), noded: map[string]*daemon{}, grace: grace}
	c.name = filepath.Base(base) + "-" + strings.ToLower(t.Name())
	c.conf, c.state, c.sock = filepath.Join(c.dir, "slurm.conf"), filepath.Join(c.dir, "state"), filepath.Join(c.dir, "ctld.sock")
	ports := n + 1
	if n > 20 { // nodes that are pretended listen nowhere
		ports = 1
	}
	c.port = daemontest.FreePorts(t, 19000, 20000, ports)
	for i := range n {
		c.nodes = append(c.nodes, fmt.Sprintf("n%d", i+1))
	}
	must(t, os.MkdirAll(c.dir, 0o755))
	must(t, os.Mkdir(filepath.Join(c.dir, "directory"), 0o755))
	must(t, os.WriteFile(filepath.Join(c.dir, "directory/getent"), []byte(directory), 0o755))
	must(t, os.WriteFile(filepath.Join(c.dir, "cgroup.conf"), []byte("ConstrainCores=no\nConstrainRAMSpace=no\n"), 0o644))
	must(t, os.WriteFile(c.conf, []byte(c.text()), 0o644))
	t.Cleanup(c.cleanUp)
	return c
}

func (c *cluster) text() string {
	host := daemontest.Host(c.t)
	return fmt.Sprintf(`ClusterName=%s
SlurmctldHost=%s(127.0.0.1)
SlurmctldPort=%d
SlurmUser=root
StateSaveLocation=%s
SlurmdSpoolDir=%s/spool/%%n
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdTimeout=3600
MinJobAge=86400
MaxJobCount=100000
MessageTimeout=60
KillWait=%d
NodeName=n[1-%d] NodeHostname=%s NodeAddr=127.0.0.1 Port=[%d-%d] CPUs=8 RealMemory=4096 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
`, c.name, host, c.port, c.state, c.dir, int(c.grace.Seconds()), len(c.nodes), host, c.port+1, c.port+len(c.nodes))
}

// in is the same cluster for a subtest, which fails in its own name.
func (c *cluster) in(t *testing.T) *cluster {
	sub := *c
	sub.t = t
	return &sub
}

// cancel is scancel.
func (c *cluster) cancel(id uint32) {
	c.t.Helper()
	cl := c.dial()
	defer cl.Close()
	_, err := cl.CancelJobs(context.Background(), &msg.CancelJobsRequest{Ids: []string{fmt.Sprint(id)}})
	must(c.t, err)
}

// start brings everything up and waits until every node is linked.
func (c *cluster) start() {
	c.t.Helper()
	c.startCtld()
	c.issue()
	for _, n := range c.nodes {
		c.startNoded(n)
	}
	c.awaitNodes()
}

// issue writes the nodes' certificates.
func (c *cluster) issue() {
	c.t.Helper()
	for _, n := range c.nodes {
		args := []string{"issue", "--new-authority", "--any-node", "--state", c.state, "--node", n, "--out",
			filepath.Join(c.dir, "tls", n)}
		out, err := exec.Command(filepath.Join(bin, "sluice-ctld"), args...).CombinedOutput()
		if err != nil {
			c.t.Fatalf("sluice-ctld issue: %v: %s", err, out)
		}
	}
}

func (c *cluster) spool(node string) string { return filepath.Join(c.dir, "spool", node) }

// launchCtld starts the controller without waiting for it.
func (c *cluster) launchCtld(env ...string) *daemon {
	c.t.Helper()
	c.ctld = c.launch("ctld", env, filepath.Join(bin, "sluice-ctld"), "--conf", c.conf, "--state", c.state, "--socket", c.sock, "--listen",
		fmt.Sprintf("127.0.0.1:%d", c.port))
	return c.ctld
}

// startCtld starts the controller and waits until it answers.
func (c *cluster) startCtld() {
	c.t.Helper()
	d := c.launchCtld()
	c.await("the controller answers", func() bool {
		if d.Ended() {
			c.t.Fatalf("the controller has ended: %v\n%s", d.Cmd.ProcessState, d.Tail(20))
		}
		return c.ping()
	})
}

func (c *cluster) ping() bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cl, err := client.Dial(ctx, c.sock)
	if err != nil {
		return false
	}
	defer cl.Close()
	_, err = cl.Ping(ctx, &msg.PingRequest{})
	return err == nil
}

// startNoded starts a node daemon without waiting for it.
func (c *cluster) startNoded(node string, env ...string) *daemon {
	c.t.Helper()
	d := c.launch("noded."+node, env, filepath.Join(bin, "sluice-noded"), c.nodedArgs(node)...)
	c.noded[node] = d
	return d
}

func (c *cluster) nodedArgs(node string) []string {
	return []string{"--conf", c.conf, "--node", node, "--spool", c.spool(node), "--tls", filepath.Join(c.dir, "tls", node),
		"--controller", fmt.Sprintf("127.0.0.1:%d", c.port), "--socket", c.sock, "--allow-root-jobs"}
}

// awaitNodes waits until every node daemon that runs has registered and can be used.
func (c *cluster) awaitNodes() {
	c.t.Helper()
	c.await("the nodes are linked", func() bool {
		ready := 0
		for _, n := range c.nodeRecords() {
			d := c.noded[n.Name]
			if d == nil || d.Ended() || n.NodedStartNs >= d.started.UnixNano() && n.State == msg.NodeState_NODE_IDLE ||
				n.State == msg.NodeState_NODE_MIXED || n.State == msg.NodeState_NODE_ALLOCATED {
				ready++
			}
		}
		return ready == len(c.nodes)
	})
}

// daemon is a process that this test started.
type daemon struct {
	*daemontest.Daemon
	started time.Time
}

func (c *cluster) launch(name string, env []string, program string, args ...string) *daemon {
	c.t.Helper()
	if !filepath.IsAbs(program) {
		program = filepath.Join(bin, program)
	}
	env = append([]string{"PATH=" + filepath.Join(c.dir, "directory") + ":/usr/sbin:/usr/bin:/sbin:/bin"}, env...)
	started := time.Now()
	return &daemon{daemontest.Launch(c.t, c.dir, name, syscall.SysProcAttr{}, env, program, args...), started}
}

// signal sends sig and waits until the process has ended; false: it does not end.
func (d *daemon) signal(sig syscall.Signal) bool {
	_ = d.Cmd.Process.Signal(sig)
	return d.Wait(patience)
}

// kill is kill -9.
func (d *daemon) kill() { d.signal(syscall.SIGKILL) }

// complaints are the last lines of the log that are more than notes.
func (d *daemon) complaints(lines int) string {
	var found []string
	for _, l := range strings.Split(d.Text(), "\n") {
		if l != "" && !strings.Contains(l, "level=INFO") && !strings.Contains(l, "link to the controller") {
			found = append(found, l)
		}
	}
	return "complaints: " + strings.Join(found[max(0, len(found)-lines):], "\ncomplaints: ")
}

// await polls until cond holds.
func (c *cluster) await(what string, cond func() bool) {
	c.t.Helper()
	if !daemontest.Poll(patience, cond) {
		c.t.Fatalf("waited %v in vain: %s\n%s", patience, what, c.stands())
	}
}

// stands says where everything is, for a test that has waited in vain: steps, processes, jobs. It ends the daemons, which write what their
// goroutines are doing.
func (c *cluster) stands() string {
	var b strings.Builder
	for _, n := range c.nodes {
		fmt.Fprintf(&b, "%s has the steps %v\n", n, c.steps(n))
	}
	for _, pid := range daemontest.ProcessesOf(c.dir) {
		at, _ := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", pid))
		fmt.Fprintf(&b, "process %d, in %s: %s\n", pid, at, daemontest.CommandLine(pid))
	}
	for _, args := range [][]string{{"-o", "show", "job"}, {"-o", "show", "node"}} {
		cmd := exec.Command(filepath.Join(bin, "scontrol"), args...)
		cmd.Env = c.clientEnv()
		out, err := cmd.CombinedOutput()
		fmt.Fprintf(&b, "scontrol %v: %v\n", args, err)
		for line := range strings.Lines(string(out)) {
			if !strings.Contains(line, "JobState=COMPLETED") {
				b.WriteString(line)
			}
		}
	}
	for _, d := range c.daemons() {
		if !d.Ended() {
			_ = d.signal(syscall.SIGQUIT)
			_, goroutines, _ := strings.Cut(d.Text(), "SIGQUIT: quit")
			fmt.Fprintf(&b, "%s: %s\n", d.Name, goroutines)
		}
	}
	return b.String()
}

// cleanUp stops the cluster and then looks for what should not be there any more.
func (c *cluster) cleanUp() {
	// A job has ended for its user before its node has been told to forget it.
	if c.up() && !c.t.Failed() {
		daemontest.Poll(patience, c.forgotten)
	}
	for _, d := range c.daemons() {
		if !d.Ended() && !d.signal(syscall.SIGTERM) {
			c.t.Errorf("%s does not end on SIGTERM", d.Name)
			d.kill()
		}
	}
	if !c.t.Failed() { // else much is, and does not end either
		c.nothingLeft()
	}
	for _, d := range c.daemons() {
		if race := d.Race(); race != "" {
			c.t.Errorf("a race in %s:%s", d.Name, race)
		}
	}
	if c.t.Failed() {
		for _, d := range c.daemons() {
			c.t.Log("\n" + d.Tail(12) + "\n" + d.complaints(20))
			if *logs != "" {
				_ = exec.Command("cp", d.Log, filepath.Join(*logs, c.t.Name()+"."+d.Name+".log")).Run()
			}
		}
	}
	daemontest.Sweep(c.dir, c.name)
}

func (c *cluster) daemons() (all []*daemon) {
	for _, n := range c.nodes {
		if d := c.noded[n]; d != nil {
			all = append(all, d)
		}
	}
	if c.ctld != nil {
		all = append(all, c.ctld)
	}
	return all
}

// nothingLeft: no process of the cluster, no cgroup of a job, no folder of a step. Idle shims that lost their daemon to a
// SIGKILL find that out and end by themselves.
func (c *cluster) nothingLeft() {
	daemontest.Poll(patience, func() bool { return len(daemontest.ProcessesOf(c.dir)) == 0 })
	for _, pid := range daemontest.ProcessesOf(c.dir) {
		c.t.Errorf("process %d is left: %s", pid, daemontest.CommandLine(pid))
	}
	for _, g := range daemontest.GroupsOf(c.name) {
		if strings.HasPrefix(filepath.Base(g), "job_") {
			c.t.Errorf("cgroup %s is left, with processes %v", g, daemontest.ProcsIn(g))
		}
	}
	for _, n := range c.nodes {
		if left := c.steps(n); len(left) > 0 {
			c.t.Errorf("node %s has %d step folders left, the first is %s", n, len(left), left[0])
		}
	}
}

// steps are the folders of steps in a node's spool; those that wait for another step (.free-*) are none.
func (c *cluster) steps(node string) (names []string) {
	all, _ := os.ReadDir(filepath.Join(c.spool(node), "steps"))
	for _, e := range all {
		if !strings.HasPrefix(e.Name(), ".free-") {
			names = append(names, e.Name())
		}
	}
	return names
}

// settled waits until the nodes have been told to forget every step.
func (c *cluster) settled() {
	c.t.Helper()
	c.await("the spools are empty", c.forgotten)
}

func (c *cluster) forgotten() bool {
	for _, n := range c.nodes {
		if len(c.steps(n)) > 0 {
			return false
		}
	}
	return true
}

// up reports whether every daemon of the cluster was started and runs.
func (c *cluster) up() bool {
	all := c.daemons()
	return len(all) == len(c.nodes)+1 && !slices.ContainsFunc(all, func(d *daemon) bool { return d.Ended() })
}

// dial connects to the controller.
func (c *cluster) dial() *client.Client {
	c.t.Helper()
	cl, err := client.Dial(context.Background(), c.sock)
	must(c.t, err)
	return cl
}

// jobs are all jobs, or those named.
func (c *cluster) jobs(ids ...uint32) map[uint32]*msg.JobRecord {
	c.t.Helper()
	req := &msg.JobsRequest{AllStates: true}
	for _, id := range ids {
		req.Ids = append(req.Ids, fmt.Sprint(id))
	}
	cl := c.dial()
	defer cl.Close()
	stream, err := cl.Jobs(context.Background(), req)
	must(c.t, err)
	all := map[uint32]*msg.JobRecord{}
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all
		}
		must(c.t, err)
		for _, j := range r.Jobs {
			all[j.Id] = j
		}
	}
}

func (c *cluster) nodeRecords() (all []*msg.NodeRecord) {
	c.t.Helper()
	cl := c.dial()
	defer cl.Close()
	stream, err := cl.Nodes(context.Background(), &msg.NodesRequest{})
	must(c.t, err)
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all
		}
		must(c.t, err)
		all = append(all, r.Nodes...)
	}
}

// wait returns a job's record once it has ended.
func (c *cluster) wait(id uint32) *msg.JobRecord {
	c.t.Helper()
	cl := c.dial()
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := cl.WaitJob(ctx, &msg.WaitJobRequest{JobId: id})
	if err != nil {
		c.t.Fatalf("job %d does not end: %v; it is %v\n%s", id, err, c.jobs(id)[id], c.stands())
	}
	return r.Job
}

// nodesUp: whatever jobs do, every node can be used.
func (c *cluster) nodesUp() {
	c.t.Helper()
	for _, n := range c.nodeRecords() {
		if n.State == msg.NodeState_NODE_DOWN || n.StateFlags != 0 {
			c.t.Errorf("node %s is %v with flags %#x, reason %q", n.Name, n.State, n.StateFlags, n.Reason)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
