package sizing

import (
	"testing"

	"github.com/sluice-hpc/sluice/sched/record"
)

// TestLimitLeast: of a minimum counts the most that a request could get, or what it says.
func TestLimitLeast(t *testing.T) {
	gpu := func(typ string, n int64, per record.GresPer) []record.GresRequest {
		return []record.GresRequest{{Name: "gpu", Type: typ, Count: n, Per: per}}
	}
	for _, tt := range []struct {
		what          string
		r             record.Request
		tres          string
		most, request int64
	}{
		{"-n3", record.Request{Tasks: 3}, "cpu", 3, 3},
		{"-n3", record.Request{Tasks: 3}, "node", 3, 1},
		{"-N1-4 -n3 -c2", record.Request{MinNodes: 1, MaxNodes: 4, Tasks: 3, CPUsPerTask: 2}, "cpu", 8, 6},
		{"-N2-4", record.Request{MinNodes: 2, MaxNodes: 4}, "cpu", 4, 2},
		{"-N2-4 --mem=100", record.Request{MinNodes: 2, MaxNodes: 4, MemNodeMiB: 100, MemSaid: true}, "mem", 400, 200},
		{"--mem=0", record.Request{Tasks: 1, MemSaid: true}, "mem", record.Forever, record.Forever},
		{"--mem=0", record.Request{Tasks: 1, MemSaid: true}, "cpu", 1, 1},
		{"--exclusive", record.Request{Tasks: 1, MinNodes: 1, MaxNodes: 1, Exclusive: true}, "cpu", record.Forever, 1},
		{"--exclusive", record.Request{Tasks: 1, MinNodes: 1, MaxNodes: 1, Exclusive: true}, "node", 1, 1},
		{"--gpus=2", record.Request{Tasks: 1, Gres: gpu("", 2, record.PerJob)}, "gres/gpu", 2, 2},
		{"--gpus=2", record.Request{Tasks: 1, Gres: gpu("", 2, record.PerJob)}, "gres/gpu:a100", 0, 0},
		{"--gpus=a100:2", record.Request{Tasks: 1, Gres: gpu("a100", 2, record.PerJob)}, "gres/gpu:a100", 2, 2},
		{"-N1-2 --gpus-per-node=1", record.Request{MinNodes: 1, MaxNodes: 2, Gres: gpu("", 1, record.PerNode)}, "gres/gpu", 2, 1},
		{"-n1", record.Request{Tasks: 1}, "gres/gpu", 0, 0},
	} {
		c := Count(&tt.r)
		most, request := -LimitNeed(record.LimitLeast+tt.tres, &c, 0), -LimitNeedAtOnce(record.LimitLeast+tt.tres, &c, 0)
		if most != tt.most || request != tt.request {
			t.Errorf("%s: %s at most %d, %d said, want %d and %d", tt.what, tt.tres, most, request, tt.most, tt.request)
		}
	}
}
