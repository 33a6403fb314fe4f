package ctld

import (
	"runtime/metrics"
	"testing"
)

// TestMemoryIsGivenBackOnceQuiet: not in the middle of a burst, once after it, and not for little.
func TestMemoryIsGivenBackOnceQuiet(t *testing.T) {
	const mib = 1 << 20
	var q quiet
	for i, step := range []struct {
		allocated uint64 // MiB since the start
		want      bool
	}{{1, false}, {3, false}, {100, false}, {300, false}, {303, true}, {304, false}, {308, false}, {318, false}, {320, true},
		{321, false}} {
		if got := q.due(step.allocated * mib); got != step.want {
			t.Errorf("step %d, %d MiB: %v", i, step.allocated, got)
		}
	}
}

// TestAllocatedIsCounted: the metric that giveBack reads exists in this version of Go.
func TestAllocatedIsCounted(t *testing.T) {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	if metrics.Read(sample); sample[0].Value.Kind() != metrics.KindUint64 || sample[0].Value.Uint64() == 0 {
		t.Errorf("%v", sample[0].Value.Kind())
	}
}
