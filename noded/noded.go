// Package noded is the node daemon: it tells the controller what this node has, runs the prolog, the batch script and the epilog
// of each job that the controller wants here, and reports how they ended.
//
// One goroutine (node.loop) owns everything that is known. It waits for the controller (package link), for the shims (package
// step) and for the work that it has started, asks package agent what is missing, starts that in goroutines of its own, and
// tells the controller what changed. Jobs outlive this daemon: their shims run on, and the next daemon finds them.
package noded

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/sluice-hpc/sluice/conf/mtls"
	"github.com/sluice-hpc/sluice/conf/version"
	"github.com/sluice-hpc/sluice/noded/gpu"
	"github.com/sluice-hpc/sluice/noded/hook"
	"github.com/sluice-hpc/sluice/noded/hw"
	"github.com/sluice-hpc/sluice/noded/step"
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
	Addr        string   // address and port of this node, as others should show it
	Port        uint32
	Log         *slog.Logger
	Level       *slog.LevelVar `json:"-"` // of Log, when the controller may change it (SlurmdDebug)
	ShimLog     *os.File       // where shims write; nil: standard error
	// CgroupPlugin is that of cgroup.conf(5); empty: autodetect.
	CgroupPlugin string
	// GPUs is the driver; nil: there is none, because of NoGPUs.
	GPUs   gpu.Source `json:"-"`
	NoGPUs string
	// GPUFiles: the usual files about the jobs of GPUs (package gpufiles) are this daemon's to write, when it runs as root.
	GPUFiles bool

	// What follows has defaults and is replaced in tests.
	Prober    hw.Prober   // hw.Linux
	Steps     Steps       // a step.Runner on Spool
	TLSConfig *tls.Config `json:"-"` // read from TLS
	Shim      []string    // command that starts a shim: this binary with the argument "stepd"
}

// Steps runs steps: step.Runner, whose documentation holds for every method, or a fake.
type Steps interface {
	Recover(context.Context) ([]*pb.StepReport, error)
	Launch(ctx context.Context, b *pb.Bundle, script []byte) error
	Fail(*pb.Bundle, *pb.ExitRecord) error
	Control(context.Context, *pb.StepOrder) error
	Forget(*pb.StepKey) error
	Reports() <-chan *pb.StepReport
	Bundle(*pb.StepKey) (*pb.Bundle, error)
	Close() error
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
	need(o.Spool != "", "the spool folder is missing (SlurmdSpoolDir)")
	need(len(o.Controllers) > 0, "the controller's address is missing (SlurmctldHost)")
	need(o.TLS != "" || o.TLSConfig != nil, "the folder with ca.crt, node.crt and node.key is missing")
	if len(errs) > 0 {
		return fmt.Errorf("cannot start the node daemon: %w", errors.Join(errs...))
	}
	return nil
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
	sp, err := openSpool(o.Spool, o.Log)
	if err != nil {
		return err
	}
	defer sp.close()
	o.Spool = sp.dir
	if o.TLSConfig == nil {
		if o.TLSConfig, err = mtls.Node(o.TLS); err != nil {
			return err
		}
	}
	n, err := newNode(ctx, o, sp)
	if err != nil {
		return err
	}
	return n.run(ctx)
}

// newNode puts everything together and learns what an earlier daemon left.
func newNode(ctx context.Context, o Options, sp *spool) (*node, error) {
	if o.Prober == nil {
		o.Prober = hw.Linux{}
	}
	inv, err := o.Prober.Inventory()
	if err != nil {
		return nil, err
	}
	hooks, err := hook.Open(sp.dir, o.Log)
	if err != nil {
		return nil, err
	}
	layout, open := "", error(nil)
	if o.Steps == nil {
		r, err := step.New(step.Options{Spool: sp.dir, CgroupRoot: path.Join("sluice", o.Cluster, o.NodeName), Command: o.Shim, Group: cgroupName, Log: o.Log,
			ShimLog: o.ShimLog, CgroupPlugin: o.CgroupPlugin})
		if err != nil {
			return nil, err
		}
		o.Steps, layout, open = r, r.Layout().String(), r.Devices()
	}
	n := &node{o: o, log: o.Log, sp: sp, steps: o.Steps, hooks: hooks, inv: inv, cgroup: layout, open: open, startNS: time.Now().UnixNano()}
	n.init()
	have, err := o.Steps.Recover(ctx)
	if err != nil {
		_ = o.Steps.Close()
		return nil, fmt.Errorf("cannot learn what runs on this node: %w", err)
	}
	n.recover(have)
	return n, nil
}

// hello is what the node says first on every stream.
func (n *node) hello() *pb.NodeHello {
	if inv, err := n.o.Prober.Inventory(); err == nil {
		n.inv = inv // processors go on- and offline
		n.bundler.topology = inv.Topology
	}
	h := hardware(n.inv, n.cgroup)
	n.addDevices(h)
	return &pb.NodeHello{
		Node: n.o.NodeName, Version: version.Sluice, BootId: n.inv.BootID, BootNs: n.inv.BootNS, NodedStartNs: n.startNS,
		Os: n.inv.OS, Arch: n.inv.Arch, Hardware: h, ClusterId: n.clusterID, Addr: n.o.Addr, Port: n.o.Port,
	}
}

// hardware is the inventory as the controller compares it with the configuration. Processors that make no regular shape (some
// are offline, or not for this daemon to use) count as single cores: none of them is lost that way.
func hardware(inv hw.Inventory, cgroup string) *pb.Hardware {
	cpus := len(inv.Topology)
	sockets, cores, threads := inv.Topology.Counts()
	if sockets*cores*threads != cpus {
		sockets, cores, threads = 1, cpus, 1
	}
	return &pb.Hardware{
		Cpus: uint32(cpus), Boards: 1, Sockets: uint32(sockets), Cores: uint32(cores), Threads: uint32(threads),
		RealMemoryMib: inv.MemoryMiB, TmpDiskMib: inv.TmpMiB, Cgroup: cgroup,
	}
}

func (n *node) heartbeat() *pb.Heartbeat {
	load, err := n.o.Prober.Load()
	if err != nil {
		n.log.Warn("cannot tell how busy this machine is", "err", err)
	}
	return &pb.Heartbeat{CpuLoad: load.CPU, FreeMemMib: load.FreeMemMiB, NowNs: time.Now().UnixNano()}
}
