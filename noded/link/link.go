// Package link maintains a node daemon's stream to the controller. It connects, passes messages both ways, reports events to its
// owner, and reconnects when the stream breaks. It decides nothing.
//
//	events := make(chan link.Event)
//	go link.Run(ctx, link.Options{…}, events)
//	for ev := range events {
//	    switch {
//	    case ev.Up != nil:      // a new stream: say hello on ev.Up.Out
//	    case ev.Orders != nil:  // a message of the controller
//	    case ev.Sent:           // Out has room again
//	    case ev.Down != nil:    // the stream is gone, with all unsent messages: repeat them in the next hello
//	    }
//	}
//
// The owner must keep receiving from events until Run has returned.
package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/sluice-hpc/sluice/internal/tcp"
	"github.com/sluice-hpc/sluice/noded/greet"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// Limits of a stream. The controller's keepalive enforcement must allow a ping every KeepaliveS seconds. Pings show whether a
// silent controller's process still answers; the loss of its host is noticed sooner (package tcp).
const (
	KeepaliveS      = 120
	maxMessageBytes = 8 << 20
	windowBytes     = 1 << 20         // fixed: gRPC would otherwise measure the connection, with a ping for each message received
	bufferBytes     = 8 << 10         // for sending; TLS has a buffer for receiving
	dialTimeout     = 5 * time.Second // TCP: a new attempt finds a host that is back sooner than the kernel's retransmissions
	// connectTimeout covers TLS and the start of the stream. It is long because after a restart of the controller all nodes
	// connect at once, and a node that gives up wastes the work of a half-finished handshake.
	connectTimeout = 2 * time.Minute
)

