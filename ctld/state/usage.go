package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/tres"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// What jobs use is counted for each association and each QOS, where limits are enforced: a commit changes the counters of the jobs that it
// changes, in the association's and in those of the accounts above it. They are part of the view, as the planner reads them, too, and not
// stored: Load counts once. Check counts anew.

// Used is what the jobs of an association or a QOS use. Immutable.
type Used struct {
	Jobs      int64 // that hold resources
	Submitted int64 // that are pending, running or completing; tasks of arrays count each
	TRES      tres.List
	QOS       []QOSUsed // of a user's association, and of the jobs of an account itself, by id
}

// QOSUsed is the part of it that is in one QOS.
type QOSUsed struct {
	ID uint32
	Used
}

// AssocUsed and QOSUsed are what the jobs of an association, and of those below it, and of a QOS use; never nil.
func (v *View) AssocUsed(id uint32) *Used { return orNothing(v.assocUsed.Get(id)) }
func (v *View) QOSUsed(id uint32) *Used   { return orNothing(v.qosUsed.Get(id)) }

// UsedSince calls the functions for associations and QOS whose jobs use something else than in another view, or something else over time,
// at a cost of what differs.
func (v *View) UsedSince(old *View, assoc, qos func(id uint32)) {
	v.assocUsed.differ(old.assocUsed, assoc)
	v.qosUsed.differ(old.qosUsed, qos)
	v.assocTime.differ(old.assocTime, assoc)
	v.qosTime.differ(old.qosTime, qos)
}

// QOSUserUsed is what a user's jobs in a QOS use, in all accounts.
func (v *View) QOSUserUsed(qos uint32, user string) *Used {
	sum := &Used{}
	for _, a := range v.Policy().UserAssocs(user) {
		if part := v.AssocUsed(a.Id).of(qos); part != nil {
			sum = sum.plus(part, 1)
		}
	}
	return sum
}

// QOSAccountUsed is what the jobs of an account use in a QOS, without those of the accounts below it.
func (v *View) QOSAccountUsed(qos uint32, account string) *Used {
	return orNothing(v.AssocUsed(v.Policy().Assoc("", account, "").GetId()).of(qos))
}

var nothing = &Used{}

func orNothing(u *Used) *Used {
	if u == nil {
		return nothing
	}
	return u
}

func (u *Used) of(qos uint32) *Used {
	for i := range u.QOS {
		if u.QOS[i].ID == qos {
			return &u.QOS[i].Used
		}
	}
	return nil
}

// plus is u with so many times x in all but QOS.
func (u *Used) plus(x *Used, by int64) *Used {
	n := &Used{Jobs: u.Jobs + by*x.Jobs, Submitted: u.Submitted + by*x.Submitted, TRES: slices.Clone(u.TRES), QOS: u.QOS}
	for _, it := range x.TRES {
		i, found := slices.BinarySearchFunc(n.TRES, it.Name, func(a tres.Item, name string) int { return strings.Compare(a.Name, name) })
		if !found {
			n.TRES = slices.Insert(n.TRES, i, tres.Item{Name: it.Name})
		}
		if n.TRES[i].Count += uint64(by) * it.Count; n.TRES[i].Count == 0 {
			n.TRES = slices.Delete(n.TRES, i, i+1)
		}
	}
	return n
}

// within is u with so many times x in one QOS alone.
func (u *Used) within(qos uint32, x *Used, by int64) *Used {
	n := *u
	i, found := slices.BinarySearchFunc(u.QOS, qos, func(q QOSUsed, id uint32) int { return cmp.Compare(q.ID, id) })
	n.QOS = slices.Clone(u.QOS)
	if !found {
		n.QOS = slices.Insert(n.QOS, i, QOSUsed{ID: qos})
	}
	if part := n.QOS[i].plus(x, by); part.Submitted == 0 && part.Jobs == 0 {
		n.QOS = slices.Delete(n.QOS, i, i+1)
	} else {
		n.QOS[i].Used = *part
	}
	return &n
}

