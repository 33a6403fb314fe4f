package planner

import (
	"slices"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/sched/priority"
	"github.com/sluice-hpc/sluice/sched/record"
)

// renewal is a round through the waiting jobs that updates their displayed priorities, once in each PriorityCalcPeriod. (The scheduler
// computes its own priorities; displayed ones decide nothing.)
type renewal struct {
	period int64
	after  uint32 // the last job seen
	under  bool   // the round is not complete
}

// renewAtOnce bounds the jobs that one commit renews.
const renewAtOnce = 500

// defaultPeriodS is the default of PriorityCalcPeriod.
const defaultPeriodS = 300

// priorities adds to a command the priorities of the jobs that it updates, and of the next jobs in the round; it reports whether the round
// has to continue.
func (m *mirror) priorities(cmd *reactor.ApplyPlan, v *state.View, snap *record.Snapshot, params *record.Params, r *renewal) bool {
	if params.Weights.Basic {
		return false
	}
	if p := snap.Now / max(params.Weights.CalcPeriodS, defaultPeriodS); p != r.period {
		*r = renewal{period: p, under: true}
	}
	jobs := make([]*record.Job, 0, len(cmd.Shown))
	for i := range cmd.Shown {
		jobs = append(jobs, m.sources[cmd.Shown[i].ID].job)
	}
	for i, prio := range m.priorityOf(jobs, snap, params) {
		cmd.Shown[i].Priority = prio
	}
	if !r.under {
		return false
	}
	at, _ := slices.BinarySearchFunc(m.pending, r.after+1, func(j *record.Job, id uint32) int { return int(int64(j.ID) - int64(id)) })
	part := m.pending[at:min(at+renewAtOnce, len(m.pending))]
	seen := map[uint32]bool{}
	for i := range cmd.Shown {
		seen[cmd.Shown[i].ID] = true
	}
	for i, prio := range m.priorityOf(part, snap, params) {
		id := part[i].ID
		r.after = id
		if j := v.Jobs.Get(id); j != nil && prio != 0 && j.Priority != 0 && j.Priority != prio && !seen[id] {
			cmd.Shown = append(cmd.Shown, reactor.PlannedShow{ID: id, Reason: j.Reason, Detail: j.ReasonDetail,
				ExpectedNS: j.ExpectedStartNs, ExpectedNodes: j.ExpectedNodes, Priority: prio})
		}
	}
	r.under = at+len(part) < len(m.pending)
	return r.under
}

// priorityOf computes priorities; 0 for fixed ones, and for jobs that are gone.
func (m *mirror) priorityOf(jobs []*record.Job, snap *record.Snapshot, params *record.Params) []uint32 {
	out := make([]uint32, len(jobs))
	var list []*record.Job
	var at []int
	for i, j := range jobs {
		if j != nil && j.Priority == 0 && j.Hold == record.NotHeld {
			list, at = append(list, j), append(at, i)
		}
	}
	if len(list) == 0 {
		return out
	}
	for i, parts := range priority.Of(params, snap, list) {
		out[at[i]] = priority.Total(parts)
	}
	return out
}
