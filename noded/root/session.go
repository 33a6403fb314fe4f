package root

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/orders"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

// Limits of one connection. noded-link keeps to less; one that does not is cut off.
const (
	maxUnderWay = 1024     // orders
	maxBytes    = 64 << 20 // of orders under way; the next one waits
)

// session is one connection with a noded-link.
type session struct {
	r    *Root
	conn net.Conn
	out  *orders.Outbox
	room *semaphore.Weighted
	wg   sync.WaitGroup

	// guarded by Root.mu
	dirty            map[agent.Key]bool // reports to be told
	devices, samples bool               // to be told

	mu    sync.Mutex
	calls map[uint64]context.CancelCauseFunc // orders under way
}

var (
	errEnds   = errors.New("the node daemon ends")
	errCancel = errors.New("cancelled")
)

func (s *session) serve(ctx context.Context) error {
	// What is under way is broken off only once the connection is closed: nobody is told that it failed.
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	s.room = semaphore.NewWeighted(maxBytes)
	if err := s.welcome(); err != nil {
		return err
	}
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		if s.out.Run(s.conn, work.Done(), s.news) != nil {
			_ = s.conn.Close()
		}
	}()
	closer := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	err := s.read(ctx, work)
	_ = s.conn.Close()
	closer()
	cancel(errEnds)
	s.wg.Wait()
	<-wrote
	s.r.leave(s)
	return err
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
	w.Settings, w.Devices = r.settings, &nodepb.Devices{Report: r.report()}
	if r.o.Level != nil {
		w.LogLevel = int32(r.o.Level.Level())
	}
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

// read takes orders until the connection ends.
func (s *session) read(ctx, work context.Context) error {
	in := bufio.NewReaderSize(s.conn, 64<<10)
	for {
		b, err := orders.Read(in, orders.MaxOrder)
		switch {
		case ctx.Err() != nil, err == io.EOF, errors.Is(err, unix.ECONNRESET): // noded-link ended, the latter before it had read all
			return nil
		case err != nil:
			return fmt.Errorf("cannot read an order: %w", err)
		}
		o, err := decode(b)
		if err != nil {
			return err
		}
		if stop, err := s.take(work, o, int64(len(b))); err != nil || stop {
			return err
		}
	}
}

// decode judges the form of an order: it is one of the table, and has what the table says.
func decode(b []byte) (*nodepb.Order, error) {
	o := &nodepb.Order{}
	if err := proto.Unmarshal(b, o); err != nil {
		return nil, fmt.Errorf("cannot decode an order: %w", err)
	}
	_, err := rowOf(o)
	return o, err
}

// take begins the work on an order: those that are not answered are done at once, in their turn.
func (s *session) take(ctx context.Context, o *nodepb.Order, size int64) (stop bool, err error) {
	row, err := rowOf(o)
	if err != nil {
		return false, err
	}
	if row.now != nil {
		row.now(s, o)
		return o.GetStop() != nil, stopped(o)
	}
	ctx, err = s.enter(ctx, o.Id)
	if err != nil {
		return false, err
	}
	if s.room.Acquire(ctx, size) != nil { // it all ends
		s.done(o.Id)
		return false, nil
	}
	s.wg.Go(func() {
		a, err := row.do(s.r, ctx, o)
		if a.GetRefused() {
			s.r.once("refusing an order: this node's policy judges "+row.policy, err)
		}
		s.room.Release(size)
		s.done(o.Id)
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

// enter gives an order its context, which done ends.
func (s *session) enter(ctx context.Context, id uint64) (context.Context, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, twice := s.calls[id]; twice || id == 0 {
		return nil, fmt.Errorf("cannot take order %d: its number is in use, or none", id)
	}
	if len(s.calls) >= maxUnderWay {
		return nil, fmt.Errorf("cannot take order %d: there are %d under way", id, maxUnderWay)
	}
	ctx, s.calls[id] = context.WithCancelCause(ctx)
	return ctx, nil
}

func stopped(o *nodepb.Order) error {
	if o.GetStop() != nil {
		return ErrStopped
	}
	return nil
}

// done ends an order's context.
func (s *session) done(id uint64) {
	s.mu.Lock()
	cancel := s.calls[id]
	delete(s.calls, id)
	s.mu.Unlock()
	if cancel != nil {
		cancel(nil)
	}
}

// cancel breaks off the work on an order; one that has been answered is not there any more.
func (s *session) cancel(id uint64) {
	s.mu.Lock()
	cancel := s.calls[id]
	s.mu.Unlock()
	if cancel != nil {
		cancel(errCancel)
	}
}
