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

// The use of resources is counted for each association and each QOS, where limits are enforced: a commit changes the counters of the jobs
// that it changes, in the association and in those of the accounts above it. The counters are part of the view, because the planner reads
// them too, and not stored: Load counts once. Check counts anew.

// Used is the use by the jobs of an association or a QOS. Immutable.
type Used struct {
	Jobs      int64 // that hold resources
	Submitted int64 // that are pending, running or completing; tasks of arrays count each
	TRES      tres.List
	QOS       []QOSUsed // of a user's association, and of the jobs of an account itself, by id
}

// QOSUsed is the part of an association's use that is in one QOS.
type QOSUsed struct {
	ID uint32
	Used
}

// AssocUsed and QOSUsed return the use by the jobs of an association and those below it, and by the jobs of a QOS; never nil.
func (v *View) AssocUsed(id uint32) *Used { return orNothing(v.assocUsed.Get(id)) }
func (v *View) QOSUsed(id uint32) *Used   { return orNothing(v.qosUsed.Get(id)) }

// UsedSince calls the functions for associations and QOS whose use, current or over time, differs from another view's. Its cost is that of
// the differences.
func (v *View) UsedSince(old *View, assoc, qos func(id uint32)) {
	v.assocUsed.differ(old.assocUsed, assoc)
	v.qosUsed.differ(old.qosUsed, qos)
	v.assocTime.differ(old.assocTime, assoc)
	v.qosTime.differ(old.qosTime, qos)
}

// QOSUserUsed returns the use by a user's jobs in a QOS, in all accounts.
func (v *View) QOSUserUsed(qos uint32, user string) *Used {
	sum := &Used{}
	for _, a := range v.Policy().UserAssocs(user) {
		if part := v.AssocUsed(a.Id).of(qos); part != nil {
			sum = sum.plus(part, 1)
		}
	}
	return sum
}

// QOSAccountUsed returns the use by an account's own jobs in a QOS, without accounts below it.
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

// plus returns u with x added by times, except for QOS.
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

// within returns u with x added by times in one QOS only.
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

// AccountOf returns the account of a job, in lower case.
func AccountOf(spec *pb.JobSpec) string {
	return strings.ToLower(cmp.Or(spec.GetAccount(), RootAccount))
}

// PartitionQOS returns the QOS whose limits apply to all jobs of a partition, nil if there is none.
func (v *View) PartitionQOS(partition string) *pb.QosRecord {
	if name := v.Partition(partition).GetQos(); name != "" {
		return v.Policy().QOS(strings.ToLower(name))
	}
	return nil
}

// PartitionQOSes returns the ids of all partitions' QOS, by partition.
func (v *View) PartitionQOSes() map[string]uint32 {
	ids := map[string]uint32{}
	for _, p := range v.parts {
		if q := v.PartitionQOS(p.Name); q != nil {
			ids[p.Name] = q.Id
		}
	}
	return ids
}

// countedIn returns the QOS in which a job's use counts: its own and its partition's, each once; nil: none.
func (v *View) countedIn(qos, partition string) (own, other *pb.QosRecord) {
	own, other = v.Policy().QOS(strings.ToLower(qos)), v.PartitionQOS(partition)
	if own == other {
		other = nil
	}
	return own, other
}

// QOSCounting calls a function for each QOS of countedIn.
func (v *View) QOSCounting(qos, partition string, each func(q *pb.QosRecord)) {
	own, other := v.countedIn(qos, partition)
	for _, q := range []*pb.QosRecord{own, other} {
		if q != nil {
			each(q)
		}
	}
}

// usage is the use that one job adds, and its place.
type usage struct {
	assoc *pb.AssocRecord
	qos   [2]uint32 // its own QOS, and its partition's if that is another; 0: none
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

// Tasks returns the number of jobs that a record stands for.
func Tasks(j *pb.JobRecord) int64 {
	if j.ArrayTasks == "" {
		return 1
	}
	return int64(ArraySet(j).Count())
}

// HeldTRES returns the resources that a job holds, by name; a generic resource is listed in total and by type.
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

// countUse replaces one record of a job in the counters with the next; either may be nil.
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

// baseUsed returns the table that the transaction began with, which it must not change.
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

// recountFor counts anew if the QOS of a partition has changed.
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
