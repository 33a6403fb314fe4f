package rpc

import (
	"context"
	"errors"
	"time"
)

// helloWait is how long a stream may be open before the node has said who it is.
const helloWait = 30 * time.Second

// firstOf is a stream's first message. A handler that returns ends the stream, and so the goroutine that waits for it.
func firstOf[M any](ctx context.Context, recv func() (M, error)) (first M, err error) {
	type received struct {
		m   M
		err error
	}
	come := make(chan received, 1)
	go func() {
		m, err := recv()
		come <- received{m, err}
	}()
	t := time.NewTimer(helloWait)
	defer t.Stop()
	select {
	case r := <-come:
		return r.m, r.err
	case <-t.C:
		return first, errNoHello
	case <-ctx.Done():
		return first, ctx.Err()
	}
}

var errNoHello = errors.New("no Hello came")
