package state

import (
	"cmp"
	"maps"
	"slices"
)

// When thousands of records wait for the same event, following it up (reactor.Follow) takes more than one turn of the writer. The remaining
// records are owed: they stay in the writer's index until later turns reach them. They are not on disk, because the records suffice to find
// them: after a start, and after a refused commit, every waiting record is looked at again. The same holds for a throttle of an array's
// tasks, which a command sets in slices, beginning with the array's first record: where the records differ, the command was interrupted.

// Source is the thing that records wait for: a job or an array; or, by uid and name, to be the only job of that name. The zero value stands
// for all waiting records.
type Source struct {
	Job  uint32
	UID  uint32
	Name string
}

// owed holds the records that have still to be looked at. The sources take turns, a record each.
type owed struct {
	queue     []Source
	by        map[Source]*debt
	throttles []OwedThrottle
}

// OwedThrottle is an array whose records from At on have still to get the throttle of its first.
type OwedThrottle struct{ Array, At uint32 }

// debt is the rest of one source. again: once left is done, all records that wait for it follow.
type debt struct {
	left  []uint32
	again bool
}

// Awaited reports whether any record waits for a source.
func (tx *Tx) Awaited(s Source) bool {
	w := tx.next.writer
	if s.Job != 0 {
		return len(w.waiting[s.Job]) > 0
	}
	n := w.single[singleKey{s.UID, s.Name}]
	return n != nil && len(n.waiting[n.first()]) > 0
}

// WaitingFor returns the records that wait for a source, ascending.
func (tx *Tx) WaitingFor(s Source) []uint32 {
	switch {
	case s == Source{}:
		return tx.allWaiting()
	case s.Job != 0:
		return tx.Waiting(s.Job)
	}
	return tx.NextAlone(s.UID, s.Name)
}

func (tx *Tx) allWaiting() []uint32 {
	all := map[uint32]bool{}
	for _, set := range tx.next.writer.waiting {
		maps.Copy(all, set)
	}
	for _, n := range tx.next.writer.single {
		maps.Copy(all, n.waiting[n.first()])
	}
	return slices.Sorted(maps.Keys(all))
}

// Owe leaves some of the records that wait for a source to a later turn. If the source is owed already, or left is nil, all records that
// wait for it are owed.
func (tx *Tx) Owe(s Source, left []uint32) {
	o := &tx.next.writer.owed
	if d := o.by[s]; d != nil {
		d.again = true
		return
	}
	o.by[s] = &debt{left, left == nil}
	o.queue = append(o.queue, s)
}

// Owes reports whether a source is owed something.
func (tx *Tx) Owes(s Source) bool { return tx.next.writer.owed.by[s] != nil }

// PayOne takes the next owed record; false: nothing is owed. The record may have changed meanwhile, or be gone. The list of waiting records
// is read when its turn comes, and its cost goes to Spend here.
func (tx *Tx) PayOne() (id uint32, ok bool) {
	o := &tx.next.writer.owed
	for len(o.queue) > 0 {
		s := o.queue[0]
		o.queue = o.queue[1:]
		d := o.by[s]
		if len(d.left) == 0 {
			if !d.again {
				delete(o.by, s)
				continue
			}
			d.again, d.left = false, tx.WaitingFor(s)
			tx.Spend(1 + len(d.left)/16)
		}
		o.queue = append(o.queue, s)
		if len(d.left) > 0 {
			id, d.left = d.left[0], d.left[1:]
			return id, true
		}
	}
	return 0, false
}

// Owing reports whether waiting records are owed anything. Only for the writer, between its turns.
func (v *View) Owing() bool { return len(v.writer.owed.queue)+len(v.writer.owed.throttles) > 0 }

// NextThrottle takes the next array whose records differ in their throttle; false: there is none.
func (tx *Tx) NextThrottle() (t OwedThrottle, ok bool) {
	o := &tx.next.writer.owed
	if len(o.throttles) == 0 {
		return t, false
	}
	t, o.throttles = o.throttles[0], o.throttles[1:]
	return t, true
}

// OweThrottle leaves the rest of an array to a later turn.
func (tx *Tx) OweThrottle(t OwedThrottle) {
	tx.next.writer.owed.throttles = append(tx.next.writer.owed.throttles, t)
}

// mixedThrottles returns the arrays whose records differ in their throttle.
func (tx *Tx) mixedThrottles() (mixed []OwedThrottle) {
	for array, a := range tx.next.writer.arrays {
		first := true
		var limit uint32
		for id := range a.ids {
			t := tx.Job(id).ArrayThrottle
			if !first && t != limit {
				mixed = append(mixed, OwedThrottle{Array: array})
				break
			}
			first, limit = false, t
		}
	}
	slices.SortFunc(mixed, func(a, b OwedThrottle) int { return cmp.Compare(a.Array, b.Array) })
	return mixed
}

// oweAll owes every waiting record a look, and interrupted commands their rest.
func (tx *Tx) oweAll() {
	tx.next.writer.owed = owed{by: map[Source]*debt{}, throttles: tx.mixedThrottles()}
	if list := tx.allWaiting(); len(list) > 0 {
		tx.Owe(Source{}, list)
	}
}
