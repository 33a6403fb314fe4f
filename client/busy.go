package client

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sluice-hpc/sluice/client/msg"
)

// The controller refuses a call that it has no room for (msg.CodeRateLimited), most often because of what else the same user asks for at
// that moment, and has then done nothing of it. Every call of every command waits and is made again, for as long as it takes: what was
// asked for is not lost because others were asked for as well.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
	// tellAfter is how long a command waits before it says why.
	tellAfter = 5 * time.Second
)

func isBusy(err error) bool { return msg.Code(ProblemOf(err).GetCode()) == msg.CodeRateLimited }

// patiently makes a call until the controller has room for it, or ctx ends. Between two attempts it has no connection, as these are among
// what there may be too many of.
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
		d := pause/2 + rand.N(pause) // not all at once
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

// patiently is for calls that are more than one of the ControllerAPI's.
func (c *Client) patiently(ctx context.Context, call func() error) error {
	if calls, ok := c.ControllerAPIClient.(*calls); ok {
		return calls.patiently(ctx, call)
	}
	return call()
}

// Waiting says, before the first call, whom to tell once when the controller has had no room for a call for some seconds, and which limit
// it names. The call goes on.
func (c *Client) Waiting(tell func(*msg.Problem)) {
	if calls, ok := c.ControllerAPIClient.(*calls); ok {
		calls.told = tell
	}
}
