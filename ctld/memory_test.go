package ctld

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
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

// TestAllocatedIsCounted: the metrics that giveBack reads exist in this version of Go.
func TestAllocatedIsCounted(t *testing.T) {
	runtime.GC()
	samples := memoryMetrics()
	allocated, live, others := memoryUse(samples)
	for _, s := range samples {
		if s.Value.Kind() != metrics.KindUint64 {
			t.Errorf("%s is %v", s.Name, s.Value.Kind())
		}
	}
	if live == 0 || allocated < live || others == 0 || others > 1<<30 {
		t.Errorf("allocated %d, in use %d, others %d", allocated, live, others)
	}
}

// TestGarbageIsBounded: by half of what is in use where that is much, and not at all where it is little.
func TestGarbageIsBounded(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct{ live, others, want uint64 }{{30, 10, 1792}, {400, 250, 1792}, {1000, 250, 1792}, {1200, 300, 2100},
		{4000, 300, 6300}} {
		if got := ceiling(c.live*mib, c.others*mib); got != int64(c.want*mib) {
			t.Errorf("%d MiB in use and %d others: collected at %d MiB, want %d", c.live, c.others, got/mib, c.want)
		}
	}
}

// TestMemoryLimit: the controller sets one while it runs, and leaves that of the environment.
func TestMemoryLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	ended, end := context.WithCancel(t.Context())
	end()
	for _, environment := range []int64{math.MaxInt64, 3 << 30} {
		debug.SetMemoryLimit(environment)
		giveBack(ended)
		if got := debug.SetMemoryLimit(-1); got != environment {
			t.Errorf("the limit is %d, it was %d", got, environment)
		}
	}
	debug.SetMemoryLimit(math.MaxInt64)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); giveBack(ctx) }()
	for debug.SetMemoryLimit(-1) == math.MaxInt64 {
		runtime.Gosched()
	}
	cancel()
	<-done
}
