package accounts

import (
	"fmt"
	"slices"

	"github.com/sluice-hpc/sluice/conf/accounts"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// load applies the lines of a file, one after another, in one draft: all of them or none. Existing records get the settings of their line.
// With clean, records that no line names are deleted, and named ones lose all other settings; records keep their ids, by which jobs count.
func (e *edit) load() *pb.Problem {
	if p := e.needs(pb.AdminLevel_ADMIN_ADMINISTRATOR); p != nil {
		return p
	}
	whole := e.r
	defer func() { e.r = whole }()
	e.old = &e.Policy // a line builds on the previous ones
	if whole.Clean {
		e.strip()
	}
	for _, line := range whole.Lines {
		e.r = line
		p := e.checkRequest()
		if p == nil {
			p = e.loadLine()
		}
		if p != nil {
			p.Detail += fmt.Sprintf("\nProblem with line(%d)", line.Line)
			return p
		}
	}
	if whole.Clean {
		if p := e.sweep(whole.Lines); p != nil {
			return p
		}
	}
	if e.reply.Names = nil; !e.Prune(e.tx.Policy()) {
		e.reply.Assocs = nil
	}
	e.tx.Spend(len(whole.Lines))
	return nil
}

// loadLine adds or changes the record of one line.
func (e *edit) loadLine() *pb.Problem {
	switch verb, entity := e.r.Verb, e.r.Entity; {
	case len(e.r.Names) != 1 || entity == pb.PolicyEntity_POLICY_USER && verb == pb.PolicyVerb_POLICY_ADD && len(e.r.Accounts) != 1:
		return refusal("A line takes one name.")
	case verb == pb.PolicyVerb_POLICY_ADD && entity == pb.PolicyEntity_POLICY_ACCOUNT && e.Account(e.r.Names[0]) != nil:
		return e.modifyAccounts()
	case verb == pb.PolicyVerb_POLICY_ADD && entity == pb.PolicyEntity_POLICY_ACCOUNT:
		return e.addAccounts()
	case verb == pb.PolicyVerb_POLICY_ADD && entity == pb.PolicyEntity_POLICY_USER:
		for _, partition := range cmpOr(e.r.Partitions, []string{""}) {
			if a := e.Assoc(e.r.Names[0], e.r.Accounts[0], partition); a != nil {
				if p := e.modifyAssoc(a); p != nil {
					return p
				}
			}
		}
		return e.addUsers()
	case verb == pb.PolicyVerb_POLICY_MODIFY && entity == pb.PolicyEntity_POLICY_USER && e.User(e.r.Names[0]) != nil:
		return e.modifyUser(e.User(e.r.Names[0]))
	case verb == pb.PolicyVerb_POLICY_ADD && entity == pb.PolicyEntity_POLICY_COORDINATOR:
		return e.coordinators(true)
	}
	return pb.NewProblem(pb.CodeNotSupported, "cannot %s %s by a file", word(e.r.Verb), word(e.r.Entity))
}

// strip removes from all records the settings that a file can set.
func (e *edit) strip() {
	for _, a := range slices.Clone(e.Assocs()) {
		e.Put(&pb.PolicyRow{Assoc: named(a, a.Parent)}, false)
	}
	for _, a := range slices.Clone(e.Accounts()) {
		a = pb.ShallowCopy(a)
		a.Coordinators = nil
		e.Put(&pb.PolicyRow{Account: a}, false)
	}
	for _, u := range slices.Clone(e.Users()) {
		if u.Name != state.RootUser {
			u = pb.ShallowCopy(u)
			u.Level = pb.AdminLevel_ADMIN_NONE
			e.Put(&pb.PolicyRow{User: u}, false)
		}
	}
}

// sweep deletes the records that no line names.
func (e *edit) sweep(lines []*pb.ChangePolicyRequest) *pb.Problem {
	keep := map[state.AssocKey]bool{{Account: state.RootAccount}: true, {Account: state.RootAccount, User: state.RootUser}: true}
	for _, l := range lines {
		switch {
		case l.Verb != pb.PolicyVerb_POLICY_ADD:
		case l.Entity == pb.PolicyEntity_POLICY_ACCOUNT:
			keep[state.AssocKey{Account: l.Names[0]}] = true
		case l.Entity == pb.PolicyEntity_POLICY_USER:
			for _, partition := range cmpOr(l.Partitions, []string{""}) {
				keep[state.AssocKey{User: l.Names[0], Account: l.Accounts[0], Partition: partition}] = true
			}
		}
	}
	goes := func(a *pb.AssocRecord) bool {
		return a != nil && !keep[state.AssocKey{User: a.User, Account: a.Account, Partition: a.Partition}]
	}
	for _, a := range e.Assocs() {
		if parent := e.above(a); goes(parent) && !goes(a) {
			return refusal("The file names what is in account %s (account %s, user %q), but not that account itself.", parent.Account,
				a.Account, a.User)
		}
	}
	before := e.tx.Policy()
	if e.busy(func(j *pb.JobRecord) bool {
		return goes(before.AssocFor(j.Spec.GetUser(), state.AccountOf(j.Spec), j.Partition))
	}) {
		return nil
	}
	for _, a := range slices.Clone(e.Assocs()) {
		if goes(a) && a.User == "" {
			e.Put(&pb.PolicyRow{Account: &pb.AccountRecord{Name: a.Account}}, true)
		}
	}
	e.removeAssocs(goes)
	return nil
}

// above returns the association of the account above an association; nil for root's.
func (e *edit) above(a *pb.AssocRecord) *pb.AssocRecord {
	if a.User != "" {
		return e.Assoc("", a.Account, "")
	}
	return e.Assoc("", a.Parent, "")
}

// stored returns the values of an association as they are stored: a share of one is the default, and left out.
func stored(values []*pb.PolicyValue) []*pb.PolicyValue {
	return slices.DeleteFunc(values, func(v *pb.PolicyValue) bool { return v.Name == "Fairshare" && v.Value == accounts.DefaultShare })
}

// storedQOS returns the QOS list of an association as it is stored: normal alone is the default of the account root, and left out.
func storedQOS(a *pb.AssocRecord, list []string) []string {
	if a.Account == state.RootAccount && a.User == "" && slices.Equal(list, []string{state.NormalQOS}) {
		return nil
	}
	return list
}
