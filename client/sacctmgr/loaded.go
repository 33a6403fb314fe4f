package sacctmgr

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/accounts"
)

// Slurm's messages about a file being loaded: lines for changes of existing records, and tables of new ones.

const newColumns = "Share,GrpTRESMins,GrpTRESRunMins,GrpTRES,GrpJobs,GrpJobsAccrue,GrpMem,GrpNodes,GrpSubmit,GrpWall,MaxTRESMins,MaxTRES," +
	"MaxTRESPerNode,MaxJobs,MaxSubmit,MaxNodes,MaxWall,QOS,DefaultQOS"

// newTables are the tables of new records.
var newTables = [...]struct {
	title, columns string
	rule           int // length of the rule below the table
}{
	{"Accounts", "Account,Description,Organization,QOS", 51},
	{"Account Associations", "Account,ParentName," + newColumns, 62},
	{"Users", "User,DefaultAccount,DefaultWCKey,QOS,AdminLevel,Coordinators", 51},
	{"User Associations", "User,Account," + newColumns, 62},
}

// noteAccount records the effect of a line on an account.
func (f *file) noteAccount(r *msg.ChangePolicyRequest) {
	name := r.GetNames()[0]
	rec, as := f.accounts[name], f.assocs[assocKey{name, "", ""}]
	if as == nil && f.noted[name] {
		return
	}
	f.noted[name] = true
	if as != nil {
		old := f.row(as)
		old["Description"], old["Organization"] = rec.GetDescription(), rec.GetOrganization()
		if name == acct.DefaultAccount {
			f.changed("Cluster", f.cluster, old, r.GetSet())
		} else {
			f.changed("Account", name, old, r.GetSet())
		}
		return
	}
	row := settingsRow(r.GetSet())
	row["account"], row["parent"] = name, f.parent
	row["description"] = cmp.Or(row["Description"], name)
	row["organization"] = cmp.Or(row["Organization"], map[bool]string{true: name, false: f.parent}[f.parent == acct.DefaultAccount])
	f.tables[0] = append(f.tables[0], mgrRow{"account": name, "description": row["description"], "organization": row["organization"]})
	f.tables[1] = append(f.tables[1], row)
}

// noteUser records the effect of a line on a user and an association.
func (f *file) noteUser(r, who, coordinator *msg.ChangePolicyRequest) {
	name, partition := r.GetNames()[0], strings.Join(r.GetPartitions(), "")
	if as := f.assocs[assocKey{f.parent, name, partition}]; as != nil {
		f.changed("User", name, f.row(as), r.GetSet())
	} else if key := name + "/" + f.parent + "/" + partition; !f.noted[key] {
		f.noted[key] = true
		row := settingsRow(r.GetSet())
		row["user"], row["account"] = name, f.parent
		f.tables[3] = append(f.tables[3], row)
	}
	f.noteCoordinator(name, coordinator.GetAccounts())
	set := settingsRow(who.GetSet())
	u := f.users[name]
	switch {
	case f.noted["user "+name]:
	case u == nil:
		f.tables[2] = append(f.tables[2], mgrRow{"user": name, "defaultaccount": cmp.Or(set["DefaultAccount"], f.parent),
			"admin": cmp.Or(set["AdminLevel"], "Not Set"), "coordinators": strings.Join(coordinator.GetAccounts(), ",")})
	default:
		level := levels[min(int(u.GetLevel()), len(levels)-1)]
		f.changed("User", name, mgrRow{"DefaultAccount": u.GetDefaultAccount(), "AdminLevel": level}, who.GetSet())
	}
	f.noted["user "+name] = true
}

// noteCoordinator records the accounts of which an existing user becomes coordinator.
func (f *file) noteCoordinator(user string, accounts []string) {
	if f.users[user] == nil || len(accounts) == 0 {
		return
	}
	before := false
	for _, a := range f.accounts {
		before = before || slices.Contains(a.GetCoordinators(), user)
	}
	if !before {
		fmt.Fprintf(&f.changes, " Making User '%s' coordinator for account(s) %s\n", format.Escape(user),
			format.Escape(strings.Join(accounts, ",")))
		return
	}
	for _, account := range accounts {
		if !slices.Contains(f.accounts[account].GetCoordinators(), user) {
			fmt.Fprintf(&f.changes, " Making User '%s' coordinator of account '%s'\n", format.Escape(user), format.Escape(account))
		}
	}
}

