package planner

import (
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/limit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched"
)

// limits are those of the jobs that wait. They are those of one policy: a change of it makes the planner look at everything again.
type limits struct {
	policy *state.Policy
	of     map[limitsKey][]int32 // of jobs that are alike
	list   []limit.Limit
	at     map[limit.Limit]int32
}

// limitsKey is what the limits of a job depend on.
type limitsKey struct{ user, account, qos, partitions string }

// limitsOf are the limits of a job, as places in the list; those of each partition in which it may run.
func (m *mirror) limitsOf(v *state.View, spec *pb.JobSpec) []int32 {
	if !v.Settings.EnforceLimits {
		return nil
	}
	r := &m.limits
	if r.policy != v.Policy() {
		*r = limits{policy: v.Policy(), of: map[limitsKey][]int32{}, at: map[limit.Limit]int32{}}
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
		id = int32(len(r.list))
		r.at[l] = id
		r.list = append(r.list, l)
	}
	return id
}

// left are the limits as the scheduler sees them: what is left now.
func (r *limits) left(v *state.View) []sched.Limit {
	if !v.Settings.EnforceLimits {
		return nil
	}
	out := make([]sched.Limit, len(r.list))
	for i := range r.list {
		l := &r.list[i]
		out[i] = sched.Limit{PerJob: l.PerJob, What: l.What, Left: l.Most - l.Used(v), Reason: sched.Code(l.Reason)}
	}
	return out
}
