package sacctmgr

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/format/doc"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/shares"
	"github.com/sluice-hpc/sluice/client/view"
	"github.com/sluice-hpc/sluice/conf/accounts"
	"github.com/sluice-hpc/sluice/internal/passwd"
)

// rules are the controller's records, with associations in the order of the tree.
type rules struct {
	accounts []*msg.AccountRecord
	users    []*msg.UserRecord
	assocs   []*msg.AssocRecord
	qos      []*msg.QosRecord
}

// load fetches the records. While only root has an association, all known users belong to the account root.
func (m *run) load(ctx context.Context) (*rules, error) {
	r, err := m.fetch(ctx)
	if len(r.users) == 1 {
		for _, name := range m.knownUsers() {
			if uid, ok := passwd.UID(name); ok && name != r.users[0].GetName() {
				r.users = append(r.users, &msg.UserRecord{Name: name, DefaultAccount: acct.DefaultAccount})
				r.assocs = append(r.assocs, &msg.AssocRecord{Id: uint32(doc.AssociationID(uid)), Account: acct.DefaultAccount, User: name,
					Qos: r.qosOfRoot()})
			}
		}
		slices.SortFunc(r.users, func(a, b *msg.UserRecord) int { return strings.Compare(a.GetName(), b.GetName()) })
		r.assocs = r.tree(nil, "")
	}
	return r, err
}

// fetch fetches the records only.
func (m *run) fetch(ctx context.Context) (*rules, error) {
	r := &rules{}
	err := m.ask(ctx, func(c *client.Client) error {
		stream, err := c.Policy(ctx, &msg.PolicyRequest{Own: m.own})
		if err != nil {
			return err
		}
		return view.EachPage(stream.Recv, func(p *msg.PolicyReply) {
			for _, row := range p.GetRows() {
				r.add(row)
			}
		})
	})
	r.assocs = r.tree(nil, "")
	return r, err
}

func (r *rules) add(row *msg.PolicyRow) {
	switch {
	case row.GetAccount() != nil:
		r.accounts = append(r.accounts, row.GetAccount())
	case row.GetUser() != nil:
		r.users = append(r.users, row.GetUser())
	case row.GetAssoc() != nil:
		r.assocs = append(r.assocs, row.GetAssoc())
	case row.GetQos() != nil:
		r.qos = append(r.qos, row.GetQos())
	}
}

func (r *rules) qosOfRoot() []string {
	for _, a := range r.assocs {
		if a.GetAccount() == acct.DefaultAccount && a.GetUser() == "" {
			return a.GetQos()
		}
	}
	return nil
}

// tree sorts accounts after their parents, and users after their accounts.
func (r *rules) tree(out []*msg.AssocRecord, parent string) []*msg.AssocRecord {
	for _, a := range r.assocs {
		if a.GetUser() != "" || a.GetParent() != parent {
			continue
		}
		out = append(out, a)
		var users []*msg.AssocRecord
		for _, u := range r.assocs {
			if u.GetUser() != "" && u.GetAccount() == a.GetAccount() {
				users = append(users, u)
			}
		}
		slices.SortFunc(users, func(a, b *msg.AssocRecord) int {
			return cmp.Or(strings.Compare(a.GetUser(), b.GetUser()), strings.Compare(a.GetPartition(), b.GetPartition()))
		})
		out = r.tree(append(out, users...), a.GetAccount())
	}
	return out
}

// knownUsers returns the users to show if none is defined: those of the machine, and those requested.
func (m *run) knownUsers() []string {
	var named []string
	for _, c := range m.where {
		if c.key == "user" {
			named = append(named, c.values...)
		}
	}
	return shares.KnownUsers(named)
}

// show adds numbers to a row, by the names of their settings; a single TRES of a vector by name and TRES.
func show(r mgrRow, on accounts.On, values []*msg.PolicyValue) {
	for i := range accounts.Table {
		s := &accounts.Table[i]
		if s.On&on == 0 || !s.Numeric() {
			continue
		}
		var of []accounts.Value
		for _, v := range values {
			if v.GetName() == s.Name {
				of = append(of, accounts.Value{TRES: v.GetTres(), N: v.GetValue()})
			}
		}
		if text := s.Show(of); text != "" {
			r[settingKey(s)] = text
		}
	}
}

// settingKey is the key of a setting in a row.
func settingKey(s *accounts.Setting) string { return strings.TrimSuffix(s.Name+"/"+s.Part, "/") }

// row returns the row of one association.
func (m *run) row(p *rules, a *msg.AssocRecord) mgrRow {
	r := mgrRow{"cluster": m.env.ClusterName(), "account": a.GetAccount(), "user": a.GetUser(), "partition": a.GetPartition(),
		"Fairshare": "1", "qos": p.qosText(a.GetQos(), false), "qosid": p.qosText(a.GetQos(), true), "defaultqos": a.GetDefaultQos(),
		"id": strconv.FormatUint(uint64(a.GetId()), 10), "parent": a.GetParent(), "parentid": "0",
		"LimitHours": a.GetLimitHours(), "DefaultPartition": a.GetDefaultPartition(), "DefaultGPUType": a.GetDefaultGpuType()}
	show(r, accounts.Assoc, a.GetValues())
	for i, other := range p.assocs {
		if other == a {
			r["lft"], r["rgt"] = p.places(i)
		}
		if other.GetUser() != "" {
			continue
		}
		if a.GetUser() == "" && other.GetAccount() == a.GetParent() || a.GetUser() != "" && other.GetAccount() == a.GetAccount() {
			r["parentid"] = strconv.FormatUint(uint64(other.GetId()), 10)
		}
	}
	return r
}

