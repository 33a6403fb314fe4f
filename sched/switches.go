package sched

import (
	"cmp"
	"slices"
	"strings"
)

// switchWaitS is how long a job waits for the switches it asked for when
// nothing else is said (max_switch_wait in slurm.conf(5)).
const switchWaitS = 300

// requestOf is what the job asks for now: once it has waited long enough for
// few switches, any nodes will do (--switches in sbatch(1)).
func (s *Scheduler) requestOf(j *vjob) *Request {
	r := j.rec.Request
	if r == nil || r.Switches <= 0 {
		return r
	}
	wait := r.SwitchWaitS
	if wait == 0 {
		wait = switchWaitS
	}
	if at := add(eligibleAt(j.rec), wait); at > s.now {
		j.when = at
		s.timers.add(at, j)
		return r
	}
	any := *r
	any.Switches = 0
	return &any
}

// switchSets are the sets of switches to try for need nodes out of places, each
// as the places that are on them: single switches, those first that the job
// leaves the least of, then the largest ones together. nil when the request
// does not care or the switches are not known.
func (sh *shape) switchSets(c *candidates, places []int32, need int) [][]int32 {
	if sh.req.Switches <= 0 || len(c.nodes) == 0 || c.nodes[0].rec.Switch == "" {
		return nil
	}
	by := map[string][]int32{}
	var names []string
	for _, p := range places {
		name := c.nodes[p].rec.Switch
		if by[name] == nil {
			names = append(names, name)
		}
		by[name] = append(by[name], p)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(by[a]), len(by[b])), strings.Compare(a, b))
	})
	sets := [][]int32{}
	for _, name := range names {
		if len(by[name]) >= need {
			sets = append(sets, by[name])
		}
	}
	for k := 2; k <= min(sh.req.Switches, len(names)); k++ {
		var all []int32
		for _, name := range names[len(names)-k:] {
			all = append(all, by[name]...)
		}
		if len(all) >= need {
			sets = append(sets, all)
		}
	}
	return sets
}

// fitting are the places that fit until end.
func (c *candidates) fitting(end int64) []int32 {
	var out []int32
	for p := range c.nodes {
		if c.cost[p] != noFit && c.until[p] >= end {
			out = append(out, int32(p))
		}
	}
	return out
}

// pickOnSwitches is pickEven with few switches: each set is tried with the
// other places hidden.
func (s *Scheduler) pickOnSwitches(sh *shape, c *candidates, end int64, sets [][]int32) *choice {
	all := c.fitting(end)
	for _, set := range sets {
		on := make([]bool, len(c.nodes))
		for _, p := range set {
			on[p] = true
		}
		var hidden, none []int32
		for _, p := range all {
			if !on[p] {
				hidden = append(hidden, p)
			}
		}
		c.take(&none, hidden, end)
		ch := s.pickAny(sh, c, end)
		c.putBack(s, sh, hidden)
		if ch != nil {
			return ch
		}
	}
	return nil
}

// spreadOnSwitches is spread with few switches.
func (sh *shape) spreadOnSwitches(c *candidates, places []int32, caps func(int32) int, room, cost func(int32) int64) ([]int32, []int, []int64) {
	if sh.req.Switches > 0 {
		if sets := sh.switchSets(c, places, max(1, c.lo)); sets != nil {
			for _, set := range sets {
				if chosen, tasks, gpus := sh.spread(c, set, caps, room, cost); chosen != nil {
					return chosen, tasks, gpus
				}
			}
			return nil, nil, nil
		}
	}
	return sh.spread(c, places, caps, room, cost)
}
