package accounts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"pgregory.net/rapid"
)

// file returns the request that sacctmgr load sends for the dump of a policy.
func file(p *state.Policy) *pb.ChangePolicyRequest {
	r := &pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_LOAD}
	var later []*pb.ChangePolicyRequest
	add := func(entity pb.PolicyEntity, a *pb.AssocRecord, name string, set ...*pb.PolicySetting) *pb.ChangePolicyRequest {
		l := &pb.ChangePolicyRequest{Entity: entity, Names: []string{name}, Line: uint32(len(r.Lines) + 1), Set: set}
		if a.DefaultQos != "" {
			l.Set = append(l.Set, &pb.PolicySetting{Name: "DefaultQOS", Words: []string{a.DefaultQos}})
		}
		if len(a.Qos) > 0 {
			l.Set = append(l.Set, &pb.PolicySetting{Name: "QOS", Words: slices.Clone(a.Qos)})
		}
		for name, word := range map[string]string{"LimitHours": a.LimitHours, "DefaultPartition": a.DefaultPartition,
			"DefaultGPUType": a.DefaultGpuType} {
			if word != "" {
				l.Set = append(l.Set, &pb.PolicySetting{Name: name, Words: []string{word}})
			}
		}
		for _, v := range a.Values {
			l.Set = append(l.Set, &pb.PolicySetting{Name: v.Name, Values: []*pb.PolicyValue{v}})
		}
		r.Lines = append(r.Lines, l)
		return l
	}
	var below func(parent string)
	below = func(parent string) {
		for _, a := range p.Assocs() {
			if a.User != "" && a.Account == parent {
				l := add(pb.PolicyEntity_POLICY_USER, a, a.User)
				if l.Accounts = []string{parent}; a.Partition != "" {
					l.Partitions = []string{a.Partition}
				}
			}
		}
		for _, a := range p.UserAssocs("") {
			if a.Parent == parent {
				acc := p.Account(a.Account)
				add(pb.PolicyEntity_POLICY_ACCOUNT, a, a.Account, &pb.PolicySetting{Name: "Parent", Words: []string{parent}},
					&pb.PolicySetting{Name: "Description", Words: []string{acc.Description}},
					&pb.PolicySetting{Name: "Organization", Words: []string{acc.Organization}})
				below(a.Account)
			}
		}
	}
	add(pb.PolicyEntity_POLICY_ACCOUNT, p.Assoc("", "root", ""), "root")
	below("root")
	for _, u := range p.Users() {
		set := []*pb.PolicySetting{{Name: "DefaultAccount", Words: []string{u.DefaultAccount}},
			{Name: "AdminLevel", Words: []string{strings.ToLower(strings.TrimPrefix(u.Level.String(), "ADMIN_"))}}}
		later = append(later, &pb.ChangePolicyRequest{Verb: pb.PolicyVerb_POLICY_MODIFY, Entity: pb.PolicyEntity_POLICY_USER,
			Names: []string{u.Name}, Set: set})
	}
	for _, a := range p.Accounts() {
		for _, c := range a.Coordinators {
			later = append(later, &pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_COORDINATOR, Names: []string{c},
				Accounts: []string{a.Name}})
		}
	}
	r.Lines = append(r.Lines, later...)
	return r
}

// text is a policy without ids.
func text(p *state.Policy) string {
	var b strings.Builder
	for _, a := range p.Assocs() {
		a = pb.ShallowCopy(a)
		a.Id = 0
		fmt.Fprintln(&b, a)
	}
	for _, a := range p.Accounts() {
		if a.Name == state.RootAccount { // which no line describes
			a = &pb.AccountRecord{Name: a.Name, Coordinators: a.Coordinators}
		}
		fmt.Fprintln(&b, a)
	}
	fmt.Fprintln(&b, p.Users())
	return b.String()
}

