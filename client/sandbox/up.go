package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/internal/passwd"
)

// UpOptions select what to start, and where.
type UpOptions struct {
	Dir   string // "": DefaultDir
	Nodes int    // nodes of a generated configuration; 0: unchanged, or 1
	Conf  string // slurm.conf to use instead of a generated one
	GPUs  string // simulated GPUs of each node: "a100:8"; "": unchanged, or those of the machine
	// Pretend is the number of simulated nodes, or "all" with Conf; "": real nodes, or unchanged.
	Pretend string
	// Detach returns once every process has been started, without waiting for the nodes to be ready.
	Detach bool
	// Timeout bounds the wait for the nodes; 0: two minutes, and more for many nodes.
	Timeout time.Duration
	// Commands are the names of Slurm's commands that must be in the cluster's PATH.
	Commands []string
	// Progress is called with what Up waits for; may be nil.
	Progress func(text string)

	pretended int // Pretend as a number; -1 for all
}

// Started is the result of Up.
type Started struct {
	Dir      string
	EnvFile  string
	Conf     string
	Cluster  string
	Nodes    int
	New      []string // daemons started by this call; the others were already running
	Remarks  []string // nodes that are up but unusable, with the reason; and restrictions of this cluster
	Detached bool
}

// unenforced describes the restrictions of a cluster without root.
const unenforced = "without root, jobs are not confined to the memory, CPUs and GPUs that they request, nor separated from each other"

// upTimeout is how long nodes may take to register by default; nodeTimeout is added per node.
const (
	upTimeout   = 2 * time.Minute
	nodeTimeout = 20 * time.Millisecond
)

// Up starts all parts of the cluster that are not running, and waits until every node is ready. If that fails, it stops what this
// call has started; the error names the failure, with the end of the log.
func Up(ctx context.Context, o UpOptions) (*Started, error) {
	if o.Dir == "" {
		o.Dir = DefaultDir()
	}
	if o.Nodes != 0 && o.Conf != "" {
		return nil, errors.New("cannot use --nodes together with --conf: the file determines the number of nodes")
	}
	if err := o.readPretend(); err != nil {
		return nil, err
	}
	if o.pretended == 0 && (o.Nodes < 0 || o.Nodes > MaxNodes) {
		return nil, fmt.Errorf("cannot start %d nodes: at least 1 and at most %d run on one machine", o.Nodes, MaxNodes)
	}
	d, made, err := openDir(o.Dir)
	if err != nil {
		return nil, err
	}
	if err := d.checkEmpty(); err != nil {
		return nil, err
	}
	lock, err := d.lock()
	if err != nil {
		removeFolders(made)
		return nil, err
	}
	defer lock.Close()
	u := &upper{o: o, dir: d, made: made, lock: lock}
	return u.run(ctx)
}

// readPretend reads Pretend and converts it to a number of nodes.
func (o *UpOptions) readPretend() error {
	n, err := strconv.Atoi(o.Pretend)
	switch {
	case o.Pretend == "":
		return nil
	case o.Nodes != 0 || o.GPUs != "":
		return errors.New("cannot use --pretend together with --nodes or --gpus: it determines the number of nodes, and slurm.conf " +
			"(Gres=gpu:h100:8) their GPUs")
	case o.Conf != "" && o.Pretend == "all":
		o.pretended = -1
		return nil
	case o.Conf != "":
		return errors.New("cannot use --pretend with a number together with --conf, which determines the number of nodes: use --pretend all")
	case err != nil || n < 1 || n > MaxPretended:
		return fmt.Errorf("cannot simulate %q nodes: --pretend takes a number from 1 to %d, or all together with --conf", o.Pretend, MaxPretended)
	}
	o.pretended, o.Nodes = n, n
	return nil
}

// upper is one call of Up.
type upper struct {
	o       UpOptions
	dir     Dir
	lock    *os.File
	made    []string // directories created by this call, down to dir
	fresh   bool     // this call creates the cluster: on failure all of it is removed
	rec     *record
	plan    *plan
	started []*child
	clean   []string // nodes without a shim when their daemon was started: undo may sweep them
	from    time.Time
}

func (u *upper) say(format string, args ...any) {
	if u.o.Progress != nil {
		u.o.Progress(fmt.Sprintf(format, args...))
	}
}

