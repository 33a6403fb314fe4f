package client

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/status"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// ConnectTimeoutS bounds how long Dial waits for the socket.
const ConnectTimeoutS = 5

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
type ConnectError struct {
	Socket string
	Err    error
}

// Error is Slurm's phrase, then the socket and what would help.
func (e *ConnectError) Error() string {
	return e.Phrase() + ": " + e.Diagnosis()
}

// Phrase is Slurm's text alone.
func (e *ConnectError) Phrase() string { return "Unable to contact slurm controller (connect failure)" }

// Diagnosis names the socket and says what would help.
func (e *ConnectError) Diagnosis() string { return "socket " + e.Socket + ": " + e.advice() }

func (e *ConnectError) advice() string {
	switch {
	case errors.Is(e.Err, os.ErrNotExist):
		return "no such file; is sluice-ctld running on this host, and does SLURM_CONF or SLUICE_SOCKET name the right cluster?"
	case errors.Is(e.Err, syscall.ECONNREFUSED):
		return "nobody listens on it; sluice-ctld has stopped: start it again"
	case errors.Is(e.Err, os.ErrPermission):
		return "permission denied; ask the administrator for access to the socket"
	}
	return e.Err.Error()
}

func (e *ConnectError) Unwrap() error { return e.Err }

// ProblemOf returns what the controller refused a call with, or nil when err does not come from its decision.
func ProblemOf(err error) *pb.Problem {
	if err == nil {
		return nil
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
	if st, ok := status.FromError(err); ok {
		return st.Message()
	}
	return err.Error()
}

// Broken reports whether err means that the connection ended before the answer came, so that nobody knows whether the call
// took effect.
func Broken(err error) bool {
	var ce *ConnectError
	return errors.Is(err, errBroken) || errors.Is(err, ttrpc.ErrClosed) || errors.As(err, &ce)
}
