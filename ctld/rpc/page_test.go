package rpc

import (
	"slices"
	"strings"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestLongTextsFitIntoPages: users may write long comments. A page of such jobs must still fit into a ttrpc message, or the queue could not
// be listed any more.
func TestLongTextsFitIntoPages(t *testing.T) {
	s := serve(t)
	c := s.as(alice, alice)
	const count = 150
	for range count {
		r := request("#!/bin/sh\n")
		r.Spec.Comment, r.Spec.Name = strings.Repeat("c", 60<<10), strings.Repeat("n", 1000)
		submit(t, c, r)
	}
	for _, fields := range [][]uint32{nil, {1, 2}} {
		stream, err := c.Jobs(ctx, &pb.JobsRequest{Fields: fields})
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for {
			page, err := stream.Recv()
			if err != nil {
				if !isEOF(err) {
					t.Fatalf("fields %v, after %d jobs: %v", fields, seen, err)
				}
				break
			}
			seen += len(page.Jobs)
		}
		if seen != count {
			t.Errorf("fields %v: %d jobs, want %d", fields, seen, count)
		}
	}
}

// TestLongRecordsHaveMessagesOfTheirOwn: two that would not go into one of four mebibytes together.
func TestLongRecordsHaveMessagesOfTheirOwn(t *testing.T) {
	var sizes []int
	p := &pages{send: func(encoded []byte) error {
		sizes = append(sizes, len(encoded))
		return nil
	}}
	for _, n := range []int{900 << 10, 3 << 20, 100, 3 << 20} {
		if err := p.add(stored(make([]byte, n)), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.end(); err != nil || len(sizes) != 4 || slices.Max(sizes) > 4<<20-1<<10 {
		t.Errorf("%v, messages of %d bytes", err, sizes)
	}
}
