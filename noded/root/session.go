package root

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/sluice-hpc/sluice/internal/version"
	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/privsep"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

// Limits of one connection. noded-link stays below them; a connection that exceeds them is closed.
const maxUnderWay = 1024 // requests

// session is one connection with a noded-link.
type session struct {
	r    *Root
	conn net.Conn
	out  *privsep.Outbox
	wg   sync.WaitGroup

	// guarded by Root.mu
	dirty            map[agent.Key]bool // steps with a report to send
	devices, samples bool               // pending

	mu    sync.Mutex
	calls map[uint64]context.CancelCauseFunc // requests under way
	large int64                              // total weight of the large ones
}

var (
	errEnds   = errors.New("the node daemon is stopping")
	errCancel = errors.New("cancelled")
)

func (s *session) serve(ctx context.Context) error {
	// Requests are cancelled only after the connection is closed, so that none is reported as failed.
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	if err := s.welcome(); err != nil {
		return err
	}
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		err := s.out.Run(s.conn, work.Done(), s.news)
		if err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) { // read notices a closed connection by itself
			_ = s.conn.Close()
		}
	}()
	closer := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	err := s.read(ctx, work)
	_ = s.conn.Close()
	closer()
	cancel(errEnds)
	s.settle()
	<-wrote
	s.r.leave(s)
	return err
}

// settle waits until no request is under way, or patience runs out.
func (s *session) settle() {
	settled := make(chan struct{})
	go func() { s.wg.Wait(); close(settled) }()
	late := time.NewTimer(s.r.patience)
	defer late.Stop()
	select {
	case <-settled:
	case <-late.C:
		s.mu.Lock()
		n := len(s.calls)
		s.mu.Unlock()
		if n == 0 { // all were carried out, only their goroutines are late: the machine is busy or was asleep
			<-settled
			return
		}
		s.r.log.Warn("requests of a noded-link that has ended are still under way: a disk or program does not answer", "requests", n)
	}
}

// welcome sends the complete state; changes follow from then on.
func (s *session) welcome() error {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &nodepb.Welcome{}
	if r.o.Welcome != nil {
		w = proto.CloneOf(r.o.Welcome)
	}
	w.Build = version.Ours.String()
	w.Configuration = proto.CloneOf(r.conf)
	w.Followed = &nodepb.Follow{ClusterId: r.followed.Cluster, Generation: r.followed.Number}
	if !r.o.Login {
		w.Settings, w.Devices = r.settings, &nodepb.Devices{Report: r.report()}
	}
	if r.o.Level != nil {
		w.LogLevel = int32(r.o.Level.Level())
	}
	w.Ended = r.past.keys()
	for _, k := range r.known {
		if k.rep != nil {
			w.Steps = append(w.Steps, &nodepb.Known{Report: k.rep, Bundle: k.brief, Launch: r.hooks.Recall(k.name)})
		}
	}
	r.conn = s
	return s.out.Put(&nodepb.Word{What: &nodepb.Word_Welcome{Welcome: w}})
}

// news returns the changes since its last call.
func (s *session) news() (all []proto.Message) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range s.dirty {
		if have := r.known[k]; have != nil && have.rep != nil {
			all = append(all, &nodepb.Word{What: &nodepb.Word_Report{Report: have.rep}})
		}
	}
	clear(s.dirty)
	if s.devices {
		s.devices = false
		all = append(all, &nodepb.Word{What: &nodepb.Word_Devices{Devices: &nodepb.Devices{Report: r.report()}}})
	}
	if s.samples {
		s.samples = false
		all = append(all, &nodepb.Word{What: &nodepb.Word_Samples{Samples: &nodepb.Samples{Samples: r.gpus.Samples()}}})
	}
	return all
}

// read takes requests until the connection ends.
func (s *session) read(ctx, work context.Context) error {
	in := bufio.NewReaderSize(s.conn, 64<<10)
	for {
		b, err := privsep.Read(in, privsep.MaxRequest)
		switch {
		case ctx.Err() != nil, err == io.EOF, errors.Is(err, unix.ECONNRESET): // noded-link ended; the latter: with unread data
			return nil
		case err != nil:
			return fmt.Errorf("cannot read a request: %w", err)
		}
		o, weight, err := decode(b)
		if err == nil {
			err = s.fits(o)
		}
		if err != nil {
			return err
		}
		if stop, err := s.take(work, o, weight); err != nil || stop {
			return err
		}
	}
}

