package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/format"
	pb "github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/proto/coding"
)

// Tags of the fields of JobsReply (controller.proto).
const (
	replyJobs  = 1<<3 | coding.Chunk
	replyNowNS = 3<<3 | coding.Varint
)

// eachJob calls f with every record of the answer, in the order of ids, after setting fc's clock to the controller's.
//
// The record is good until f returns: one and the same is filled again and again. A decoded JobRecord with its JobSpec takes
// two thousand bytes, most of them zero; decoding 10,000 of them the usual way spends more time in page faults than in decoding.
// So pages are taken apart here.
func eachJob(ctx context.Context, c *client.Client, r *pb.JobsRequest, fc *format.Context, f func(*pb.JobRecord)) error {
	stream, err := c.Jobs(ctx, r)
	if err != nil {
		return err
	}
	one := &pb.JobRecord{Spec: &pb.JobSpec{}}
	var broken error
	err = eachPage(stream.RecvEncoded, func(page string) {
		if broken == nil {
			broken = takeApart(page, fc, one, f)
		}
	})
	return errors.Join(err, broken)
}

// takeApart reads one encoded JobsReply. Its jobs come before its clock, which the controller sends in every page, so the
// clock is looked for first.
func takeApart(page string, fc *format.Context, one *pb.JobRecord, f func(*pb.JobRecord)) error {
	d := coding.NewDecoder(page)
	for d.Next() {
		if d.Tag == replyNowNS {
			setClock(fc, int64(d.Number()))
		}
	}
	for d := coding.NewDecoder(page); d.Next(); {
		if d.Tag != replyJobs {
			continue
		}
		spec := one.Spec
		*spec = pb.JobSpec{}
		*one = pb.JobRecord{Spec: spec}
		if err := one.Merge(d.Data); err != nil {
			return fmt.Errorf("cannot read a job from the controller's answer: %w", err)
		}
		f(one)
	}
	return d.Err()
}

// setClock takes the controller's clock, when it told it.
func setClock(fc *format.Context, nowNS int64) {
	if nowNS != 0 {
		fc.Now = time.Unix(0, nowNS)
	}
}

// eachPage receives on one goroutine and calls f on another, which is the caller's.
func eachPage[P any](recv func() (P, error), f func(P)) error {
	const ahead = 4 // pages that may wait; more would only hold memory
	pages := make(chan P, ahead)
	var failed error
	go func() {
		defer close(pages)
		for {
			p, err := recv()
			if err != nil {
				failed = err
				return
			}
			pages <- p
		}
	}()
	for p := range pages {
		f(p)
	}
	if errors.Is(failed, io.EOF) {
		return nil
	}
	return failed
}