func (u *upper) run(ctx context.Context) (*Started, error) {
	if err := u.prepare(); err != nil {
		u.forget()
		return nil, err
	}
	err := u.start(ctx)
	if err == nil {
		err = u.plan.writeEnv()
	}
	out := &Started{Dir: string(u.dir), EnvFile: u.dir.envFile(), Conf: u.rec.Conf, Cluster: u.plan.conf.ClusterName,
		Nodes: len(u.plan.nodes()), Detached: u.o.Detach}
	if err == nil && !u.o.Detach {
		out.Remarks, err = u.wait(ctx)
	}
	if os.Geteuid() != 0 && !u.plan.pretend {
		out.Remarks = append(out.Remarks, unenforced)
	}
	if err != nil {
		u.undo()
		u.forget()
		return nil, err
	}
	for _, c := range u.started {
		out.New = append(out.New, c.name)
	}
	return out, nil
}

// prepare determines the cluster from the options and the directory's record.
func (u *upper) prepare() (err error) {
	if u.rec, err = u.dir.load(); err != nil {
		return err
	}
	if u.rec != nil && !u.rec.Started && len(u.dir.find()) == 0 {
		if err := u.beginAnew(); err != nil {
			return err
		}
	}
	if u.rec == nil {
		err = u.found()
	} else if err = u.sameCluster(); err == nil {
		u.plan, err = newPlan(u.dir, u.rec.Conf, u.rec.Pretend)
	}
	if err != nil {
		return err
	}
	u.plan.gpus = u.rec.GPUs
	u.plan.pretend = u.rec.Pretend
	if was := u.rec.Cluster; was != "" && was != u.plan.conf.ClusterName {
		return fmt.Errorf("cannot start cluster %s in %s: the state there belongs to cluster %s; change ClusterName back, or give "+
			"another --dir",
			u.plan.conf.ClusterName, u.dir, was)
	}
	u.rec.Cluster = u.plan.conf.ClusterName
	if err = u.dir.makeFolders(); err != nil {
		return err
	}
	if err = u.linkCommands(); err != nil {
		return err
	}
	if err = u.linkConf(); err != nil {
		return err
	}
	return u.dir.save(u.rec)
}

// beginAnew deletes the remains of an earlier call that failed or was killed before it had started anything. Logs are kept.
func (u *upper) beginAnew() error {
	_, err := u.dir.remove(u.rec.Made, recordName, lockFile, "log")
	if err != nil {
		return err
	}
	if slices.Contains(u.rec.Made, ".") {
		u.made = append(u.made, string(u.dir))
	}
	u.rec = nil
	return nil
}

// found creates a cluster's record, and its configuration unless one was given. It checks everything it can before creating
// anything, and records each name before creating it.
func (u *upper) found() (err error) {
	u.fresh = true
	u.rec = &record{Version: recordVersion, Daemons: map[string]identity{}, GPUs: u.o.GPUs, Conf: u.dir.ownConf(),
		Pretend: u.o.pretended != 0}
	u.rec.Made = append([]string{recordName, lockFile, envName}, folders...)
	if len(u.made) > 0 {
		u.rec.Made = append(u.rec.Made, ".")
	}
	if err := checkGPUs(u.o.GPUs); err != nil {
		return err
	}
	if u.o.Conf != "" {
		if u.rec.Conf, err = realPath(u.o.Conf); err == nil {
			u.plan, err = newPlan(u.dir, u.rec.Conf, u.rec.Pretend)
		}
		if err != nil {
			return err
		}
		u.rec.Cluster = u.plan.conf.ClusterName
		return u.dir.save(u.rec)
	}
	u.rec.Cluster, u.rec.Nodes = u.dir.clusterName(), max(1, u.o.Nodes)
	u.rec.Made = append(u.rec.Made, confNames...)
	if err := u.dir.save(u.rec); err != nil {
		return err
	}
	if err := u.dir.generate(u.rec.Nodes, u.rec.Pretend); err != nil {
		return err
	}
	u.plan, err = newPlan(u.dir, u.rec.Conf, u.rec.Pretend)
	return err
}

// checkGPUs asks the node daemon, which knows the models, whether it can simulate them.
func checkGPUs(spec string) error {
	if spec == "" {
		return nil
	}
	noded, err := Program(nodedName)
	if err != nil {
		return err
	}
	cmd := exec.Command(noded, "check-gpus", spec)
	cmd.Env = daemonEnv()
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.New(strings.TrimPrefix(cmp.Or(strings.TrimSpace(string(out)), err.Error()), nodedName+": "))
	}
	return nil
}

