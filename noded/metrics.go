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

// DefaultMetrics is where metrics of a node are served unless its daemon is told otherwise: for this machine alone.
const DefaultMetrics = "127.0.0.1:" + metrics.NodePort

// metricsAgain is how long after an attempt to listen for metrics, which has failed, the next one is made. Replaced in tests.
var metricsAgain = 30 * time.Second

// listenMetrics opens the socket for metrics, which noded-link serves, and reads the tokens, which noded-link could not. A node whose
// metrics cannot be read runs jobs all the same. While the address is taken, another attempt is made now and then until stop is called.
func (o *Options) listenMetrics(ctx context.Context) (stop func()) {
	if o.Metrics == "" || o.Login {
		return func() {}
	}
	if o.MetricsTokens != "" {
		var err error
		if o.tokens, err = metrics.ReadTokens(o.MetricsTokens); err != nil {
			o.Log.Error("no token opens metrics", "err", err)
		}
	}
	l, err := outside(o.Metrics)
	if err != nil {
		o.Log.Error("metrics are not served: cannot make a socket for the address of --metrics", "err", err)
		return func() {}
	}
	o.metrics = l.File()
	if err = l.Listen(); err == nil {
		return func() { _ = l.File().Close() }
	}
	o.Log.Warn("metrics are not served yet: --metrics ADDR:PORT gives this daemon another address, none switches them off", "err", err)
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

// outside makes a socket of the machine's network namespace, which this process may have left.
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

// serveMetrics serves them until ctx ends; served is closed when it has.
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

// renderMetrics has the loop say what there is: records are not changed once they are made.
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

// figures are what there is to say of this node. Only the loop calls it.
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

// describe says whose a job is and what it has here. Of a step that was found at the start, and has no
// epilog, only the uid is known.
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

// namesPrivate says whether metrics name users only to clients that have shown something: unless the controller says otherwise.
func namesPrivate(s *pb.NodeSettings) bool { return !s.GetPublicJobs() }
