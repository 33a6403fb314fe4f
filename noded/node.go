package noded

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/noded/bundle"
	"github.com/sluice-hpc/sluice/noded/hw"
	"github.com/sluice-hpc/sluice/noded/lifecycle"
	"github.com/sluice-hpc/sluice/noded/link"
	"github.com/sluice-hpc/sluice/noded/privsep"
	"github.com/sluice-hpc/sluice/noded/taskenv"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
)

// Limits of the daemon.
const (
	maxWorkers       = 256 // goroutines that launch, signal, forget, or run a prolog or epilog
	maxTaken         = 128 // events handled before the next reconciliation
	defaultHeartbeat = 10 * time.Second
)

// node is the state of noded-link. Its fields belong to loop, except those that never change after init.
type node struct {
	o       linkOptions
	log     *slog.Logger
	root    *privsep.Client
	about   *nodepb.Welcome // noded-root's description of this node
	cert    *certificate
	renewal renewal
	inv     hw.Inventory
	bundler *bundle.Builder
	sockets Sockets
	private atomic.Bool // job owners are private: the default until a controller says otherwise

	settings  *pb.NodeSettings // nil until a controller has sent some, ever
	clusterID string
	steps     *lifecycle.Steps

	stream   *link.Stream
	taken    bool // a controller has accepted this node since the daemon started
	greeted  bool // the hello was sent on stream
	heard    bool // the controller has sent something on stream
	ending   bool // RebootProgram runs
	beat     bool // a heartbeat is due
	have     *pb.DeviceReport
	devices  bool   // a report of the devices is due
	saidOpen string // why devices are open to all jobs, as last logged
	samples  []*pb.DeviceSample
	sampled  bool // samples are to be reported

	conf     *pb.ConfigurationState // the configuration in force
	confNews bool                   // conf is to be reported
	offered  *pb.Configuration      // by the controller, not in force yet

	health   health
	standing *pb.NodeStanding // as last told by the controller

	fault   string // why this node cannot start steps; "" = it can
	faulted bool   // a check for faults is running

	looking bool            // a scan of the running steps is under way
	usages  []*pb.StepUsage // its result, to be reported
	seen    []*pb.StepUsage // its result, for metrics

	events  chan link.Event
	results chan func()   // completions of workers, run by loop
	workers chan struct{} // limits workers that may wait for a disk or a program
	signals chan struct{} // limits workers that pass an order to a step: separate, since these must not wait for the others
	wg      sync.WaitGroup
}

func (n *node) init() (err error) {
	if n.inv, err = n.o.Prober.Inventory(); err != nil {
		return err
	}
	files := mtls.Files{Authority: n.about.Ca, Certificate: n.about.Certificate, Key: n.about.Key}
	if err := n.renewal.begin(files); err != nil {
		return err
	}
	if n.o.Level != nil {
		n.o.Level.Set(slog.Level(n.about.LogLevel))
	}
	n.events, n.results, n.workers = make(chan link.Event), make(chan func()), make(chan struct{}, maxWorkers)
	n.signals = make(chan struct{}, maxWorkers)
	n.bundler = &bundle.Builder{
		Daemon:   taskenv.Daemon{Node: n.about.Node, Conf: n.about.Conf, Socket: n.about.Socket},
		Hostname: n.inv.Hostname, Topology: n.inv.Topology, Hard: rootsLimit, Log: n.log,
		Devices: func() []*pb.Device { return n.have.GetDevices() }, Closed: n.about.CloseDevices,
	}
	if n.about.Open != "" {
		n.bundler.Open = errors.New(n.about.Open)
	}
	n.steps = lifecycle.New(host{n}, n.log, n.about.Node, n.inv.BootID, n.about.Ended, n.about.Steps)
	n.private.Store(namesPrivate(n.about.Settings))
	n.have, n.conf = n.about.Devices.GetReport(), n.about.Configuration
	if s := n.about.Settings; s != nil {
		n.settings, n.clusterID = s, s.ClusterId
	}
	return nil
}

// rootsLimit sets no hard limits for jobs: noded-root has its own and applies them.
func rootsLimit(int) uint64 { return unix.RLIM_INFINITY }

// run starts the link and the loop. It cleans up when ctx ends or noded-root closes the connection.
func (n *node) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	linked := make(chan struct{})
	go func() {
		defer close(linked)
		link.Run(ctx, link.Options{Controllers: n.about.Controllers, TLS: n.cert.Config(), Followed: n.cert.followed,
			Log: n.log, Dial: n.o.Dial}, n.events)
	}()
	served := n.serveMetrics(ctx)
	n.loop(ctx)
	cancel()
	<-served
	n.root.Close()
	for range n.events { // until the link has ended
	}
	for range n.root.Words() { // drain it, so that the reader does not block
	}
	<-linked
	n.wg.Wait()
	return nil
}

// loop owns the node's state until ctx ends.
func (n *node) loop(ctx context.Context) {
	beats := time.NewTicker(defaultHeartbeat)
	defer beats.Stop()
	defer n.health.stop()
	defer n.renewal.stop()
	every := defaultHeartbeat
	n.lookForFault(ctx)
	n.steps.Resume(ctx)
	for {
		if s := n.settings.GetHeartbeatS(); s > 0 && time.Duration(s)*time.Second != every {
			every = time.Duration(s) * time.Second
			beats.Reset(every)
		}
		select {
		case <-ctx.Done():
			return
		case <-beats.C:
			n.beat = true
			n.lookForFault(ctx)
			n.lookAtSteps(ctx)
			n.offerAgain()
		case <-n.renewal.timer.C:
			n.renewCertificate(ctx)
		case <-n.health.C():
			n.checkHealth(ctx)
		case ev, ok := <-n.events:
			if !ok { // the link ends only with ctx
				return
			}
			n.linked(ctx, ev)
		case w, ok := <-n.root.Words():
			if !ok { // noded-root has gone, so noded-link ends too
				return
			}
			n.told(ctx, w)
		case f := <-n.results:
			f()
		}
		n.drain(ctx)
		n.steps.Reconcile(ctx)
		n.flush()
	}
}

// drain handles all that is queued, so that a burst costs one reconciliation and one message.
func (n *node) drain(ctx context.Context) {
	for range maxTaken {
		select {
		case w, ok := <-n.root.Words():
			if !ok {
				return
			}
			n.told(ctx, w)
		case f := <-n.results:
			f()
		default:
			return
		}
	}
}

// work runs f in a goroutine. The loop then runs the function that f returns, unless ctx ends first.
func (n *node) work(ctx context.Context, f func() func()) { n.within(ctx, n.workers, f) }

// within is work with the given limit on goroutines.
func (n *node) within(ctx context.Context, places chan struct{}, f func() func()) {
	n.wg.Add(1)
	go func() {
		defer n.wg.Done()
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		then := f()
		<-places
		select {
		case n.results <- then:
		case <-ctx.Done():
		}
	}()
}

// told handles a message from noded-root.
func (n *node) told(ctx context.Context, w *nodepb.Word) {
	switch {
	case w.GetReport() != nil:
		n.steps.Report(ctx, w.GetReport())
	case w.GetDevices() != nil:
		n.have, n.devices = w.GetDevices().Report, true
	case w.GetSamples() != nil:
		n.samples, n.sampled = w.GetSamples().Samples, true
	case w.GetConfiguration() != nil:
		n.configured(w.GetConfiguration())
	case w.GetReread() != nil:
		n.reread(w.GetReread())
	}
}
