// Package noded is the node daemon. It reports this node to the controller, runs prolog, steps and epilog of each job that the
// controller assigns to this node, and reports how they ended.
//
// It consists of two processes. noded-root (package root) has root privileges, no network, and owns shims, devices and the spool.
// noded-link, this package, has no privileges (package confine). It talks to the controller and decides which actions are
// missing. One goroutine (node.loop) owns all of its state: it receives the controller's messages (package link), messages from
// noded-root and results of its own workers, asks package agent what is missing, starts these actions in worker goroutines
// (package lifecycle), and reports changes to the controller. Jobs outlive both processes: their shims continue, and the next
// daemon finds them.
package noded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/internal/metrics"
	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/internal/service"
	"github.com/sluice-hpc/sluice/internal/tcp"
	"github.com/sluice-hpc/sluice/internal/version"
	"github.com/sluice-hpc/sluice/noded/gpu"
	"github.com/sluice-hpc/sluice/noded/hw"
	"github.com/sluice-hpc/sluice/noded/policy"
	"github.com/sluice-hpc/sluice/noded/privsep"
	"github.com/sluice-hpc/sluice/noded/relay"
	"github.com/sluice-hpc/sluice/noded/root"
	"github.com/sluice-hpc/sluice/noded/step"
	"github.com/sluice-hpc/sluice/noded/taskenv"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Options name this node and its controllers. The other settings come from the controller.
type Options struct {
	NodeName    string
	Spool       string   // directory of this node alone; users need search permission on it
	TLS         string   // directory with ca.crt, node.crt and node.key (package mtls)
	Controllers []string // host:port, tried in turn
	Cluster     string   // names the cgroup root sluice/<cluster>/<node>
	Conf        string   // path of slurm.conf, passed on to jobs as SLURM_CONF; may be empty
	Socket      string   // the controller's socket on this host, passed on to jobs as SLUICE_SOCKET; may be empty
	Log         *slog.Logger
	Level       *slog.LevelVar `json:"-"` // of Log, when the controller may change it (SlurmdDebug)
	ShimLog     *os.File       // where shims write; nil: standard error
	// ShimEnv returns the environment variables that tell a shim how to log; nil: none.
	ShimEnv func() []string `json:"-"`
	// Reload rereads the configuration files, reopens the log accordingly, and returns the other settings. nil: nothing is
	// reread.
	Reload func() (root.Reread, error) `json:"-"`
	// Files is the node's configuration: its own files or those fetched from the controller.
	Files root.Conf `json:"-"`
	// Signals are SIGHUP and SIGUSR2; may be nil.
	Signals <-chan os.Signal `json:"-"`
	// Service receives the daemon's state for systemd; may be nil.
	Service *service.Manager `json:"-"`
	// HealthCheck is HealthCheckProgram of slurm.conf. It runs once before the node registers; empty: no check at startup. Later
	// runs follow the controller's settings.
	HealthCheck string
	// CgroupPlugin is CgroupPlugin of cgroup.conf(5); empty: autodetect.
	CgroupPlugin string
	// GPUs is the GPU driver; nil: there is none, for the reason NoGPUs.
	GPUs   gpu.Source `json:"-"`
	NoGPUs string
	// GPUFiles enables the files that map GPUs to jobs (package gpufiles). They are only written as root.
	GPUFiles bool
	// Policy limits what anyone may do on this node.
	Policy policy.Policy
	// Apart starts noded-link as a process of its own and returns a function that waits for its end. The connection (orders) is
	// the first descriptor after standard error. The listening sockets for commands (relay) and for metrics follow; either may be
	// nil. If Apart is nil, noded-link runs in this process, which is for tests.
	Apart func(orders, relay, metrics *os.File) (wait func() error, err error) `json:"-"`
	// Relay is the path of the socket through which commands on this host reach the controller; empty: none.
	Relay string
	// Sessions is the path of the socket through which sshd sessions are adopted; empty: none.
	Sessions string
	// Dynamic is the configuration ("Feature=… Gres=…") with which a node that slurm.conf does not name joins; nil: it does not
	// join.
	Dynamic *string
	// Login marks a login host. It has no resources and runs no jobs; Spool, Steps and the devices are unused.
	Login bool

	// The following fields have defaults and are replaced in tests.
	Prober hw.Prober  // hw.Linux
	Steps  root.Steps // a step.Runner on Spool
	Shim   []string   // command that starts a shim; by default this binary with the argument "stepd"

	// Metrics is the address on which metrics are served; empty: none.
	Metrics string
	// MetricsTokens is a file with the tokens that give access to metrics, readable by its owner alone; empty: no tokens.
	MetricsTokens string

	listening *os.File // Relay's socket
	metrics   *os.File // the socket for Metrics
	tokens    metrics.Tokens
}

