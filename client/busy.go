package client

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sluice-hpc/sluice/client/msg"
)

// The controller rejects a call for which it has no room (msg.CodeRateLimited), mostly because of other calls of the same user,
// without having done any of it. Every command repeats such calls for as long as it takes: a request must not fail because of
// concurrent ones.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
	// tellAfter is how long a command waits before it says why.
	tellAfter = 5 * time.Second
)

func isBusy(err error) bool { return msg.Code(ProblemOf(err).GetCode()) == msg.CodeRateLimited }

// patiently makes a call until the controller has room for it, or ctx ends. It holds no connection between attempts, because
// the controller may be out of connections.
func (c *calls) patiently(ctx context.Context, call func() error) error {
	var waited time.Duration
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := call()
		if !isBusy(err) {
			return err
		}
		c.mu.Lock()
		for _, conn := range c.idle {
			_ = conn.Close()
		}
		c.idle = nil
		tell := c.told
		if waited < tellAfter {
			tell = nil
		} else {
			c.told = nil
		}
		c.mu.Unlock()
		if tell != nil {
			tell(ProblemOf(err))
		}
		d := pause/2 + rand.N(pause) // spread the attempts
		waited += d
		t := time.NewTimer(d)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
	}
}

// patiently is for operations that consist of several calls.
func (c *Client) patiently(ctx context.Context, call func() error) error {
	if calls, ok := c.ControllerAPIClient.(*calls); ok {
		return calls.patiently(ctx, call)
	}
	return call()
}

// Waiting sets a function to call once if the controller has had no room for a call for some seconds, with the limit that it names.
// The call continues. Use it before the first call.
func (c *Client) Waiting(tell func(*msg.Problem)) {
	if calls, ok := c.ControllerAPIClient.(*calls); ok {
		calls.told = tell
	}
}
