package state

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/accounts"
	"github.com/sluice-hpc/sluice/ctld/journal"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// Defaults of a cluster that defines nothing: the account of every user, its user root, and the QOS of every job.
const (
	RootAccount = "root"
	RootUser    = "root"
	NormalQOS   = "normal"
)

// Policy says who may use the cluster and how much of it: accounts, users, associations and QOS. Immutable; changed by a PolicyDraft. The
// lists are sorted for binary search: people change them, not jobs, and ten thousand users are 80 kB to copy.
type Policy struct {
	accounts []*pb.AccountRecord
	users    []*pb.UserRecord
	assocs   []*pb.AssocRecord // by user, account, partition; accounts' own associations have no user and come first
	qos      []*pb.QosRecord

	timedAssocs []*pb.AssocRecord // with limits over time
	timedQOS    []*pb.QosRecord
	sharedQOS   []uint32 // limit each user's or account's use over time
	hours       hours
	thresholds  bool // a QOS has a UsageThreshold that holds
	accrues     bool // an association or a QOS limits how many jobs gain priority by their age
}

// everywhere is the policy of a cluster that defines nothing.
var everywhere = &Policy{
	accounts: []*pb.AccountRecord{{Name: RootAccount, Description: "default root account", Organization: "root"}},
	users:    []*pb.UserRecord{{Name: RootUser, DefaultAccount: RootAccount, Level: pb.AdminLevel_ADMIN_ADMINISTRATOR}},
	assocs:   []*pb.AssocRecord{{Id: 1, Account: RootAccount}, {Id: 2, Account: RootAccount, User: RootUser}},
	qos:      []*pb.QosRecord{{Id: 1, Name: NormalQOS, Description: "Normal QOS default"}},
}

// Policy returns the accounts and QOS of the cluster; never nil.
func (v *View) Policy() *Policy {
	if v.policy == nil {
		return everywhere
	}
	return v.policy
}

// Policy reads the working state.
func (tx *Tx) Policy() *Policy { return tx.next.Policy() }

// Accounts, Users, Assocs and Qoses return all records, in order. The slices must not be changed.
func (p *Policy) Accounts() []*pb.AccountRecord { return p.accounts }
func (p *Policy) Users() []*pb.UserRecord       { return p.users }
func (p *Policy) Assocs() []*pb.AssocRecord     { return p.assocs }
func (p *Policy) Qoses() []*pb.QosRecord        { return p.qos }

// Account, User and QOS find a record by its name, nil if there is none.
func (p *Policy) Account(name string) *pb.AccountRecord { return find(p.accounts, name, accountName) }
func (p *Policy) User(name string) *pb.UserRecord       { return find(p.users, name, userName) }
func (p *Policy) QOS(name string) *pb.QosRecord         { return find(p.qos, name, qosName) }

// Assoc returns the association of exactly this user, account and partition; without a user it is the account's own.
func (p *Policy) Assoc(user, account, partition string) *pb.AssocRecord {
	return find(p.assocs, AssocKey{user, account, partition}, assocOrder)
}

// UserAssocs returns the associations of a user, by account and partition.
func (p *Policy) UserAssocs(user string) []*pb.AssocRecord {
	from, _ := slices.BinarySearchFunc(p.assocs, user, func(a *pb.AssocRecord, user string) int { return strings.Compare(a.User, user) })
	to := from
	for to < len(p.assocs) && p.assocs[to].User == user {
		to++
	}
	return p.assocs[from:to]
}

// AssocFor returns the association of a user's job in an account and a partition: the one for the partition, or else the one for all; nil
// if there is none.
func (p *Policy) AssocFor(user, account, partition string) *pb.AssocRecord {
	if a := p.Assoc(user, account, partition); a != nil {
		return a
	}
	return p.Assoc(user, account, "")
}

// AssocOf is AssocFor, but while only root has associations, every user has the one of the account root.
func (p *Policy) AssocOf(user, account, partition string) *pb.AssocRecord {
	a := p.AssocFor(user, account, partition)
	if a == nil && account == RootAccount && !p.Populated() {
		return p.Assoc("", account, "")
	}
	return a
}

// CountsFor yields the associations to which a user's use under an account counts: the user's, or the account's where the user has none any
// more, and those above it.
func (p *Policy) CountsFor(user, account, partition string) iter.Seq[*pb.AssocRecord] {
	a := p.AssocOf(user, account, partition)
	if a == nil {
		a = p.Assoc("", account, "")
	}
	return p.Chain(a)
}