// check returns all faults at once.
func (o *Options) check() error {
	var errs []error
	need := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New(what))
		}
	}
	need(o.NodeName != "", "the node's name is missing")
	need(!o.Login || o.Relay != "", "the path of the socket for commands is missing (ClusterName)")
	need(o.Login || o.Spool != "", "the spool directory is missing (SlurmdSpoolDir)")
	need(len(o.Controllers) > 0, "the controller's address is missing (SlurmctldHost)")
	need(o.TLS != "", "the directory with ca.crt, "+o.role()+".crt and "+o.role()+".key is missing")
	if len(errs) > 0 {
		return fmt.Errorf("cannot start the node daemon: %w", errors.Join(errs...))
	}
	return nil
}

// role is the role in this host's certificate.
func (o *Options) role() string {
	if o.Login {
		return mtls.RoleLogin
	}
	return mtls.RoleNode
}

// Run runs the node daemon until ctx ends. Running jobs continue.
func Run(ctx context.Context, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	o.Log = o.Log.With("node", o.NodeName)
	if o.Conf != "" { // a relative path would not survive the jobs' chdir
		abs, err := filepath.Abs(o.Conf)
		if err != nil {
			return fmt.Errorf("cannot make the path %s absolute: %w", o.Conf, err)
		}
		o.Conf = abs
	}
	if o.Prober == nil {
		o.Prober = hw.Linux{}
	}
	files, err := mtls.HostFiles(o.TLS, o.role()) // first, so that a mistyped path leaves no spool behind
	if err != nil {
		return err
	}
	if o.listening, err = o.listen(); err != nil {
		return err
	}
	defer o.listenMetrics(ctx)()
	if o.listening != nil {
		defer o.listening.Close()
	}
	ro := o.root(files)
	ro.Sessions = o.listenSessions()
	r, err := root.New(ctx, ro)
	if err != nil {
		if ro.Sessions != nil {
			_ = ro.Sessions.Close()
		}
		return err
	}
	stop := o.signals(r)
	lives, end := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() { defer close(watched); o.Service.Watch(lives, r.Alive, nil) }()
	o.Service.Ready("host " + o.NodeName)
	err = o.serve(ctx, r)
	o.Service.Stopping()
	end()
	<-watched
	stop()
	return errors.Join(err, r.Close())
}

