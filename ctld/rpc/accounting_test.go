package rpc

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/acct"
	"github.com/sluice-hpc/sluice/ctld/gpuhours"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/reactor/accounts"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// shownAccounting answers from the View alone.
type shownAccounting struct{}

func (shownAccounting) Select(_ context.Context, r *pb.AccountingRequest, view func() *state.View, each func([]byte) error) error {
	for j := range view().Jobs.All() {
		if len(r.Uids) > 0 && !slices.Contains(r.Uids, j.Spec.Uid) {
			continue
		}
		b, err := proto.Marshal(j)
		if err == nil {
			err = each(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Between and Parts have two users with something used.
func (shownAccounting) Between(context.Context, int64, int64, func() *state.View) ([]*acct.Share, error) {
	return []*acct.Share{{Account: "root", UID: 0, Used: acct.Sums{"cpu": 60}},
		{Account: "root", UID: alice, Partition: "debug", Used: acct.Sums{"cpu": 30}}}, nil
}

func (s shownAccounting) Parts(ctx context.Context, _ acct.Fading, view func() *state.View) ([]*acct.Share, int64, error) {
	list, err := s.Between(ctx, 0, 0, view)
	for _, share := range list {
		share.QOS = state.NormalQOS
	}
	return list, 0, err
}

// Worth has a row of each of the two, as far as the caller may see them.
func (shownAccounting) Worth(_ context.Context, q *acct.WorthQuery, _ func() *state.View) (rows []*pb.ReportRow, err error) {
	for _, uid := range []uint32{0, alice} {
		if q.Sees(uid) {
			rows = append(rows, &pb.ReportRow{Account: "root", Uid: uid, GpuS: 60})
		}
	}
	return rows, nil
}

func (shownAccounting) Hours(_ context.Context, since, _ int64, partition string) ([]gpuhours.Hour, error) {
	return []gpuhours.Hour{{Start: since, Partition: partition, Covered: 60}}, nil
}

// Losses are those of both.
func (shownAccounting) Losses(context.Context, int64, int64) (list []gpuhours.LostHour, err error) {
	for _, uid := range []uint32{0, alice} {
		list = append(list, gpuhours.LostHour{Loss: gpuhours.Loss{UID: uid, Account: "root"}, Lost: gpuhours.Lost{GPUs: 5}})
	}
	return list, nil
}

func (shownAccounting) Trouble() string { return "" }

func (shownAccounting) Steps(context.Context, []acct.JobAttempt, func() *state.View, func([]byte) error) error {
	return nil
}
func (shownAccounting) Waiting() int { return 0 }

func (shownAccounting) Script(_ context.Context, v *state.View, id uint32, env bool) ([]byte, uint32, bool, error) {
	j := v.Jobs.Get(id)
	if j == nil {
		return nil, 0, false, nil
	}
	return []byte("#!/bin/sh\n"), j.Spec.Uid, true, nil
}

// Records come page by page in stored order. With PrivateData=jobs a user gets only own jobs, whatever the request.
func TestAccountingIsPrivate(t *testing.T) {
	s := serve(t)
	mine, root := s.as(alice, alice), s.as(0, 0)
	for range pageRecords + 3 {
		submit(t, root, request("#!/bin/sh\n"))
	}
	own := submit(t, mine, request("#!/bin/sh\n"))
	ask := func(c pb.ControllerAPIClient, r *pb.AccountingRequest) (jobs []*pb.JobRecord, pages int) {
		t.Helper()
		stream, err := c.Accounting(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		for {
			m, err := stream.Recv()
			if err == io.EOF {
				return jobs, pages
			}
			if err != nil {
				t.Fatal(err)
			}
			jobs, pages = append(jobs, m.Jobs...), pages+1
			if m.NowNs == 0 || m.Seq == 0 {
				t.Error("a page without time or sequence number")
			}
		}
	}
	if jobs, pages := ask(mine, &pb.AccountingRequest{}); len(jobs) != pageRecords+4 || pages != 2 || jobs[len(jobs)-1].Id != own ||
		jobs[0].Spec.GetName() == "" {
		t.Errorf("%d jobs in %d pages", len(jobs), pages)
	}
	s.hide(Privacy{Jobs: true})
	if jobs, _ := ask(mine, &pb.AccountingRequest{Uids: []uint32{0}}); len(jobs) != 1 || jobs[0].Id != own {
		t.Errorf("a user sees %d jobs where jobs are private", len(jobs))
	}
	if jobs, _ := ask(root, &pb.AccountingRequest{}); len(jobs) != pageRecords+4 {
		t.Errorf("root sees %d jobs", len(jobs))
	}
	if jobs, pages := ask(root, &pb.AccountingRequest{Uids: []uint32{nobody}}); len(jobs) != 0 || pages != 1 {
		t.Errorf("%d jobs of nobody in %d pages", len(jobs), pages)
	}
}

// The usage of a running step is shown to its owner and to operators.
func TestUsageIsPrivate(t *testing.T) {
	s := serve(t)
	mine, other, root := s.as(alice, alice), s.as(nobody, nobody), s.as(0, 0)
	startable := request("#!/bin/sh\n")
	startable.Spec.Hold = false
	id := submit(t, mine, startable)
	ask := func(c pb.ControllerAPIClient) *pb.UsageReply {
		t.Helper()
		r, err := c.Usage(ctx, &pb.UsageRequest{Ids: []string{"1"}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := ask(mine); len(r.Outcomes) != 1 || pb.Code(r.Outcomes[0].Problem.GetCode()) != pb.CodeNotRunning {
		t.Errorf("of a job that does not run: %v", r)
	}
	if _, err := s.loop.Do(ctx, reactor.NodeHello{Hello: &pb.NodeHello{Node: "n1",
		Hardware: &pb.Hardware{Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 4000}}, Stream: 1}); err != nil {
		t.Fatal(err)
	}
	j := s.loop.View().Jobs.Get(id)
	start := reactor.PlannedStart{ID: id, Task: -1, Spec: j.Spec, Partition: "debug", Alloc: []*pb.NodeAlloc{{Node: "n1", Cpus: 1}},
		NodeList: "n1", LimitS: 60}
	if r, err := s.loop.Do(ctx, reactor.ApplyPlan{Starts: []reactor.PlannedStart{start}}); err != nil || r.(reactor.Applied).Started != 1 {
		t.Fatal(r, err, j, s.loop.View().Node("n1"))
	}
	j = s.loop.View().Jobs.Get(id)
	s.live.Put(s.loop.View(), "n1", []*pb.StepUsage{{Key: &pb.StepKey{JobId: id, Attempt: j.Attempt, Step: pb.BatchStep}, RssKib: 7},
		{Key: &pb.StepKey{JobId: id, Attempt: j.Attempt + 1}}})
	for _, c := range []pb.ControllerAPIClient{mine, root} {
		if r := ask(c); len(r.Usage) != 1 || r.Usage[0].RssKib != 7 || r.Usage[0].Node != "n1" || len(r.Outcomes) != 0 {
			t.Errorf("got %v", r)
		}
	}
	if r := ask(other); len(r.Usage) != 0 || len(r.Outcomes) != 1 || pb.Code(r.Outcomes[0].Problem.GetCode()) != pb.CodeAccessDenied {
		t.Errorf("somebody else got %v", r)
	}
	s.live.Ended("n1", []*pb.StepReport{{Key: &pb.StepKey{JobId: id, Attempt: j.Attempt, Step: pb.BatchStep},
		Phase: pb.StepPhase_STEP_ENDED}})
	if r := ask(mine); len(r.Usage) != 0 {
		t.Errorf("after the end: %v", r)
	}
}

// With PrivateData=usage a user sees what is his own, faded or in a window; an operator sees all.
func TestAccountUsageIsPrivate(t *testing.T) {
	s := serve(t)
	mine, root := s.as(alice, alice), s.as(0, 0)
	for _, private := range []bool{false, true} {
		s.hide(Privacy{Usage: private})
		for _, r := range []*pb.AccountUsageRequest{{SinceNs: 1}, {Decayed: true}} {
			all, err := root.AccountUsage(ctx, r)
			if err != nil || len(all.Rows) != 2 {
				t.Fatalf("%v: root sees %v, %v", r, all.GetRows(), err)
			}
			own, err := mine.AccountUsage(ctx, r)
			if err != nil || private != (len(own.Rows) == 1) || len(own.Rows) == 0 || own.Rows[len(own.Rows)-1].Uid != alice {
				t.Errorf("private %t, %v: alice sees %v, %v", private, r, own.GetRows(), err)
			}
			if r.Decayed {
				sums := fmt.Sprint(all.Qos[0].Name, all.Qos[0].Used[0].Seconds, own.Qos[0].Used[0].Seconds)
				if want := map[bool]string{false: "normal90 90", true: "normal90 30"}[private]; sums != want {
					t.Errorf("private %t: the QOS has used %s, want %s", private, sums, want)
				}
			}
			if shareOf := all.Capacity; len(shareOf) == 0 || all.UntilNs > all.NowNs {
				t.Errorf("capacity %v, until %d, now %d", shareOf, all.UntilNs, all.NowNs)
			}
		}
	}
}

// brokenAccounting has not been able to write for long.
type brokenAccounting struct {
	shownAccounting
	waiting atomic.Int64
}

func (b *brokenAccounting) Waiting() int { return int(b.waiting.Load()) }

// TestAccountingThatCannotBeWritten: the records waiting for accounting may take only a bounded part of the state. Beyond that, submissions
// of all users are refused and everything else goes on, until there is room again.
func TestAccountingThatCannotBeWritten(t *testing.T) {
	broken := &brokenAccounting{}
	s := serve(t, func(l *Local) { l.service.Acct = broken })
	for _, uid := range []uint32{alice, 0} {
		c := s.as(uid, uid)
		broken.waiting.Store(maxUnstored - 1)
		id := submit(t, c, request("#!/bin/sh\n"))
		broken.waiting.Store(maxUnstored)
		_, err := c.Submit(context.Background(), request("#!/bin/sh\n"))
		if err == nil || !strings.Contains(err.Error(), "accounting database cannot be written") {
			t.Errorf("uid %d: %v", uid, err)
		}
		if _, err := c.CancelJobs(context.Background(), &pb.CancelJobsRequest{Ids: []string{fmt.Sprint(id)}}); err != nil {
			t.Errorf("uid %d: %v", uid, err)
		}
	}
}

// With PrivateData=usage a report has only the caller's own rows, including lost time; GPU hours name no users.
func TestReportIsPrivate(t *testing.T) {
	s := serve(t, func(l *Local) { l.service.GPUHours = &gpuhours.Recorder{} })
	mine, root := s.as(alice, alice), s.as(0, 0)
	for _, private := range []bool{false, true} {
		s.hide(Privacy{Usage: private})
		all, err := root.Report(ctx, &pb.ReportRequest{SinceNs: 7200e9})
		if err != nil || len(all.Rows) != 2 || all.Rows[0].GpuLostS != 5 {
			t.Fatalf("root sees %v, %v", all.GetRows(), err)
		}
		own, err := mine.Report(ctx, &pb.ReportRequest{SinceNs: 7200e9})
		if err != nil || private != (len(own.Rows) == 1) || len(own.Rows) == 0 || own.Rows[len(own.Rows)-1].Uid != alice {
			t.Errorf("private %t: alice sees %v, %v", private, own.GetRows(), err)
		}
		if len(own.GetHours()) != 1 || own.Hours[0].StartNs != 7200e9 || own.Hours[0].CoveredS != 60 {
			t.Errorf("private %t: hours %v", private, own.GetHours())
		}
	}
	for _, r := range []*pb.ReportRequest{{By: "weather"}, {Partitions: []string{"none"}}} {
		if _, err := mine.Report(ctx, r); err == nil {
			t.Errorf("%v is answered", r)
		}
	}
}

// TestUsageFactorInAccountUsage: UsageFactor of a QOS multiplies what counts for fair share and budgets, not what was allocated.
func TestUsageFactorInAccountUsage(t *testing.T) {
	s := serve(t)
	change := accounts.Change{User: "root", Operator: true, Request: &pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_MODIFY,
		Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"normal"},
		Set: []*pb.PolicySetting{{Name: "UsageFactor", Values: []*pb.PolicyValue{{Name: "UsageFactor", Value: 500000}}}}}}
	if r, err := s.loop.Do(ctx, change); err != nil {
		t.Fatal(r, err)
	}
	for decayed, want := range map[bool]float64{false: 60, true: 30} {
		all, err := s.as(0, 0).AccountUsage(ctx, &pb.AccountUsageRequest{SinceNs: 1, Decayed: decayed})
		if err != nil || len(all.Rows) != 2 || all.Rows[0].Used[0].Seconds != want || decayed && all.Qos[0].Used[0].Seconds != 45 {
			t.Errorf("decayed %t: %v, %v; want %g of root", decayed, all, err, want)
		}
	}
}

// TestPartitionQOSInAccountUsage: the usage of a partition's jobs also counts for the partition's QOS.
func TestPartitionQOSInAccountUsage(t *testing.T) {
	s := serve(t)
	for _, cmd := range []reactor.Command{
		accounts.Change{User: "root", Operator: true,
			Request: &pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"part"}}},
		reactor.UpdatePartition{Caller: reactor.Caller{Operator: true}, Name: "debug", Set: []*pb.KeyValue{{Key: "QOS", Value: "part"}}},
	} {
		if r, err := s.loop.Do(ctx, cmd); err != nil {
			t.Fatal(r, err)
		}
	}
	all, err := s.as(0, 0).AccountUsage(ctx, &pb.AccountUsageRequest{Decayed: true})
	if err != nil || len(all.Qos) != 2 || all.Qos[0].Used[0].Seconds != 90 || all.Qos[1].Name != "part" ||
		all.Qos[1].Used[0].Seconds != 30 {
		t.Errorf("%v, %v", all.GetQos(), err)
	}
}