// shownAs are the names of settings in the messages, where these differ.
var shownAs = map[string]string{"Description": "description", "Organization": "organization", "Fairshare": "fairshare",
	"DefaultAccount": "Default Account", "AdminLevel": "Admin Level"}

// changed records the settings that differ from the existing ones.
func (f *file) changed(kind, name string, old mgrRow, set []*msg.PolicySetting) {
	fresh := settingsRow(set)
	for _, s := range set {
		key := s.GetName()
		if was, is := old[key], fresh[key]; was != is {
			fmt.Fprintf(&f.changes, " Changed %-21.21s for %-7.7s %-10.10s %8s -> %s\n", cmp.Or(shownAs[key], key), kind,
				format.Escape(name), format.Escape(cmp.Or(was, "-1")), format.Escape(is))
		}
	}
}

// settingsRow returns a row with the given settings, by setting name and by column key.
func settingsRow(set []*msg.PolicySetting) mgrRow {
	r := mgrRow{}
	for _, s := range set {
		def := accounts.Find(accounts.Assoc, s.GetName())
		text := s.GetOp() + strings.Join(slices.Sorted(slices.Values(s.GetWords())), ",")
		switch {
		case def == nil:
		case def.Numeric():
			show(r, accounts.Assoc, s.GetValues())
			continue
		case s.GetName() == "QOS":
			text = strings.TrimPrefix(r["qos"]+","+text, ",")
			r["qos"] = text
		case s.GetName() == "DefaultQOS":
			r["defaultqos"] = text
		case s.GetName() == "AdminLevel":
			text = levelName(text)
		}
		r[s.GetName()] = text
	}
	return r
}

// say prints everything recorded.
func (f *file) say() {
	out := f.m.env.Stdout
	fmt.Fprint(out, f.changes.String())
	entities := mgrEntities()
	for i, t := range newTables {
		if len(f.tables[i]) == 0 {
			continue
		}
		e := &entities[0]
		if t.title == "Users" {
			e = &entities[slices.IndexFunc(entities, func(e mgrEntity) bool { return e.names[0] == "user" })]
		}
		columns, _ := mgrColumns(e, t.columns)
		columns[0].Name = map[string]string{"Accounts": "Name", "Users": "Name"}[t.title] + map[bool]string{true: columns[0].Name}[i%2 == 1]
		table := &acct.Table{Separator: "|"}
		b := table.AppendHeads([]byte(t.title+"\n"), columns)
		for _, r := range f.tables[i] {
			values := make([]string, len(columns))
			for j, c := range columns {
				values[j] = r[c.Key]
			}
			b = table.AppendTexts(b, columns, values)
		}
		_, _ = out.Write(append(b, strings.Repeat("-", t.rule)+"\n\n"...))
	}
}

// sayGone prints what clean deletes.
func (f *file) sayGone() {
	named := map[assocKey]bool{}
	for _, r := range f.lines {
		k := assocKey{account: r.GetNames()[0]}
		if r.GetEntity() == msg.PolicyEntity_POLICY_USER {
			k = assocKey{r.GetAccounts()[0], r.GetNames()[0], strings.Join(r.GetPartitions(), "")}
		}
		named[k] = true
	}
	var accounts, users []string
	for _, a := range f.has.assocs {
		switch {
		case named[keyOf(a)], a.GetAccount() == acct.DefaultAccount && (a.GetUser() == "" || a.GetUser() == "root"):
		case a.GetUser() == "":
			accounts = append(accounts, a.GetAccount())
		default:
			users = append(users, assocText(f.cluster, a))
		}
	}
	out := f.m.env.Stdout
	if len(accounts) > 0 {
		fmt.Fprintf(out, " Deleting accounts...\n  %s\n", strings.Join(accounts, "\n  "))
	}
	if len(users) > 0 {
		fmt.Fprintf(out, " Deleting user associations...\n  %s\n", strings.Join(users, "\n  "))
	}
}

// row returns the current settings of an association, by name.
func (f *file) row(a *msg.AssocRecord) mgrRow {
	r := mgrRow{"Fairshare": "1", "QOS": strings.Join(a.GetQos(), ","), "DefaultQOS": a.GetDefaultQos(), "Parent": a.GetParent(),
		"LimitHours": a.GetLimitHours(), "DefaultPartition": a.GetDefaultPartition(), "DefaultGPUType": a.GetDefaultGpuType()}
	show(r, accounts.Assoc, a.GetValues())
	return r
}
