// Package noded is the node daemon: it reports this node to the controller, runs prolog, steps and epilog of each job
// that the controller wants here, and reports how they ended.
//
// It is two processes. noded-root (package root) has root's rights and no network, and keeps shims, devices and spool.
// noded-link, this package, has no rights at all (package confine): it talks to the controller and decides what is
// missing. One goroutine in it (node.loop) owns everything that is known. It receives messages of the controller
// (package link), news of noded-root and results of its own work, asks package agent what is missing, orders that in
// goroutines of its own (package orders), and reports changes to the controller. Jobs outlive both processes: their
// shims continue, and the next daemon finds them.
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

// Options say who this node is and where its controller is. The rest of its settings come from the controller.
type Options struct {
	NodeName    string
	Spool       string   // folder of this node alone; users must be able to pass through it
	TLS         string   // folder with ca.crt, node.crt and node.key (package mtls)
	Controllers []string // host:port, tried in turn
	Cluster     string   // names the cgroup root sluice/<cluster>/<node>
	Conf        string   // path of slurm.conf, passed on to jobs as SLURM_CONF; may be empty
	Socket      string   // the controller's socket on this host, passed on to jobs as SLUICE_SOCKET; may be empty
	Log         *slog.Logger
	Level       *slog.LevelVar `json:"-"` // of Log, when the controller may change it (SlurmdDebug)
	ShimLog     *os.File       // where shims write; nil: standard error
	// ShimEnv is what the environment of a shim says of how to write there; nil: nothing.
	ShimEnv func() []string `json:"-"`
	// Reload opens the log again, as slurm.conf says now, and gives what else the files say. nil: all stays as it is.
	Reload func() (root.Reread, error) `json:"-"`
	// Files is what the node goes by: files of its own, or what the controller has given.
	Files root.Conf `json:"-"`
	// Signals are SIGHUP and SIGUSR2; may be nil.
	Signals <-chan os.Signal `json:"-"`
	// Service is told how this daemon is doing; may be nil.
	Service *service.Manager `json:"-"`
	// HealthCheck is HealthCheckProgram of slurm.conf, where it is to run: once before this node registers. Later runs follow the
	// controller's settings.
	HealthCheck string
	// CgroupPlugin is that of cgroup.conf(5); empty: autodetect.
	CgroupPlugin string
	// GPUs is the driver; nil: there is none, because of NoGPUs.
	GPUs   gpu.Source `json:"-"`
	NoGPUs string
	// GPUFiles: the usual files about the jobs of GPUs (package gpufiles) are this daemon's to write, when it runs as root.
	GPUFiles bool
	// Policy is what this node lets be done on it.
	Policy policy.Policy
	// Apart starts noded-link as a process, with its end of the connection as the first descriptor after standard error, and gives how to
	// wait for its end. nil: it runs in this process, which is for tests.
	// relay is the listening socket that it has after that, nil where there is none.
	// metrics is that for metrics, likewise.
	Apart func(orders, relay, metrics *os.File) (wait func() error, err error) `json:"-"`
	// Relay is the path of the socket by which commands on this host reach the controller; empty: there is none.
	Relay string
	// Sessions is the path of the socket by which sessions of sshd are adopted; empty: there is none.
	Sessions string
	// Dynamic is what to say of a node that slurm.conf does not name, "Feature=… Gres=…", when it joins; nil: it does not.
	Dynamic *string
	// Login: this is a login host, which has no resources and runs no jobs; Spool, Steps and devices are nobody's.
	Login bool

	// What follows has defaults and is replaced in tests.
	Prober hw.Prober  // hw.Linux
	Steps  root.Steps // a step.Runner on Spool
	Shim   []string   // command that starts a shim: this binary with the argument "stepd"

	// Metrics is the address on which metrics are served; empty: they are not.
	Metrics string
	// MetricsTokens is a file of the tokens that open them, root's alone; empty: there are none.
	MetricsTokens string

	listening *os.File // Relay's socket
	metrics   *os.File // that of Metrics
	tokens    metrics.Tokens
}