// AccountOf is the account of a job, as accounts are named.
func AccountOf(spec *pb.JobSpec) string {
	return strings.ToLower(cmp.Or(spec.GetAccount(), RootAccount))
}

// PartitionQOS is the QOS whose limits all jobs of a partition are under, nil if there is none.
func (v *View) PartitionQOS(partition string) *pb.QosRecord {
	if name := v.Partition(partition).GetQos(); name != "" {
		return v.Policy().QOS(strings.ToLower(name))
	}
	return nil
}

// PartitionQOSes are the ids of those of all partitions, by partition.
func (v *View) PartitionQOSes() map[string]uint32 {
	ids := map[string]uint32{}
	for _, p := range v.parts {
		if q := v.PartitionQOS(p.Name); q != nil {
			ids[p.Name] = q.Id
		}
	}
	return ids
}

// countedIn are the QOS that what a job uses counts for: its own and that of its partition, each once; nil: none.
func (v *View) countedIn(qos, partition string) (own, other *pb.QosRecord) {
	own, other = v.Policy().QOS(strings.ToLower(qos)), v.PartitionQOS(partition)
	if own == other {
		other = nil
	}
	return own, other
}

// QOSCounting calls a function for each of them.
func (v *View) QOSCounting(qos, partition string, each func(q *pb.QosRecord)) {
	own, other := v.countedIn(qos, partition)
	for _, q := range []*pb.QosRecord{own, other} {
		if q != nil {
			each(q)
		}
	}
}

// usage is what one job adds, and where.
type usage struct {
	assoc *pb.AssocRecord
	qos   [2]uint32 // its own, and its partition's if that is another; 0: none
	Used
}

func (u *usage) same(o *usage) bool {
	return u.assoc == o.assoc && u.qos == o.qos && u.Jobs == o.Jobs && u.Submitted == o.Submitted && slices.Equal(u.TRES, o.TRES)
}

func (v *View) usageOf(j *pb.JobRecord) (u usage) {
	if j == nil || !Active(j) {
		return u
	}
	policy := v.Policy()
	u.assoc = policy.AssocOf(j.Spec.GetUser(), AccountOf(j.Spec), j.Partition)
	own, other := v.countedIn(j.Spec.GetQos(), j.Partition)
	u.qos = [2]uint32{own.GetId(), other.GetId()}
	u.Submitted = Tasks(j)
	if Live(j) {
		u.Jobs, u.TRES = 1, HeldTRES(j)
	}
	return u
}

// Tasks is how many jobs a record stands for.
func Tasks(j *pb.JobRecord) int64 {
	if j.ArrayTasks == "" {
		return 1
	}
	return int64(ArraySet(j).Count())
}

// HeldTRES is what a job holds, by name: of generic resources all, and those of a type.
func HeldTRES(j *pb.JobRecord) (l tres.List) {
	add := func(name string, n uint64) {
		i, found := slices.BinarySearchFunc(l, name, func(a tres.Item, name string) int { return strings.Compare(a.Name, name) })
		if !found {
			l = slices.Insert(l, i, tres.Item{Name: name})
		}
		l[i].Count += n
	}
	for _, a := range j.Alloc {
		if a.Ended {
			continue
		}
		add("node", 1)
		if a.Cpus > 0 {
			add("cpu", uint64(a.Cpus))
		}
		if a.MemMib > 0 {
			add("mem", a.MemMib)
		}
		for _, d := range a.Devices {
			if d.Share > 0 {
				continue
			}
			n := uint64(max(d.Count, 1))
			add("gres/"+d.Name, n)
			if d.Type != "" {
				add("gres/"+d.Name+":"+d.Type, n)
			}
		}
	}
	return l
}

// countUse brings the counters from one record of a job to the next; either may be nil.
func (tx *Tx) countUse(old, fresh *pb.JobRecord) {
	if tx.uncounted || tx.next.Settings == nil || !tx.next.Settings.EnforceLimits {
		return
	}
	a, b := tx.next.usageOf(old), tx.next.usageOf(fresh)
	if !a.same(&b) {
		tx.addUse(&a, -1)
		tx.addUse(&b, 1)
	}
}

