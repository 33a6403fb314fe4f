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

// Source is where the figures come from. All of its functions may be called at any time by any goroutine.
type Source struct {
	View    func() *state.View
	Figures func() map[string]float64 // sdiag's
	Samples Samples
	Now     func() time.Time
	// Boot is CLOCK_BOOTTIME in nanoseconds, by which the times of samples are.
	Boot func() int64
	// Certificates gives the certificate that the controller shows, and those of the authorities.
	Certificates func() (own *x509.Certificate, authorities []*x509.Certificate, err error)
	// Backup is when a backup was last found to hold everything; the zero time: never.
	Backup func() time.Time
	// Accounting is how many jobs wait to be written there, and the error that the last attempt ended with.
	Accounting func() (waiting int, written uint64, err error)
	// Top is how many users and accounts have series of their own.
	Top     func() int
	Version string

	once  sync.Once
	watch *Watch

	mu   sync.Mutex
	last *tally // pins a View, and is therefore dropped soon
	good metrics.Span
	drop *time.Timer
}

// dropAfter is when a tally is dropped: the pages of a scrape are asked for one after the other.
const dropAfter = 2 * metrics.Fresh

// Samples is what GPUs are doing; *live.Samples is one.
type Samples interface {
	// Get is what a device was doing when it was last looked at, nil when that has not been heard since; idleNS is when it was last busy,
	// 0 when it is busy or nobody knows.
	Get(node, id string, sinceNS int64) (last *pb.DeviceSample, idleNS int64)
}

// Pages are all pages by their paths.
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

// tally is the one of this second, so that all pages of a scrape cost one walk; one that took longer is good for longer.
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

// Watch is what counts as things happen.
func (s *Source) Watch() *Watch {
	s.once.Do(func() {
		s.watch = newWatch()
		s.watch.registry.MustRegister(collectors.NewGoCollector(),
			collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	})
	return s.watch
}
