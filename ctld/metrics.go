package ctld

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/ctld/metrics"
	"github.com/sluice-hpc/sluice/ctld/rpc"
	"github.com/sluice-hpc/sluice/internal/clock"
	confmetrics "github.com/sluice-hpc/sluice/internal/metrics"
	"github.com/sluice-hpc/sluice/internal/tcp"
	"github.com/sluice-hpc/sluice/internal/version"
)

// DefaultMetrics is the address of the metrics server unless MetricsParameters=listen= sets it: local only.
const DefaultMetrics = "127.0.0.1:9341"

// topUsers is the default of MetricsParameters=top=: the number of users and accounts with series of their own.
const topUsers = 100

// metricsOff reports whether metrics are off (MetricsType=none).
func metricsOff(c *conf.Config) bool {
	return strings.EqualFold(strings.TrimPrefix(c.MetricsType, "metrics/"), "none")
}

// metricsAgain is the pause before another attempt to listen for metrics. Replaced in tests.
var metricsAgain = 30 * time.Second

// metricsAddr returns the address of the metrics server, "" for none.
func (d *daemon) metricsAddr() string {
	c := d.conf.Load()
	if metricsOff(c) {
		return ""
	}
	addr := cmp.Or(c.MetricsParameters.Get("listen"), d.opts.Metrics, DefaultMetrics)
	if addr == "none" {
		return ""
	}
	return addr
}

// listenMetrics opens the listener for metrics, nil when there is none, or not yet. The controller runs without it: the address may be
// taken by another controller on the same machine.
func (d *daemon) listenMetrics() net.Listener {
	addr := d.metricsAddr()
	if addr == "" {
		return nil
	}
	l, err := tcp.Listen(addr)
	if err != nil {
		d.log.Warn("metrics are not served yet: MetricsParameters=listen=ADDR:PORT gives this controller another address", "err", err)
		return nil
	}
	return l
}

// awaitMetrics retries until listening succeeds, or ctx ends: nil.
func (d *daemon) awaitMetrics(ctx context.Context) net.Listener {
	addr := d.metricsAddr()
	if addr == "" {
		return nil
	}
	t := time.NewTicker(metricsAgain)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		if l, err := tcp.Listen(addr); err == nil {
			return l
		}
	}
}

// metricsSource returns the sources of metrics. Nothing runs yet.
func (d *daemon) metricsSource() *metrics.Source {
	return &metrics.Source{View: d.loop.View, Samples: d.samples, Now: time.Now, Boot: clock.Boot, Certificates: d.certs.trusted,
		Backup: d.store.LastBackup, Accounting: func() (int, uint64, error) { return d.acct.Figures() }, Version: version.Sluice,
		Top: func() int { return max(0, d.conf.Load().MetricsParameters.Int("top", topUsers)) }}
}

// serveMetrics serves l until ctx ends; if l is nil, it waits for the address first. Errors are logged: the controller continues.
func (d *daemon) serveMetrics(ctx context.Context, l net.Listener, calls *rpc.Service) {
	d.readTokens(d.conf.Load())
	if l == nil {
		if l = d.awaitMetrics(ctx); l == nil {
			return
		}
	}
	d.metrics.Figures = func() map[string]float64 {
		f := d.counters(false)
		f["active_calls"] = float64(calls.ActiveCalls())
		return f
	}
	s := &confmetrics.Server{Pages: d.metrics.Pages(), Rules: d.metricsRules, Log: d.log, TLS: d.certs.metricsTLS(),
		Now: time.Now}
	d.log.Info("metrics are served", "address", l.Addr().String(), "loopback", confmetrics.Loopback(l.Addr()))
	if err := s.Serve(ctx, l); err != nil && ctx.Err() == nil {
		d.log.Error("metrics are no longer served", "err", err)
	}
}

// metricsTLS returns the TLS configuration of a listener for other hosts: client certificates must be this cluster's. It follows loadTrust.
func (t *certificates) metricsTLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := t.tls.Load()
		return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: c.Certificates, ClientCAs: c.ClientCAs,
			ClientAuth: tls.VerifyClientCertIfGiven, SessionTicketsDisabled: true}, nil
	}}
}

// privateMetrics reports whether other users' jobs or usage are private. Metrics of users reveal both.
func privateMetrics(c *conf.Config) bool {
	return (hasWord(c.PrivateData, "jobs") || hasWord(c.PrivateData, "usage")) && !c.MetricsParameters.Has("ignore_private_data")
}

// metricsRules returns the present access rules for metrics.
func (d *daemon) metricsRules() confmetrics.Rules {
	c := d.conf.Load()
	r := confmetrics.Rules{Off: metricsOff(c), Accepts: d.accepts, Private: privateMetrics(c)}
	if t := d.tokens.Load(); t != nil {
		r.Tokens = *t
	}
	return r
}

// readTokens reads the file of MetricsParameters=tokens= or --metrics-tokens. If it is empty, wrong or gone, no token is valid any more: it
// may have been emptied because one leaked.
func (d *daemon) readTokens(c *conf.Config) {
	path := cmp.Or(c.MetricsParameters.Get("tokens"), d.opts.MetricsTokens)
	if path == "" {
		d.tokens.Store(nil)
		return
	}
	t, err := confmetrics.ReadTokens(path)
	if err != nil {
		d.log.Error("there are no tokens for reading metrics", "err", err)
		t = nil
	}
	d.tokens.Store(&t)
}

// watchGPUs adds up how long allocated GPUs are idle.
func (d *daemon) watchGPUs(ctx context.Context) {
	t := time.NewTicker(metrics.LookEvery)
	defer t.Stop()
	for {
		d.metrics.LookAtGPUs()
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}
