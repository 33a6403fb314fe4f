package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// typicals counts submissions, for Placement FGD, which measures fragmentation against the typical requests of the cluster. Requests
// without devices are left out: they do not fragment devices. Old submissions lose weight. The scheduler's list changes seldom, because for
// a new one it recomputes every node.
type typicals struct {
	on      bool // Placement FGD is configured
	kinds   map[string]*typicalKind
	counted uint32 // highest job id counted so far; ids ascend
	seen    int64  // jobs and array tasks counted
	due     int64  // value of seen at which the list is remade
	list    []record.Typical
}

type typicalKind struct {
	request *record.Request
	count   int64
}

const (
	// maxTypical bounds the list, maxKinds the kinds that are counted; typicalPercent is the percentage of the counted jobs that the list
	// covers.
	maxTypical     = 64
	maxKinds       = 4096
	typicalPercent = 95
	// firstTypical is the number of jobs at which the first list is made, typicalEvery the largest number of submissions until the next
	// one.
	firstTypical = 16
	typicalEvery = 4096
)

// note counts a job when it is first seen.
func (t *typicals) note(j *pb.JobRecord, r *record.Request) {
	if !t.on || j.Id <= t.counted || r == nil {
		return
	}
	t.counted = j.Id
	if j.IsArrayTask || !slices.ContainsFunc(r.Gres, func(g record.GresRequest) bool {
		return g.Name == "gpu" || g.Name == "shard" ||
			g.Name == "mps"
	}) {
		return
	}
	n := int64(1)
	if j.ArrayTasks != "" {
		n = max(1, int64(state.ArraySet(j).Count()))
	}
	kind := *r // the part that concerns devices
	kind.MemNodeMiB, kind.MemCPUMiB, kind.MemGPUMiB, kind.MemSaid, kind.TmpMiB = 0, 0, 0, false, 0
	kind.NodeList, kind.Exclude, kind.Switches, kind.SwitchWaitS, kind.Licenses, kind.Reservation = nil, nil, 0, 0, nil, ""
	key := fmt.Sprintf("%+v", kind)
	k := t.kinds[key]
	if k == nil {
		if t.kinds == nil {
			t.kinds = map[string]*typicalKind{}
		}
		if len(t.kinds) >= maxKinds {
			t.age()
		}
		k = &typicalKind{request: &kind}
		t.kinds[key] = k
	}
	k.count += n
	t.seen += n
}

// age halves all counts.
func (t *typicals) age() {
	for key, k := range t.kinds {
		if k.count /= 2; k.count == 0 {
			delete(t.kinds, key)
		}
	}
}

// current returns the present list: the same slice while its contents stay.
func (t *typicals) current() []record.Typical {
	if !t.on {
		return nil
	}
	if t.seen < max(t.due, firstTypical) {
		return t.list
	}
	t.due = t.seen + min(t.seen, typicalEvery)
	if fresh := t.make(); t.list == nil || !sameWork(fresh, t.list) {
		t.list = fresh
	}
	if t.seen > typicalEvery {
		t.age()
		t.seen /= 2
		t.due = t.seen + typicalEvery
	}
	return t.list
}

// make lists the most frequent kinds.
func (t *typicals) make() []record.Typical {
	keys := make([]string, 0, len(t.kinds))
	all := int64(0)
	for key, k := range t.kinds {
		keys = append(keys, key)
		all += k.count
	}
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(cmp.Compare(t.kinds[b].count, t.kinds[a].count), strings.Compare(a, b))
	})
	var out []record.Typical
	covered := int64(0)
	for _, key := range keys[:min(len(keys), maxTypical)] {
		k := t.kinds[key]
		out = append(out, record.Typical{Request: k.request, Count: percentOf(k.count, all)})
		if covered += k.count; covered*100 >= all*typicalPercent {
			break
		}
	}
	return out
}

// percentOf returns a count in percent of all, at least 1: rarer kinds differ by their place in the list.
func percentOf(n, all int64) int64 { return max(1, n*100/all) }

// typicalShift is the percentage by which the frequency of a kind has to change before the list is replaced.
const typicalShift = 10

// sameWork reports whether no kind has become much more or less frequent.
func sameWork(a, b []record.Typical) bool {
	shift := map[*record.Request]int64{}
	for _, k := range a {
		shift[k.Request] += k.Count
	}
	for _, k := range b {
		shift[k.Request] -= k.Count
	}
	for _, d := range shift {
		if max(d, -d) > typicalShift {
			return false
		}
	}
	return true
}
