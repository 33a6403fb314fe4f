package rpc

import (
	"errors"
	"testing"

	"github.com/sluice-hpc/sluice/internal/passwd"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// stranger is a uid without an account.
const stranger = 65532

// TestStrangers: a uid without an account may look, as in Slurm, but not submit: Slurm accepts such jobs and can never start them.
func TestStrangers(t *testing.T) {
	s := serve(t)
	c := s.as(stranger, stranger)
	_, crontab := c.UpdateCrontab(ctx, &pb.UpdateCrontabRequest{Text: "* * * * * true\n"})
	_, submitted := c.Submit(ctx, request("#!/bin/sh\n"))
	_, large := submitLarge(c, request("#!/bin/sh\n"), 100)
	for what, err := range map[string]error{"Submit": submitted, "SubmitLarge": large, "UpdateCrontab": crontab} {
		if p, _ := problemOf(err); p.GetCode() != uint32(pb.CodeUserID) || p.GetPhrase() != "Invalid user id" {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, what := range []string{"Ping", "Jobs", "Nodes", "Partitions", "Accounting", "Stats"} {
		if err := calls[what](c, 0); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := c.UpdateCrontab(ctx, &pb.UpdateCrontabRequest{Remove: true}); err != nil {
		t.Errorf("removing what may be there: %v", err)
	}
	if n := s.loop.View().Jobs.Len(); n != 0 {
		t.Errorf("%d jobs", n)
	}
	s.local.service.Users.find = func(string) (passwd.Account, bool, error) {
		return passwd.Account{}, false, errors.New("no answer")
	}
	submit(t, s.as(alice, alice), request("#!/bin/sh\n")) // the directory does not answer: nobody is turned away for that
}

// TestSubordinateUIDs: a user's limits also cover the subordinate UIDs of his user namespaces.
func TestSubordinateUIDs(t *testing.T) {
	s := serve(t, func(l *Local) { // connections are asked whose they are before anything is read from them
		l.owner = func(uid uint32) uint32 {
			if uid >= 200000 {
				return alice
			}
			return uid
		}
	})
	s.local.hold(alice, maxUserConns)
	for who, tooMany := range map[uint32]bool{200000: true, 265535: true, alice: true, nobody: false} {
		p, _ := problemOf(calls["Ping"](s.as(who, who), 0))
		if crowded := p.GetCode() == uint32(pb.CodeRateLimited); crowded != tooMany {
			t.Errorf("uid %d: %v", who, p)
		}
	}
	s.local.mu.Lock()
	defer s.local.mu.Unlock()
	if s.local.loads[200000] != nil || s.local.loads[alice] == nil {
		t.Error("a subordinate uid has a load of its own")
	}
}
