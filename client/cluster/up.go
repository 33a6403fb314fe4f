package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/conf"
)

// UpOptions say what to start, and where.
type UpOptions struct {
	Dir   string // "": DefaultDir
	Nodes int    // nodes of a generated configuration; 0: as before, or 1
	Conf  string // slurm.conf to use instead of a generated one
	GPUs  string // GPUs that each node pretends to have: "a100:8"; "": as before, or those of the machine
	// Detach returns once every process has been started, without waiting for the nodes to be ready.
	Detach bool
	// Timeout bounds the wait for the nodes; 0: two minutes.
	Timeout time.Duration
	// Commands are the names of Slurm's commands, which the cluster's PATH must offer.
	Commands []string
	// Progress is told what is being waited for; nil: nobody is.
	Progress func(text string)
}

// Started is what Up did.
type Started struct {
	Dir      string
	EnvFile  string
	Conf     string
	Cluster  string
	Nodes    int
	New      []string // daemons that were started; the others ran already
	Remarks  []string // nodes that are up and not usable, and why
	Detached bool
}

// upTimeout is how long nodes may take to register, unless told otherwise.
const upTimeout = 2 * time.Minute

// Up starts whatever of the cluster does not run, and waits until every node is ready. When something fails, what this call
// has started is stopped again, and the error says what failed, with the end of its log.
func Up(ctx context.Context, o UpOptions) (*Started, error) {
	if o.Dir == "" {
		o.Dir = DefaultDir()
	}
	if o.Nodes != 0 && o.Conf != "" {
		return nil, errors.New("cannot use --nodes together with --conf: the file says how many nodes there are")
	}
	if o.Nodes < 0 || o.Nodes > MaxNodes {
		return nil, fmt.Errorf("cannot start %d nodes: at least 1 and at most %d run on one machine", o.Nodes, MaxNodes)
	}
	d, err := openDir(o.Dir)
	if err != nil {
		return nil, err
	}
	release, err := d.lock()
	if err != nil {
		return nil, err
	}
	defer release()
	u := &upper{o: o, dir: d}
	return u.run(ctx)
}

// upper is one run of Up.
type upper struct {
	o       UpOptions
	dir     Dir
	rec     *record
	plan    *plan
	started []*child
	clean   []string // nodes that had no shim when their daemon was started: what they have at undo is this call's
	from    time.Time
}

func (u *upper) say(format string, args ...any) {
	if u.o.Progress != nil {
		u.o.Progress(fmt.Sprintf(format, args...))
	}
}

func (u *upper) run(ctx context.Context) (*Started, error) {
	if err := u.prepare(); err != nil {
		return nil, err
	}
	err := u.start(ctx)
	if err == nil {
		err = u.plan.writeEnv()
	}
	out := &Started{Dir: string(u.dir), EnvFile: u.dir.envFile(), Conf: u.plan.confPath, Cluster: u.plan.conf.ClusterName, Nodes: len(u.plan.nodes()), Detached: u.o.Detach}
	if err == nil && !u.o.Detach {
		out.Remarks, err = u.wait(ctx)
	}
	if err != nil {
		u.undo()
		return nil, err
	}
	for _, c := range u.started {
		out.New = append(out.New, c.name)
	}
	return out, nil
}

// prepare finds out what the cluster is, from what was asked and what the folder remembers.
func (u *upper) prepare() (err error) {
	if u.rec, err = u.dir.load(); err != nil {
		return err
	}
	if u.rec == nil {
		u.rec = &record{Version: recordVersion, Daemons: map[string]identity{}, GPUs: u.o.GPUs}
		if u.rec.Conf, err = u.newConf(); err != nil {
			return err
		}
	} else if err = u.sameCluster(); err != nil {
		return err
	}
	if u.plan, err = newPlan(u.dir, u.rec.Conf); err != nil {
		return err
	}
	u.plan.gpus = u.rec.GPUs
	// A record was lost, and the configuration that it belonged to is there still.
	if n := len(u.plan.conf.Nodes); u.rec.Cluster == "" && u.rec.Nodes > 0 && n != u.rec.Nodes {
		if u.o.Nodes != 0 {
			return fmt.Errorf("cannot start a cluster of %d nodes in %s: the slurm.conf there has %d; %s", u.o.Nodes, u.dir, n, u.instead())
		}
		u.rec.Nodes = n
	}
	if was := u.rec.Cluster; was != "" && was != u.plan.conf.ClusterName {
		return fmt.Errorf("cannot start cluster %s in %s: its state is of cluster %s; change ClusterName back, or give another --dir", u.plan.conf.ClusterName, u.dir, was)
	}
	u.rec.Cluster = u.plan.conf.ClusterName
	if err = u.dir.makeFolders(); err != nil {
		return err
	}
	if err = u.plan.linkCommands(u.o.Commands); err != nil {
		return err
	}
	return u.dir.save(u.rec)
}

