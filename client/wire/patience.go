package wire

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// A stopped controller (SIGSTOP, a hung machine) seems to accept connections and requests, because the kernel does so for it, but
// never answers. So no read waits longer than MessageTimeout (slurm.conf(5)). Calls may take longer than that, WaitJob even days: a
// request asks the controller to send an empty frame at a given interval until it answers.

// soon is how long a call waits before it looks up its timeout. Nearly all are answered by then and need not read slurm.conf.
const soon = 500 * time.Millisecond

// usualAlive is the usual interval of keep-alives during a call.
const usualAlive = time.Second

// aliveKey is the key of the interval in a request's metadata (ctld/rpc, answer.go).
const aliveKey = "alive"

// TimeoutError reports that the controller has been silent for too long. The call may or may not have taken effect.
type TimeoutError struct {
	Socket string
	After  time.Duration
}

// Error is Phrase followed by Diagnosis.
func (e *TimeoutError) Error() string { return e.Phrase() + ": " + e.Diagnosis() }

// Phrase is Slurm's message.
func (e *TimeoutError) Phrase() string { return "Socket timed out on send/recv operation" }

// Diagnosis names the socket and probable causes.
func (e *TimeoutError) Diagnosis() string {
	return fmt.Sprintf("socket %s: sluice-ctld has not answered for %v (MessageTimeout); it is suspended, or its machine is overloaded",
		e.Socket, e.After)
}

// messageTimeout is MessageTimeout of the process's cluster, but at least three keep-alive intervals.
func messageTimeout() time.Duration {
	return max(3*usualAlive, time.Duration(MessageTimeoutS(os.Getenv))*time.Second)
}

// alive returns the keep-alive interval of a call, in milliseconds.
func (c *Conn) alive(method string) string {
	every := usualAlive
	if method == "WaitJob" { // thousands of these may wait for days
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

// deadline sets the deadline of the connection to at, or to the context's if that is earlier. When the context ends, a deadline in
// the past is set, which must not be overwritten: hence the check of ctx at the end.
func (c *Conn) deadline(ctx context.Context, at time.Time) error {
	if !c.until.IsZero() && c.until.Before(at) {
		at = c.until
	}
	if err := c.file.SetDeadline(at); err != nil {
		return brokenBy(err)
	}
	return ctx.Err()
}

// each calls step until it has handled all of b, however long that takes: only silence times out.
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
