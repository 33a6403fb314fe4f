package state

import (
	"maps"
	"slices"

	"github.com/sluice-hpc/sluice/conf/jobid"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// LongConditions is how many conditions of one record are weighed again, all of them, whenever one of their jobs changes. With more that
// would be quadratic: they have a LongWait. A variable for tests, which want few.
var LongConditions = jobid.MaxWithCorr

// weighsOf is how many times a LongWait is weighed while the verdicts on as many conditions change as it has.
const weighsOf = 16

// Truth of a condition of a dependency.
type Truth uint8

// What a condition may be. The zero value says that it waits.
const (
	Waits Truth = iota
	Met
	Never
)

// LongWait are the verdicts on a dependency of many conditions. When a job changes, only the conditions that name it are judged. The record
// is weighed, and written, when that decides something, or when a share of the verdicts has changed. A later change of a job cannot undo
// that a condition was met. It is not on disk: after a start, each record is weighed once, before any job is forgotten.
type LongWait struct {
	dependency string
	any        bool
	weighed    bool // the verdicts are those of the record
	verdicts   map[jobid.Condition]Truth
	met        []uint32 // the jobs of the conditions that have been met since the record was weighed
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

// undelayed leaves out the minutes of after:12+30, which count from the moment that it is met.
func undelayed(c jobid.Condition) jobid.Condition {
	c.DelayMin = 0
	return c
}

// LongWait are the verdicts on a record's dependency, if it has many conditions; nil: it has not. Only for the writer.
func (tx *Tx) LongWait(j *pb.JobRecord) *LongWait {
	if w := tx.next.writer.long[j.Id]; w != nil && w.dependency == j.Dependency {
		return w
	}
	return nil
}

// Weighed reports whether the record has been weighed since it got its dependency: until then, it has to be at each change.
func (w *LongWait) Weighed() bool { return w.weighed }

// Conditions is how many conditions there are.
func (w *LongWait) Conditions() int { return len(w.verdicts) }

// Has reports whether a condition, without its delay, is one of them.
func (w *LongWait) Has(c jobid.Condition) bool {
	_, ok := w.verdicts[c]
	return ok
}

// IsMet reports whether a condition has been met, for good. One with a delay has to be judged again.
func (w *LongWait) IsMet(c jobid.Condition) bool { return w != nil && w.verdicts[c] == Met }

// Note takes the verdict on one of the conditions, without its delay, and reports whether the record is to be weighed. never says that so
// far it can never start.
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
		decides = decides || w.any // that all are met is among the shares below
	case Never:
		w.nevers++
		decides = !never && (!w.any || w.nevers == len(w.verdicts))
	}
	return decides || w.changes*weighsOf >= len(w.verdicts)
}

// Reset says that the record has been weighed, and which of its conditions can no longer be met.
func (w *LongWait) Reset(never []jobid.Condition) {
	for c := range w.verdicts {
		w.verdicts[c] = Waits
	}
	for _, c := range never {
		w.verdicts[undelayed(c)] = Never
	}
	w.weighed, w.met, w.nevers, w.changes = true, nil, len(never), 0
}

// Unweighed are, by job and array, the records that name it in a condition that has been met and that they still hold. Only for the writer.
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

// indexDependency follows what a record waits for; either record may be nil.
func (w *writerIndex) indexDependency(old, fresh *pb.JobRecord) {
	before, after := waitsFor(old), waitsFor(fresh)
	if before == after {
		return
	}
	w.enterDependency(old.GetId(), before, false)
	w.enterDependency(fresh.GetId(), after, true)
}

// waitsFor is the dependency of a record that can still start.
func waitsFor(j *pb.JobRecord) string {
	if j == nil || !Active(j) {
		return ""
	}
	return j.Dependency
}

func (w *writerIndex) enterDependency(id uint32, text string, in bool) {
	d, err := jobid.ParseDependency(text)
	if err != nil {
		return // written by this program
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
