package node

import "github.com/sluice-hpc/sluice/sched/record"

// Run is a running job, or one started by the current pass.
type Run struct {
	Rec   *record.Run
	End   int64 // as in the profiles
	Parts []Part
	Lic   []int64
	Late  bool // over its limit
	Alone bool // its user has the nodes alone
	Heap  int
}

// Part is a run's part on one node.
type Part struct {
	Node  *Node
	Use   []int64
	Cores record.Bits
	Pool  int32 // index plus one of the partition whose jobs share the cores
	Alloc *record.Alloc
	Backs []Back // already taken by reservations of parts of the node
}