// linkCommands creates the directory of the commands if necessary, after recording it.
func (u *upper) linkCommands() error {
	self, own, err := u.plan.findCommands(u.o.Commands)
	if err != nil || !own {
		return err
	}
	if !slices.Contains(u.rec.Made, "bin") {
		if _, err := os.Lstat(u.plan.bin); err == nil {
			return fmt.Errorf("cannot create the directory of the commands: %s already exists and was not created by `sluice up`", u.plan.bin)
		}
		u.rec.Made = append(u.rec.Made, "bin")
		if err := u.dir.save(u.rec); err != nil {
			return err
		}
	}
	return u.plan.linkCommands(self, u.o.Commands)
}

// linkConf makes DIR/slurm.conf a link to a configuration elsewhere, so that a command that has only SLURM_CONF finds the
// controller's socket beside it. A file that the user has put there is kept; then only SLUICE_SOCKET identifies the cluster.
func (u *upper) linkConf() error {
	link := u.dir.ownConf()
	if u.rec.Conf == link {
		return nil
	}
	target, err := os.Readlink(link)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if !slices.Contains(u.rec.Made, filepath.Base(link)) {
			u.rec.Made = append(u.rec.Made, filepath.Base(link))
			if err := u.dir.save(u.rec); err != nil {
				return err
			}
		}
		if err := os.Symlink(u.rec.Conf, link); err != nil {
			return fmt.Errorf("cannot link the configuration: %w", err)
		}
	case err != nil && slices.Contains(u.rec.Made, filepath.Base(link)):
		return fmt.Errorf("%s is a file and no longer the link to %s that `sluice up` made, perhaps because an editor saved it: "+
			"copy what was changed to %s and delete it, or move it away", link, u.rec.Conf, u.rec.Conf)
	case err != nil || target != u.rec.Conf:
		return nil
	}
	u.plan.confPath = link
	return nil
}

func realPath(conf string) (string, error) {
	path, err := passwd.ExpandHome(conf)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the configuration: %w", err)
	}
	return path, nil
}

func (u *upper) instead() string {
	return fmt.Sprintf("remove it with `sluice down --dir %s --wipe`, or give another --dir", u.dir)
}

// sameCluster rejects options for another cluster than that in the directory.
func (u *upper) sameCluster() error {
	instead := u.instead()
	if u.o.pretended != 0 && !u.rec.Pretend {
		return fmt.Errorf("cannot simulate nodes in %s: the existing cluster there has real nodes; %s", u.dir, instead)
	}
	if u.o.GPUs != "" && u.o.GPUs != u.rec.GPUs {
		return fmt.Errorf("cannot start a cluster with GPUs %s in %s: the existing cluster there has %s; %s", u.o.GPUs, u.dir,
			cmp.Or(u.rec.GPUs, "those of the machine"), instead)
	}
	if u.o.Conf != "" {
		path, err := realPath(u.o.Conf)
		if err != nil {
			return err
		}
		if path != u.rec.Conf {
			return fmt.Errorf("cannot start a cluster of %s in %s: the existing cluster there uses %s; "+
				"%s", path, u.dir, u.rec.Conf, instead)
		}
		return nil
	}
	wanted := msg.Singular(fmt.Sprintf("%d nodes", u.o.Nodes))
	switch {
	case u.o.Nodes == 0 || u.o.Nodes == u.rec.Nodes:
		return nil
	case u.rec.Nodes == 0:
		return fmt.Errorf("cannot start a cluster of %s in %s: the existing cluster there uses %s; %s", wanted, u.dir, u.rec.Conf, instead)
	}
	return fmt.Errorf("cannot start a cluster of %s in %s: the existing cluster there has %d; %s", wanted, u.dir, u.rec.Nodes, instead)
}

