package view

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/proto/coding"
)

// Tags of the fields of JobsReply (controller.proto).
const (
	replyJobs  = 1<<3 | coding.Chunk
	replyNowNS = 3<<3 | coding.Varint
)

// EachJob calls f with every record of the answer, in the order of ids, after setting fc's clock to the controller's.
//
// The record is valid until f returns, because it is reused. A decoded JobRecord with its JobSpec takes two thousand bytes, most of
// them zero; decoding 10,000 of them the usual way spends more time on page faults than on decoding. So pages are decoded here.
func EachJob(ctx context.Context, c *client.Client, r *msg.JobsRequest, fc *format.Context, f func(*msg.JobRecord)) error {
	stream, err := c.Jobs(ctx, r)
	if err != nil {
		return err
	}
	one := &msg.JobRecord{Spec: &msg.JobSpec{}}
	var broken error
	err = EachPage(stream.RecvEncoded, func(page string) {
		if broken == nil {
			broken = takeApart(page, fc, one, f)
		}
	})
	return errors.Join(err, broken)
}

// takeApart decodes one JobsReply. Its jobs precede its clock, which the controller sends in every page, so it looks for the clock
// first.
func takeApart(page string, fc *format.Context, one *msg.JobRecord, f func(*msg.JobRecord)) error {
	d := coding.NewDecoder(page)
	for d.Next() {
		if d.Tag == replyNowNS {
			setClock(fc, int64(d.Number()))
		}
	}
	return eachOfPage(page, replyJobs, one, f)
}

// eachOfPage calls f with each record under a tag of an encoded answer.
func eachOfPage(page string, tag uint64, one *msg.JobRecord, f func(*msg.JobRecord)) error {
	d := coding.NewDecoder(page)
	for d.Next() {
		if d.Tag != tag {
			continue
		}
		spec := one.Spec
		*spec = msg.JobSpec{}
		*one = msg.JobRecord{Spec: spec}
		if err := one.Merge(d.Data); err != nil {
			return fmt.Errorf("cannot read a job from the controller's answer: %w", err)
		}
		f(one)
	}
	return d.Err()
}

// setClock sets the clock to the controller's, if the controller sent it.
func setClock(fc *format.Context, nowNS int64) {
	if nowNS != 0 {
		fc.Now = time.Unix(0, nowNS)
	}
}

// EachPage receives on one goroutine and calls f on the caller's. It keeps receiving however long f takes: f may print into a
// pager, and the controller does not wait for slow readers.
func EachPage[P any](recv func() (P, error), f func(P)) error {
	var mu sync.Mutex
	var ready []P
	var failed error
	more := make(chan struct{}, 1)
	go func() {
		for {
			p, err := recv()
			mu.Lock()
			if failed = err; err == nil {
				ready = append(ready, p)
			}
			mu.Unlock()
			select {
			case more <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	for range more {
		mu.Lock()
		pages, err := ready, failed
		ready = nil
		mu.Unlock()
		for _, p := range pages {
			f(p)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

// EachNode is EachJob for nodes.
func EachNode(ctx context.Context, c *client.Client, r *msg.NodesRequest, fc *format.Context, f func(*msg.NodeRecord)) error {
	stream, err := c.Nodes(ctx, r)
	if err != nil {
		return err
	}
	return EachPage(stream.Recv, func(p *msg.NodesReply) {
		setClock(fc, p.GetNowNs())
		for _, n := range p.GetNodes() {
			f(n)
		}
	})
}
