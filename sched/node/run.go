package node

import "github.com/sluice-hpc/sluice/sched/record"

// Run is a running job, or one started by the pass that is under way.
type Run struct {
	Rec   *record.Run
	End   int64 // as the profiles have it
	Parts []Part
	Lic   []int64
	Late  bool // over its limit
	Alone bool // its nodes are for its user alone
	Heap  int
}

// Part is a run's part on one node.
type Part struct {
	Node  *Node
	Use   []int64
	Cores record.Bits
	Pool  int32 // place plus one of the partition whose jobs share the cores
	Alloc *record.Alloc
	Backs []Back // what reservations of parts of the node have taken as well
}