func (tx *Tx) addUse(u *usage, by int64) {
	if u.Submitted == 0 {
		return
	}
	for up := range tx.next.Policy().Chain(u.assoc) {
		n := tx.next.AssocUsed(up.Id).plus(&u.Used, by)
		if up == u.assoc && up.User != "" || up.User == "" && up.Account == u.assoc.Account {
			n = n.within(u.qos[0], &u.Used, by)
			if u.qos[1] != 0 {
				n = n.within(u.qos[1], &u.Used, by)
			}
		}
		tx.putUsed(&tx.next.assocUsed, tx.baseUsed(false), up.Id, n)
	}
	for _, id := range u.qos {
		if id != 0 {
			tx.putUsed(&tx.next.qosUsed, tx.baseUsed(true), id, tx.next.QOSUsed(id).plus(&u.Used, by))
		}
	}
}

// baseUsed is the table that the transaction began with, which is not its own to change.
func (tx *Tx) baseUsed(qos bool) *table[Used] {
	switch {
	case tx.base == nil:
		return nil
	case qos:
		return tx.base.qosUsed
	}
	return tx.base.assocUsed
}

func (tx *Tx) putUsed(t **table[Used], base *table[Used], id uint32, u *Used) {
	if *t == base {
		*t = base.clone()
	}
	if u.Submitted == 0 && u.Jobs == 0 {
		u = nil
	}
	(*t).put(tx, id, u)
}

// recountFor counts anew where partitions have other QOS than before.
func (tx *Tx) recountFor(before map[string]uint32) {
	if !tx.uncounted && !maps.Equal(before, tx.next.PartitionQOSes()) {
		tx.recount()
		tx.recountTime()
	}
}

// recount counts all jobs anew: when limits begin to be enforced, and when the tree of accounts or the QOS of a partition has changed.
func (tx *Tx) recount() {
	tx.next.assocUsed, tx.next.qosUsed = &table[Used]{}, &table[Used]{}
	if !tx.next.Settings.EnforceLimits {
		return
	}
	for j := range tx.next.Jobs.All() {
		u := tx.next.usageOf(j)
		tx.addUse(&u, 1)
	}
}

// sameTree reports whether jobs count by the same associations and QOS in both.
func sameTree(a, b *Policy) bool {
	return slices.EqualFunc(a.assocs, b.assocs, func(x, y *pb.AssocRecord) bool {
		return x.Id == y.Id && x.Parent == y.Parent && x.Account == y.Account && x.User == y.User && x.Partition == y.Partition
	}) && slices.EqualFunc(a.qos, b.qos, func(x, y *pb.QosRecord) bool { return x.Id == y.Id && x.Name == y.Name })
}

func highestID(p *Policy) uint32 {
	return max(highest(p.assocs, (*pb.AssocRecord).GetId), highest(p.qos, (*pb.QosRecord).GetId))
}

// checkUsage counts anew and compares.
func (v *View) checkUsage() (faults []error) {
	tx := &Tx{token: new(token), next: *v}
	tx.recount()
	for _, both := range []struct {
		what      string
		has, want *table[Used]
	}{{"association", v.assocUsed, tx.next.assocUsed}, {"QOS", v.qosUsed, tx.next.qosUsed}} {
		if both.has.Len() != both.want.Len() {
			faults = append(faults, fmt.Errorf("%d of %s are counted as used, %d are", both.has.Len(), both.what, both.want.Len()))
		}
		for id := range highestID(v.Policy()) + 1 {
			if h, w := fmt.Sprint(both.has.Get(id)), fmt.Sprint(both.want.Get(id)); h != w {
				faults = append(faults, fmt.Errorf("%s %d: counted as using %s, its jobs use %s", both.what, id, h, w))
			}
		}
	}
	return faults
}
