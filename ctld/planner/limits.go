package planner

import (
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/limit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// limits are those of the jobs that wait. They are those of one policy: a change of it, or of the settings, makes the planner look at
// everything again.
type limits struct {
	policy *state.Policy
	safe   bool                  // Settings.EnforceSafe
	of     map[limitsKey][]int32 // of jobs that are alike
	list   []limit.Limit
	at     map[limit.Limit]int32

	rows   []record.Limit // the list, as the scheduler sees it
	left   []int64        // under each as of the view; a new one where anything has changed
	view   *state.View
	assocs map[uint32][]int32 // places of those that the use of an association counts for, by its id
	qoses  map[uint32][]int32
	timed  []int32 // places of those under which less or more is left as time passes
	nowS   int64   // as of which they are current
}

// limitsKey is what the limits of a job depend on.
type limitsKey struct{ user, account, qos, partitions string }

// limitsOf are the limits of a job, as places in the list; those of each partition in which it may run.
func (m *mirror) limitsOf(v *state.View, spec *pb.JobSpec) []int32 {
	if !v.Settings.EnforceLimits {
		return nil
	}
	r := &m.limits
	if r.policy != v.Policy() || r.safe != v.Settings.EnforceSafe {
		*r = limits{policy: v.Policy(), safe: v.Settings.EnforceSafe, of: map[limitsKey][]int32{}, at: map[limit.Limit]int32{},
			assocs: map[uint32][]int32{}, qoses: map[uint32][]int32{}}
	}
	key := limitsKey{spec.User, spec.Account, spec.Qos, convert.PartitionList(v, spec)}
	if ids, known := r.of[key]; known {
		return ids
	}
	var ids []int32
	for partition := range strings.SplitSeq(key.partitions, ",") {
		a := r.policy.AssocOf(spec.User, state.AccountOf(spec), partition)
		for _, l := range limit.Of(v, a, spec.Qos, spec.User) {
			if id := r.place(l); l.What != limit.Submit && !slices.Contains(ids, id) { // submission alone looks at that
				ids = append(ids, id)
			}
		}
	}
	r.of[key] = ids
	return ids
}

// place is where a limit has its place.
func (r *limits) place(l limit.Limit) int32 {
	id, known := r.at[l]
	if !known {
		row := record.Limit{PerJob: l.PerJob, What: l.What, Reason: record.Code(l.Reason), Need: l.Need, Use: l.Use}
		once := l
		if once.Need, once.Use = (record.Factor{}), (record.Factor{}); once != l && !l.PerJob {
			first := r.place(once)
			row.Back = int32(len(r.list)) - first
		}
		id = int32(len(r.list))
		r.at[l] = id
		r.list, r.rows = append(r.list, l), append(r.rows, row)
		if l.OverTime() {
			r.timed = append(r.timed, id)
		}
		switch {
		case l.PerJob:
		case l.Assoc != 0:
			r.assocs[l.Assoc] = append(r.assocs[l.Assoc], id)
		case l.User != "":
			for _, a := range r.policy.UserAssocs(l.User) {
				r.assocs[a.Id] = append(r.assocs[a.Id], id)
			}
		case l.Account != "":
			a := r.policy.Assoc("", l.Account, "").GetId()
			r.assocs[a] = append(r.assocs[a], id)
		default:
			r.qoses[l.QOS] = append(r.qoses[l.QOS], id)
		}
	}
	return id
}

// current brings up to date what is left under the limits of the jobs of a view: under those whose use has changed since the last one.
func (r *limits) current(v *state.View, nowS int64) ([]record.Limit, []int64) {
	if !v.Settings.EnforceLimits {
		return nil, nil
	}
	known, own := len(r.left), false
	set := func(i int32) {
		if left := r.list[i].Most - r.list[i].Used(v, nowS); int(i) >= known || left != r.left[i] {
			if !own {
				r.left, own = slices.Grow(slices.Clone(r.left), len(r.list)-known)[:len(r.list)], true
			}
			r.left[i] = left
		}
	}
	for i := known; i < len(r.list); i++ {
		set(int32(i))
	}
	some := func(places map[uint32][]int32) func(id uint32) {
		return func(id uint32) {
			for _, i := range places[id] {
				set(i)
			}
		}
	}
	if r.view != nil {
		v.UsedSince(r.view, some(r.assocs), some(r.qoses))
	}
	if r.view == nil || nowS != r.nowS || v.Past() != r.view.Past() {
		for _, i := range r.timed {
			set(i)
		}
	}
	r.view, r.nowS = v, nowS
	return r.rows, r.left
}
