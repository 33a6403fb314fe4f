package rpc

import (
	"strings"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestLongTextsFitIntoPages: users may write long comments; a page of such jobs is still a message that ttrpc sends, or nobody could
// look at the queue any more.
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
