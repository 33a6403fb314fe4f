package ctld

import (
	"testing"

	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/reactor/accounts"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// policyWorld is the state of a configured controller, without its goroutines.
type policyWorld struct {
	t    *testing.T
	view *state.View
}

func policyBench(t *testing.T, enforce string) *policyWorld {
	return &policyWorld{t, newConfBench(t, enforce+`
NodeName=n[1-4] CPUs=4 RealMemory=4000
PartitionName=debug Nodes=n1 Default=YES
PartitionName=vision Nodes=n[1-4] AllowAccounts=vision
PartitionName=urgent Nodes=n[1-4] AllowQos=high
PartitionName=others Nodes=n[1-4] DenyAccounts=vision DenyQos=high
`).loop.View()}
}

func (b *policyWorld) do(c reactor.Command) any {
	tx := state.Begin(b.view, 1e9)
	reply := c.Handle(tx)
	b.view, _ = tx.Freeze()
	if err := b.view.Check(); err != nil {
		b.t.Fatal(err)
	}
	return reply
}

func (b *policyWorld) change(r *pb.ChangePolicyRequest) {
	b.t.Helper()
	if p, ok := b.do(accounts.Change{User: "root", Operator: true, Request: r}).(*pb.Problem); ok {
		b.t.Fatalf("%v: %v", r, p)
	}
}

// groups has users in accounts: alice in vision (default) and nlp, bob in nlp with the QOS high as well.
func (b *policyWorld) groups() {
	b.t.Helper()
	words := func(name string, words ...string) []*pb.PolicySetting {
		return []*pb.PolicySetting{{Name: name, Words: words}}
	}
	b.change(&pb.ChangePolicyRequest{Names: []string{"vision", "nlp"}})
	b.change(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"high", "low"}})
	b.change(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_USER, Names: []string{"alice"}, Accounts: []string{"vision", "nlp"}})
	b.change(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_USER, Names: []string{"bob"}, Accounts: []string{"nlp"},
		Set: append(words("QOS", "high", "low"), words("DefaultQOS", "low")...)})
	b.change(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_USER, Names: []string{"carol"}, Accounts: []string{"vision"},
		Partitions: []string{"vision"}})
}

// TestAccountsOfJobs: which account and QOS a job gets, and what AccountingStorageEnforce refuses.
func TestAccountsOfJobs(t *testing.T) {
	const noAccount, noQOS = pb.CodeInvalidAccount, pb.CodeInvalidQOS
	for _, tt := range []struct {
		user, partition, account, qos string
		free, assocs, all             pb.Code // without AccountingStorageEnforce, with associations, with qos
		want                          string  // account and QOS where it is accepted
	}{
		{user: "alice", want: "vision normal"},
		{user: "alice", account: "nlp", want: "nlp normal"},
		{user: "alice", account: "NLP", want: "nlp normal"},
		{user: "alice", account: "nosuch", assocs: noAccount, all: noAccount, want: "nosuch normal"},
		{user: "alice", account: "root", assocs: noAccount, all: noAccount, want: "root normal"},
		{user: "alice", qos: "high", all: noQOS, want: "vision high"},
		{user: "alice", qos: "nosuch", all: noQOS, want: "vision nosuch"},
		{user: "bob", want: "nlp low"},
		{user: "bob", qos: "high", want: "nlp high"},
		{user: "bob", qos: "normal", all: noQOS, want: "nlp normal"},
		{user: "bob", account: "vision", assocs: noAccount, all: noAccount, want: "vision normal"},
		{user: "stranger", assocs: noAccount, all: noAccount, want: "root normal"},
		{user: "root", want: "root normal"},
		{user: "root", account: "nosuch", assocs: noAccount, all: noAccount, want: "nosuch normal"},
		{user: "carol", partition: "vision", want: "vision normal"},
		{user: "carol", assocs: noAccount, all: noAccount, want: "vision normal"},
		{user: "carol", partition: "debug,vision", want: "vision normal"},
	} {
		for enforce, want := range map[string]pb.Code{"": tt.free, "AccountingStorageEnforce=associations": tt.assocs,
			"AccountingStorageEnforce=qos": tt.all, "AccountingStorageEnforce=all": tt.all} {
			b := policyBench(t, enforce)
			b.groups()
			j, p := admit.Job(b.view, &pb.JobSpec{Name: "j", Uid: 1000, User: tt.user, Partition: tt.partition, Account: tt.account,
				Qos: tt.qos}, "")
			if pb.Code(p.GetCode()) != want {
				t.Errorf("%s %s %s, %s: %v, want %d", tt.user, tt.account, tt.qos, enforce, p, want)
			} else if got := j.GetSpec().GetAccount() + " " + j.GetSpec().GetQos(); p == nil && got != tt.want {
				t.Errorf("%s %s %s, %s: %s, want %s", tt.user, tt.account, tt.qos, enforce, got, tt.want)
			}
		}
	}
}