// newConf gives the path of the configuration of a folder that has none so far.
func (u *upper) newConf() (string, error) {
	if u.o.Conf == "" {
		u.rec.Nodes = max(1, u.o.Nodes)
		return u.dir.ownConf(), u.dir.generate(u.rec.Nodes)
	}
	return realPath(u.o.Conf)
}

func realPath(conf string) (string, error) {
	path, err := filepath.Abs(conf)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the configuration: %w", err)
	}
	return path, nil
}

func (u *upper) instead() string {
	return fmt.Sprintf("`sluice down --dir %s --wipe` removes it, and another --dir leaves it alone", u.dir)
}

// sameCluster refuses flags that ask for another cluster than the one that the folder holds.
func (u *upper) sameCluster() error {
	instead := u.instead()
	if u.o.GPUs != "" && u.o.GPUs != u.rec.GPUs {
		return fmt.Errorf("cannot start a cluster with GPUs %s in %s: the one there has %s; %s", u.o.GPUs, u.dir, cmp.Or(u.rec.GPUs, "those of the machine"), instead)
	}
	if u.o.Conf != "" {
		path, err := realPath(u.o.Conf)
		if err != nil {
			return err
		}
		if path != u.rec.Conf {
			return fmt.Errorf("cannot start a cluster of %s in %s: the one there is of %s; %s", path, u.dir, u.rec.Conf, instead)
		}
		return nil
	}
	switch {
	case u.o.Nodes == 0 || u.o.Nodes == u.rec.Nodes:
		return nil
	case u.rec.Nodes == 0:
		return fmt.Errorf("cannot start a cluster of %d nodes in %s: the one there is of %s; %s", u.o.Nodes, u.dir, u.rec.Conf, instead)
	}
	return fmt.Errorf("cannot start a cluster of %d nodes in %s: the one there has %d; %s", u.o.Nodes, u.dir, u.rec.Nodes, instead)
}

// start runs every daemon that does not run. Certificates come first: signing them makes the cluster's authority, which the
// controller would otherwise make at the same time.
func (u *upper) start(ctx context.Context) error {
	u.from = time.Now()
	u.adopt()
	var todo []daemon
	if dm := u.plan.ctldDaemon(); !u.rec.Daemons[dm.name].alive() {
		if err := u.plan.checkPort(); err != nil {
			return err
		}
		todo = append(todo, dm)
	}
	for _, n := range u.plan.nodes() {
		if ctx.Err() != nil {
			return interrupted(ctx)
		}
		if dm := u.plan.nodeDaemon(n); !u.rec.Daemons[dm.name].alive() {
			if err := u.claim(n); err != nil {
				return err
			}
			todo = append(todo, dm)
		}
	}
	for _, dm := range todo {
		if err := u.launch(dm); err != nil {
			return err
		}
	}
	return u.dir.save(u.rec)
}

// adopt takes daemons into the record that run without being in it: an earlier command was killed before it could write.
func (u *upper) adopt() {
	for _, f := range u.dir.find() {
		if f.isShim() {
			continue
		}
		name := "ctld"
		if i := slices.Index(f.argv, "--node"); i > 0 && i+1 < len(f.argv) {
			name = nodeDaemonName(f.argv[i+1])
		}
		if !u.rec.Daemons[name].alive() {
			u.rec.Daemons[name] = f.identity
		}
	}
}

