package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// Names of the daemons' programs.
const (
	ctldName  = "sluice-ctld"
	nodedName = "sluice-noded"
)

// plan is a cluster as configured, on this machine.
type plan struct {
	dir      Dir
	conf     *conf.Config
	confPath string
	ctld     string // path of the program
	noded    string
	bin      string // directory of the commands
	pretend  bool   // nodes are simulated
	gpus     string // simulated GPUs of each node; empty: the machine's
}

// newPlan reads the configuration and checks that all its nodes are this machine.
func newPlan(d Dir, confPath string, pretend bool) (*plan, error) {
	c, err := conf.Load(confPath, conf.Options{})
	if err != nil {
		return nil, err
	}
	p := &plan{dir: d, conf: c, confPath: confPath, pretend: pretend}
	if c.ClusterName == "" {
		return nil, fmt.Errorf("cannot start the cluster: %s has no ClusterName; add a line ClusterName=NAME", confPath)
	}
	if err := p.checkHosts(); err != nil {
		return nil, err
	}
	if err := p.checkSight(); err != nil {
		return nil, err
	}
	if p.ctld, err = Program(ctldName); err != nil {
		return nil, err
	}
	if p.noded, err = Program(nodedName); err != nil {
		return nil, err
	}
	return p, nil
}

// nodes returns the nodes to run, without those that may be created later (FUTURE, CLOUD).
func (p *plan) nodes() []*conf.Node {
	return slices.DeleteFunc(slices.Clone(p.conf.Nodes), func(n *conf.Node) bool { return n.State == "FUTURE" || n.State == "CLOUD" })
}

func (p *plan) checkHosts() error {
	if len(p.nodes()) == 0 {
		return fmt.Errorf("cannot start the cluster: %s has no node; add a NodeName line", p.confPath)
	}
	if p.pretend { // their addresses are not used
		return nil
	}
	local, err := localNames()
	if err != nil {
		return err
	}
	var strangers []string
	for _, n := range p.nodes() {
		if !local[strings.ToLower(n.Hostname)] && !local[strings.ToLower(n.Addr)] {
			strangers = append(strangers, n.Name)
		}
	}
	if len(strangers) > 0 {
		host, _ := shortHostname()
		return fmt.Errorf(
			"cannot start the cluster of %s on this machine: its nodes %s are other machines (NodeHostname is neither %s nor an address "+
				"of it); `sluice up` runs nodes that share this host",
			p.confPath, hostlist.Fold(strangers), host)
	}
	return nil
}

// checkSight rejects a directory that jobs would not see: it has their scripts and the controller's socket.
func (p *plan) checkSight() error {
	if p.pretend || os.Geteuid() != 0 { // there are no jobs, or nobody can create namespaces for them
		return nil
	}
	for _, n := range p.nodes() {
		if err := p.conf.InSight(n, string(p.dir)); err != nil {
			return fmt.Errorf("cannot use %s: %w; --dir names another directory", p.dir, err)
		}
	}
	return nil
}

// localNames returns the names and addresses of this machine.
func localNames() (map[string]bool, error) {
	full, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("cannot find this machine's name: %w", err)
	}
	short, _, _ := strings.Cut(full, ".")
	names := map[string]bool{"localhost": true, strings.ToLower(full): true, strings.ToLower(short): true}
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok {
			names[ip.IP.String()] = true
		}
	}
	for i := range 256 { // all of 127.0.0.0/8 is this machine; these are the usual ones
		names["127.0.0."+strconv.Itoa(i)] = true
	}
	return names, nil
}

// Program finds one of Sluice's programs: beside this one, in ../bin or ../sbin, or in PATH.
func Program(name string) (string, error) {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err == nil {
		dir := filepath.Dir(self)
		for _, path := range []string{filepath.Join(dir, name), filepath.Join(dir, "../bin", name), filepath.Join(dir, "../sbin", name)} {
			if executable(path) {
				return filepath.Clean(path), nil
			}
		}
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if path := filepath.Join(dir, name); filepath.IsAbs(path) && executable(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("cannot find the program %s beside %s or in PATH; run `make build`", name, self)
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && syscall.Access(path, 1) == nil
}

func (p *plan) listen() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.conf.SlurmctldPort))
}

// metricsHere reports whether daemons serve metrics on the default ports: only if slurm.conf asks for it. Otherwise a test cluster
// would take the ports of a monitored one.
func (p *plan) metricsHere() bool { return p.conf.MetricsType != "" }

func (p *plan) ctldDaemon() daemon {
	argv := []string{p.ctld, "--conf", p.confPath, "--state", p.dir.state(), "--socket", p.dir.socket(), "--listen", p.listen(),
		"--pid-file", "none", "--log", p.dir.log("ctld")}
	if !p.metricsHere() {
		argv = append(argv, "--metrics", "none")
	}
	return daemon{"ctld", argv, p.dir.log("ctld")}
}

func (p *plan) nodeDaemon(n *conf.Node) daemon {
	name := nodeDaemonName(n.Name)
	argv := []string{p.noded, "--conf", p.confPath, "--node", n.Name, "--spool", p.dir.spool(n.Name), "--tls", p.dir.tls(n.Name),
		"--controller", p.listen(), "--no-gpu-files", "--allow-root-jobs", "--socket", p.dir.socket(),
		"--pid-file", "none", "--log", p.dir.log(name)}
	if !p.metricsHere() || strings.HasSuffix(strings.ToLower(p.conf.MetricsType), "none") || n != p.nodes()[0] { // one has the port
		argv = append(argv, "--metrics", "none")
	}
	if gpus := p.nodeGPUs(n); gpus != "" {
		argv = append(argv, "--gpus", gpus)
	}
	return daemon{name, argv, p.dir.log(name)}
}

// pretendName is the daemon that simulates all nodes, instead of one daemon per node.
const pretendName = "noded.pretend"

func (p *plan) pretendDaemon() daemon {
	return daemon{pretendName, []string{p.noded, "pretend", "--conf", p.confPath, "--state", p.dir.state(), "--controller", p.listen(),
		"--log", p.dir.log(pretendName)}, p.dir.log(pretendName)}
}

// nodeGPUs are the GPUs that a node simulates. The machine's own GPUs belong to the first node: if two nodes offered them, each
// would be allocated twice.
func (p *plan) nodeGPUs(n *conf.Node) string {
	if p.gpus == "" && n != p.nodes()[0] {
		return "none"
	}
	return p.gpus
}

func nodeDaemonName(node string) string { return "noded." + node }

// checkPort reports which process uses the controller's port, if any.
func (p *plan) checkPort() error {
	err := portBusy(p.conf.SlurmctldPort)
	if err == nil {
		return nil
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("cannot listen on SlurmctldPort %d of %s: %w", p.conf.SlurmctldPort, p.confPath, err)
	}
	holder := portHolder(p.conf.SlurmctldPort)
	return fmt.Errorf("cannot start the controller: SlurmctldPort %d of %s is in use by %s; stop that, or change the port",
		p.conf.SlurmctldPort, p.confPath, holder)
}
