package client_test

import (
	"context"
	"testing"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/clienttest"
	"github.com/sluice-hpc/sluice/client/msg"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Each kind of call is made again until the controller has room for it, and then done once.
func TestRefusedForLackOfRoom(t *testing.T) {
	ctl := &clienttest.Controller{JobList: []*pb.JobRecord{{Id: 3}}, Script: []byte("#!/bin/sh\n")}
	connected(t, ctl, func(c *client.Client) {
		ctx := context.Background()
		for name, call := range map[string]func() error{
			"one answer": func() error { _, err := c.Ping(ctx, &msg.PingRequest{}); return err },
			"several answers": func() error {
				s, err := c.Jobs(ctx, &msg.JobsRequest{})
				if err != nil {
					return err
				}
				page, err := s.Recv()
				if err == nil && len(page.GetJobs()) != 1 {
					t.Errorf("the jobs are %v", page)
				}
				return err
			},
			"a submission": func() error {
				_, err := c.SubmitJob(ctx, &msg.SubmitRequest{RequestId: "small", Script: []byte("#!/bin/sh\n")})
				return err
			},
			"a large submission": func() error {
				_, err := c.SubmitJob(ctx, &msg.SubmitRequest{RequestId: "large", Script: make([]byte, 3<<20)})
				return err
			},
		} {
			ctl.Busy.Store(3)
			if err := call(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if left := ctl.Busy.Load(); left >= 0 {
				t.Errorf("%s: ended before %d refusals more", name, left)
			}
		}
	})
}