// TestNothingDefined: with AccountingStorageEnforce everybody is in the account root and has the QOS normal until somebody is added to an
// account; other names are refused.
func TestNothingDefined(t *testing.T) {
	b := policyBench(t, "AccountingStorageEnforce=all")
	job := func(account, qos string) pb.Code {
		_, p := admit.Job(b.view, &pb.JobSpec{Name: "j", Uid: 1000, User: "alice", Account: account, Qos: qos}, "")
		return pb.Code(p.GetCode())
	}
	if job("", "") != 0 || job("root", "normal") != 0 || job("nosuch", "") != pb.CodeInvalidAccount ||
		job("", "nosuch") != pb.CodeInvalidQOS {
		t.Error(job("", ""), job("root", "normal"), job("nosuch", ""), job("", "nosuch"))
	}
	b.change(&pb.ChangePolicyRequest{Names: []string{"vision"}})
	if job("", "") != 0 {
		t.Error("an account alone keeps everybody out")
	}
	b.change(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_USER, Names: []string{"bob"}, Accounts: []string{"vision"}})
	if job("", "") != pb.CodeInvalidAccount {
		t.Error("who is in no account is let in")
	}
}

// TestRequiresReservation: jobs of a QOS with that flag are refused without a reservation.
func TestRequiresReservation(t *testing.T) {
	b := policyBench(t, "AccountingStorageEnforce=qos")
	b.groups()
	b.change(&pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_MODIFY, Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"low"},
		Set: []*pb.PolicySetting{{Name: "Flags", Words: []string{"RequiresReservation"}}}})
	for _, tt := range []struct {
		qos, reservation string
		want             pb.Code
	}{{"low", "", pb.CodeInvalidQOS}, {"high", "", 0}, {"low", "nosuch", pb.CodeResvInvalid}} {
		_, p := admit.Job(b.view, &pb.JobSpec{Name: "j", Uid: 1000, User: "bob", Qos: tt.qos, Reservation: tt.reservation}, "")
		if pb.Code(p.GetCode()) != tt.want {
			t.Errorf("%s %s: %v, want %d", tt.qos, tt.reservation, p, tt.want)
		}
	}
}

// TestPartitionsByAccount: the rules of partitions look at the account and the QOS that a job gets.
func TestPartitionsByAccount(t *testing.T) {
	b := policyBench(t, "AccountingStorageEnforce=qos\nEnforcePartLimits=ALL")
	b.groups()
	for _, tt := range []struct {
		user, account, qos, partition string
		refused                       bool
	}{
		{"alice", "", "", "vision", false}, {"alice", "nlp", "", "vision", true}, {"bob", "", "", "vision", true},
		{"bob", "", "", "urgent", true}, {"bob", "", "high", "urgent", false}, {"alice", "", "", "others", true},
		{"alice", "nlp", "", "others", false}, {"bob", "", "high", "others", true},
	} {
		j, p := admit.Job(b.view, &pb.JobSpec{Name: "j", Uid: 1000, User: tt.user, Account: tt.account, Qos: tt.qos,
			Partition: tt.partition}, "")
		out := ""
		if p == nil {
			_, out = admit.Open(b.view, []string{j.Partition}, j.Spec)
		}
		if (out != "" || p != nil) != tt.refused {
			t.Errorf("%v: %v %s", tt, p, out)
		}
	}
}

// TestAdmissionIsJudgedAgain: a job that was admitted just before its user lost the account is not accepted.
func TestAdmissionIsJudgedAgain(t *testing.T) {
	b := policyBench(t, "AccountingStorageEnforce=associations")
	b.groups()
	before := b.view
	j, p := admit.Job(before, &pb.JobSpec{Name: "j", Uid: 1000, User: "alice"}, "")
	if p != nil {
		t.Fatal(p)
	}
	b.change(&pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_DELETE, Entity: pb.PolicyEntity_POLICY_USER, Names: []string{"alice"}})
	submit := func(layout uint64) pb.Code {
		p, _ := b.do(reactor.Submit{Job: state.CloneJob(j), Layout: layout}).(*pb.Problem)
		return pb.Code(p.GetCode())
	}
	if got := submit(before.Layout); got != pb.CodeInvalidAccount {
		t.Errorf("%d", got)
	}
}
