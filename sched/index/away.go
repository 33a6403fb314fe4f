package index

import (
	"slices"

	"github.com/sluice-hpc/sluice/sched/node"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Nodes that are unavailable until a known time (record.Node.AwayUntil) have nothing free until then, so that plans for them begin then. A
// node that is late is unavailable for another second at a time, so that nothing is promised on it now.

// keepAway takes everything free on a node until its record says that it is available, and gives back what was taken for longer.
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

// extendAway extends the absence of nodes that are late.
func (ix *Index) extendAway() {
	for _, n := range ix.away {
		if n.Away <= ix.Now {
			ix.keepAway(n)
		}
	}
}