// start starts every daemon that is not running. Certificates come first: signing them creates the cluster's authority, which the
// controller would otherwise create concurrently.
func (u *upper) start(ctx context.Context) error {
	u.from = time.Now()
	settle(u.rec.Daemons, 10*time.Second)
	u.adopt()
	var todo []daemon
	if dm := u.plan.ctldDaemon(); !u.rec.Daemons[dm.name].alive() {
		if err := u.plan.checkPort(); err != nil {
			return err
		}
		todo = append(todo, dm)
	}
	if dm := u.plan.pretendDaemon(); u.plan.pretend && !u.rec.Daemons[dm.name].alive() {
		todo = append(todo, dm)
	}
	for _, n := range u.plan.nodes() {
		if u.plan.pretend {
			break
		}
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
	if len(todo) > 0 && !u.rec.Started {
		u.rec.Started = true
		if err := u.dir.save(u.rec); err != nil {
			return err
		}
	}
	for _, dm := range todo {
		if err := u.launch(dm); err != nil {
			return err
		}
	}
	return u.dir.save(u.rec)
}

// adopt adds running daemons that are not in the record, because an earlier command was killed before it could save it.
func (u *upper) adopt() {
	for _, f := range u.dir.find() {
		if f.isShim() {
			continue
		}
		name := "ctld"
		if f.pretends() {
			name = pretendName
		} else if i := slices.Index(f.argv, "--node"); i > 0 && i+1 < len(f.argv) {
			name = nodeDaemonName(f.argv[i+1])
		}
		if !u.rec.Daemons[name].alive() {
			u.rec.Daemons[name] = f.identity
		}
	}
}

// claim creates a node's certificate and spool, and rejects a node whose cgroups belong to another cluster.
func (u *upper) claim(n *conf.Node) error {
	if pid := u.stranger(n.Name); pid != 0 {
		return fmt.Errorf(
			"cannot start node %s: a cluster named %s with such a node runs on this machine already, process %d (%s); stop that "+
				"cluster, or change ClusterName in %s",
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
		return fmt.Errorf("cannot create the spool directory of node %s: %w", n.Name, err)
	}
	if hasContent(filepath.Join(u.dir.tls(n.Name), "node.crt")) { // written last
		return nil
	}
	cmd := exec.Command(u.plan.ctld, "--conf", u.plan.confPath, "issue",
		"--new-authority", "--state", u.dir.state(), "--node", n.Name, "--out", u.dir.tls(n.Name))
	cmd.Env = daemonEnv()
	// If this command is killed, the next one may delete everything and start over. By inheriting the lock, this process makes it
	// wait: otherwise it could write a certificate of the deleted authority among those of the new one.
	cmd.ExtraFiles, cmd.SysProcAttr = []*os.File{u.lock}, &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot create the certificate of node %s: %s (%w)", n.Name, strings.TrimSpace(string(out)), err)
	}
	return nil
}

func hasContent(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() > 0
}

// stranger returns a process in a node's cgroups that is neither one of this cluster's shims nor of their jobs; 0 if there is none.
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

// undo stops only what this call has started.
func (u *upper) undo() {
	var ids []identity
	for _, c := range u.started {
		ids = append(ids, c.identity)
	}
	if len(ids) == 0 {
		return
	}
	u.fresh = u.fresh && !u.hasJobs()
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

// hasJobs reports whether the cluster has already got a job, even before it was up.
func (u *upper) hasJobs() bool {
	w := &downer{dir: u.dir}
	jobs, err := w.jobs(context.Background(), &msg.JobsRequest{AllStates: true})
	return err == nil && len(jobs) > 0
}

// forget deletes a cluster that this call failed to create, so that the corrected command finds an empty directory. If a daemon has
// run, its log is kept, with a record of that.
func (u *upper) forget() {
	if !u.fresh {
		removeFolders(u.made)
		return
	}
	if len(u.started) > 0 {
		u.rec.Started = false
		if err := u.dir.save(u.rec); err == nil {
			_, _ = u.dir.remove(u.rec.Made, recordName, lockFile, "log")
		}
		return
	}
	_, _ = u.dir.remove(u.rec.Made)
	removeFolders(u.made)
}

// startedNodes returns the nodes whose daemon this call started.
func (u *upper) startedNodes() (names []string) {
	for _, c := range u.started {
		if c.name == pretendName {
			for _, n := range u.plan.nodes() {
				names = append(names, n.Name)
			}
		} else if node, ok := strings.CutPrefix(c.name, nodeDaemonName("")); ok {
			names = append(names, node)
		}
	}
	return names
}

// failed returns the error for a daemon that has ended.
func failed(c *child) error {
	how := "it ended without an error"
	if c.err != nil {
		how = c.err.Error()
	}
	return fmt.Errorf("cannot keep %s running: %s\n%s", c.name, how, c.logEnd())
}

func (c *child) logEnd() string {
	return "last lines of " + c.log + ":\n" + indent(cmp.Or(tail(c.log, 12), "(its log is empty)"))
}

func indent(s string) string { return "  " + strings.ReplaceAll(s, "\n", "\n  ") }

func interrupted(ctx context.Context) error {
	return fmt.Errorf("interrupted: %w", context.Cause(ctx))
}

// kill kills processes that no daemon is left to end properly, for undo and Down.
func kill(pids []int) {
	for _, pid := range pids {
		if id, ok := identify(pid); ok {
			_ = id.signal(unix.SIGKILL)
		}
	}
}
