package wire

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// A controller that has stopped (SIGSTOP, a machine that hangs) takes connections and requests, as the kernel does that for it, and says
// nothing. So no wait for it is longer than MessageTimeout (slurm.conf(5)). A call may take longer than that, WaitJob even for days: a
// request says how often the controller is to send an empty frame until it has the answer.

// soon is how long a call waits before it is looked up how long it may: nearly all are answered by then, and have read no slurm.conf.
const soon = 500 * time.Millisecond

// usualAlive is how often the controller says that it is there while a call is being answered.
const usualAlive = time.Second

// aliveKey is the key of that in the metadata of a request (ctld/rpc, answer.go).
const aliveKey = "alive"

// TimeoutError says that the controller has been silent for too long. Nobody knows whether the call took effect.
type TimeoutError struct {
	Socket string
	After  time.Duration
}

// Error is Slurm's phrase, then the socket and what would help.
func (e *TimeoutError) Error() string { return e.Phrase() + ": " + e.Diagnosis() }

// Phrase is Slurm's text alone.
func (e *TimeoutError) Phrase() string { return "Socket timed out on send/recv operation" }

// Diagnosis names the socket and says what would help.
func (e *TimeoutError) Diagnosis() string {
	return fmt.Sprintf("socket %s: sluice-ctld has said nothing for %v (MessageTimeout); it has been stopped, or its machine is overloaded",
		e.Socket, e.After)
}

// messageTimeout is MessageTimeout of the cluster that this process asks, but not so short that the controller could not be heard in it.
func messageTimeout() time.Duration {
	return max(3*usualAlive, time.Duration(MessageTimeoutS(os.Getenv))*time.Second)
}

// alive is how often the controller is to be heard during a call, in milliseconds.
func (c *Conn) alive(method string) string {
	every := usualAlive
	if method == "WaitJob" { // thousands may wait for days
		every = max(every, c.patience()/3)
	}
	return strconv.FormatInt(every.Milliseconds(), 10)
}

// began sets the deadlines of a new call.
func (c *Conn) began(ctx context.Context) (leftNS int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	now := time.Now()
	deadline, ok := ctx.Deadline()
	if c.until = deadline; ok {
		if leftNS = int64(deadline.Sub(now)); leftNS <= 0 {
			return 0, context.DeadlineExceeded
		}
	}
	return leftNS, c.deadline(ctx, now.Add(soon))
}

// deadline sets that of the connection: at, or the context's where that is earlier. The end of the context sets one in the past; it
// must not be put off.
func (c *Conn) deadline(ctx context.Context, at time.Time) error {
	if !c.until.IsZero() && c.until.Before(at) {
		at = c.until
	}
	if err := c.file.SetDeadline(at); err != nil {
		return brokenBy(err)
	}
	return ctx.Err()
}

// each calls step until it has done all of b, however long that takes: only silence must not last.
func (x *Exchange) each(b []byte, step func([]byte) (int, error)) error {
	c, waited := x.conn, false
	for len(b) > 0 {
		n, err := step(b)
		b = b[n:]
		waited = waited && n == 0
		switch {
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return brokenBy(err)
		case x.ctx.Err() != nil:
			return x.ctx.Err()
		case !c.until.IsZero() && !time.Now().Before(c.until):
			return context.DeadlineExceeded
		case waited:
			return &TimeoutError{Socket: c.file.Name(), After: c.patience()}
		default:
			waited = true
			if err := c.deadline(x.ctx, time.Now().Add(c.patience())); err != nil {
				return err
			}
		}
	}
	return nil
}
