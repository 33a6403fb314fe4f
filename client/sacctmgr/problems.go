package sacctmgr

import (
	"context"
	"slices"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/internal/passwd"
)

// problemRows returns accounts without members, and users unknown to the machine. As in a real sacctmgr, conditions on users apply
// only to users, and those on accounts do not apply to users.
func problemRows(ctx context.Context, m *run) (rows []mgrRow, err error) {
	p, err := m.fetch(ctx)
	conditions := m.where
	m.where = nil
	of := func(key, name string) bool {
		for _, c := range conditions {
			if c.key == key && !slices.Contains(c.values, name) || c.key == "cluster" {
				return false
			}
		}
		return true
	}
	for _, a := range p.accounts {
		empty := len(p.of(func(as *msg.AssocRecord) bool {
			return as.GetUser() != "" && as.GetAccount() == a.GetName() || as.GetUser() == "" && as.GetParent() == a.GetName()
		})) == 0
		if empty && of("account", a.GetName()) && of("user", "") {
			rows = append(rows, mgrRow{"cluster": m.env.ClusterName(), "account": a.GetName(), "problem": "Account has no users"})
		}
	}
	for _, u := range p.users {
		if _, known := passwd.UID(u.GetName()); !known && of("user", u.GetName()) {
			rows = append(rows, mgrRow{"user": u.GetName(), "problem": "User does not have a uid"})
		}
	}
	return rows, err
}
