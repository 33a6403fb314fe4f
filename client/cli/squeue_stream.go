package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/format"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Numbers of the fields of JobsReply (controller.proto).
const (
	replyJobs  protowire.Number = 1
	replyNowNS protowire.Number = 3
)

// eachJob calls f with every record of the answer, in the order of ids, after setting fc's clock to the controller's.
//
// The record is good until f returns: one and the same is filled again and again. A decoded JobRecord with its JobSpec takes
// two thousand bytes, most of them zero; decoding 10,000 of them the usual way spends more time in page faults than in decoding.
// So pages are received as they are (a message without fields of its own keeps everything as unknown fields) and taken apart
// here.
func eachJob(ctx context.Context, c *client.Client, r *pb.JobsRequest, fc *format.Context, f func(*pb.JobRecord)) error {
	stream, err := c.Jobs(ctx, r)
	if err != nil {
		return err
	}
	one := &pb.JobRecord{Spec: &pb.JobSpec{}}
	var broken error
	err = eachPage(func() ([]byte, error) {
		page := &pb.PingRequest{}
		err := stream.RecvMsg(page)
		return page.ProtoReflect().GetUnknown(), err
	}, func(page []byte) {
		if broken == nil {
			broken = takeApart(page, fc, one, f)
		}
	})
	return errors.Join(err, broken)
}

// takeApart reads one marshalled JobsReply. Its jobs come before its clock, which the controller sends in every page, so the
// clock is looked for first.
func takeApart(page []byte, fc *format.Context, one *pb.JobRecord, f func(*pb.JobRecord)) error {
	err := eachField(page, func(num protowire.Number, _ []byte, n uint64) error {
		if num == replyNowNS {
			setClock(fc, int64(n))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return eachField(page, func(num protowire.Number, data []byte, _ uint64) error {
		if num != replyJobs {
			return nil
		}
		spec := one.Spec
		proto.Reset(one)
		proto.Reset(spec)
		one.Spec = spec
		if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal(data, one); err != nil {
			return fmt.Errorf("cannot read a job from the controller's answer: %w", err)
		}
		f(one)
		return nil
	})
}

// eachField calls f with each field of a message: data of those that have a length, n of the others that are whole numbers.
func eachField(b []byte, f func(num protowire.Number, data []byte, n uint64) error) error {
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("cannot read the controller's answer: %w", protowire.ParseError(n))
		}
		b = b[n:]
		var data []byte
		var value uint64
		switch kind {
		case protowire.BytesType:
			data, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(num, kind, b)
		}
		if n < 0 {
			return fmt.Errorf("cannot read the controller's answer: %w", protowire.ParseError(n))
		}
		b = b[n:]
		if err := f(num, data, value); err != nil {
			return err
		}
	}
	return nil
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