// decode checks a request's form: it has a row in the table, what the row requires, and at most the row's weight.
func decode(b []byte) (o *nodepb.Request, weight int64, err error) {
	o = &nodepb.Request{}
	if weight, err = privsep.Weight(o.ProtoReflect().Descriptor(), b); err != nil {
		return nil, 0, fmt.Errorf("cannot decode a request: %w", err)
	}
	if weight > privsep.MaxWeight {
		return nil, 0, fmt.Errorf("cannot take a request: %w: it needs %d bytes of memory", privsep.ErrTooLong, weight)
	}
	if err := proto.Unmarshal(b, o); err != nil {
		return nil, 0, fmt.Errorf("cannot decode a request: %w", err)
	}
	row, err := rowOf(o)
	if err == nil && weight > row.most {
		err = fmt.Errorf("cannot take a request: %w: it needs %d bytes of memory, and requests of its kind at most %d", privsep.ErrTooLong,
			weight, row.most)
	}
	return o, weight, err
}

// fits refuses requests about steps on a login host.
func (s *session) fits(o *nodepb.Request) error {
	if row, err := rowOf(o); err != nil || row.login || !s.r.o.Login {
		return err
	}
	return errors.New("the request is not for a login host")
}

// take starts the work on a request; requests without an answer are carried out at once, in order. It never blocks: the request
// that ends a step must overtake all that wait.
func (s *session) take(ctx context.Context, o *nodepb.Request, weight int64) (stop bool, err error) {
	row, err := rowOf(o)
	if err != nil {
		return false, err
	}
	if row.now != nil {
		row.now(s, o)
		return o.GetStop() != nil, stopped(o)
	}
	ctx, err = s.begin(ctx, o.Id, weight)
	if err != nil {
		return false, err
	}
	s.wg.Go(func() {
		a, err := row.do(s.r, ctx, o)
		if a.GetRefused() {
			s.r.once("refusing a request: this node's policy judges "+row.policy, err)
		}
		s.done(o.Id, weight)
		if a == nil {
			a = &nodepb.Answer{}
		}
		a.Id = o.Id
		if err != nil {
			if a.Error = err.Error(); a.Error == "" {
				a.Error = "failed"
			}
		}
		if perr := s.out.Put(&nodepb.Word{What: &nodepb.Word_Answer{Answer: a}}); perr != nil {
			_ = s.conn.Close()
		}
	})
	return false, nil
}

// begin creates a request's context, which done ends.
func (s *session) begin(ctx context.Context, id uint64, weight int64) (context.Context, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, twice := s.calls[id]; twice || id == 0 {
		return nil, fmt.Errorf("cannot take request %d: its number is zero or in use", id)
	}
	if len(s.calls) >= maxUnderWay {
		return nil, fmt.Errorf("cannot take request %d: %d are under way already", id, maxUnderWay)
	}
	if weight > privsep.Large {
		if s.large+weight > privsep.MostUnderWay {
			return nil, fmt.Errorf("cannot take request %d: the large ones under way would need %d bytes of memory, more than %d", id,
				s.large+weight, privsep.MostUnderWay)
		}
		s.large += weight
	}
	ctx, s.calls[id] = context.WithCancelCause(ctx)
	return ctx, nil
}

func stopped(o *nodepb.Request) error {
	if o.GetStop() != nil {
		return ErrStopped
	}
	return nil
}

// done ends a request's context.
func (s *session) done(id uint64, weight int64) {
	s.mu.Lock()
	cancel := s.calls[id]
	delete(s.calls, id)
	if weight > privsep.Large {
		s.large -= weight
	}
	s.mu.Unlock()
	if cancel != nil {
		cancel(nil)
	}
}

// cancel cancels a request unless it was answered.
func (s *session) cancel(id uint64) {
	s.mu.Lock()
	cancel := s.calls[id]
	s.mu.Unlock()
	if cancel != nil {
		cancel(errCancel)
	}
}
