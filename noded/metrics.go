package noded

import (
	"context"
	"crypto/tls"
	"fmt"
	"strconv"
	"time"

	"github.com/sluice-hpc/sluice/internal/inherit"
	"github.com/sluice-hpc/sluice/internal/metrics"
	"github.com/sluice-hpc/sluice/internal/tcp"
	"github.com/sluice-hpc/sluice/internal/version"
	"github.com/sluice-hpc/sluice/noded/bundle"
	"github.com/sluice-hpc/sluice/noded/lifecycle"
	nodemetrics "github.com/sluice-hpc/sluice/noded/metrics"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
)

// DefaultMetrics is the default address for a node's metrics: reachable from this machine alone.
const DefaultMetrics = "127.0.0.1:" + metrics.NodePort

// metricsAgain is the pause between attempts to listen for metrics. Replaced in tests.
var metricsAgain = 30 * time.Second

// listenMetrics opens the socket for metrics, which noded-link serves, and reads the tokens, which noded-link has no right to
// read. A node without metrics still runs jobs. While the address is taken, it retries periodically until stop is called.
func (o *Options) listenMetrics(ctx context.Context) (stop func()) {
	if o.Metrics == "" || o.Login {
		return func() {}
	}
	if o.MetricsTokens != "" {
		var err error
		if o.tokens, err = metrics.ReadTokens(o.MetricsTokens); err != nil {
			o.Log.Error("cannot read the tokens for metrics", "err", err)
		}
	}
	l, err := outside(o.Metrics)
	if err != nil {
		o.Log.Error("metrics are not served: cannot open a socket for the address of --metrics", "err", err)
		return func() {}
	}
	o.metrics = l.File()
	if err = l.Listen(); err == nil {
		return func() { _ = l.File().Close() }
	}
	o.Log.Warn("metrics are not served yet: set another address with --metrics ADDR:PORT, or --metrics none", "err", err)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for pause(ctx, metricsAgain); ctx.Err() == nil; pause(ctx, metricsAgain) {
			if l.Listen() == nil {
				o.Log.Info("metrics are served now", "address", o.Metrics)
				return
			}
		}
	}()
	return func() { cancel(); <-done; _ = l.File().Close() }
}

// outside makes a socket in the machine's network namespace, which this process may have left.
func outside(addr string) (l *tcp.Later, err error) {
	if inherit.Net < 0 {
		return tcp.NewLater(addr)
	}
	err = inherit.OnThread(func() error {
		if err := unix.Setns(inherit.Net, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("cannot enter the machine's network namespace: %w", err)
		}
		l, err = tcp.NewLater(addr)
		return err
	})
	return l, err
}

// serveMetrics serves metrics until ctx ends; served is closed when it has finished.
func (n *node) serveMetrics(ctx context.Context) (served <-chan struct{}) {
	done := make(chan struct{})
	if !n.about.Metrics || n.sockets.Metrics == nil {
		close(done)
		return done
	}
	s := &metrics.Server{Log: n.log, Now: time.Now, Pages: map[string]metrics.Render{"/metrics": func(p *metrics.Page, names bool) error {
		return n.renderMetrics(ctx, p, names)
	}}, Rules: func() metrics.Rules { return metrics.Rules{Tokens: n.about.MetricsTokens, Private: n.private.Load()} },
		TLS: &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: n.cert.Server}}
	go func() {
		defer close(done)
		l, err := n.sockets.Metrics(ctx)
		if err != nil {
			if ctx.Err() == nil {
				n.log.Error("metrics are not served", "err", err)
			}
			return
		}
		if err := s.Serve(ctx, l); err != nil && ctx.Err() == nil {
			n.log.Error("metrics are not served any more", "err", err)
		}
	}()
	return done
}

// renderMetrics has the loop collect the figures, and renders them outside the loop: records are immutable once made.
func (n *node) renderMetrics(ctx context.Context, p *metrics.Page, names bool) error {
	said := make(chan nodemetrics.Node, 1)
	select {
	case n.results <- func() { said <- n.figures() }:
	case <-ctx.Done():
		return ctx.Err()
	}
	what := <-said
	what.Write(p, names)
	return nil
}

// figures collects this node's metrics. Only the loop calls it.
func (n *node) figures() nodemetrics.Node {
	f := nodemetrics.Node{Linked: n.stream != nil, Devices: n.have.GetDevices(), Samples: n.samples, Version: version.Sluice}
	if load, err := n.o.Prober.Load(); err == nil {
		f.Load, f.FreeMiB = load.CPU, load.FreeMemMiB
	}
	jobs := map[uint32]*nodemetrics.Job{}
	for j := range n.steps.All() {
		if j.Phase() != pb.StepPhase_STEP_RUNNING {
			continue
		}
		id := j.Key().Job
		one := jobs[id]
		if one == nil {
			one = &nodemetrics.Job{ID: id}
			jobs[id] = one
		}
		describe(j, one)
	}
	for _, u := range n.seen {
		if one := jobs[u.GetKey().GetJobId()]; one != nil {
			one.Usage = append(one.Usage, u)
		}
	}
	for _, one := range jobs {
		f.Jobs = append(f.Jobs, *one)
	}
	return f
}

// describe fills in the owner of a job and its resources on this node. For a step found at startup that has no epilog, only uid
// and CPUs are known.
func describe(j *lifecycle.Step, to *nodemetrics.Job) {
	l := j.Launch()
	if l == nil {
		to.User, to.CPUs = strconv.FormatUint(uint64(j.UID()), 10), j.CPUs()
		return
	}
	to.User, to.Account, to.Devices = l.GetSpec().GetUser(), l.Account, bundle.DevicesOf(l)
	for _, a := range l.Alloc {
		if a.Node == l.Node {
			to.MemMiB, to.CPUs = a.MemMib, a.Cpus
		}
	}
}

// namesPrivate reports whether metrics name users only to authenticated clients. That is the default without settings.
func namesPrivate(s *pb.NodeSettings) bool { return !s.GetPublicJobs() }
