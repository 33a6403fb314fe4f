package client

import (
	"context"
	"errors"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/wire"
)

// Client connects to the controller. All methods may be called concurrently. A test double may replace the embedded interface.
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

// ConnectError means that no controller answers on the socket.
type ConnectError = wire.ConnectError

// MayReturn reports whether err means that a controller has been there, but is not listening now: its socket exists, or the
// directory for it.
func MayReturn(err error) bool { return wire.MayReturn(err) }

// MessageTimeoutS is how long commands that change something try to reach the controller: MessageTimeout of slurm.conf(5).
func MessageTimeoutS(getenv func(string) string) int { return wire.MessageTimeoutS(getenv) }

// ConfPath returns the path of this host's slurm.conf: SLURM_CONF, wire.DefaultConf, or that fetched by the node daemon.
func ConfPath(getenv func(string) string) string { return wire.ConfPath(getenv) }

// SocketPath returns the controller's socket for this host: $SLUICE_SOCKET, else beside slurm.conf, else below /run/sluice-ctld or
// /run/sluice by the ClusterName of slurm.conf.
func SocketPath(getenv func(string) string) (string, error) { return wire.SocketPath(getenv) }

// Settings returns the values of some keys of slurm.conf.
func Settings(getenv func(string) string, names ...string) []string {
	return wire.Settings(getenv, names...)
}

// ProblemOf returns the reason for which the controller rejected a call, or nil if err has another cause.
func ProblemOf(err error) *msg.Problem {
	var r *wire.Refusal
	if errors.As(err, &r) {
		return r.Problem
	}
	return nil
}

// Text is the message of an error that a call returned.
func Text(err error) string { return err.Error() }

// Broken reports whether err means that the connection ended before the answer: the call may or may not have taken effect.
func Broken(err error) bool { return wire.Broken(err) }

// Away reports whether err means that this host's daemon cannot reach the controller: the call was not made.
func Away(err error) bool { return wire.Away(err) }

// Silent reports whether err means that the controller accepted the call and then was silent for MessageTimeout.
func Silent(err error) bool {
	var te *wire.TimeoutError
	return errors.As(err, &te)
}
