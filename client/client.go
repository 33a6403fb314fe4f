package client

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/status"

	"github.com/sluice-hpc/sluice/client/wire"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// ConnectTimeoutS bounds how long Dial waits for the socket.
const ConnectTimeoutS = wire.ConnectTimeoutS

// Client is a connection to the controller. All methods may be called from many goroutines at once. The embedded interface
// may be replaced by a test double.
type Client struct {
	pb.ControllerAPIClient
	closer func() error
	socket string
	closed atomic.Bool
}

// Dial connects to the controller's socket. The error is a *ConnectError.
func Dial(ctx context.Context, socket string) (*Client, error) {
	d := net.Dialer{Timeout: ConnectTimeoutS * time.Second}
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, &ConnectError{Socket: socket, Err: err}
	}
	tc := ttrpc.NewClient(conn)
	return &Client{ControllerAPIClient: pb.NewControllerAPIClient(tc), closer: tc.Close, socket: socket}, nil
}

// Socket is the path that the client is connected to.
func (c *Client) Socket() string { return c.socket }

// Close ends the connection; calls in flight fail.
func (c *Client) Close() error {
	if c.closer == nil || c.closed.Swap(true) {
		return nil
	}
	return c.closer()
}

// ConnectError says that no controller answers on the socket.
type ConnectError = wire.ConnectError

// DefaultConf is the configuration file when SLURM_CONF is not set (slurm.conf(5)).
const DefaultConf = wire.DefaultConf

// SocketPath says where the controller of this host listens: $SLUICE_SOCKET, else below /run/sluice with the ClusterName of
// slurm.conf.
func SocketPath(getenv func(string) string) (string, error) { return wire.SocketPath(getenv) }

// ClusterName is the name that slurm.conf gives to the cluster.
func ClusterName(getenv func(string) string) (string, error) { return wire.ClusterName(getenv) }

// ProblemOf returns what the controller refused a call with, or nil when err does not come from its decision.
func ProblemOf(err error) *pb.Problem {
	if err == nil {
		return nil
	}
	var r *wire.Refusal
	if errors.As(err, &r) {
		if r.Problem == nil {
			return nil
		}
		return &pb.Problem{Code: r.Problem.Code, Phrase: r.Problem.Phrase, Detail: r.Problem.Detail, Hint: r.Problem.Hint}
	}
	st, ok := status.FromError(err)
	if !ok {
		return nil
	}
	for _, d := range st.Details() {
		if p, ok := d.(*pb.Problem); ok {
			return p
		}
	}
	return nil
}

// Text is the message of an error that a call returned, without the wrapping of the transport.
func Text(err error) string {
	if p := ProblemOf(err); p != nil {
		return p.Error()
	}
	var r *wire.Refusal
	if !errors.As(err, &r) {
		if st, ok := status.FromError(err); ok {
			return st.Message()
		}
	}
	return err.Error()
}

// Broken reports whether err means that the connection ended before the answer came, so that nobody knows whether the call
// took effect.
func Broken(err error) bool { return errors.Is(err, ttrpc.ErrClosed) || wire.Broken(err) }