// claim makes a node's certificate and spool, and refuses a node whose cgroups are another cluster's.
func (u *upper) claim(n *conf.Node) error {
	if pid := u.stranger(n.Name); pid != 0 {
		return fmt.Errorf("cannot start node %s: a cluster named %s with such a node runs on this machine already, process %d (%s); stop that cluster, or change ClusterName in %s",
			n.Name, u.plan.conf.ClusterName, pid, commandLine(pid), u.plan.confPath)
	}
	if len(u.dir.shimsOf([]string{n.Name})) == 0 {
		u.clean = append(u.clean, n.Name)
	}
	spool := u.dir.spool(n.Name)
	err := os.MkdirAll(spool, 0o755)
	if err == nil {
		err = os.Chmod(spool, 0o755) // whatever the umask
	}
	if err != nil {
		return fmt.Errorf("cannot make the spool of node %s: %w", n.Name, err)
	}
	if hasContent(filepath.Join(u.dir.tls(n.Name), "node.key")) {
		return nil
	}
	cmd := exec.Command(u.plan.ctld, "issue", "--state", u.dir.state(), "--node", n.Name, "--out", u.dir.tls(n.Name))
	cmd.Env = daemonEnv()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot make the certificate of node %s: %s (%w)", n.Name, strings.TrimSpace(string(out)), err)
	}
	return nil
}

func hasContent(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() > 0
}

// stranger gives a process in the cgroups of a node that is not one of this cluster's shims or of their jobs.
func (u *upper) stranger(node string) int {
	ours := map[int]bool{}
	shims := []identity{}
	for _, f := range u.dir.find() {
		ours[f.PID] = true
		shims = append(shims, f.identity)
	}
	for _, pid := range descendants(shims) {
		ours[pid] = true
	}
	for _, pid := range cgroupPids(cgroupFolders(u.plan.conf.ClusterName, node)) {
		if st, ok := readStat(pid); ok && st.state != 'Z' && !ours[pid] && foreignShim(pid, u.dir) {
			return pid
		}
	}
	return 0
}

func (u *upper) launch(dm daemon) error {
	u.say("starting %s", dm.name)
	c, err := dm.start()
	if err != nil {
		return err
	}
	u.started = append(u.started, c)
	u.rec.Daemons[dm.name] = c.identity
	if dm.name == "ctld" || u.o.Detach || len(u.started)%16 == 0 {
		return u.dir.save(u.rec)
	}
	return nil
}

// undo stops what this call has started, and only that.
func (u *upper) undo() {
	var ids []identity
	for _, c := range u.started {
		ids = append(ids, c.identity)
	}
	if len(ids) == 0 {
		return
	}
	u.say("stopping what was started")
	_ = stop(ids, 5*time.Second)
	for _, c := range u.started {
		<-c.exited
		delete(u.rec.Daemons, c.name)
	}
	if _, err := sweep(u.dir, u.rec.Cluster, u.clean); err != nil {
		u.say("%v", err)
	}
	_ = u.dir.save(u.rec)
}

// startedNodes are the nodes whose daemon this call started.
func (u *upper) startedNodes() (names []string) {
	for _, c := range u.started {
		if node, ok := strings.CutPrefix(c.name, nodeDaemonName("")); ok {
			names = append(names, node)
		}
	}
	return names
}

// failed is the error for a daemon that has ended.
func failed(c *child) error {
	how := "it ended without an error"
	if c.err != nil {
		how = c.err.Error()
	}
	last := tail(c.log, 12)
	if last == "" {
		last = "(its log is empty)"
	}
	return fmt.Errorf("cannot keep %s running: %s\nthe end of %s:\n%s", c.name, how, c.log, indent(last))
}

func indent(s string) string { return "  " + strings.ReplaceAll(s, "\n", "\n  ") }

func interrupted(ctx context.Context) error {
	return fmt.Errorf("cannot go on: %w", context.Cause(ctx))
}

// kill is what undo and Down do to processes that have nobody who could end them in order.
func kill(pids []int) {
	for _, pid := range pids {
		if id, ok := identify(pid); ok {
			_ = id.signal(unix.SIGKILL)
		}
	}
}