// Populated reports whether any user but root has an association. Until then every user belongs to the account root.
func (p *Policy) Populated() bool {
	return len(p.assocs) > len(p.UserAssocs(""))+len(p.UserAssocs(RootUser))
}

// Chain yields an association and those of the accounts above it, up to root's.
func (p *Policy) Chain(a *pb.AssocRecord) iter.Seq[*pb.AssocRecord] {
	return func(yield func(*pb.AssocRecord) bool) {
		for a != nil && yield(a) {
			a = p.above(a)
		}
	}
}

func (p *Policy) above(a *pb.AssocRecord) *pb.AssocRecord {
	switch {
	case a.User != "":
		return p.Assoc("", a.Account, "")
	case a.Account == RootAccount:
		return nil
	}
	return p.Assoc("", a.Parent, "")
}

// QOSOf returns the QOS that an association may use.
func (p *Policy) QOSOf(a *pb.AssocRecord) []string {
	for up := range p.Chain(a) {
		if len(up.Qos) > 0 {
			return up.Qos
		}
	}
	return []string{NormalQOS}
}

// DefaultQOSOf returns the QOS of jobs that name none: the default of the association or an account above it, else normal, if it may be
// used.
func (p *Policy) DefaultQOSOf(a *pb.AssocRecord) string {
	allowed := p.QOSOf(a)
	for up := range p.Chain(a) {
		if up.DefaultQos != "" && slices.Contains(allowed, up.DefaultQos) {
			return up.DefaultQos
		}
	}
	if slices.Contains(allowed, NormalQOS) {
		return NormalQOS
	}
	return allowed[0]
}

// Inherited returns an association with the values that it inherits from the accounts above it.
func (p *Policy) Inherited(a *pb.AssocRecord) *pb.AssocRecord {
	n := pb.ShallowCopy(a)
	n.Qos, n.Values = p.QOSOf(a), nil
	for up := range p.Chain(a) {
		n.DefaultQos = cmp.Or(n.DefaultQos, up.DefaultQos)
		n.DefaultPartition, n.DefaultGpuType = cmp.Or(n.DefaultPartition, up.DefaultPartition), cmp.Or(n.DefaultGpuType, up.DefaultGpuType)
		for _, v := range up.Values {
			i, found := slices.BinarySearchFunc(n.Values, v, func(a, b *pb.PolicyValue) int {
				return accounts.Compare(a.Name, a.Tres, b.Name, b.Tres)
			})
			if def := accounts.Find(accounts.Assoc, v.Name); !found && (up == a || def != nil && def.Inherits) {
				n.Values = slices.Insert(n.Values, i, v)
			}
		}
	}
	return n
}

// JobDefaults are defaults for options that a job does not set; zero values set nothing.
type JobDefaults struct {
	TimeS              uint32
	Partition, GPUType string
}

// JobDefaultsOf returns the defaults of an association, or of the nearest accounts above it that have them. a may be nil.
func (p *Policy) JobDefaultsOf(a *pb.AssocRecord) (d JobDefaults) {
	timed := false
	for up := range p.Chain(a) {
		d.Partition, d.GPUType = cmp.Or(d.Partition, up.DefaultPartition), cmp.Or(d.GPUType, up.DefaultGpuType)
		for _, v := range up.Values {
			if v.Name == "DefaultTime" && !timed {
				d.TimeS, timed = uint32(v.Value), true
			}
		}
	}
	return d
}

// AssocKey identifies an association.
type AssocKey struct{ User, Account, Partition string }

func accountName(r *pb.AccountRecord, n string) int { return strings.Compare(r.Name, n) }
func userName(r *pb.UserRecord, n string) int       { return strings.Compare(r.Name, n) }
func qosName(r *pb.QosRecord, n string) int         { return strings.Compare(r.Name, n) }

func assocOrder(a *pb.AssocRecord, k AssocKey) int {
	return cmp.Or(strings.Compare(a.User, k.User), strings.Compare(a.Account, k.Account), strings.Compare(a.Partition, k.Partition))
}

func find[T, K any](list []*T, key K, order func(*T, K) int) *T {
	if i, ok := slices.BinarySearchFunc(list, key, order); ok {
		return list[i]
	}
	return nil
}

