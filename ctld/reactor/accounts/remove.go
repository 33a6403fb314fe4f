package accounts

import (
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// conditions refuses to delete everything.
func (e *edit) conditions() *pb.Problem {
	if len(e.r.Names)+len(e.r.Accounts)+len(e.r.Parents)+len(e.r.Partitions) == 0 {
		return refusal("No conditions given to remove, not executing.")
	}
	return nil
}

// deleteAccounts deletes accounts with the associations of their users. Accounts below them have to be named too, or moved away: Slurm
// silently deletes them as well.
func (e *edit) deleteAccounts() *pb.Problem {
	if p := e.conditions(); p != nil {
		return p
	}
	gone := map[string]bool{}
	for _, a := range e.accountsMeant() {
		if a.Name == state.RootAccount {
			return refusal("You are not allowed to remove the root account.\n Use remove cluster instead.")
		}
		if p := e.mayManage(a.Name, false); p != nil {
			return p
		}
		gone[a.Name] = true
		e.reply.Names = append(e.reply.Names, a.Name)
	}
	var below []string
	for _, a := range e.old.UserAssocs("") {
		if gone[a.Parent] && !gone[a.Account] {
			below = append(below, a.Account)
		}
	}
	if len(below) > 0 {
		return refusal("Accounts below: %s. Delete them as well, or give them another parent first.", shortened(below))
	}
	if e.busy(func(j *pb.JobRecord) bool { return gone[state.AccountOf(j.Spec)] }) {
		return nil
	}
	for name := range gone {
		e.Put(&pb.PolicyRow{Account: &pb.AccountRecord{Name: name}}, true)
	}
	e.removeAssocs(func(a *pb.AssocRecord) bool { return gone[a.Account] })
	return nil
}

// removeAssocs removes associations, and users who have none left. Users who lose their default account get another of theirs.
func (e *edit) removeAssocs(of func(*pb.AssocRecord) bool) (gone []string) {
	touched := map[string]bool{}
	for _, a := range slices.Clone(e.Assocs()) {
		if of(a) {
			e.Put(&pb.PolicyRow{Assoc: a}, true)
			touched[a.User] = a.User != ""
		}
	}
	for _, u := range slices.Clone(e.Users()) {
		left := e.UserAssocs(u.Name)
		switch {
		case !touched[u.Name]:
		case len(left) == 0:
			e.Put(&pb.PolicyRow{User: u}, true)
			gone = append(gone, u.Name)
		case !slices.ContainsFunc(left, func(a *pb.AssocRecord) bool { return a.Account == u.DefaultAccount }):
			n := pb.ShallowCopy(u)
			n.DefaultAccount = left[0].Account
			e.Put(&pb.PolicyRow{User: n}, false)
		}
	}
	for _, a := range slices.Clone(e.Accounts()) {
		for _, c := range a.Coordinators {
			if slices.Contains(gone, c) {
				a = e.coordinate(a, c, false)
			}
		}
	}
	return gone
}

// deleteUsers deletes users, or some of their associations.
func (e *edit) deleteUsers() *pb.Problem {
	if p := e.conditions(); p != nil {
		return p
	}
	gone := map[state.AssocKey]bool{}
	whole := len(e.r.Accounts)+len(e.r.Partitions) == 0
	for _, u := range e.old.Users() {
		if !meant(e.r.Names, u.Name) {
			continue
		}
		for _, a := range e.assocsMeant(u.Name) {
			if u.Name == state.RootUser && a.Account == state.RootAccount && a.Partition == "" {
				return refusal("The user root cannot be removed from the account root.")
			}
			if p := e.mayManage(a.Account, true); p != nil {
				return p
			}
			gone[state.AssocKey{User: a.User, Account: a.Account, Partition: a.Partition}] = true
			if !whole {
				e.reply.Assocs = append(e.reply.Assocs, named(a, ""))
			}
		}
	}
	of := func(a *pb.AssocRecord) bool {
		return gone[state.AssocKey{User: a.GetUser(), Account: a.GetAccount(), Partition: a.GetPartition()}]
	}
	if e.busy(func(j *pb.JobRecord) bool {
		return of(e.old.AssocFor(j.Spec.User, state.AccountOf(j.Spec), j.Partition))
	}) {
		return nil
	}
	e.reply.Names = e.removeAssocs(of)
	return nil
}

func (e *edit) deleteQOS() *pb.Problem {
	if p := e.needs(pb.AdminLevel_ADMIN_ADMINISTRATOR); p != nil {
		return p
	}
	if p := e.conditions(); p != nil {
		return p
	}
	for _, q := range e.old.Qoses() {
		if !meant(e.r.Names, q.Name) {
			continue
		}
		if q.Name == state.NormalQOS {
			return refusal("The QOS normal cannot be deleted: jobs that name no QOS use it.")
		}
		e.reply.Names = append(e.reply.Names, q.Name)
	}
	gone := func(name string) bool { return slices.Contains(e.reply.Names, name) }
	if e.busy(func(j *pb.JobRecord) bool { return gone(strings.ToLower(j.Spec.Qos)) }) {
		return nil
	}
	for _, name := range e.reply.Names {
		e.Put(&pb.PolicyRow{Qos: &pb.QosRecord{Name: name}}, true)
	}
	for _, q := range slices.Clone(e.Qoses()) {
		if slices.ContainsFunc(q.Preempt, gone) {
			n := pb.ShallowCopy(q)
			n.Preempt = slices.DeleteFunc(slices.Clone(q.Preempt), gone)
			e.Put(&pb.PolicyRow{Qos: n}, false)
		}
	}
	for _, a := range slices.Clone(e.Assocs()) {
		if slices.ContainsFunc(a.Qos, gone) || gone(a.DefaultQos) {
			n := pb.ShallowCopy(a)
			left := slices.DeleteFunc(slices.Clone(a.Qos), gone)
			if n.Qos = storedQOS(a, left); gone(a.DefaultQos) {
				n.DefaultQos = ""
			}
			if len(left) == 0 && len(a.Qos) > 0 {
				return refusal("QOS %s is the only one of account %s, user %q; give it another first.", a.Qos[0], a.Account, a.User)
			}
			e.Put(&pb.PolicyRow{Assoc: n}, false)
		}
	}
	return nil
}
