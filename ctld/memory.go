package ctld

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// A burst of submissions leaves as much garbage as live data. Once the controller is quiet the garbage is collected and the memory returned
// to the system. Rejected: GOGC=200. It saves 8 % of the controller's CPU time for a job of an array, but a burst of 10,000 sbatch
// processes then takes 147 MB instead of 108.
const (
	quietEvery = 10 * time.Second
	quietBytes = 8 << 20  // allocated within quietEvery by a nearly idle controller
	worthBytes = 16 << 20 // allocated since the last time; a collection of less does not pay
)

// quiet decides when memory is returned to the system.
type quiet struct {
	last uint64 // bytes allocated since the start, at the last call
	done uint64 // bytes allocated since the start, when memory was last returned
}

// due is called every quietEvery with the bytes allocated since the start.
func (q *quiet) due(allocated uint64) bool {
	calm := allocated-q.last < quietBytes
	q.last = allocated
	if !calm || allocated-q.done < worthBytes {
		return false
	}
	q.done = allocated
	return true
}

// For a large state, garbage of half the live data is enough: with 10,000 nodes and 100,000 jobs, of which a gigabyte is live, Go would
// collect at more than two. Below roomyBytes in total nothing is done, so that small clusters collect no more often than before.
//
// The bound is updated every boundEvery: until then Go collects repeatedly to make room for new data.
const (
	roomyBytes   = 1792 << 20
	garbageShare = 2 // garbage is this fraction (one half) of live data
	boundEvery   = time.Second
	boundChange  = 32 // smaller relative changes (1/32) of the bound are ignored: setting it stops all goroutines for a moment
)

// bound is the present memory limit; 0: none yet.
type bound int64

// next returns the new limit, if it has to change. The last collection may have counted only a part of the data loaded since, so collect
// runs another one before the first limit is set.
func (b *bound) next(u use, collect func() use) (limit int64, set bool) {
	if *b == 0 && ceiling(u.objects, u.others) > ceiling(u.live, u.others) {
		u = collect()
	}
	limit = ceiling(u.live, u.others)
	if diff := limit - int64(*b); max(diff, -diff) <= int64(*b)/boundChange {
		return 0, false
	}
	*b = bound(limit)
	return limit, true
}

// ceiling returns the total bytes at which garbage should be collected, given live bytes of heap and others outside of it: stacks and the
// like.
func ceiling(live, others uint64) int64 {
	return int64(min(max(roomyBytes, others+live+live/garbageShare), math.MaxInt64))
}

// The metrics of memoryUse, in this order.
const (
	metricAllocs = iota
	metricLive
	metricTotal
	metricObjects // the heap, with the next three
	metricUnused
	metricFree
	metricReleased
)

func memoryMetrics() []metrics.Sample {
	const classes = "/memory/classes/"
	return []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: classes + "total:bytes"},
		{Name: classes + "heap/objects:bytes"}, {Name: classes + "heap/unused:bytes"}, {Name: classes + "heap/free:bytes"},
		{Name: classes + "heap/released:bytes"}}
}

// use holds, in bytes: all allocations since the start, the live data of the last collection, the heap's objects including garbage, and
// memory outside the heap.
type use struct{ allocated, live, objects, others uint64 }

func memoryUse(samples []metrics.Sample) use {
	metrics.Read(samples)
	value := func(i int) uint64 { return samples[i].Value.Uint64() }
	heap := value(metricObjects) + value(metricUnused) + value(metricFree) + value(metricReleased)
	return use{value(metricAllocs), value(metricLive), value(metricObjects), value(metricTotal) - min(heap, value(metricTotal))}
}

// giveBack bounds garbage, and returns memory when the controller is quiet, until ctx ends. It does not change a limit from the environment
// (GOMEMLIMIT).
func giveBack(ctx context.Context) {
	t := time.NewTicker(boundEvery)
	defer t.Stop()
	var q quiet
	var b bound
	samples := memoryMetrics()
	bounds := debug.SetMemoryLimit(-1) == math.MaxInt64
	if bounds {
		defer debug.SetMemoryLimit(math.MaxInt64)
	}
	collect := func() use { runtime.GC(); return memoryUse(samples) }
	for i := 0; ; i++ {
		u := memoryUse(samples)
		if bounds {
			if limit, set := b.next(u, collect); set {
				debug.SetMemoryLimit(limit)
			}
		}
		if i%int(quietEvery/boundEvery) == 0 && q.due(u.allocated) {
			debug.FreeOSMemory()
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}
