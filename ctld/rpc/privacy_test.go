package rpc

import (
	"context"
	"fmt"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestJobsArePrivate: with PrivateData=jobs nobody but operators learns of another's jobs, by any way to ask.
func TestJobsArePrivate(t *testing.T) {
	s := serve(t)
	mine, root := s.as(alice, alice), s.as(0, 0)
	theirs, own := submit(t, root, request("#!/bin/sh\n")), submit(t, mine, request("#!/bin/sh\n"))
	count := func(c pb.ControllerAPIClient, r *pb.JobsRequest) int {
		t.Helper()
		stream, err := c.Jobs(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return len(m.Jobs)
	}
	explained := func(c pb.ControllerAPIClient, id string) bool {
		_, err := c.Explain(ctx, &pb.ExplainRequest{Id: id})
		return err == nil
	}
	if n := count(mine, &pb.JobsRequest{}); n != 2 {
		t.Errorf("a user sees %d jobs where they are not private", n)
	}
	s.privacy = Privacy{Jobs: true}
	if a, b, c := count(mine, &pb.JobsRequest{}), count(mine, &pb.JobsRequest{Ids: []string{fmt.Sprint(theirs)}}), count(root, &pb.JobsRequest{}); a != 1 || b != 0 || c != 2 {
		t.Errorf("a user sees %d jobs, %d of them by id, root %d", a, b, c)
	}
	if !explained(mine, fmt.Sprint(own)) || explained(mine, fmt.Sprint(theirs)) || !explained(root, fmt.Sprint(own)) {
		t.Error("Explain tells of another's job, or not of one's own")
	}
	if _, err := mine.WaitJob(ctx, &pb.WaitJobRequest{JobId: theirs}); err == nil {
		t.Error("WaitJob tells of another's job")
	}
}

func TestOwnersOfGPUsArePrivate(t *testing.T) {
	s := &Service{Privacy: func() Privacy { return Privacy{Jobs: true} }}
	for uid, operator := range map[uint32]bool{7: false, 9: false, 0: true} {
		r := &pb.GpusReply{Gpus: []*pb.GpuRecord{{State: "alloc", Owners: []*pb.GpuOwner{{JobId: 3, Id: "3", User: "ann", Uid: 7, Name: "secret", Share: 2}}}}}
		c := context.WithValue(ctx, peerKey{}, &Peer{UID: uid, Operator: operator})
		if err := s.redacted(c, func(*pb.GpusReply) error { return nil })(r); err != nil {
			t.Fatal(err)
		}
		o := r.Gpus[0].Owners[0]
		if seen := o.JobId == 3 && o.Name == "secret" && o.User == "ann"; seen != (uid != 9) || o.Share != 2 {
			t.Errorf("uid %d sees %v", uid, o)
		}
		if uid == 9 && (o.Id != private || o.User != private || o.Uid != 0 || o.Name != "") {
			t.Errorf("uid 9 sees %v", o)
		}
	}
}
