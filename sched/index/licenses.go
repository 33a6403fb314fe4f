package index

import (
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/sched/node"
	"github.com/sluice-hpc/sluice/sched/profile"
	"github.com/sluice-hpc/sluice/sched/record"
)

// licenses holds the cluster's licenses, and how many are free over time.
//
// There is one profile for all of them: a dimension for each, and for each reservation with licenses a further one for each. A
// reservation's licenses are taken from everyone while it lasts and stand in its own dimensions, from which its jobs take. Those may go
// below zero, when its jobs take more than it has; the deficit counts against everyone.
type licenses struct {
	Recs  []record.License // by name
	resvs []*node.Reservation
	Prof  *profile.Profile
}

func newLicenses(recs []record.License, resvs []*node.Reservation) *licenses {
	l := &licenses{Recs: slices.Clone(recs), resvs: resvs}
	slices.SortStableFunc(l.Recs, func(a, b record.License) int { return strings.Compare(a.Name, b.Name) })
	full := make([]int64, len(l.Recs))
	for i, rec := range l.Recs {
		full[i] = rec.Count
	}
	for _, r := range resvs {
		if len(r.Rec.Licenses) > 0 {
			r.Lic = len(full)
			full = append(full, make([]int64, len(l.Recs))...)
		}
	}
	l.Prof = profile.New(full)
	for _, r := range resvs {
		if r.Lic == 0 || r.Rec.End <= r.Rec.Start {
			continue
		}
		use := make([]int64, len(full))
		for _, rec := range r.Rec.Licenses {
			if i := l.at(rec.Name); i >= 0 {
				use[i] += rec.Count
				use[r.Lic+i] -= rec.Count
			}
		}
		l.Prof.Use(r.Rec.Start, r.Rec.End, use)
	}
	return l
}

func (l *licenses) at(name string) int {
	return slices.IndexFunc(l.Recs, func(have record.License) bool { return have.Name == name })
}

// Need returns a request's licenses in the dimensions of the profile; nil when it requests none. Missing licenses are left to Exist.
func (l *licenses) Need(r *record.Request) []int64 {
	if r == nil || len(r.Licenses) == 0 {
		return nil
	}
	need, from := make([]int64, l.Prof.Dims()), 0
	for _, resv := range l.resvs {
		if resv.Rec.Name == r.Reservation {
			from = resv.Lic
		}
	}
	for _, rec := range r.Licenses {
		if i := l.at(rec.Name); i >= 0 {
			need[from+i] += rec.Count
		}
	}
	return need
}

// Exist reports whether the cluster has as many licenses as requested, free or not.
func (l *licenses) Exist(r *record.Request) bool {
	for _, want := range r.Licenses {
		if !slices.ContainsFunc(l.Recs, func(have record.License) bool { return have.Name == want.Name && have.Count >= want.Count }) {
			return false
		}
	}
	return true
}

// covers reports whether free has the licenses of need.
func (l *licenses) covers(free, need []int64) bool {
	for i := range l.Recs {
		if have, want := l.Of(i, free, need); have < want {
			return false
		}
	}
	return true
}

// Of returns how many of a license are free for a job with need, and how many it needs. Free are those for all, less what reservations have
// taken beyond their own, plus those of the job's own reservation.
func (l *licenses) Of(i int, free, need []int64) (have, want int64) {
	n := len(l.Recs)
	have, want = free[i], need[i]
	for k := n + i; k < len(free); k += n {
		if need[k] > 0 {
			have, want = have+free[k], want+need[k]
		} else {
			have += min(free[k], 0)
		}
	}
	if want <= 0 {
		return 0, 0
	}
	return have, want
}

// Until returns the time until which the licenses of need stay free; now when they are not. scratch has a place for each dimension.
func (l *licenses) Until(now int64, need, scratch []int64) int64 {
	return l.Prof.Until(now, scratch, func(free []int64) bool { return l.covers(free, need) })
}

// From returns the first time from t on at which need is free for lengthS seconds; Forever when there is none.
func (l *licenses) From(t, lengthS int64, need, scratch []int64) int64 {
	begin, _, ok := l.Prof.Window(t, lengthS, record.Forever, scratch, func(free []int64) bool { return l.covers(free, need) })
	if !ok {
		return record.Forever
	}
	return begin
}