func (o *Options) root(files mtls.Files) root.Options {
	var dynamic *pb.DynamicNode
	if o.Dynamic != nil {
		dynamic = &pb.DynamicNode{Conf: *o.Dynamic}
	}
	return root.Options{Node: o.NodeName, Login: o.Login, Cluster: o.Cluster, Spool: o.Spool, Steps: o.Steps, Prober: o.Prober,
		GPUs:   o.GPUs,
		NoGPUs: o.NoGPUs, GPUFiles: o.GPUFiles, Policy: o.Policy, HealthCheck: o.HealthCheck,
		Log: o.Log, Level: o.Level, Reload: o.Reload, Status: o.showRefusal, Conf: o.Files,
		Step:     step.Options{Command: o.Shim, ShimLog: o.ShimLog, ShimEnv: o.ShimEnv, CgroupPlugin: o.CgroupPlugin},
		Daemon:   taskenv.Daemon{Node: o.NodeName, Conf: o.Conf, Socket: o.jobSocket()},
		Identity: mtls.Identity{Role: o.role(), Name: o.NodeName}, TLS: o.TLS,
		Welcome: &nodepb.Welcome{Node: o.NodeName, Controllers: o.Controllers, Conf: o.Conf, Socket: o.jobSocket(), Login: o.Login,
			Relay: o.listening != nil, Metrics: o.metrics != nil, MetricsTokens: o.tokens, Dynamic: dynamic,
			Ca: files.Authority, Refusals: o.Policy.Refusals(), Certificate: files.Certificate, Key: files.Key}}
}

// showRefusal makes systemctl status show why this host follows no controller; "" means that it does.
func (o *Options) showRefusal(refused string) {
	if refused != "" {
		refused = ": no link to the controller: " + refused
	}
	o.Service.Ready("host " + o.NodeName + refused)
}

// signals handles SIGHUP and SIGUSR2 until stop is called.
func (o *Options) signals(r *root.Root) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case s := <-o.Signals:
				if s != syscall.SIGHUP {
					r.Signal(false)
					continue
				}
				o.Service.Reloading()
				r.Signal(true)
				o.Service.Ready("host " + o.NodeName)
			case <-end:
				return
			}
		}
	}()
	return func() { close(end); <-ended }
}

// The pause before noded-link is restarted after it ended by itself.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
)

// serve runs noded-link and restarts it when it ends.
func (o *Options) serve(ctx context.Context, r *root.Root) error {
	for wait := firstPause; ; wait = min(2*wait, lastPause) {
		began := time.Now()
		err := o.one(ctx, r)
		switch {
		case ctx.Err() != nil, errors.Is(err, root.ErrStopped):
			return nil
		case o.Apart == nil:
			return err
		case time.Since(began) > lastPause:
			wait = firstPause
		}
		o.Log.Error("noded-link, the half of the node daemon that talks to the controller, has ended: restarting it", "err", err)
		pause(ctx, wait)
	}
}

// one runs noded-link once.
func (o *Options) one(ctx context.Context, r *root.Root) error {
	ours, theirs, err := privsep.Pair()
	if err != nil {
		return err
	}
	start := o.Apart
	if start == nil {
		start = func(f, relay, metrics *os.File) (func() error, error) { return o.within(ctx, f, relay, metrics) }
	}
	wait, err := start(theirs, o.listening, o.metrics)
	_ = theirs.Close()
	if err != nil {
		_ = ours.Close()
		return fmt.Errorf("cannot start noded-link: %w", err)
	}
	err = r.Serve(ctx, ours)
	if werr := wait(); err == nil || werr == nil {
		return cmp.Or(err, werr)
	} else {
		return fmt.Errorf("%w; %w", err, werr)
	}
}

// within runs noded-link in this process.
func (o *Options) within(ctx context.Context, f, listening, metrics *os.File) (wait func() error, err error) {
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	sockets := Sockets{Relay: func() (*net.UnixListener, error) { return relay.FromFile(listening) },
		Metrics: func(ctx context.Context) (net.Listener, error) { return tcp.FromFile(ctx, metrics) }}
	go func() { done <- Link(ctx, conn, sockets, o.Prober, o.Log, o.Level) }()
	return func() error { return <-done }, nil
}

// linkOptions are the options of noded-link.
type linkOptions struct {
	Prober hw.Prober
	Level  *slog.LevelVar // of the log; may be nil
	Dial   func(ctx context.Context, addr string) (net.Conn, error)
}

// Sockets return the listening sockets that noded-root opened, if its Welcome says so. Metrics may wait, until ctx ends, because
// its socket may start to listen later.
type Sockets struct {
	Relay   func() (*net.UnixListener, error)
	Metrics func(ctx context.Context) (net.Listener, error)
}

