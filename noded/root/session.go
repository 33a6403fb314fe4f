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

// Limits of one connection. noded-link keeps to less; one that does not is cut off.
const maxUnderWay = 1024 // requests

// session is one connection with a noded-link.
type session struct {
	r    *Root
	conn net.Conn
	out  *privsep.Outbox
	wg   sync.WaitGroup

	// guarded by Root.mu
	dirty            map[agent.Key]bool // reports to be told
	devices, samples bool               // to be told

	mu    sync.Mutex
	calls map[uint64]context.CancelCauseFunc // requests under way
	large int64                              // what the large ones of them weigh
}

var (
	errEnds   = errors.New("the node daemon ends")
	errCancel = errors.New("cancelled")
)

func (s *session) serve(ctx context.Context) error {
	// What is under way is broken off only once the connection is closed: nobody is told that it failed.
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	if err := s.welcome(); err != nil {
		return err
	}
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		err := s.out.Run(s.conn, work.Done(), s.news)
		if err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) { // of one that has ended, read learns by itself
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

// settle waits until nothing is under way, or for as long as there is patience.
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
		if n == 0 { // they have been carried out, and nothing else waits: the machine was busy, or asleep
			<-settled
			return
		}
		s.r.log.Warn("requests of a noded-link that has ended are still under way: something does not answer", "requests", n)
	}
}

// welcome tells everything, and has everything that changes from then on told.
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

// news is what has changed since it was asked last.
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
		case ctx.Err() != nil, err == io.EOF, errors.Is(err, unix.ECONNRESET): // noded-link ended, the latter before it had read all
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

// decode judges the form of a request: it is one of the table, has what the table says, and weighs no more than that.
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

// fits refuses requests about steps on a host that runs none.
func (s *session) fits(o *nodepb.Request) error {
	if row, err := rowOf(o); err != nil || row.login || !s.r.o.Login {
		return err
	}
	return errors.New("a request is not one for a login host")
}

// take begins the work on a request: those that are not answered are done at once, in their turn. It waits for nothing: what ends a step
// comes through whatever the others wait for.
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

// begin gives a request its context, which done ends.
func (s *session) begin(ctx context.Context, id uint64, weight int64) (context.Context, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, twice := s.calls[id]; twice || id == 0 {
		return nil, fmt.Errorf("cannot take request %d: its number is in use, or none", id)
	}
	if len(s.calls) >= maxUnderWay {
		return nil, fmt.Errorf("cannot take request %d: there are %d under way", id, maxUnderWay)
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

// cancel breaks off the work on a request; one that has been answered is not there any more.
func (s *session) cancel(id uint64) {
	s.mu.Lock()
	cancel := s.calls[id]
	s.mu.Unlock()
	if cancel != nil {
		cancel(errCancel)
	}
}
