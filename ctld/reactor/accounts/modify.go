package accounts

import (
	"slices"

	"github.com/sluice-hpc/sluice/conf/accounts"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// accountsMeant returns the accounts of the request.
func (e *edit) accountsMeant() (out []*pb.AccountRecord) {
	for _, a := range e.old.Accounts() {
		if meant(e.r.Names, a.Name) && meant(e.r.Parents, e.old.Assoc("", a.Name, "").Parent) {
			out = append(out, a)
		}
	}
	return out
}

// meant reports whether a condition of where= is met; an empty one always is.
func meant(list []string, has string) bool { return len(list) == 0 || slices.Contains(list, has) }

func (e *edit) modifyAccounts() *pb.Problem {
	record, assoc := e.sorts()
	for _, old := range e.accountsMeant() {
		if p := e.mayManage(old.Name, false); p != nil {
			return p
		}
		if record {
			a := pb.ShallowCopy(old)
			for _, s := range e.r.Set {
				switch s.Name {
				case "Description":
					a.Description = s.Words[0]
				case "Organization":
					a.Organization = s.Words[0]
				}
			}
			e.Put(&pb.PolicyRow{Account: a}, false)
			e.reply.Names = append(e.reply.Names, a.Name)
		}
		if assoc {
			if p := e.modifyAssoc(e.old.Assoc("", old.Name, "")); p != nil {
				return p
			}
		}
	}
	return nil
}

// sorts tells whether settings are for the records themselves or for their associations.
func (e *edit) sorts() (record, assoc bool) {
	for _, s := range e.r.Set {
		switch s.Name {
		case "Description", "Organization", "DefaultAccount", "AdminLevel":
			record = true
		default:
			assoc = true
		}
	}
	return record, assoc
}

// modifyAssoc applies the settings, and notes the association if that changes anything.
func (e *edit) modifyAssoc(old *pb.AssocRecord) *pb.Problem {
	if account := e.wordOf("Parent"); account != "" && old.User == "" {
		if p := e.mayMove(old, account); p != nil {
			return p
		}
	}
	n, p := e.settled(old)
	if p != nil {
		return p
	}
	if !proto.Equal(n, old) || !slices.ContainsFunc(e.r.Set, func(s *pb.PolicySetting) bool { return s.Name == "Parent" }) {
		e.Put(&pb.PolicyRow{Assoc: n}, false)
		e.reply.Assocs = append(e.reply.Assocs, named(n, old.Parent))
		e.noteHeirs(n)
	}
	return nil
}

// noteHeirs notes the users below an account who inherit a changed setting.
func (e *edit) noteHeirs(of *pb.AssocRecord) {
	inherits := slices.ContainsFunc(e.r.Set, func(s *pb.PolicySetting) bool { return accounts.Find(accounts.Assoc, s.Name).Inherits })
	if of.User != "" || !inherits || e.c.Request.Verb == pb.PolicyVerb_POLICY_LOAD {
		return
	}
	for _, a := range e.Assocs() {
		if a.User == "" || !slices.ContainsFunc(slices.Collect(e.Chain(a)), func(up *pb.AssocRecord) bool { return up == of }) {
			continue
		}
		if !proto.Equal(e.old.Inherited(e.old.Assoc(a.User, a.Account, a.Partition)), e.Inherited(a)) {
			e.reply.Assocs = append(e.reply.Assocs, named(a, ""))
		}
	}
}

// mayMove refuses a parent that does not exist, or that is below the account.
func (e *edit) mayMove(a *pb.AssocRecord, parent string) *pb.Problem {
	switch {
	case a.Account == state.RootAccount:
		return refusal("The root account has no parent.")
	case e.Account(parent) == nil:
		return refusal("Parent account '%s' doesn't exist on cluster %s\n        Contact your admin to add this account.", parent,
			e.tx.Settings().Cluster)
	}
	for up := range e.Chain(e.Assoc("", parent, "")) {
		if up.Account == a.Account && parent != a.Account {
			return refusal("Account %s is below %s and cannot become its parent; move it first.", parent, a.Account)
		}
	}
	if p := e.mayManage(parent, true); p != nil {
		return p
	}
	return nil
}

func (e *edit) modifyUsers() *pb.Problem {
	record, assoc := e.sorts()
	for _, old := range e.old.Users() {
		if !meant(e.r.Names, old.Name) {
			continue
		}
		assocs := e.assocsMeant(old.Name)
		if record && (len(assocs) > 0 || len(e.r.Accounts)+len(e.r.Partitions) == 0) {
			if p := e.modifyUser(old); p != nil {
				return p
			}
		}
		for _, a := range assocs {
			if !assoc {
				break
			}
			if p := e.mayManage(a.Account, true); p != nil {
				return p
			}
			if p := e.modifyAssoc(a); p != nil {
				return p
			}
		}
	}
	return nil
}

// assocsMeant returns the associations of a user that the request selects.
func (e *edit) assocsMeant(user string) (out []*pb.AssocRecord) {
	for _, a := range e.old.UserAssocs(user) {
		if meant(e.r.Accounts, a.Account) && meant(e.r.Partitions, a.Partition) {
			out = append(out, a)
		}
	}
	return out
}

// modifyUser sets default account and level. Users may choose their own default account.
func (e *edit) modifyUser(old *pb.UserRecord) *pb.Problem {
	u := pb.ShallowCopy(old)
	least := pb.AdminLevel_ADMIN_OPERATOR
	if account := e.wordOf("DefaultAccount"); account != "" {
		u.DefaultAccount = account
		if e.c.User == old.Name {
			least = pb.AdminLevel_ADMIN_NONE
		}
	}
	if level := e.wordOf("AdminLevel"); level != "" {
		u.Level, least = levelOf(level), pb.AdminLevel_ADMIN_ADMINISTRATOR
		if old.Name == state.RootUser && u.Level != old.Level {
			return refusal("The level of root cannot be changed.")
		}
	}
	if p := e.needs(least); p != nil {
		return p
	}
	e.reply.Names = append(e.reply.Names, u.Name)
	return e.putUser(u)
}

func (e *edit) modifyQOS() *pb.Problem {
	if p := e.needs(pb.AdminLevel_ADMIN_ADMINISTRATOR); p != nil {
		return p
	}
	for _, old := range e.old.Qoses() {
		if !meant(e.r.Names, old.Name) {
			continue
		}
		q, p := e.settledQOS(old)
		if p != nil {
			return p
		}
		e.Put(&pb.PolicyRow{Qos: q}, false)
		e.reply.Names = append(e.reply.Names, q.Name)
	}
	return nil
}

// settled returns an association with the settings of the request. It is checked against the draft, which has the accounts above it.
func (e *edit) settled(old *pb.AssocRecord) (*pb.AssocRecord, *pb.Problem) {
	a := pb.ShallowCopy(old)
	for _, s := range e.r.Set {
		switch s.Name {
		case "Parent":
			if a.User == "" && s.Words[0] != a.Account {
				a.Parent = s.Words[0]
			}
		case "QOS":
			list, p := e.qosList(s, e.QOSOf(a), old)
			if p != nil {
				return nil, p
			}
			a.Qos = storedQOS(a, list)
		case "DefaultQOS":
			a.DefaultQos = s.Words[0]
		case "LimitHours":
			a.LimitHours = s.Words[0]
		case "DefaultPartition":
			a.DefaultPartition = s.Words[0]
		case "DefaultGPUType":
			a.DefaultGpuType = s.Words[0]
		default:
			if def := accounts.Find(accounts.Assoc, s.Name); def != nil && def.Numeric() {
				a.Values = stored(withValues(a.Values, s))
			}
		}
	}
	if p := e.checkDefault(a, old); p != nil {
		return nil, p
	}
	return a, nil
}

// settledQOS returns a QOS with the settings of the request.
func (e *edit) settledQOS(old *pb.QosRecord) (*pb.QosRecord, *pb.Problem) {
	q := pb.ShallowCopy(old)
	for _, s := range e.r.Set {
		switch s.Name {
		case "Description":
			q.Description = s.Words[0]
		case "Flags":
			q.Flags = changed(q.Flags, s)
		case "PreemptMode":
			q.PreemptMode = s.Words[0]
		case "LimitHours":
			q.LimitHours = s.Words[0]
		case "Preempt":
			list, p := e.qosList(s, q.Preempt, nil)
			if p != nil {
				return nil, p
			}
			q.Preempt = list
		default:
			q.Values = withValues(q.Values, s)
		}
	}
	return q, nil
}
