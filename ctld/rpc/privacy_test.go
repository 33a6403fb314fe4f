package rpc

import (
	"context"
	"fmt"
	"strings"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestJobsArePrivate: with PrivateData=jobs only operators learn of another user's jobs, by any call.
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
	s.hide(Privacy{Jobs: true})
	if a, b, c := count(mine, &pb.JobsRequest{}), count(mine, &pb.JobsRequest{Ids: []string{fmt.Sprint(theirs)}}),
		count(root, &pb.JobsRequest{}); a != 1 || b != 0 || c != 2 {
		t.Errorf("a user sees %d jobs, %d of them by id, root %d", a, b, c)
	}
	if !explained(mine, fmt.Sprint(own)) || explained(mine, fmt.Sprint(theirs)) || !explained(root, fmt.Sprint(own)) {
		t.Error("Explain tells of another's job, or not of one's own")
	}
	if _, err := mine.WaitJob(ctx, &pb.WaitJobRequest{JobId: theirs}); err == nil {
		t.Error("WaitJob tells of another's job")
	}
}

// TestRefusalsAreSilent: with PrivateData=jobs a refusal to act on another's job does not name the owner; its phrase is that of a real
// Slurm 22.05. Without PrivateData it names the owner.
func TestRefusalsAreSilent(t *testing.T) {
	s := serve(t)
	mine, root := s.as(alice, alice), s.as(0, 0)
	id := submit(t, root, request("#!/bin/sh\n"))
	ids := []string{fmt.Sprint(id)}
	control := func(verb string) func() (string, error) {
		return func() (string, error) {
			r, err := mine.ControlJobs(ctx, &pb.ControlJobsRequest{Verb: verb, Ids: ids, Text: "x"})
			return r.String(), err
		}
	}
	cancel := func(r *pb.CancelJobsRequest) func() (string, error) {
		r.Ids = ids
		return func() (string, error) {
			r, err := mine.CancelJobs(ctx, r)
			return r.String(), err
		}
	}
	for name, c := range map[string]struct {
		do     func() (string, error)
		phrase string
	}{
		"scancel":    {cancel(&pb.CancelJobsRequest{}), "Access/permission denied"},
		"scancel -s": {cancel(&pb.CancelJobsRequest{Signal: 10}), "Invalid job id specified"},
		"scancel -b": {cancel(&pb.CancelJobsRequest{Signal: 9, Batch: true}), "Invalid job id specified"},
		"hold":       {control("hold"), "Invalid user id"},
		"release":    {control("release"), "Invalid user id"},
		"requeue":    {control("requeue"), "Access/permission denied"},
		"suspend":    {control("suspend"), "Access/permission denied"},
		"notify":     {control("notify"), "Invalid user id"},
		"update": {func() (string, error) {
			r, err := mine.UpdateJob(ctx, &pb.UpdateJobRequest{Ids: ids, Set: []*pb.KeyValue{{Key: "Comment", Value: "x"}}})
			return r.String(), err
		}, "Invalid user id"},
		"batch script": {func() (string, error) {
			stream, err := mine.BatchScript(ctx, &pb.BatchScriptRequest{JobId: id})
			if err == nil {
				_, err = stream.Recv()
			}
			return "", err
		}, "Invalid user id"},
	} {
		for _, private := range []bool{false, true} {
			s.hide(Privacy{Jobs: private})
			said, err := c.do()
			if err != nil {
				said += err.Error()
			}
			if private && !strings.Contains(said, c.phrase) || strings.Contains(said, "belongs to root") == (private || name == "suspend") {
				t.Errorf("%s, private %v: %s, want %s, and the owner only where jobs are not private", name, private, said, c.phrase)
			}
		}
	}
	s.hide(Privacy{Jobs: true})
	if r, err := mine.CancelJobs(ctx, &pb.CancelJobsRequest{ByFilter: true, Filter: &pb.JobsRequest{}}); err != nil ||
		len(r.Outcomes) != 0 {
		t.Errorf("a filter finds %v, %v: jobs of others", r, err)
	}
}

func TestOwnersOfGPUsArePrivate(t *testing.T) {
	s := &Service{Privacy: func() Privacy { return Privacy{Jobs: true} }}
	for uid, operator := range map[uint32]bool{7: false, 9: false, 0: true} {
		r := &pb.GpusReply{Gpus: []*pb.GpuRecord{{State: "alloc",
			Owners: []*pb.GpuOwner{{JobId: 3, Id: "3", User: "ann", Uid: 7, Name: "secret", Share: 2}}}}}
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
