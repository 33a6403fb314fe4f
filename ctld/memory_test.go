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
	u := memoryUse(samples)
	for _, s := range samples {
		if s.Value.Kind() != metrics.KindUint64 {
			t.Errorf("%s is %v", s.Name, s.Value.Kind())
		}
	}
	if u.live == 0 || u.allocated < u.live || u.objects == 0 || u.allocated < u.objects || u.others == 0 || u.others > 1<<30 {
		t.Errorf("%+v", u)
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

// TestBoundOfALoadedState: the last collection may have run in the middle of loading, so one more collection measures the memory in use.
// After that, the limit follows the memory in use when it changes by much.
func TestBoundOfALoadedState(t *testing.T) {
	const mib = 1 << 20
	var b bound
	collections := 0
	for i, step := range []struct {
		live, objects, collected uint64 // MiB
		want                     int64  // 0: not set
		collections              int
	}{{500, 3000, 2900, 2900*3/2 + 100, 1}, {2920, 4000, 0, 0, 1}, {3200, 4000, 0, 3200*3/2 + 100, 1}, {100, 4000, 0, 1792, 1}} {
		limit, set := b.next(use{live: step.live * mib, objects: step.objects * mib, others: 100 * mib}, func() use {
			collections++
			return use{live: step.collected * mib, objects: step.collected * mib, others: 100 * mib}
		})
		if limit != step.want*mib || set != (step.want != 0) || collections != step.collections {
			t.Errorf("step %d: %d MiB, set %v, %d collections", i, limit/mib, set, collections)
		}
	}
	b = 0
	if limit, _ := b.next(use{live: 10 * mib, objects: 30 * mib, others: 10 * mib}, nil); limit != roomyBytes { // no collection for little
		t.Errorf("of a small state: %d MiB", limit/mib)
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
