package fairshare

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/acct"
	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/loop"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/reactor/accounts"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// cluster is a controller's state without accounts.
type cluster struct {
	t    *testing.T
	loop *loop.Loop
	set  chan map[string]float64 // by "account/user"
	used []*acct.Share
}

func newCluster(t *testing.T) *cluster {
	cfg := &state.Config{Settings: &state.Settings{Cluster: "c", MaxJobCount: 100, MaxJobsPerUser: 100}, Default: "p",
		Nodes:          []*pb.NodeRecord{{Name: "n", Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 4000}},
		PartitionNodes: map[string][]string{"p": {"n"}},
		Partitions:     []*pb.PartitionRecord{{Name: "p", State: "UP", MaxTimeS: pb.Unlimited, MaxNodes: pb.Unlimited}}}
	c := &cluster{t: t, set: make(chan map[string]float64)}
	c.loop = loop.New(journal.NewMemory(), state.New(cfg, "c", 1), func() time.Time { return time.Unix(1000, 0) },
		slog.New(slog.DiscardHandler))
	return c
}

func (c *cluster) do(cmd reactor.Command) {
	out, err := c.loop.Turn(cmd)
	if err != nil {
		c.t.Fatal(err)
	}
	if p, refused := out[0].(*pb.Problem); refused {
		c.t.Fatal(p)
	}
}

func (c *cluster) add(r *pb.ChangePolicyRequest) {
	c.do(accounts.Change{User: "root", Operator: true, Request: r})
}

func (c *cluster) submit(user, account string) {
	c.do(reactor.Submit{Job: &pb.JobRecord{Spec: &pb.JobSpec{Name: "j", User: user, Uid: 1000, Account: account}}})
}

func byUser(list []record.Share) map[string]float64 {
	m := map[string]float64{}
	for _, s := range list {
		m[s.Account+"/"+s.User] = s.Factor
	}
	return m
}

func share(account, user string, billing float64) *acct.Share {
	return &acct.Share{Account: account, User: user, Used: acct.Sums{"billing": billing}}
}

// TestFactors: without accounts, all users with usage share root equally. With accounts, the shares are those of the associations, and
// usage of other users does not count.
func TestFactors(t *testing.T) {
	c := newCluster(t)
	rows := []*acct.Share{share("root", "ann", 100), share("root", "bob", 200), share("gone", "cat", 50)}
	got := fmt.Sprint(byUser(Factors(c.loop.View(), rows)))
	if want := "map[/ann:0.5 /bob:0.25 /root:1 gone/cat:0.75 root/ann:0.5 root/bob:0.25 root/root:1]"; got != want {
		t.Errorf("without accounts: %s, want %s", got, want)
	}
	c.add(&pb.ChangePolicyRequest{Names: []string{"lab"}})
	for user, shares := range map[string]uint64{"ann": 1, "bob": 3} {
		c.add(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_USER, Names: []string{user}, Accounts: []string{"lab"},
			Set: []*pb.PolicySetting{{Name: "Fairshare", Values: []*pb.PolicyValue{{Name: "Fairshare", Value: shares}}}}})
	}
	rows = append(rows, share("lab", "ann", 100), share("lab", "bob", 200))
	got = fmt.Sprint(byUser(Factors(c.loop.View(), rows)))
	if want := "map[/root:1 lab/ann:0.3333333333333333 lab/bob:0.6666666666666666 root/root:1]"; got != want {
		t.Errorf("with accounts: %s, want %s", got, want)
	}
}

// TestThreshold: where fair share has no weight, there are factors as soon as a QOS has a threshold of them.
func TestThreshold(t *testing.T) {
	c := newCluster(t)
	c.loop.View().Settings.EnforceLimits = true // before there is any job
	k := New(Keeper{View: c.loop.View, Log: slog.New(slog.DiscardHandler),
		Usage: func(context.Context, func() *state.View, bool) ([]*acct.Share, int64, error) {
			return nil, 1000e9, nil
		},
		Settings: func() (bool, time.Duration) { return false, time.Hour },
		Set:      func(list []record.Share) { c.set <- byUser(list) }})
	c.loop.Observe(k.Changed)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { k.Run(ctx); close(done) }()
	c.add(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"q"}, Set: []*pb.PolicySetting{
		{Name: "Flags", Words: []string{"EnforceUsageThreshold"}},
		{Name: "UsageThreshold", Values: []*pb.PolicyValue{{Name: "UsageThreshold", Value: 1}}}}})
	if _, has := (<-c.set)["root/root"]; !has {
		t.Error("no factor")
	}
	cancel()
	<-done
}

// TestKeeper: factors are renewed when somebody new submits a job and when accounts change, without waiting for the period.
func TestKeeper(t *testing.T) {
	c := newCluster(t)
	k := New(Keeper{View: c.loop.View, Log: slog.New(slog.DiscardHandler),
		Usage: func(context.Context, func() *state.View, bool) ([]*acct.Share, int64, error) {
			return c.used, 1000e9, nil
		},
		Settings: func() (bool, time.Duration) { return true, time.Hour },
		Set:      func(list []record.Share) { c.set <- byUser(list) }})
	c.loop.Observe(k.Changed)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { k.Run(ctx); close(done) }()
	until := func(key string) {
		for m := range c.set {
			if _, has := m[key]; has {
				return
			}
		}
	}
	until("root/root")
	c.submit("ann", "")
	until("root/ann")
	c.add(&pb.ChangePolicyRequest{Names: []string{"lab"}})
	c.add(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_USER, Names: []string{"bob"}, Accounts: []string{"lab"}})
	until("lab/bob")
	cancel()
	go func() {
		for range c.set {
		}
	}()
	<-done
	close(c.set)
}
