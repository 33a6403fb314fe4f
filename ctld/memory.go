package ctld

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// A burst of submissions leaves a byte of garbage for each that lives. Once the controller is quiet that is collected and given back to the
// system. Rejected: GOGC=200, with which the burst of 10,000 sbatch processes takes 147 MB in place of 108, and a job of an array 8 % less
// CPU time of the controller.
const (
	quietEvery = 10 * time.Second
	quietBytes = 8 << 20  // allocated within quietEvery by a controller with little to do
	worthBytes = 16 << 20 // allocated since the last time; for less it is not worth a collection
)

// quiet says when memory is to be given back.
type quiet struct {
	last uint64 // allocated since the start when it was looked at last
	done uint64 // when memory was given back last
}

// due is asked every quietEvery with the bytes that were allocated since the start.
func (q *quiet) due(allocated uint64) bool {
	calm := allocated-q.last < quietBytes
	q.last = allocated
	if !calm || allocated-q.done < worthBytes {
		return false
	}
	q.done = allocated
	return true
}

// Of a large state half is enough for garbage: with 10,000 nodes and 100,000 jobs, of which a gigabyte is in use, Go would collect at more
// than two. Below roomyBytes in all nothing is done, so that small clusters collect no more often than they did.
//
// What is in use is looked at every boundEvery: of what has come since the bound was set last, Go makes room by collecting repeatedly.
const (
	roomyBytes   = 1792 << 20
	garbageShare = 2 // of what is in use, its inverse
	boundEvery   = time.Second
	boundChange  = 32 // a change of less than this part of the bound is none: to set it stops all goroutines for a moment
)

// bound is the limit that is in force; 0: there is none yet.
type bound int64

// next says how the limit is to be set for what is in use, if it is. What the last collection found may be a part only of what was loaded
// since: collect does another one, before the first limit is set.
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

// ceiling is at how many bytes in all garbage is to be collected, when live bytes are in use and others are no heap: stacks and the like.
func ceiling(live, others uint64) int64 {
	return int64(min(max(roomyBytes, others+live+live/garbageShare), math.MaxInt64))
}

// What memoryUse reads, in this order.
const (
	metricAllocs = iota
	metricLive
	metricTotal
	metricObjects // the heap, as are the next three
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

// use is, in bytes, what has been allocated since the start, what of it the last collection found in use, the heap's objects with what is
// garbage, and what there is besides the heap.
type use struct{ allocated, live, objects, others uint64 }

func memoryUse(samples []metrics.Sample) use {
	metrics.Read(samples)
	value := func(i int) uint64 { return samples[i].Value.Uint64() }
	heap := value(metricObjects) + value(metricUnused) + value(metricFree) + value(metricReleased)
	return use{value(metricAllocs), value(metricLive), value(metricObjects), value(metricTotal) - min(heap, value(metricTotal))}
}

// giveBack bounds garbage, and gives memory back when the controller is quiet, until ctx ends. A limit from the environment (GOMEMLIMIT)
// is left as it is.
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
