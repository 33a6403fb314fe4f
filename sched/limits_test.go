package sched

import (
	"testing"

	"github.com/sluice-hpc/sluice/sched/record"
)

// TestUsageFactors: jobs whose time counts otherwise share what is left under a limit, within a pass, too.
func TestUsageFactors(t *testing.T) {
	double, half, nothing := record.NewFactor(2e6), record.NewFactor(5e5), record.NewFactor(0)
	for _, tt := range []struct {
		what      string
		need, use record.Factor // of the first job, which is of 100 s on two CPUs; the second is a job like it that counts once
		left      int64
		want      string
	}{
		{"both fit", double, double, 600, "start 1 n1:2; start 2 n1:2"},
		{"the second no more", double, double, 599, "start 1 n1:2; 2: full"},
		{"the first counts in full for itself", double, double, 399, "start 2 n1:2; 1: full"},
		{"or not", record.Factor{}, double, 399, "start 1 n1:2; 2: full"},
		{"half", half, half, 300, "start 1 n1:2; start 2 n1:2"},
		{"nothing", record.Factor{}, nothing, 200, "start 1 n1:2; start 2 n1:2"},
	} {
		w := newWorld(t, record.Params{}, 1, 4)
		w.in.Limits = []record.Limit{{What: record.LimitMins + "cpu", Reason: "full"},
			{What: record.LimitMins + "cpu", Reason: "full", Need: tt.need, Use: tt.use, Back: 1}}
		w.in.Left = []int64{tt.left, tt.left}
		w.add(1, 100, record.Request{Tasks: 2}).Limits = []int32{1}
		w.add(2, 100, record.Request{Tasks: 2}).Limits = []int32{0}
		if got := w.plan(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.what, got, tt.want)
		}
	}
}