// places returns Slurm's LFT and RGT: the steps of a walk through the tree at which it enters and leaves the association.
func (p *rules) places(i int) (left, right string) {
	depth, below := 0, 0
	at := func(j int) (n int) {
		for a := p.assocs[j]; a != nil; a = p.above(a) {
			n++
		}
		return n - 1
	}
	depth = at(i)
	for j := i + 1; j < len(p.assocs) && at(j) > depth; j++ {
		below++
	}
	l := 2*i + 1 - depth
	return strconv.Itoa(l), strconv.Itoa(l + 2*below + 1)
}

func (p *rules) above(a *msg.AssocRecord) *msg.AssocRecord {
	name := a.GetParent()
	if a.GetUser() != "" {
		name = a.GetAccount()
	}
	for _, other := range p.assocs {
		if other.GetUser() == "" && other.GetAccount() == name {
			return other
		}
	}
	return nil
}

// qosText formats a list of QOS, by name or by id.
func (p *rules) qosText(names []string, ids bool) string {
	if !ids {
		return strings.Join(names, ",")
	}
	var out []string
	for _, q := range p.qos {
		if slices.Contains(names, q.GetName()) {
			out = append(out, strconv.FormatUint(uint64(q.GetId()), 10))
		}
	}
	return strings.Join(out, ",")
}

var levels = [...]string{"None", "Operator", "Administrator"}

func userRows(ctx context.Context, m *run) (rows []mgrRow, err error) {
	p, err := m.load(ctx)
	for _, u := range p.users {
		var coordinates []string
		for _, a := range p.accounts {
			if p.coordinates(u.GetName(), a.GetName()) {
				coordinates = append(coordinates, a.GetName())
			}
		}
		list := p.of(func(a *msg.AssocRecord) bool { return a.GetUser() == u.GetName() })
		if !m.withAssoc {
			list = list[:min(1, len(list))]
		}
		for _, a := range list {
			r := m.row(p, a)
			if !m.withAssoc { // conditions then apply to all accounts of the user
				r["account"] = p.accountsOf(u.GetName())
			}
			r["defaultaccount"], r["admin"] = u.GetDefaultAccount(), levels[min(int(u.GetLevel()), len(levels)-1)]
			r["coordinators"] = strings.Join(coordinates, ",")
			rows = append(rows, r)
		}
	}
	return rows, err
}

// coordinates reports whether a user is coordinator of an account or of one above it.
func (p *rules) coordinates(user, account string) bool {
	for _, a := range p.of(func(a *msg.AssocRecord) bool { return a.GetUser() == "" && a.GetAccount() == account }) {
		for ; a != nil; a = p.above(a) {
			for _, r := range p.accounts {
				if r.GetName() == a.GetAccount() && slices.Contains(r.GetCoordinators(), user) {
					return true
				}
			}
		}
	}
	return false
}

func (p *rules) accountsOf(user string) string {
	var names []string
	for _, a := range p.of(func(a *msg.AssocRecord) bool { return a.GetUser() == user }) {
		names = append(names, a.GetAccount())
	}
	return strings.Join(names, ",")
}

func (p *rules) of(f func(*msg.AssocRecord) bool) (out []*msg.AssocRecord) {
	for _, a := range p.assocs {
		if f(a) {
			out = append(out, a)
		}
	}
	return out
}

func accountRows(ctx context.Context, m *run) (rows []mgrRow, err error) {
	p, err := m.load(ctx)
	for _, a := range p.accounts {
		var coordinators []string
		for _, u := range p.users {
			if p.coordinates(u.GetName(), a.GetName()) {
				coordinators = append(coordinators, u.GetName())
			}
		}
		for _, as := range p.of(func(x *msg.AssocRecord) bool { return x.GetAccount() == a.GetName() }) {
			if as.GetUser() != "" && !m.withAssoc {
				continue
			}
			r := m.row(p, as)
			r["description"], r["organization"] = a.GetDescription(), a.GetOrganization()
			r["coordinators"] = strings.Join(coordinators, ",")
			rows = append(rows, r)
		}
	}
	return rows, err
}

func assocRows(ctx context.Context, m *run) (rows []mgrRow, err error) {
	p, err := m.load(ctx)
	for _, a := range p.assocs {
		r := m.row(p, a)
		for up := p.above(a); up != nil; up = p.above(up) {
			if m.wants(m.row(p, up)) {
				r["indent"] += " "
			}
		}
		if m.onlyDefaults && !p.isDefault(a) {
			continue
		}
		rows = append(rows, r)
	}
	return rows, err
}

// isDefault reports whether the association is in its user's default account.
func (p *rules) isDefault(a *msg.AssocRecord) bool {
	return slices.ContainsFunc(p.users, func(u *msg.UserRecord) bool {
		return u.GetName() == a.GetUser() && u.GetDefaultAccount() == a.GetAccount()
	})
}

func qosRows(ctx context.Context, m *run) (rows []mgrRow, err error) {
	p, err := m.load(ctx)
	slices.SortFunc(p.qos, func(a, b *msg.QosRecord) int { return cmp.Compare(a.GetId(), b.GetId()) })
	for _, q := range p.qos {
		r := mgrRow{"qos": q.GetName(), "description": q.GetDescription(), "id": strconv.FormatUint(uint64(q.GetId()), 10),
			"Priority": "0", "GraceTime": "00:00:00", "mode": cmp.Or(q.GetPreemptMode(), "cluster"), "UsageFactor": "1.000000",
			"flags": strings.Join(q.GetFlags(), ","), "preempt": strings.Join(q.GetPreempt(), ","),
			"LimitHours": q.GetLimitHours()}
		show(r, accounts.QOS, q.GetValues())
		rows = append(rows, r)
	}
	return rows, err
}
