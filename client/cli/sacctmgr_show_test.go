package cli

import (
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/client/clienttest"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestSacctmgrProblems: accounts with nothing in them and users whom nobody knows are listed; conditions are those of a real sacctmgr, for
// which client/compat has the answers.
func TestSacctmgrProblems(t *testing.T) {
	rows := []*pb.PolicyRow{{Account: &pb.AccountRecord{Name: "root"}}, {Account: &pb.AccountRecord{Name: "above"}},
		{Account: &pb.AccountRecord{Name: "below"}}, {Account: &pb.AccountRecord{Name: "empty"}},
		{User: &pb.UserRecord{Name: "root"}}, {User: &pb.UserRecord{Name: "no-such-user"}},
		{Assoc: &pb.AssocRecord{Id: 1, Account: "root"}}, {Assoc: &pb.AssocRecord{Id: 2, Account: "root", User: "root"}},
		{Assoc: &pb.AssocRecord{Id: 3, Account: "above", Parent: "root"}},
		{Assoc: &pb.AssocRecord{Id: 4, Account: "below", Parent: "above"}},
		{Assoc: &pb.AssocRecord{Id: 5, Account: "empty", Parent: "root"}},
		{Assoc: &pb.AssocRecord{Id: 6, Account: "below", User: "no-such-user"}}}
	account, user := "compat|empty||Account has no users\n", "||no-such-user|User does not have a uid\n"
	for where, want := range map[string]string{
		"": account + user, "account=empty": account + user, "account=below": user, "empty": account + user, "user=no-such-user": user,
		"user=root": "", "cluster=compat": account + user, "cluster=other": "", "account=empty user=root": "",
	} {
		stdout, stderr, exit := run(t, &clienttest.Controller{PolicyRows: rows}, "", acctConf(t),
			append(strings.Fields("sacctmgr -nP show problem"), strings.Fields(where)...)...)
		if stdout != want || exit != 0 {
			t.Errorf("%q: exit %d, %q, want %q; %s", where, exit, stdout, want, stderr)
		}
	}
}

// TestSacctmgrReservations: the reservations that there are, by name and by node.
func TestSacctmgrReservations(t *testing.T) {
	list := &pb.ReservationsReply{Reservations: []*pb.ReservationRecord{
		{Name: "a", Nodes: "n[1-3]", Tres: "cpu=12", StartNs: 1e18, EndNs: 1e18 + 3600e9, Flags: []string{"MAINT", "SPEC_NODES"}},
		{Name: "b", Nodes: "n4", StartNs: 1e18, EndNs: 1e18}}}
	for where, want := range map[string]string{
		"": "compat|a|cpu=12||MAINT,SPEC_NODES\ncompat|b|||\n", "name=b": "compat|b|||\n", "b": "compat|b|||\n",
		"nodes=n[3-9] name=a": "compat|a|cpu=12||MAINT,SPEC_NODES\n", "nodes=n5": "", "cluster=other": "", "id=1": "",
	} {
		stdout, stderr, exit := run(t, &clienttest.Controller{ResvList: list}, "", acctConf(t), append(strings.Fields(
			"sacctmgr -nP show reservation format=cluster,name,tres,unusedwall,flags"), strings.Fields(where)...)...)
		if stdout != want || exit != 0 {
			t.Errorf("%q: exit %d, %q, want %q; %s", where, exit, stdout, want, stderr)
		}
	}
}