// Options are the options of a link.
type Options struct {
	Controllers []string // host:port, tried in turn
	TLS         *tls.Config
	Followed    *greet.Followed // nil: every controller is followed
	Log         *slog.Logger
	// MinBackoff and MaxBackoff bound the pause between attempts (0: 100 ms and 5 s). Each pause is random between half and all
	// of its bound, so that the nodes of a cluster do not reconnect all at once.
	MinBackoff, MaxBackoff time.Duration
	// Dial makes a connection; nil: over TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// Event is one thing that happened; exactly one field is set.
type Event struct {
	Up     *Stream
	Orders *pb.NodeOrders
	Sent   bool
	Down   error
}

// Stream is one connected stream. Out takes one message at a time: send only when it has room.
type Stream struct {
	Out        chan *pb.NodeReport
	Controller string // address
	refuse     func(error)
}

// Refuse ends the stream because the controller is not acceptable; the next attempt follows after the full pause.
func (s *Stream) Refuse(why error) { s.refuse(why) }

// Run connects and stays connected until ctx ends. It closes events when it returns, after everything it started.
func Run(ctx context.Context, o Options, events chan<- Event) {
	defer close(events)
	o.keepTrying(ctx, "no link to the controller: will keep trying", func(addr string) (worked, told bool, err error) {
		worked, err = once(ctx, o, addr, events)
		return worked, worked, err // the owner logs a lost link
	})
}

// keepTrying calls attempt with each controller in turn until ctx ends, with pauses that grow until one has worked. It logs what
// with the reason of a failure, once per reason, unless told: then the failure was logged already.
func (o *Options) keepTrying(ctx context.Context, what string, attempt func(addr string) (worked, told bool, err error)) {
	o.defaults()
	pause, said := o.MinBackoff, map[string]string{}
	for i := 0; ctx.Err() == nil; i++ {
		addr := o.Controllers[i%len(o.Controllers)]
		worked, told, err := attempt(addr)
		if ctx.Err() != nil {
			return
		}
		if worked {
			pause = o.MinBackoff
			clear(said)
		}
		if !told && err.Error() != said[addr] { // once, not every five seconds
			o.Log.Warn(what, "controller", addr, "err", err)
		}
		said[addr] = err.Error()
		sleep(ctx, pause/2+rand.N(pause/2+1))
		if i%len(o.Controllers) == len(o.Controllers)-1 {
			pause = min(2*pause, o.MaxBackoff)
		}
	}
}

func (o *Options) defaults() {
	if o.MinBackoff == 0 {
		o.MinBackoff = 100 * time.Millisecond
	}
	if o.MaxBackoff == 0 {
		o.MaxBackoff = 5 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// once runs one stream from its connection to its end. It counts as connected when the controller has sent something: with TLS
// 1.3 a client learns only after the handshake that it was refused.
func once(ctx context.Context, o Options, addr string, events chan<- Event) (connected bool, err error) {
	conn, err := Dial(o, addr)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(connectTimeout, func() {
		cancel(fmt.Errorf("cannot connect to %s within %v", addr, connectTimeout))
	})
	stream, err := nodepb.NewNodeAPIClient(conn).Sync(ctx)
	if !late.Stop() || err != nil {
		return false, explain(ctx, addr, err)
	}
	var refused atomic.Bool
	s := &Stream{Out: make(chan *pb.NodeReport, 1), Controller: addr, refuse: func(why error) {
		refused.Store(true)
		cancel(why)
	}}
	if !tell(ctx, events, Event{Up: s}) {
		return false, ctx.Err()
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if err := send(ctx, stream, s, events); err != nil {
			cancel(err)
		}
	}()
	heard, err := receive(ctx, stream, events)
	err = explain(ctx, addr, err)
	cancel(err)
	<-sent
	events <- Event{Down: err}
	return heard && !refused.Load(), err
}

// Dial prepares a connection to a controller; it connects on first use.
func Dial(o Options, addr string) (*grpc.ClientConn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("cannot use %q as the controller's address: want host:port", addr)
	}
	conf := o.TLS.Clone()
	if conf.ServerName == "" {
		conf.ServerName = host
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(credentials.NewTLS(conf)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: KeepaliveS * time.Second, Timeout: tcp.Gone,
			PermitWithoutStream: true}),
		grpc.WithInitialWindowSize(windowBytes), grpc.WithInitialConnWindowSize(windowBytes),
		grpc.WithReadBufferSize(0), grpc.WithWriteBufferSize(bufferBytes),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes), grpc.MaxCallSendMsgSize(maxMessageBytes)),
		grpc.WithDisableServiceConfig(), grpc.WithNoProxy(), grpc.WithContextDialer(o.connect),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
	}
	return grpc.NewClient("passthrough:///"+addr, append(options, greet.Options(o.Followed, nil)...)...)
}

// connect is TCP alone.
func (o *Options) connect(ctx context.Context, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if o.Dial != nil {
		return o.Dial(ctx, addr)
	}
	return tcp.Dialer(dialTimeout).DialContext(ctx, "tcp", addr)
}

// explain returns the cause for which we ended the stream, else the error in plain words.
func explain(ctx context.Context, addr string, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("the controller at %s closed the stream", addr)
	}
	return fmt.Errorf("%s: %s", addr, status.Convert(err).Message())
}

func tell(ctx context.Context, events chan<- Event, ev Event) bool {
	select {
	case events <- ev:
		return true
	case <-ctx.Done():
		return false
	}
}

func receive(ctx context.Context, stream nodepb.NodeAPI_SyncClient, events chan<- Event) (heard bool, err error) {
	for {
		m, err := stream.Recv()
		if err != nil {
			return heard, err
		}
		heard = true
		if !tell(ctx, events, Event{Orders: m}) {
			return heard, ctx.Err()
		}
	}
}

func send(ctx context.Context, stream nodepb.NodeAPI_SyncClient, s *Stream, events chan<- Event) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-s.Out:
			if err := stream.Send(m); err != nil {
				if errors.Is(err, io.EOF) {
					return nil // the receiver gets the reason
				}
				return fmt.Errorf("cannot send to the controller: %w", err)
			}
			if !tell(ctx, events, Event{Sent: true}) {
				return nil
			}
		}
	}
}
