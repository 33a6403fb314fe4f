package reactor

import (
	"slices"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// AttachStep has the nodes of a running step connect to another client as well (sattach(1)). The reply is Attached.
type AttachStep struct {
	Caller    Caller
	Job, Step uint32
	Addresses []string
}

// Attached is the reply to AttachStep: the step, with its certificate and key.
type Attached struct{ Step *pb.StepRecord }

// maxWatchers bounds the watchers kept with a step; one more replaces the first.
const maxWatchers = 16

// Handle adds the watcher.
func (c AttachStep) Handle(tx *state.Tx) any {
	j := tx.Job(c.Job)
	if p := (CreateStep{Caller: c.Caller, Job: c.Job}).refused(j); p != nil {
		return p
	}
	s, p := liveStep(tx, j, c.Step)
	if p != nil {
		return p
	}
	w := &pb.StepWatcher{Seq: 1, Addresses: c.Addresses}
	if k := len(s.Watchers); k > 0 {
		w.Seq = s.Watchers[k-1].Seq + 1
	}
	n := state.CloneStep(s)
	n.Watchers = append(slices.Clone(s.Watchers[max(0, len(s.Watchers)-maxWatchers+1):]), w)
	tx.Emit(state.StepChanged{Step: n, What: "attached"})
	return Attached{Step: n}
}
