package rpc

import (
	"context"
	"errors"
	"time"
)

// helloWait is the time that a node has to identify itself on a new stream.
const helloWait = 30 * time.Second

// firstOf returns a stream's first message. A handler that returns ends the stream, and with it the goroutine that waits here.
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
