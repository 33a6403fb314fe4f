package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/noded/greet"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	tlscreds "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
)

const (
	keepaliveS = 10 // the controller allows a ping every five seconds
	// idle is how long the connection of a compute host stays open without calls.
	idle = 4 * time.Minute
	// retryGap is the least pause between attempts to connect that commands cause. Without commands, pauses grow to maxPause.
	retryGap = 100 * time.Millisecond
	maxPause = 2 * time.Second
)

// uplink is a connection to the controller.
type uplink struct {
	conn   *grpc.ClientConn
	client nodepb.RelayAPIClient
	where  string

	addrs int
	end   context.CancelFunc // ends keep
	calls sync.WaitGroup     // open calls

	mu       sync.Mutex
	last     error     // from the newest attempt to connect
	tried    time.Time // when a command last caused an attempt
	failures int       // failed attempts since tried
	waiting  map[*waiter]bool
}

func dial(o Options) (*uplink, error) {
	conf := o.TLS.Clone()
	conf.ServerName = mtls.RelayServerName
	u := &uplink{where: strings.Join(o.Controllers, " or "), addrs: len(o.Controllers), waiting: map[*waiter]bool{}}
	addrs := manual.NewBuilderWithScheme("controllers")
	var state resolver.State
	for _, a := range o.Controllers {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return nil, fmt.Errorf("cannot use %q as the controller's address: want host:port", a)
		}
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: a}}})
	}
	addrs.InitialState(state)
	keep := idle
	if o.Keep {
		keep = 0
	}
	conn, err := grpc.NewClient("controllers:///", append(greet.Options(o.Followed, o.Signs), grpc.WithResolvers(addrs),
		grpc.WithTransportCredentials(watched{tlscreds.NewTLS(conf), u}),
		grpc.WithContextDialer(u.connect), grpc.WithIdleTimeout(keep), grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: connectPatience,
			Backoff: backoff.Config{BaseDelay: retryGap, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxPause}}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveS * time.Second, Timeout: keepaliveS * time.Second,
			PermitWithoutStream: o.Keep}),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(16*window))...)
	if err != nil {
		return nil, fmt.Errorf("cannot prepare the connection to the controller: %w", err)
	}
	u.conn, u.client = conn, nodepb.NewRelayAPIClient(conn)
	return u, nil
}

// window bounds the data on a stream that no command has read yet.
const window = 64 << 10

func (u *uplink) close() { _ = u.conn.Close() }

// connect is a dialer that notes why there is no connection: gRPC's own errors are not meant for users.
func (u *uplink) connect(ctx context.Context, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		u.failed(err)
	}
	return c, err
}

// watched are credentials that note the same for handshakes.
type watched struct {
	tlscreds.TransportCredentials
	u *uplink
}

// ClientHandshake implements TransportCredentials.
func (w watched) ClientHandshake(ctx context.Context, name string, c net.Conn) (net.Conn, tlscreds.AuthInfo, error) {
	secure, info, err := w.TransportCredentials.ClientHandshake(ctx, name, c)
	if err != nil {
		w.u.failed(err)
	} else {
		w.u.mu.Lock()
		w.u.last = nil
		w.u.mu.Unlock()
	}
	return secure, info, err
}

// Clone implements TransportCredentials.
func (w watched) Clone() tlscreds.TransportCredentials {
	return watched{w.TransportCredentials.Clone(), w.u}
}

// failed notes a failed attempt to connect, and ends the calls that have seen every address fail.
func (u *uplink) failed(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last, u.failures = err, u.failures+1
	for w := range u.waiting {
		if w.left--; w.left == 0 {
			w.give(errAway)
		}
	}
}

// waiter is a call that waits until each address was tried.
type waiter struct {
	left int
	give context.CancelCauseFunc
}

var errAway = errors.New("the controller cannot be reached")

// keep holds the connection open, even when the controller closes it because it is unused.
func (u *uplink) keep(ctx context.Context) {
	for {
		u.conn.Connect()
		s := u.conn.GetState()
		if s != connectivity.Idle && !u.conn.WaitForStateChange(ctx, s) || ctx.Err() != nil {
			return
		}
	}
}

// call opens a stream, which ends with ctx. An *awayError means that the controller cannot be reached and has received nothing.
func (u *uplink) call(ctx context.Context, end context.CancelCauseFunc) (stream, error) {
	if u.conn.GetState() == connectivity.Ready {
		s, err := u.client.Call(ctx)
		if status.Code(err) != codes.Unavailable {
			return s, err
		}
	}
	leave, try := u.wait(end)
	if !try {
		return nil, u.away()
	}
	late := time.AfterFunc(connectPatience, func() { end(errAway) })
	// After a failed attempt, try again at once: the controller may be back.
	u.conn.ResetConnectBackoff()
	s, err := u.client.Call(ctx, grpc.WaitForReady(true))
	late.Stop()
	leave()
	if context.Cause(ctx) == errAway || status.Code(err) == codes.Unavailable {
		return nil, u.away()
	}
	return s, err
}

// wait registers a call to be ended when all attempts have failed. try is false if they have just failed: commands can cause only
// one attempt per retryGap.
func (u *uplink) wait(end context.CancelCauseFunc) (leave func(), try bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if now.Sub(u.tried) < retryGap && u.failures >= u.addrs {
		return nil, false
	}
	if now.Sub(u.tried) >= retryGap {
		u.tried, u.failures = now, 0
	}
	w := &waiter{left: u.addrs, give: end}
	u.waiting[w] = true
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.waiting, w)
	}, true
}

// away returns why the controller cannot be reached, for users.
func (u *uplink) away() error {
	u.mu.Lock()
	why := u.last
	u.mu.Unlock()
	if why != nil {
		return &awayError{fmt.Sprintf("the controller at %s cannot be reached: %v", u.where, why)}
	}
	return &awayError{fmt.Sprintf("the controller at %s does not answer, or does not take this host's certificate", u.where)}
}
