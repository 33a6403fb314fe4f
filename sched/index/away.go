package index

import (
	"slices"

	"github.com/sluice-hpc/sluice/sched/node"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Nodes that cannot be had before a known moment (record.Node.AwayUntil) have nothing free until then, so that what is planned on them
// begins then. One that is late has nothing for another second: nobody may be promised it now.

// keepAway takes from a node what is free on it before it can be had, as its record says, and gives back what was taken for longer.
func (ix *Index) keepAway(n *node.Node) {
	until := int64(0)
	if n.Rec.AwayUntil > 0 && n.Rec.State == record.NodeUsable {
		until = max(n.Rec.AwayUntil, ix.Now+1)
	}
	was := n.Away
	if until == was {
		return
	}
	for _, part := range append([]*node.Node{n}, n.Subs...) {
		part.Prof.Free(0, was, part.Config.Full)
		part.Prof.Use(0, until, part.Config.Full)
		ix.touch(part)
	}
	n.Away = until
	switch at := slices.Index(ix.away, n); {
	case until > 0 && at < 0:
		ix.away = append(ix.away, n)
	case until == 0 && at >= 0:
		ix.away = slices.Delete(ix.away, at, at+1)
	}
}

// extendAway keeps those away that should be there and are not.
func (ix *Index) extendAway() {
	for _, n := range ix.away {
		if n.Away <= ix.Now {
			ix.keepAway(n)
		}
	}
}