// Link runs noded-link on conn, the connection to noded-root, until conn closes or ctx ends.
func Link(ctx context.Context, conn net.Conn, sockets Sockets, prober hw.Prober, log *slog.Logger, level *slog.LevelVar) error {
	return serve(ctx, conn, sockets, linkOptions{Prober: prober, Level: level}, log)
}

// LinkFrom is Link for one of many nodes in one process (package pretend). It leaves the log level alone, and connects with dial
// unless that is nil.
func LinkFrom(ctx context.Context, conn net.Conn, prober hw.Prober, log *slog.Logger,
	dial func(ctx context.Context, addr string) (net.Conn, error)) error {
	return serve(ctx, conn, Sockets{}, linkOptions{Prober: prober, Dial: dial}, log)
}

func serve(ctx context.Context, conn net.Conn, sockets Sockets, o linkOptions, log *slog.Logger) error {
	client, about, err := privsep.Dial(conn)
	if err != nil {
		return err
	}
	if about.First {
		return fetch(ctx, client, about, log)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cert, err := newCertificate(client, about)
	var ended <-chan struct{}
	if err == nil {
		ended, err = startRelay(ctx, client, about, cert, sockets.Relay, log)
	}
	if err != nil {
		client.Close()
		for range client.Words() {
		}
		return err
	}
	defer func() { cancel(); <-ended }()
	if about.Login {
		return login(ctx, client, about, cert, log, o.Level)
	}
	n := &node{o: o, log: log, root: client, about: about, cert: cert, sockets: sockets}
	if err := n.init(); err != nil {
		client.Close()
		for range client.Words() {
		}
		return err
	}
	return n.run(ctx)
}

// hello is the first message of every stream.
func (n *node) hello() *pb.NodeHello {
	if inv, err := n.o.Prober.Inventory(); err == nil {
		n.inv = inv // processors may have gone on- or offline
		n.bundler.Topology = inv.Topology
	}
	h := hardware(n.inv)
	n.addDevices(h)
	return &pb.NodeHello{
		Node: n.about.Node, Version: version.Sluice, BootId: n.inv.BootID, BootNs: n.inv.BootNS, NodedStartNs: n.about.StartNs,
		Os: n.inv.OS, Arch: n.inv.Arch, Hardware: h, ClusterId: n.clusterID, NowNs: time.Now().UnixNano(), Refusals: n.about.Refusals,
		Dynamic: n.joins(), HighestJob: n.steps.HighestJob(),
	}
}

// joins returns the request to join as a dynamic node, until a controller has accepted it. A node that was deleted since then
// does not come back by itself.
func (n *node) joins() *pb.DynamicNode {
	if n.taken {
		return nil
	}
	return n.about.Dynamic
}

// hardware converts the inventory to the form that the controller compares with the configuration. If the processors do not form
// a regular grid (some are offline, or outside this daemon's CPU set), each counts as a core of its own, so that none is lost.
func hardware(inv hw.Inventory) *pb.Hardware {
	cpus := len(inv.Topology)
	sockets, cores, threads := inv.Topology.Counts()
	if sockets*cores*threads != cpus {
		sockets, cores, threads = 1, cpus, 1
	}
	return &pb.Hardware{
		Cpus: uint32(cpus), Sockets: uint32(sockets), Cores: uint32(cores), Threads: uint32(threads),
		RealMemoryMib: inv.MemoryMiB, TmpDiskMib: inv.TmpMiB,
	}
}

func (n *node) heartbeat() *pb.Heartbeat {
	load, err := n.o.Prober.Load()
	if err != nil {
		n.log.Warn("cannot read this machine's load", "err", err)
	}
	return &pb.Heartbeat{CpuLoad: load.CPU, FreeMemMib: load.FreeMemMiB, NowNs: time.Now().UnixNano(), Fault: n.fault}
}
