package placement

import (
	"slices"

	"github.com/sluice-hpc/sluice/sched/node"
	"github.com/sluice-hpc/sluice/sched/record"
)

// A job that is given nodes of which some are powered down begins on all of them when the last of those is up, and ends as much later:
// until then it occupies each of its nodes, also those that were up. On one node that is known as soon as the node is; for several it
// depends on which others are chosen. So they are chosen as if each node occupied itself only for as long as it takes to wake, and only if
// what was chosen does not last, with those that take longer to wake left out, for each time that nodes take, the shortest first.

// wakesAll is the patience of a choice for which no node takes too long to wake.
const wakesAll = -1

// lead is how long, in seconds, a node at a place is taken to be occupied before a job begins on it.
func (c *Candidates) lead(p int32) int64 {
	if c.patience != wakesAll {
		return c.patience
	}
	return c.Nodes[p].Rec.WakeS
}

// settle works out when the last node of a choice will be up, and how long the job may run from then on. until gives for each of its
// places until when the node is free, less lead.
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

// pickAwake is pickFrom with nodes left out that take long to wake, first all that are not up, then fewer.
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

// Wakes are the times, in seconds, that usable nodes take to wake, the shortest first; 0 is that of a node that is up.
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

// stay is how long a job has its nodes: lengthS seconds from the moment at which all are up. With a patience other than wakesAll, nodes
// that take longer than that to wake are left out, and each of the others is kept for as long as if it took that.
type stay struct{ lengthS, patience int64 }

// on is for how long a job that is given n occupies it; false where n takes too long to wake.
func (s stay) on(n *node.Node) (int64, bool) {
	if s.patience == wakesAll {
		return record.Add(s.lengthS, n.Rec.WakeS), true
	}
	return record.Add(s.lengthS, s.patience), n.Rec.WakeS <= s.patience
}

// earliestAwake is earliestEven, and where what that finds does not last until the last of its nodes is up, with nodes left out as in
// pickAwake.
func (fu *Future) earliestAwake(sh *Shape, c *Candidates, from, lengthS int64) (int64, *Choice) {
	at, ch := fu.earliestEven(sh, c, from, stay{lengthS, wakesAll})
	if ch == nil || fu.lasts(sh, ch, at, lengthS) {
		return at, ch
	}
	best, chosen := record.Forever, (*Choice)(nil)
	for _, wake := range c.Wakes() {
		t, other := fu.earliestEven(sh, c, at, stay{lengthS, wake}) // none is earlier than with the nodes for themselves
		if other != nil && (chosen == nil || t < best) {
			best, chosen = t, other
		}
	}
	return best, chosen
}

// lasts: each node of the choice stays free until the job would end that begins when the last of them is up.
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

// flexibleAwake is flexibleAt for the choice that lasts.
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

// mixed: some of the nodes wake sooner than others.
func (ch *Choice) mixed() bool {
	return slices.ContainsFunc(ch.Places, func(p int32) bool { return ch.Of.Nodes[p].Rec.WakeS != ch.WakeS })
}
