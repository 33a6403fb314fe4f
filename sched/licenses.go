package sched

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/sched/profile"
)

// buildLicenses makes one profile for all licenses: a dimension for each, and
// for each reservation that has licenses a further one for each. What a
// reservation has is taken from everybody while it lasts and stands in its own
// dimensions, from which its jobs take. Those may go below zero, when its jobs
// take more than it has; what is missing then is missing for all.
func (s *Scheduler) buildLicenses() {
	s.licenses = slices.Clone(s.licRecs)
	slices.SortStableFunc(s.licenses, func(a, b License) int { return strings.Compare(a.Name, b.Name) })
	full := make([]int64, len(s.licenses))
	for i, l := range s.licenses {
		full[i] = l.Count
	}
	for _, r := range s.resvs {
		if len(r.rec.Licenses) > 0 {
			r.lic = len(full)
			full = append(full, make([]int64, len(s.licenses))...)
		}
	}
	s.lic = profile.New(full)
	for _, r := range s.resvs {
		if r.lic == 0 || r.rec.End <= r.rec.Start {
			continue
		}
		use := make([]int64, len(full))
		for _, l := range r.rec.Licenses {
			if i := s.licenseAt(l.Name); i >= 0 {
				use[i] += l.Count
				use[r.lic+i] -= l.Count
			}
		}
		s.lic.Use(r.rec.Start, r.rec.End, use)
	}
}

func (s *Scheduler) licenseAt(name string) int {
	return slices.IndexFunc(s.licenses, func(have License) bool { return have.Name == name })
}

// licenseNeed is a request's licenses in the dimensions of the profile; nil
// when it asks for none. One that does not exist is left to licensesExist.
func (s *Scheduler) licenseNeed(r *Request) []int64 {
	if r == nil || len(r.Licenses) == 0 {
		return nil
	}
	need, from := make([]int64, s.lic.Dims()), 0
	for _, resv := range s.resvs {
		if resv.rec.Name == r.Reservation {
			from = resv.lic
		}
	}
	for _, l := range r.Licenses {
		if i := s.licenseAt(l.Name); i >= 0 {
			need[from+i] += l.Count
		}
	}
	return need
}

// licensesUntil is how long from now the licenses of sh stay free; now when
// they are not.
func (s *Scheduler) licensesUntil(sh *shape) int64 {
	if sh.lic == nil {
		return Forever
	}
	return s.lic.Until(s.now, s.scratch(len(sh.lic)), func(free []int64) bool { return s.covers(free, sh.lic) })
}

// covers reports whether free has what need asks for.
func (s *Scheduler) covers(free, need []int64) bool {
	for i := range s.licenses {
		if have, want := s.ofLicense(i, free, need); have < want {
			return false
		}
	}
	return true
}

// ofLicense is what is free of a license for who needs need, and how much that is: what is free for all, less what reservations have
// taken beyond their own, and what the job's own reservation has.
func (s *Scheduler) ofLicense(i int, free, need []int64) (have, want int64) {
	n := len(s.licenses)
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

// shortLicenses says which licenses of sh are not free now, and which runs have some of them.
func (s *Scheduler) shortLicenses(sh *shape) (short []string, holders []*vrun) {
	if sh.lic == nil {
		return nil, nil
	}
	var which []int
	for i := range s.licenses {
		if have, want := s.ofLicense(i, s.lic.Now(), sh.lic); have < want {
			short = append(short, fmt.Sprintf("%d %s (at most %d of %d)", want, s.licenses[i].Name, max(0, have), s.licenses[i].Count))
			which = append(which, i)
		}
	}
	for _, r := range s.runs.vals {
		if r.lic != nil && slices.ContainsFunc(which, func(i int) bool {
			for k := i; k < len(r.lic); k += len(s.licenses) {
				if r.lic[k] > 0 {
					return true
				}
			}
			return false
		}) {
			holders = append(holders, r)
		}
	}
	return short, holders
}
