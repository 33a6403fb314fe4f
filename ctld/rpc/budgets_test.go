package rpc

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/reactor/accounts"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestBudgets: how names select budgets, and what a user sees with private usage.
func TestBudgets(t *testing.T) {
	s := serve(t)
	do := func(cmd reactor.Command) {
		t.Helper()
		if _, err := s.loop.Do(ctx, cmd); err != nil {
			t.Fatal(err)
		}
	}
	mins := []*pb.PolicySetting{{Name: "GrpTRESMins", Values: []*pb.PolicyValue{{Name: "GrpTRESMins", Tres: "cpu", Value: 10}}}}
	add := func(r *pb.ChangePolicyRequest) { do(accounts.Change{User: "root", Operator: true, Request: r}) }
	below := &pb.PolicySetting{Name: "Parent", Words: []string{"group"}}
	add(&pb.ChangePolicyRequest{Names: []string{"group"}, Set: mins})
	add(&pb.ChangePolicyRequest{Names: []string{"lab"}, Set: append([]*pb.PolicySetting{below}, mins...)})
	add(&pb.ChangePolicyRequest{Names: []string{"other"}, Set: mins})
	add(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_QOS, Names: []string{"course"}, Set: []*pb.PolicySetting{
		{Name: "GrpWall", Values: []*pb.PolicyValue{{Name: "GrpWall", Value: 600}}}}})
	me := fmt.Sprint(alice) // as the test's table of users has her
	add(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_USER, Names: []string{me, "bob"}, Accounts: []string{"lab"}, Set: mins})
	do(reactor.UpdatePartition{Caller: reactor.Caller{Operator: true}, Name: "debug",
		Set: []*pb.KeyValue{{Key: "QOS", Value: "course"}}})
	v := s.loop.View()
	do(reactor.PastRead{Past: &state.Past{Counting: v.Counting(), Assoc: map[uint32]map[string]int64{
		v.Policy().Assoc("", "lab", "").Id: {"cpu": 240}}}})
	ask := func(c pb.ControllerAPIClient, names ...string) (got []string) {
		t.Helper()
		r, err := c.Budgets(ctx, &pb.BudgetsRequest{Names: names})
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range r.Budgets {
			got = append(got, fmt.Sprintf("%s/%s/%s %s %d of %d", b.Account, b.User, b.Qos, b.Tres, b.Used, b.Limit))
		}
		slices.Sort(got)
		return got
	}
	mine, root := s.as(alice, alice), s.as(0, 0)
	course, group, lab := "//course wall 0 of 600", "group// cpu 0 of 600", "lab// cpu 240 of 600"
	own, bob, other := "lab/"+me+"/ cpu 0 of 600", "lab/bob/ cpu 0 of 600", "other// cpu 0 of 600"
	for _, tt := range []struct {
		who   pb.ControllerAPIClient
		names []string
		want  []string
	}{
		{root, nil, []string{course, group, lab, own, bob, other}},
		{root, []string{"lab"}, []string{lab, own, bob}},
		{root, []string{"COURSE", "other"}, []string{course, other}},
		{root, []string{"bob"}, []string{group, lab, bob, course}}, // by the QOS of a partition
		{mine, nil, []string{group, lab, own}},
		{mine, []string{"bob"}, []string{group, lab}},
	} {
		s.hide(Privacy{Usage: true})
		slices.Sort(tt.want)
		if got := ask(tt.who, tt.names...); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %q, want %q", tt.names, got, tt.want)
		}
	}
	add(&pb.ChangePolicyRequest{Entity: pb.PolicyEntity_POLICY_COORDINATOR, Names: []string{me}, Accounts: []string{"lab"}})
	if got := ask(mine, "bob"); !slices.Contains(got, bob) {
		t.Errorf("a coordinator sees %q", got)
	}
	s.hide(Privacy{})
	if got := ask(mine); len(got) != 6 {
		t.Errorf("where usage is not private, alice sees %q", got)
	}
	if _, err := root.Budgets(ctx, &pb.BudgetsRequest{Names: []string{"nosuch"}}); err == nil {
		t.Error("an unknown name is not refused")
	}
}