// check gathers all faults.
func (o *Options) check() error {
	var errs []error
	need := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New(what))
		}
	}
	need(o.NodeName != "", "the node's name is missing")
	need(!o.Login || o.Relay != "", "the path of the socket for commands is missing (ClusterName)")
	need(o.Login || o.Spool != "", "the spool folder is missing (SlurmdSpoolDir)")
	need(len(o.Controllers) > 0, "the controller's address is missing (SlurmctldHost)")
	need(o.TLS != "", "the folder with ca.crt, "+o.role()+".crt and "+o.role()+".key is missing")
	if len(errs) > 0 {
		return fmt.Errorf("cannot start the node daemon: %w", errors.Join(errs...))
	}
	return nil
}

// role is that of this host's certificate.
func (o *Options) role() string {
	if o.Login {
		return mtls.RoleLogin
	}
	return mtls.RoleNode
}

// Run is the node daemon, from its start until ctx ends. Jobs that run then run on.
func Run(ctx context.Context, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	o.Log = o.Log.With("node", o.NodeName)
	if o.Conf != "" { // jobs have working folders of their own
		abs, err := filepath.Abs(o.Conf)
		if err != nil {
			return fmt.Errorf("cannot tell where %s is: %w", o.Conf, err)
		}
		o.Conf = abs
	}
	if o.Prober == nil {
		o.Prober = hw.Linux{}
	}
	files, err := mtls.HostFiles(o.TLS, o.role()) // before anything is made: a path that was mistyped leaves no spool
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

// showRefusal has systemctl status say why this host follows no controller.
func (o *Options) showRefusal(refused string) {
	if refused != "" {
		refused = ": no link to the controller: " + refused
	}
	o.Service.Ready("host " + o.NodeName + refused)
}

// signals has SIGHUP and SIGUSR2 obeyed until it is stopped.
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

// The pause before another noded-link is started, after one has ended by itself.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
)

// serve has one noded-link after the other.
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
		o.Log.Error("noded-link, the half of the node daemon that talks to the controller, has ended: starting another one", "err", err)
		pause(ctx, wait)
	}
}

// one is the life of one noded-link.
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

// linkOptions are of noded-link.
type linkOptions struct {
	Prober hw.Prober
	Level  *slog.LevelVar // of the log; may be nil
	Dial   func(ctx context.Context, addr string) (net.Conn, error)
}

// Sockets give the listening sockets that the root half has opened, where it says that there are such. That of Metrics may listen later,
// for which it waits until ctx ends.
type Sockets struct {
	Relay   func() (*net.UnixListener, error)
	Metrics func(ctx context.Context) (net.Listener, error)
}

// Link is noded-link: it serves the host whose root half is at the other end of conn, until that goes, or ctx ends.
func Link(ctx context.Context, conn net.Conn, sockets Sockets, prober hw.Prober, log *slog.Logger, level *slog.LevelVar) error {
	return serve(ctx, conn, sockets, linkOptions{Prober: prober, Level: level}, log)
}

// LinkFrom is Link for one of many nodes in one process (package pretend): the level of the log is not its own to change, and dial, unless
// it is nil, makes its connections.
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

// hello is what the node says first on every stream.
func (n *node) hello() *pb.NodeHello {
	if inv, err := n.o.Prober.Inventory(); err == nil {
		n.inv = inv // processors go on- and offline
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

// joins is what a host says that asks to be a node: until a controller has taken it. One that was deleted since does not come back by
// itself.
func (n *node) joins() *pb.DynamicNode {
	if n.taken {
		return nil
	}
	return n.about.Dynamic
}

// hardware is the inventory as the controller compares it with the configuration. Processors that make no regular shape (some
// are offline, or not for this daemon to use) count as single cores: none of them is lost that way.
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
		n.log.Warn("cannot tell how busy this machine is", "err", err)
	}
	return &pb.Heartbeat{CpuLoad: load.CPU, FreeMemMib: load.FreeMemMiB, NowNs: time.Now().UnixNano(), Fault: n.fault}
}
