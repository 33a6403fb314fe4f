package state

import (
	"maps"
	"slices"

	"github.com/sluice-hpc/sluice/conf/jobid"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// LongConditions is the largest number of conditions of one record that are all evaluated whenever one of their jobs changes. With more,
// that would be quadratic, so such records have a LongWait. It is a variable so that tests can lower it.
var LongConditions = jobid.MaxWithCorr

// weighsOf bounds the evaluations of a LongWait: there are about this many while each of its verdicts changes once.
const weighsOf = 16

// Truth is the verdict on a condition of a dependency.
type Truth uint8

// The verdicts on a condition.
const (
	Waits Truth = iota
	Met
	Never
)

// LongWait holds the verdicts on a dependency of many conditions. When a job changes, only the conditions that name it are judged. The
// record is weighed (evaluated and written) when a verdict decides something, or when a share of the verdicts has changed. A condition that
// was met stays met. A LongWait is not on disk: after a start, each record is weighed once, before any job is forgotten.
type LongWait struct {
	dependency string
	any        bool
	weighed    bool // the verdicts are those of the record
	verdicts   map[jobid.Condition]Truth
	met        []uint32 // jobs of the conditions met since the record was weighed
	nevers     int
	changes    int // verdicts that have changed since
}

func newLongWait(text string, d jobid.Dependency) *LongWait {
	w := &LongWait{dependency: text, any: d.Any, verdicts: make(map[jobid.Condition]Truth, len(d.Conditions))}
	for _, c := range d.Conditions {
		w.verdicts[undelayed(c)] = Waits
	}
	return w
}

// undelayed removes the minutes of after:12+30, which count from the moment when the condition is met.
func undelayed(c jobid.Condition) jobid.Condition {
	c.DelayMin = 0
	return c
}

// LongWait returns the verdicts on a record's dependency; nil if it does not have many conditions. Only for the writer.
func (tx *Tx) LongWait(j *pb.JobRecord) *LongWait {
	if w := tx.next.writer.long[j.Id]; w != nil && w.dependency == j.Dependency {
		return w
	}
	return nil
}

// Weighed reports whether the record has been weighed since it got its dependency: until then, each change has to weigh it.
func (w *LongWait) Weighed() bool { return w.weighed }

// Conditions returns the number of conditions.
func (w *LongWait) Conditions() int { return len(w.verdicts) }

// Has reports whether a condition, without its delay, is one of them.
func (w *LongWait) Has(c jobid.Condition) bool {
	_, ok := w.verdicts[c]
	return ok
}

// IsMet reports whether a condition has been met for good. One with a delay has to be judged again.
func (w *LongWait) IsMet(c jobid.Condition) bool { return w != nil && w.verdicts[c] == Met }

// Note records the verdict on a condition, without its delay, and reports whether the record has to be weighed. never: the record's current
// verdict is that it can never start.
func (w *LongWait) Note(c jobid.Condition, t Truth, never bool) bool {
	old := w.verdicts[c]
	if old == t || old == Met {
		return false
	}
	w.verdicts[c] = t
	w.changes++
	if old == Never {
		w.nevers--
	}
	decides := old == Never && never
	switch t {
	case Met:
		w.met = append(w.met, c.Job)
		decides = decides || w.any // the case that all are met is covered by the share of changes below
	case Never:
		w.nevers++
		decides = !never && (!w.any || w.nevers == len(w.verdicts))
	}
	return decides || w.changes*weighsOf >= len(w.verdicts)
}

// Reset notes that the record has been weighed, and which of its conditions can no longer be met.
func (w *LongWait) Reset(never []jobid.Condition) {
	for c := range w.verdicts {
		w.verdicts[c] = Waits
	}
	for _, c := range never {
		w.verdicts[undelayed(c)] = Never
	}
	w.weighed, w.met, w.nevers, w.changes = true, nil, len(never), 0
}

// Unweighed returns, by job and array, the records that still list it in a condition that has been met. Only for the writer.
func (tx *Tx) Unweighed() map[uint32][]uint32 {
	by := map[uint32][]uint32{}
	long := tx.next.writer.long
	for _, id := range slices.Sorted(maps.Keys(long)) {
		for _, job := range long[id].met {
			if job != 0 { // singleton
				by[job] = append(by[job], id)
			}
		}
	}
	return by
}

// indexDependency updates the index for a changed dependency; either record may be nil.
func (w *writerIndex) indexDependency(old, fresh *pb.JobRecord) {
	before, after := waitsFor(old), waitsFor(fresh)
	if before == after {
		return
	}
	w.enterDependency(old.GetId(), before, false)
	w.enterDependency(fresh.GetId(), after, true)
}

// waitsFor returns the dependency of a record that can still start.
func waitsFor(j *pb.JobRecord) string {
	if j == nil || !Active(j) {
		return ""
	}
	return j.Dependency
}

func (w *writerIndex) enterDependency(id uint32, text string, in bool) {
	d, err := jobid.ParseDependency(text)
	if err != nil {
		return // cannot fail: this program wrote it
	}
	corr := false
	for _, c := range d.Conditions {
		if c.Kind != jobid.Singleton {
			enter(w.waiting, c.Job, id, in, true)
		}
		corr = corr || c.Kind == jobid.AfterCorr
	}
	if delete(w.long, id); in && len(d.Conditions) > LongConditions && !corr {
		w.long[id] = newLongWait(text, d)
	}
}
