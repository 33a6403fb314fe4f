package placement

import (
	"slices"

	"github.com/sluice-hpc/sluice/sched/node"
	"github.com/sluice-hpc/sluice/sched/record"
)

// A job on nodes of which some are powered down begins on all of them when the last of those is up, and ends that much later: until then it
// occupies each of its nodes, including those that were up. For one node that time is known with the node; for several it depends on the
// others that are chosen. So nodes are first chosen as if each were occupied only for its own time to wake. If the choice does not last,
// nodes that take longer to wake are left out, for each time to wake that occurs, the shortest first.

// wakesAll is the patience for which no node takes too long to wake.
const wakesAll = -1

// lead returns for how many seconds a node at a place is assumed to be occupied before a job begins on it.
func (c *Candidates) lead(p int32) int64 {
	if c.patience != wakesAll {
		return c.patience
	}
	return c.Nodes[p].Rec.WakeS
}

// settle computes when the last node of a choice will be up, and how long the job may run from then on. until returns for each of its
// places the time until which the node is free, less lead.
func (ch *Choice) settle(until func(i int, p int32) int64) {
	for _, p := range ch.Places {
		ch.WakeS = max(ch.WakeS, ch.Of.Nodes[p].Rec.WakeS)
	}
	ch.Until = record.Forever
	for i, p := range ch.Places {
		if t := until(i, p); t < record.Forever {
			ch.Until = min(ch.Until, t+ch.Of.lead(p)-ch.WakeS)
		}
	}
}

// pickAwake is pickFrom without nodes that take long to wake: first without all that are not up, then without fewer.
func (pl *Placer) pickAwake(sh *Shape, c *Candidates, end int64) *Choice {
	until := c.until
	defer func() {
		c.until, c.patience = until, wakesAll
		for b := range c.blocks {
			c.raise(b)
		}
	}()
	c.until = make([]int64, len(until))
	for _, wake := range c.Wakes() {
		c.patience = wake
		for p, n := range c.Nodes {
			switch {
			case n.Rec.WakeS > wake:
				c.until[p] = 0
			case until[p] < record.Forever:
				c.until[p] = until[p] + n.Rec.WakeS - wake
			default:
				c.until[p] = record.Forever
			}
		}
		for b := range c.blocks {
			c.raise(b)
		}
		if ch := pl.pickFrom(sh, c, end); ch != nil && ch.Until >= end {
			return ch
		}
	}
	return nil
}

// Wakes returns the times, in seconds, that usable nodes take to wake, the shortest first; 0 is that of a node that is up.
func (c *Candidates) Wakes() []int64 {
	var out []int64
	for _, n := range c.Nodes {
		if n.Rec.State == record.NodeUsable && !slices.Contains(out, n.Rec.WakeS) {
			out = append(out, n.Rec.WakeS)
		}
	}
	slices.Sort(out)
	return out
}

// stay is the time that a job has its nodes: lengthS seconds from the moment at which all are up. With a patience other than wakesAll,
// nodes that take longer than that to wake are left out, and each of the others is kept as if it took that long.
type stay struct{ lengthS, patience int64 }

// on returns for how long a job occupies n; false where n takes too long to wake.
func (s stay) on(n *node.Node) (int64, bool) {
	if s.patience == wakesAll {
		return record.Add(s.lengthS, n.Rec.WakeS), true
	}
	return record.Add(s.lengthS, s.patience), n.Rec.WakeS <= s.patience
}

// earliestAwake is earliestEven; if the result does not last until the last of its nodes is up, nodes are left out as in pickAwake.
func (fu *Future) earliestAwake(sh *Shape, c *Candidates, from, lengthS int64) (int64, *Choice) {
	at, ch := fu.earliestEven(sh, c, from, stay{lengthS, wakesAll})
	if ch == nil || fu.lasts(sh, ch, at, lengthS) {
		return at, ch
	}
	best, chosen := record.Forever, (*Choice)(nil)
	for _, wake := range c.Wakes() {
		t, other := fu.earliestEven(sh, c, at, stay{lengthS, wake}) // never earlier than when nodes wake independently
		if other != nil && (chosen == nil || t < best) {
			best, chosen = t, other
		}
	}
	return best, chosen
}

// lasts reports whether each node of the choice stays free until the end of a job that begins when the last of them is up.
func (fu *Future) lasts(sh *Shape, ch *Choice, at, lengthS int64) bool {
	for _, p := range ch.Places {
		if ch.Of.Nodes[p].Rec.WakeS == ch.WakeS {
			continue
		}
		if _, ok := fu.stretchFrom(sh, ch.Of, p, at, stay{lengthS, ch.WakeS}, at); !ok {
			return false
		}
	}
	return true
}

// flexibleAwake is flexibleAt for a choice that lasts.
func (fu *Future) flexibleAwake(sh *Shape, c *Candidates, t, lengthS int64) *Choice {
	ch := fu.flexibleAt(sh, c, t, stay{lengthS, wakesAll})
	if ch == nil || !ch.mixed() {
		return ch
	}
	for _, wake := range c.Wakes() {
		if ch := fu.flexibleAt(sh, c, t, stay{lengthS, wake}); ch != nil {
			return ch
		}
	}
	return nil
}

// mixed reports whether some of the nodes wake sooner than others.
func (ch *Choice) mixed() bool {
	return slices.ContainsFunc(ch.Places, func(p int32) bool { return ch.Of.Nodes[p].Rec.WakeS != ch.WakeS })
}