// TestAnyFile: a dump loads again without changes, into the same cluster and, with clean, into any other, which then has exactly that
// policy. With an invalid line anywhere, nothing is changed.
func TestAnyFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, other := newBench(t), newBench(t)
		b.anything(t)
		p := b.view.Policy()
		events := len(b.lines)
		if r, ok := b.do("root", file(p)).(*pb.ChangePolicyReply); !ok || len(r.Names)+len(r.Assocs) > 0 || len(b.lines) != events {
			t.Fatalf("loaded again: %v %v", r, b.lines[events:])
		}
		other.anything(t)
		for _, q := range p.Qoses() {
			if other.view.Policy().QOS(q.Name) == nil {
				other.must("add qos " + q.Name)
			}
		}
		before := text(other.view.Policy())
		bad := file(p)
		i := rapid.IntRange(0, len(bad.Lines)).Draw(t, "bad line")
		bad.Lines = slices.Insert(bad.Lines, i, rapid.SampledFrom([]*pb.ChangePolicyRequest{
			{Names: []string{"new"}, Line: 77, Set: []*pb.PolicySetting{{Name: "Parent", Words: []string{"nosuch"}}}},
			{Names: []string{"new/er"}, Line: 77}, {Line: 77}, {Verb: pb.PolicyVerb_POLICY_DELETE, Names: []string{"a"}, Line: 77},
			{Verb: pb.PolicyVerb_POLICY_LOAD, Names: []string{"a"}, Line: 77},
			{Entity: pb.PolicyEntity_POLICY_USER, Names: []string{"u"}, Accounts: []string{"nosuch"}, Line: 77},
			{Entity: pb.PolicyEntity_POLICY_USER, Names: []string{"u"}, Line: 77},
		}).Draw(t, "what"))
		if rapid.Bool().Draw(t, "clean") {
			bad.Clean = true
		}
		if p, ok := other.do("root", bad).(*pb.Problem); !ok || !strings.Contains(p.Error(), "line(77)") {
			t.Fatalf("%v", p)
		}
		if got := text(other.view.Policy()); got != before {
			t.Fatalf("after a refusal:\n%s\nbefore:\n%s", got, before)
		}
		r := file(p)
		r.Clean = true
		if p, ok := other.do("root", r).(*pb.Problem); ok && !strings.Contains(p.Detail, "default qos") {
			t.Fatalf("%v", p)
		} else if ok { // it was that of an account above, and cannot be used any more
			return
		}
		if got, want := text(other.view.Policy()), text(p); got != want {
			t.Fatalf("loaded\n%s\nwant\n%s", got, want)
		}
	})
}

// TestCleanKeepsWhatIsInUse: jobs keep the ids by which they are counted, records in use are not deleted, and only administrators load.
func TestCleanKeepsWhatIsInUse(t *testing.T) {
	b := lab(t)
	p := b.view.Policy()
	whole := file(p)
	whole.Clean = true
	id := p.Assoc("bob", "nlp", "debug").Id
	without := file(p)
	without.Clean = true
	without.Lines = slices.DeleteFunc(without.Lines, func(l *pb.ChangePolicyRequest) bool { return l.Names[0] == "bob" })
	tx := state.Begin(b.view, 1e9)
	tx.Emit(state.JobSubmitted{Job: &pb.JobRecord{Id: 1, State: pb.JobState_JOB_PENDING, Partition: "debug",
		Spec: &pb.JobSpec{User: "bob", Uid: 1001, Account: "nlp"}}})
	b.view, _ = tx.Freeze()
	if r, ok := b.do("root", without).(*pb.ChangePolicyReply); !ok || len(r.Busy) != 1 || r.Busy[0].User != "bob" {
		t.Errorf("%v", r)
	}
	b.must("modify user bob maxjobs=4", "add user dave account=nlp")
	if r, ok := b.do("root", whole).(*pb.ChangePolicyReply); !ok || len(r.Busy) > 0 {
		t.Errorf("%v", r)
	}
	if got := b.view.Policy().Assoc("bob", "nlp", "debug"); got.Id != id || len(got.Values) != 1 || b.view.Policy().User("dave") != nil {
		t.Errorf("%v", got)
	}
	for _, user := range []string{"oscar", "alice", "nosuch"} {
		if p, ok := b.do(user, file(b.view.Policy())).(*pb.Problem); !ok || pb.Code(p.Code) != pb.CodeAccessDenied {
			t.Errorf("%s: %v", user, p)
		}
	}
	missing := file(b.view.Policy())
	missing.Clean = true
	missing.Lines = slices.DeleteFunc(missing.Lines, func(l *pb.ChangePolicyRequest) bool { return l.Names[0] == "lab" })
	if p, ok := b.do("root", missing).(*pb.Problem); !ok || !strings.Contains(p.Detail, "account lab") {
		t.Errorf("%v", p)
	}
}
