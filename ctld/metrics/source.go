package metrics

import (
	"crypto/x509"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/metrics"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Source provides the figures. All of its functions may be called at any time by any goroutine.
type Source struct {
	View    func() *state.View
	Figures func() map[string]float64 // sdiag's
	Samples Samples
	Now     func() time.Time
	// Boot returns CLOCK_BOOTTIME in nanoseconds, the clock of samples' times.
	Boot func() int64
	// Certificates returns the controller's certificate, and those of the authorities.
	Certificates func() (own *x509.Certificate, authorities []*x509.Certificate, err error)
	// Backup returns when a backup was last found complete; the zero time: never.
	Backup func() time.Time
	// Accounting returns the number of jobs that wait to be written, the number of written rows, and the error of the last attempt.
	Accounting func() (waiting int, written uint64, err error)
	// Top returns the number of users and accounts with series of their own.
	Top     func() int
	Version string

	once  sync.Once
	watch *Watch

	mu   sync.Mutex
	last *tally // pins a View, and is therefore dropped soon
	good metrics.Span
	drop *time.Timer
}

// dropAfter is the lifetime of a tally: the pages of a scrape are requested one after the other.
const dropAfter = 2 * metrics.Fresh

// Samples provides samples of GPUs; *live.Samples is one.
type Samples interface {
	// Get returns the latest sample of a device, nil if there is none since sinceNS; idleNS is when it was last busy, 0 when it is busy or
	// unknown.
	Get(node, id string, sinceNS int64) (last *pb.DeviceSample, idleNS int64)
}

// Pages returns all pages by their paths.
func (s *Source) Pages() map[string]metrics.Render {
	counted := func(page func(*metrics.Page, *tally)) metrics.Render {
		return func(p *metrics.Page, _ bool) error { page(p, s.tally()); return nil }
	}
	return map[string]metrics.Render{
		"/metrics":            s.mainPage,
		TargetsPath:           s.targetsPage,
		"/metrics/jobs":       counted(s.jobsPage),
		"/metrics/nodes":      counted(s.nodesPage),
		"/metrics/partitions": counted(s.partitionsPage),
		"/metrics/scheduler":  func(p *metrics.Page, _ bool) error { s.schedulerPage(p, s.figures()); return nil },
		"/metrics/jobs-users-accts": func(p *metrics.Page, names bool) error {
			if names {
				s.peoplePage(p, s.tally())
			}
			return nil
		},
	}
}

func (s *Source) mainPage(p *metrics.Page, names bool) error {
	t := s.tally()
	s.exporter(p, t, s.figures(), names)
	s.own(p, t, names)
	return p.Gather(s.Watch().registry)
}

// tally returns the tally of this second, so that all pages of a scrape cost one walk; a slow one is valid for longer.
func (s *Source) tally() *tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	begun := s.Now()
	if s.last != nil && s.good.Good(begun) {
		return s.last
	}
	t := newTally(s.View())
	ready := s.Now()
	s.last, s.good = t, metrics.GoodFor(begun, ready)
	if s.drop != nil {
		s.drop.Stop()
	}
	s.drop = time.AfterFunc(max(dropAfter, ready.Sub(begun)), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.last == t {
			s.last = nil
		}
	})
	return t
}

// Watch returns the counters of events.
func (s *Source) Watch() *Watch {
	s.once.Do(func() {
		s.watch = newWatch()
		s.watch.registry.MustRegister(collectors.NewGoCollector(),
			collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	})
	return s.watch
}