func replace[T, K any](list []*T, key K, order func(*T, K) int, r *T) []*T {
	i, found := slices.BinarySearchFunc(list, key, order)
	switch {
	case found && r == nil:
		return slices.Delete(list, i, i+1)
	case found:
		list[i] = r
	case r != nil:
		return slices.Insert(list, i, r)
	}
	return list
}

// PolicyDraft is a policy under change. It reads like the changed policy.
type PolicyDraft struct {
	Policy
	changed map[string]bool // keys of rows
	lastID  uint32          // of associations; 0: not looked for yet
}

// Draft begins a change.
func (p *Policy) Draft() *PolicyDraft {
	return &PolicyDraft{Policy: Policy{accounts: slices.Clone(p.accounts), users: slices.Clone(p.users),
		assocs: slices.Clone(p.assocs), qos: slices.Clone(p.qos)},
		changed: map[string]bool{}}
}

// Changed reports whether anything was put or deleted.
func (d *PolicyDraft) Changed() bool { return len(d.changed) > 0 }

// Prune forgets changes that change nothing, and reports whether any are left.
func (d *PolicyDraft) Prune(old *Policy) bool {
	for key := range d.changed {
		if proto.Equal(d.row(key), old.row(key)) {
			delete(d.changed, key)
		}
	}
	return d.Changed()
}

// Put stores the record of a row, or deletes the one of that name if gone.
func (d *PolicyDraft) Put(r *pb.PolicyRow, gone bool) {
	d.changed[policyKey(r)] = true
	switch {
	case r.Account != nil:
		d.accounts = replace(d.accounts, r.Account.Name, accountName, unless(gone, r.Account))
	case r.User != nil:
		d.users = replace(d.users, r.User.Name, userName, unless(gone, r.User))
	case r.Qos != nil:
		d.qos = replace(d.qos, r.Qos.Name, qosName, unless(gone, r.Qos))
	case r.Assoc != nil:
		d.assocs = replace(d.assocs, AssocKey{r.Assoc.User, r.Assoc.Account, r.Assoc.Partition}, assocOrder, unless(gone, r.Assoc))
	}
}

func unless[T any](gone bool, r *T) *T {
	if gone {
		return nil
	}
	return r
}

// NextAssocID and NextQOSID return the number of a new record.
func (d *PolicyDraft) NextAssocID() uint32 {
	if d.lastID == 0 {
		d.lastID = highest(d.assocs, (*pb.AssocRecord).GetId)
	}
	d.lastID++
	return d.lastID
}

func (d *PolicyDraft) NextQOSID() uint32 { return highest(d.qos, (*pb.QosRecord).GetId) + 1 }

func highest[T any](list []*T, id func(*T) uint32) (n uint32) {
	for _, r := range list {
		n = max(n, id(r))
	}
	return n
}

// policyKey returns the key of a row. No name has a slash.
func policyKey(r *pb.PolicyRow) string {
	switch {
	case r.Account != nil:
		return "account/" + r.Account.Name
	case r.User != nil:
		return "user/" + r.User.Name
	case r.Qos != nil:
		return "qos/" + r.Qos.Name
	}
	return "assoc/" + r.Assoc.GetUser() + "/" + r.Assoc.GetAccount() + "/" + r.Assoc.GetPartition()
}

// row returns the row of a key, nil if there is none.
func (p *Policy) row(key string) *pb.PolicyRow {
	kind, name, _ := strings.Cut(key, "/")
	switch kind {
	case "account":
		if r := p.Account(name); r != nil {
			return &pb.PolicyRow{Account: r}
		}
	case "user":
		if r := p.User(name); r != nil {
			return &pb.PolicyRow{User: r}
		}
	case "qos":
		if r := p.QOS(name); r != nil {
			return &pb.PolicyRow{Qos: r}
		}
	case "assoc":
		if part := strings.SplitN(name, "/", 3); len(part) == 3 {
			if r := p.Assoc(part[0], part[1], part[2]); r != nil {
				return &pb.PolicyRow{Assoc: r}
			}
		}
	}
	return nil
}

// PolicyChanged: somebody has changed accounts, users, associations or QOS. The draft is based on the policy that the event changes.
type PolicyChanged struct {
	Draft *PolicyDraft
	By    string // login name of the person
	What  []any  // alternating keys and values
}

