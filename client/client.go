package client

import (
	"context"
	"errors"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/wire"
)

// Client is a way to the controller. All methods may be called from many goroutines at once. The embedded interface may be
// replaced by a test double.
type Client struct {
	msg.ControllerAPIClient
}

// Dial connects to the controller's socket. The error is a *ConnectError.
func Dial(ctx context.Context, socket string) (*Client, error) {
	if err := ctx.Err(); err != nil {
		return nil, &ConnectError{Socket: socket, Err: err}
	}
	conn, err := wire.Dial(socket)
	if err != nil {
		return nil, err
	}
	return &Client{ControllerAPIClient: newCalls(socket, conn)}, nil
}

// Close ends the connections; calls in flight fail, and so do later ones.
func (c *Client) Close() error {
	if calls, ok := c.ControllerAPIClient.(*calls); ok {
		calls.close()
	}
	return nil
}

// ConnectError says that no controller answers on the socket.
type ConnectError = wire.ConnectError

// MayReturn reports whether err says that nobody listens where a controller has been: its socket is there, or the folder in which it
// would be.
func MayReturn(err error) bool { return wire.MayReturn(err) }

// MessageTimeoutS is how long commands that change something try to reach the controller: MessageTimeout of slurm.conf(5).
func MessageTimeoutS(getenv func(string) string) int { return wire.MessageTimeoutS(getenv) }

// ConfPath says where this host's slurm.conf is: SLURM_CONF, wire.DefaultConf, or what the node daemon has fetched.
func ConfPath(getenv func(string) string) string { return wire.ConfPath(getenv) }

// SocketPath says where the controller of this host listens: $SLUICE_SOCKET, else beside slurm.conf, else below /run/sluice with the
// ClusterName of slurm.conf.
func SocketPath(getenv func(string) string) (string, error) { return wire.SocketPath(getenv) }

// Settings reads some keys of slurm.conf.
func Settings(getenv func(string) string, names ...string) []string {
	return wire.Settings(getenv, names...)
}

// ProblemOf returns what the controller refused a call with, or nil when err does not come from its decision.
func ProblemOf(err error) *msg.Problem {
	var r *wire.Refusal
	if errors.As(err, &r) {
		return r.Problem
	}
	return nil
}

// Text is the message of an error that a call returned.
func Text(err error) string { return err.Error() }

// Lacks reports whether err says that the controller does not know the call: it is of an older release.
func Lacks(err error) bool {
	var r *wire.Refusal
	return errors.As(err, &r) && r.Code == codeUnimplemented
}

// codeUnimplemented is that of google.rpc.
const codeUnimplemented = 12

// Broken reports whether err means that the connection ended before the answer came, so that nobody knows whether the call
// took effect.
func Broken(err error) bool { return wire.Broken(err) }

// Away reports whether err says that the daemon of this host does not reach the controller: the call has not been made.
func Away(err error) bool { return wire.Away(err) }

// Silent reports whether err means that the controller took the call and said nothing for MessageTimeout.
func Silent(err error) bool {
	var te *wire.TimeoutError
	return errors.As(err, &te)
}
