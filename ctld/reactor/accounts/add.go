package accounts

import (
	"cmp"
	"slices"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// maxRecords bounds the number of accounts, users and QOS each; associations may be ten times as many.
const maxRecords = 100_000

func (e *edit) addAccounts() *pb.Problem {
	parent := cmp.Or(e.wordOf("Parent"), state.RootAccount)
	if e.Account(parent) == nil {
		return refusal("Parent account '%s' doesn't exist on cluster %s\n        Contact your admin to add this account.\n"+
			" No associations created.", parent, e.tx.Settings().Cluster)
	}
	if p := e.mayManage(parent, true); p != nil {
		return p
	}
	for _, name := range e.r.Names {
		if e.Account(name) != nil {
			continue
		}
		a := &pb.AccountRecord{Name: name, Description: cmp.Or(e.wordOf("Description"), name)}
		if a.Organization = cmp.Or(e.wordOf("Organization"), name); parent != state.RootAccount && e.wordOf("Organization") == "" {
			a.Organization = parent
		}
		e.Put(&pb.PolicyRow{Account: a}, false)
		e.reply.Names = append(e.reply.Names, name)
		if p := e.addAssoc(&pb.AssocRecord{Account: name, Parent: parent}); p != nil {
			return p
		}
	}
	return e.room(len(e.Accounts()))
}

// addAssoc puts a new association with the settings of the request.
func (e *edit) addAssoc(a *pb.AssocRecord) *pb.Problem {
	a.Id = e.NextAssocID()
	e.Put(&pb.PolicyRow{Assoc: a}, false)
	n, p := e.settled(a)
	if p != nil {
		return p
	}
	e.Put(&pb.PolicyRow{Assoc: n}, false)
	e.reply.Assocs = append(e.reply.Assocs, named(n, n.Parent))
	return nil
}

// named returns the identifying fields of an association, for the reply.
func named(a *pb.AssocRecord, parent string) *pb.AssocRecord {
	return &pb.AssocRecord{Id: a.Id, Account: a.Account, User: a.User, Partition: a.Partition, Parent: parent}
}

func (e *edit) room(n int) *pb.Problem {
	if n > maxRecords || len(e.Assocs()) > 10*maxRecords {
		return refusal("The limit of the controller is %d of them.", maxRecords)
	}
	return nil
}

func (e *edit) addUsers() *pb.Problem {
	if len(e.r.Accounts) == 0 {
		return refusal("Need name of account to add user to.")
	}
	for _, account := range e.r.Accounts {
		if e.Account(account) == nil {
			return refusal("This account '%s' doesn't exist.\n        Contact your admin to add this account.", account)
		}
		if p := e.mayManage(account, true); p != nil {
			return p
		}
	}
	for _, name := range e.r.Names {
		for _, account := range e.r.Accounts {
			for _, partition := range cmpOr(e.r.Partitions, []string{""}) {
				if e.Assoc(name, account, partition) != nil {
					continue
				}
				if p := e.addAssoc(&pb.AssocRecord{Account: account, User: name, Partition: partition}); p != nil {
					return p
				}
			}
		}
		if p := e.addUser(name); p != nil {
			return p
		}
	}
	return e.room(len(e.Users()))
}

func cmpOr(a, b []string) []string {
	if len(a) > 0 {
		return a
	}
	return b
}

// addUser makes the record of a user whose associations already exist. An existing user gets another default account, if the request says
// so.
func (e *edit) addUser(name string) *pb.Problem {
	old := e.User(name)
	if old == nil {
		u := &pb.UserRecord{Name: name, DefaultAccount: cmp.Or(e.wordOf("DefaultAccount"), e.r.Accounts[0])}
		if level := e.wordOf("AdminLevel"); level != "" {
			if p := e.needs(pb.AdminLevel_ADMIN_ADMINISTRATOR); p != nil {
				return p
			}
			u.Level = levelOf(level)
		}
		e.reply.Names = append(e.reply.Names, name)
		return e.putUser(u)
	}
	if account := e.wordOf("DefaultAccount"); account != "" && account != old.DefaultAccount {
		u := pb.ShallowCopy(old)
		u.DefaultAccount = account
		return e.putUser(u)
	}
	return nil
}

// putUser stores a user, whose default account must be one of theirs.
func (e *edit) putUser(u *pb.UserRecord) *pb.Problem {
	if !slices.ContainsFunc(e.UserAssocs(u.Name), func(a *pb.AssocRecord) bool { return a.Account == u.DefaultAccount }) {
		return refusal("Can't modify because these users aren't associated with new default account '%s'...\n  U = %s C = %s",
			u.DefaultAccount, u.Name, e.tx.Settings().Cluster)
	}
	e.Put(&pb.PolicyRow{User: u}, false)
	return nil
}

func (e *edit) addQOS() *pb.Problem {
	if p := e.needs(pb.AdminLevel_ADMIN_ADMINISTRATOR); p != nil {
		return p
	}
	for _, name := range e.r.Names {
		if e.QOS(name) != nil {
			continue
		}
		q := &pb.QosRecord{Id: e.NextQOSID(), Name: name, Description: name}
		e.Put(&pb.PolicyRow{Qos: q}, false)
		n, p := e.settledQOS(q)
		if p != nil {
			return p
		}
		e.Put(&pb.PolicyRow{Qos: n}, false)
		e.reply.Names = append(e.reply.Names, name)
	}
	return e.room(len(e.Qoses()))
}

// coordinators adds coordinators to accounts, or removes them.
func (e *edit) coordinators(add bool) *pb.Problem {
	for _, account := range e.r.Accounts {
		if e.Account(account) == nil {
			return refusal("You specified a non-existent account '%s'.", account)
		}
		if p := e.mayManage(account, true); p != nil {
			return p
		}
	}
	for _, user := range e.r.Names {
		if e.User(user) == nil {
			return refusal("You specified a non-existent user '%s'.", user)
		}
	}
	for _, a := range e.Accounts() {
		if len(e.r.Accounts) > 0 && !slices.Contains(e.r.Accounts, a.Name) || add && len(e.r.Accounts) == 0 {
			continue
		}
		for _, user := range e.coordinatorsMeant(a) {
			if slices.Contains(a.Coordinators, user) == add {
				continue
			}
			if p := e.mayManage(a.Name, true); p != nil {
				return p
			}
			a = e.coordinate(a, user, add)
			e.reply.Assocs = append(e.reply.Assocs, &pb.AssocRecord{Account: a.Name, User: user})
		}
	}
	return nil
}

func (e *edit) coordinatorsMeant(a *pb.AccountRecord) []string {
	if len(e.r.Names) > 0 {
		return e.r.Names
	}
	return a.Coordinators
}

func (e *edit) coordinate(a *pb.AccountRecord, user string, add bool) *pb.AccountRecord {
	n := pb.ShallowCopy(a)
	n.Coordinators = slices.DeleteFunc(slices.Clone(a.Coordinators), func(u string) bool { return u == user })
	if add {
		n.Coordinators = append(n.Coordinators, user)
		slices.Sort(n.Coordinators)
	}
	e.Put(&pb.PolicyRow{Account: n}, false)
	return n
}
