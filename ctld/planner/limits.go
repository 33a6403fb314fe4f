package planner

import (
	"maps"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/limit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/reason"
	"github.com/sluice-hpc/sluice/sched/record"
)

// limits holds the limits of the waiting jobs under one policy. A change of the policy, of the settings or of the partitions' QOS makes the
// planner look at everything again.
type limits struct {
	layout uint64 // of the view of policy, settings and partitions
	policy *state.Policy
	safe   bool                    // Settings.EnforceSafe
	parts  map[string]uint32       // QOS of each partition
	of     map[limitsKey][][]int32 // by kind of job: the limits in each of its partitions; one list where they are the same
	list   []limit.Limit
	at     map[limit.Limit]int32

	rows   []record.Limit // the list for the scheduler
	left   []int64        // the rest under each limit, as of the view; a new slice after any change
	view   *state.View
	assocs map[uint32][]int32 // indexes of the limits in which an association's use counts, by its id
	qoses  map[uint32][]int32
	timed  []int32 // indexes of the limits whose rest changes with time
	freed  []int64 // increase of the rest within record.FreedS seconds, by index
	nowS   int64   // time for which they are current
	byFair []int32 // indexes of the limits that depend on fair-share factors
	shares []record.Share
}

// limitsKey holds the properties on which a job's limits depend.
type limitsKey struct{ user, account, qos, partitions string }

// limitsOf returns the limits of a job, as indexes in the list, and, where they differ, those in each of the partitions that are open to
// it.
func (m *mirror) limitsOf(v *state.View, spec *pb.JobSpec, partitions []string) (all []int32, parts [][]int32) {
	if !v.Settings.EnforceLimits {
		return nil, nil
	}
	r := &m.limits
	r.follow(v)
	key := limitsKey{spec.User, spec.Account, spec.Qos, strings.Join(partitions, ",")}
	list, known := r.of[key]
	if !known {
		for _, partition := range partitions {
			list = append(list, r.in(v, spec, partition))
		}
		if !slices.ContainsFunc(list, func(ids []int32) bool { return !slices.Equal(ids, list[0]) }) {
			list = list[:1]
		}
		r.of[key] = list
	}
	if len(list) == 1 {
		return list[0], nil
	}
	return nil, list
}

// in returns the limits of a job in one partition.
func (r *limits) in(v *state.View, spec *pb.JobSpec, partition string) (ids []int32) {
	a := r.policy.AssocOf(spec.User, state.AccountOf(spec), partition)
	for _, l := range limit.Of(v, a, spec.Qos, partition, spec.User) {
		if id := r.place(l); l.What != limit.Submit && !slices.Contains(ids, id) { // only submissions are checked against it
			ids = append(ids, id)
		}
	}
	return ids
}

// outdated reports whether the limits of a view may differ from the known ones.
func (r *limits) outdated(v *state.View) bool {
	if r.of == nil || r.layout == v.Layout {
		return false
	}
	if r.policy != v.Policy() || r.safe != v.Settings.EnforceSafe || !maps.Equal(r.parts, v.PartitionQOSes()) {
		return true
	}
	r.layout = v.Layout
	return false
}

// follow starts anew if they may.
func (r *limits) follow(v *state.View) {
	if r.of == nil || r.outdated(v) {
		*r = limits{layout: v.Layout, policy: v.Policy(), safe: v.Settings.EnforceSafe, parts: v.PartitionQOSes(),
			of: map[limitsKey][][]int32{}, at: map[limit.Limit]int32{}, assocs: map[uint32][]int32{}, qoses: map[uint32][]int32{}}
	}
}

// place returns the index of a limit, which it adds if necessary.
func (r *limits) place(l limit.Limit) int32 {
	id, known := r.at[l]
	if !known {
		row := record.Limit{PerJob: l.PerJob, What: l.What, Reason: reason.Code(l.Reason), Need: l.Need, Use: l.Use}
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
		case l.What == record.LimitShare:
			r.byFair = append(r.byFair, id)
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

// current updates the rest under the limits of the waiting jobs: under those whose use has changed since the last view. A changed list of
// factors is a new slice.
func (r *limits) current(v *state.View, nowS int64, shares []record.Share) ([]record.Limit, []int64) {
	if !v.Settings.EnforceLimits {
		return nil, nil
	}
	known, own := len(r.left), false
	set := func(i int32) {
		if left := r.list[i].Left(v, nowS, shares); int(i) >= known || left != r.left[i] {
			if !own {
				r.left, own = slices.Grow(slices.Clone(r.left), len(r.list)-known)[:len(r.list)], true
			}
			r.left[i] = left
		}
		if r.list[i].OverTime() {
			for int(i) >= len(r.freed) {
				r.freed = append(r.freed, 0)
			}
			r.freed[i] = r.list[i].Freed(v, nowS, record.FreedS)
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
	if past := r.view == nil || v.Past() != r.view.Past(); past || nowS != r.nowS {
		for _, i := range r.timed {
			if past || r.freed[i] != 0 { // otherwise time changes nothing: no job runs
				set(i)
			}
		}
	}
	if len(r.shares) != len(shares) || len(shares) > 0 && &r.shares[0] != &shares[0] {
		for _, i := range r.byFair {
			set(i)
		}
	}
	r.view, r.nowS, r.shares = v, nowS, shares
	return r.rows, r.left
}
