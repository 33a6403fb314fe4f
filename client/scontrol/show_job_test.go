package scontrol

import (
	"testing"

	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
)

// TestWithSteps: what the steps of srun have used is a job's use as well, and where steps are missing it is not known.
func TestWithSteps(t *testing.T) {
	use := func(usec uint64) *msg.StepUsage { return &msg.StepUsage{Node: "n1", CpuUsecUser: usec, MaxRssKib: 5} }
	step := func(id uint32, usec uint64) *msg.StepRecord {
		return &msg.StepRecord{JobId: 7, StepId: id, Nodes: []*msg.StepNode{{Node: "n1", Usage: use(usec)}}}
	}
	for _, c := range []struct {
		interactive bool
		made        []*msg.StepRecord
		known       bool
		usec        uint64
	}{
		{false, nil, true, 100},
		{true, nil, false, 0},
		{false, []*msg.StepRecord{step(0, 10), step(1, 20)}, true, 130},
		{true, []*msg.StepRecord{step(0, 10)}, true, 110},
		{false, []*msg.StepRecord{step(1, 20)}, false, 0}, // step 0 has been forgotten
		{true, []*msg.StepRecord{step(0, 10), step(msg.InteractiveStep, 20)}, true, 130},
	} {
		r := &msg.JobRecord{Id: 7, Spec: &msg.JobSpec{Interactive: c.interactive}, Usage: []*msg.StepUsage{use(100)}}
		withSteps(r, c.made)
		if got := format.UseOf(r); len(r.Usage) > 0 != c.known || got.CPUUsec != c.usec || c.known && got.RSSKiB != 5 {
			t.Errorf("%v: %v", c, got)
		}
	}
}