func (e PolicyChanged) apply(tx *Tx) {
	p, old := e.Draft.Policy, tx.Policy()
	p.noteTimed()
	p.noteHours(tx.NowNS, tx.Settings().Location())
	tx.next.policy = &p
	moved := !sameTree(old, &p)
	if moved {
		tx.recount()
	}
	if moved || old.Budgeted() != p.Budgeted() || !slices.Equal(old.sharedQOS, p.sharedQOS) || !p.sameFactors(old) {
		tx.recountTime()
	}
	if tx.policy == nil {
		tx.policy = map[string]bool{}
	}
	for key := range e.Draft.changed {
		tx.policy[key] = true
	}
	tx.restructure()
}

// Attrs implements Event.
func (e PolicyChanged) Attrs() []any { return append([]any{"by", e.By}, e.What...) }

func (tx *Tx) policyRows(rows []journal.Row) ([]journal.Row, error) {
	for key := range tx.policy {
		row, err := encode(journal.Accounts, []byte(key), tx.Policy().row(key))
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// loadPolicy adds a row to the draft of the whole load.
func (tx *Tx) loadPolicy(key, value []byte) error {
	r := &pb.PolicyRow{}
	if err := proto.Unmarshal(value, r); err != nil {
		return fmt.Errorf("cannot decode %q: %w", key, err)
	}
	if policyKey(r) != string(key) {
		return fmt.Errorf("cannot decode %q: the row is of %q", key, policyKey(r))
	}
	if tx.loading == nil {
		tx.loading = everywhere.Draft()
		tx.next.policy = &tx.loading.Policy
	}
	tx.loading.Put(r, false)
	return nil
}

// checkPolicy finds orphans, cycles and contradictions.
func (v *View) checkPolicy() (faults []error) {
	p := v.Policy()
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	faults = append(faults, p.checkHours()...)
	ids := map[uint32]bool{}
	for i, a := range p.assocs {
		key := AssocKey{a.User, a.Account, a.Partition}
		if i > 0 && assocOrder(p.assocs[i-1], key) >= 0 {
			fault("association %v: not in order", key)
		}
		if a.Id == 0 || ids[a.Id] {
			fault("association %v: id %d is not its own", key, a.Id)
		}
		ids[a.Id] = true
		if p.Account(a.Account) == nil || a.User != "" && p.User(a.User) == nil {
			fault("association %v: no such account or user", key)
		}
		if n := len(slices.Collect(limited(p.Chain(a), len(p.accounts)+2))); n > len(p.accounts)+1 {
			fault("association %v: the accounts above it are a cycle", key)
			return faults
		}
		if top := last(p.Chain(a)); top.Account != RootAccount || top.User != "" {
			fault("association %v: account %s has no parent", key, top.Account)
		}
		for _, q := range p.QOSOf(a) {
			if p.QOS(q) == nil {
				fault("association %v: no QOS %s", key, q)
			}
		}
	}
	for _, a := range p.accounts {
		if p.Assoc("", a.Name, "") == nil {
			fault("account %s: no association", a.Name)
		}
		for _, c := range a.Coordinators {
			if p.User(c) == nil {
				fault("account %s: no coordinator %s", a.Name, c)
			}
		}
	}
	for _, u := range p.users {
		if !slices.ContainsFunc(p.UserAssocs(u.Name), func(a *pb.AssocRecord) bool { return a.Account == u.DefaultAccount }) {
			fault("user %s: no association with the default account %s", u.Name, u.DefaultAccount)
		}
	}
	for _, q := range p.qos {
		if ids[q.Id|1<<31] {
			fault("QOS %s: id %d is not its own", q.Name, q.Id)
		}
		ids[q.Id|1<<31] = true
		for _, other := range q.Preempt {
			if p.QOS(other) == nil {
				fault("QOS %s: no QOS %s", q.Name, other)
			}
		}
	}
	return faults
}

func limited[T any](seq iter.Seq[T], n int) iter.Seq[T] {
	return func(yield func(T) bool) {
		i := 0
		for x := range seq {
			if i++; i > n || !yield(x) {
				return
			}
		}
	}
}

func last[T any](seq iter.Seq[T]) (x T) {
	for x = range seq {
		continue
	}
	return x
}
