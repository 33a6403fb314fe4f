package planner

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/loop"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// threadTime returns the CPU time of this thread; on a shared machine it says more than wall time.
func threadTime(t *testing.B) time.Duration {
	var u syscall.Rusage
	const thread = 1 // RUSAGE_THREAD
	if err := syscall.Getrusage(thread, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkLimits measures a pass after a submission to a queue with settled reasons, with 10,000 users in 1000 accounts and a waiting job
// each: without limits, with limits of all accounts, with limits of all users, with budgets of all accounts, and with a limit on each
// user's run minutes. All should cost the same.
func BenchmarkLimits(t *testing.B) {
	for _, of := range []string{"nobody", "accounts", "users", "budgets", "minutes"} {
		t.Run("of="+of, func(t *testing.B) {
			cfg, enforced := config(3), of != "nobody"
			cfg.Settings.EnforceAssocs, cfg.Settings.EnforceLimits, cfg.Settings.MaxJobCount = enforced, enforced, 0
			now := time.Unix(1000, 0)
			b := &bench{now: 1000e9}
			b.loop = loop.New(journal.NewMemory(), state.New(cfg, "c", 1), func() time.Time { return now }, discard())
			b.p = New(b.loop, record.Params{Weights: record.Weights{Basic: true}}, func() time.Time { return now }, discard())
			b.loop.Observe(b.p.Changed)
			for i := range 3 {
				b.do(hello(fmt.Sprintf("n%d", i+1)))
			}
			value := func(name string, n uint64) *pb.PolicySetting {
				return &pb.PolicySetting{Name: name, Values: []*pb.PolicyValue{{Name: name, Value: n}}}
			}
			for a := range 1000 {
				account := fmt.Sprintf("a%d", a)
				set := []*pb.PolicySetting{value("GrpJobs", 5)}
				if of == "users" {
					set = append(set, value("MaxJobs", 2))
				}
				if of == "budgets" {
					set = append(set, &pb.PolicySetting{Name: "GrpTRESMins",
						Values: []*pb.PolicyValue{{Name: "GrpTRESMins", Tres: "cpu", Value: 1000}}})
				}
				b.change(&pb.ChangePolicyRequest{Names: []string{account}, Set: set})
				var users []string
				for u := range 10 {
					users = append(users, fmt.Sprintf("u%d", 10*a+u))
				}
				b.change(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_USER, Names: users, Accounts: []string{account}})
			}
			if of == "minutes" {
				b.limits("qos normal MaxTRESRunMinsPerUser cpu 1000")
			}
			b.do(reactor.PastRead{Past: &state.Past{Counting: b.loop.View().Counting()}})
			submit := func(u int) {
				j, p := admit.Job(b.loop.View(), &pb.JobSpec{Name: "j", Uid: 1000 + uint32(u), User: fmt.Sprintf("u%d", u)}, "")
				if p != nil {
					t.Fatal(p)
				}
				if p, ok := b.do(reactor.Submit{Job: j}).(*pb.Problem); ok {
					t.Fatal(p)
				}
			}
			for u := range 10000 {
				submit(u)
			}
			settle := func() {
				for {
					_, cmd := b.p.Prepare(record.Cursor{})
					if cmd == nil {
						return
					}
					b.do(*cmd)
				}
			}
			settle()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var spent time.Duration
			t.ResetTimer()
			for i := range t.N {
				submit(i % 10000)
				began := threadTime(t)
				_, cmd := b.p.Prepare(record.Cursor{})
				spent += threadTime(t) - began
				if cmd != nil {
					b.do(*cmd)
				}
			}
			t.ReportMetric(float64(spent.Nanoseconds())/float64(t.N), "cpu-ns/pass")
		})
	}
}
