package gpuhours

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-hpc/sluice/ctld/state"
)

// Intervals of the Recorder's looks and of its writes. A moment counts for at most longest: anything beyond, after a suspend or a stall, is
// a gap.
const (
	LookEvery = 10 * time.Second
	keepEvery = time.Minute
	longest   = 6 * LookEvery
)

// maxKept bounds the rows that wait to be written; those of the oldest hours are dropped first.
const maxKept = 20000

// Hour is the use of GPUs in one hour: of all, or those of a partition.
type Hour struct {
	Start     int64  // seconds since 1970
	Partition string // "" = all
	Covered   float64
	Sums      // times seconds
}

// LostHour is a user's loss to fragmentation in one hour.
type LostHour struct {
	Start int64
	Loss
	Lost // times seconds
}

// Recorder looks periodically. Create with New, run with Run.
type Recorder struct {
	View   func() *state.View
	Sample Sample
	// Keep adds rows to those on disk, all or none.
	Keep func(context.Context, []Hour, []LostHour) error
	Now  func() time.Time
	Boot func() int64 // CLOCK_BOOTTIME in nanoseconds
	Log  *slog.Logger

	mu     sync.Mutex // not held during disk I/O
	hours  map[hourKey]*Hour
	losses map[lossKey]*LostHour
	giving chan struct{} // non-nil while a Flush is writing; closed when it is done
	turns  uint64        // number of Flushes that have begun to write
	last   int64         // of Boot, 0 = there was none
	failed bool
}

type hourKey struct {
	start     int64
	partition string
}

type lossKey struct {
	start int64
	Loss
}

// Run looks until ctx ends, and then writes the rest.
func (r *Recorder) Run(ctx context.Context) {
	look, keep := time.NewTicker(LookEvery), time.NewTicker(keepEvery)
	defer look.Stop()
	defer keep.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			r.Flush(last)
			return
		case <-look.C:
			r.Look()
		case <-keep.C:
			r.Flush(ctx)
		}
	}
}

// Look counts this moment for the time since the last one.
func (r *Recorder) Look() {
	now := r.Boot()
	since := time.Duration(now - r.last)
	first := r.last == 0
	if r.last = now; first || since <= 0 {
		return
	}
	m := Look(r.View(), r.Sample)
	if m == nil {
		return
	}
	r.add(m, r.Now().Unix()/3600*3600, min(since, longest).Seconds())
}

func (r *Recorder) add(m *Moment, start int64, seconds float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hours == nil {
		r.hours, r.losses = map[hourKey]*Hour{}, map[lossKey]*LostHour{}
	}
	put := func(partition string, s *Sums) {
		k := hourKey{start, partition}
		h := r.hours[k]
		if h == nil {
			h = &Hour{Start: start, Partition: partition}
			r.hours[k] = h
		}
		h.Covered += seconds
		h.Add(s, seconds)
	}
	put("", &m.All)
	for name, s := range m.Partitions {
		put(name, s)
	}
	for who, lost := range m.Lost {
		k := lossKey{start, who}
		l := r.losses[k]
		if l == nil {
			l = &LostHour{Start: start, Loss: who}
			r.losses[k] = l
		}
		l.GPUs, l.Beside = l.GPUs+lost.GPUs*seconds, l.Beside+lost.Beside*seconds
	}
}

// readTries is the number of times that Read reads while Flush writes, which it does once a minute.
const readTries = 5

// Read returns the rows that have not been written, from since to before until in seconds since 1970, of all GPUs or a partition, and the
// losses. stored reads the rows on disk, from the beginning each time that it is called, so that both are of one moment. It may take long,
// and nothing waits for it.
func (r *Recorder) Read(ctx context.Context, since, until int64, partition string, stored func() error) ([]Hour, []LostHour, error) {
	for range readTries {
		hours, losses, turns, err := r.waiting(ctx, since, until, partition)
		if err == nil {
			err = stored()
		}
		if err != nil {
			return nil, nil, err
		}
		r.mu.Lock()
		same := r.turns == turns
		r.mu.Unlock()
		if same {
			return hours, losses, nil
		}
	}
	return nil, nil, errors.New("the accounting database is too slow: the GPU records changed each time while they were read; try again")
}

// waiting copies the result of Read once no Flush is writing, and returns the number of Flushes.
func (r *Recorder) waiting(ctx context.Context, since, until int64, partition string) (hours []Hour, losses []LostHour, turns uint64,
	err error) {
	r.mu.Lock()
	for r.giving != nil {
		written := r.giving
		r.mu.Unlock()
		select {
		case <-written:
		case <-ctx.Done():
			return nil, nil, 0, ctx.Err()
		}
		r.mu.Lock()
	}
	defer r.mu.Unlock()
	for k, h := range r.hours {
		if k.partition == partition && k.start >= since && k.start < until {
			hours = append(hours, *h)
		}
	}
	for k, l := range r.losses {
		if k.start >= since && k.start < until {
			losses = append(losses, *l)
		}
	}
	return hours, losses, r.turns, nil
}

// Flush writes the rows; those that cannot be written are kept for the next time. It must not run at the same time as Look or another
// Flush.
func (r *Recorder) Flush(ctx context.Context) {
	r.mu.Lock()
	if len(r.hours) == 0 {
		r.mu.Unlock()
		return
	}
	hours := rowsOf(r.hours, func(a, b *Hour) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Partition, b.Partition))
	})
	losses := rowsOf(r.losses, func(a, b *LostHour) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Account, b.Account),
			cmp.Compare(a.Partition, b.Partition))
	})
	r.turns++
	r.giving = make(chan struct{})
	r.mu.Unlock()
	err := r.Keep(ctx, hours, losses)
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.giving)
	r.giving = nil
	if err == nil {
		r.hours, r.losses, r.failed = nil, nil, false
		return
	}
	if !r.failed {
		r.Log.Warn("cannot store GPU records; keeping them in memory and trying again", "err", err)
	}
	r.failed = true
	r.forget()
}

// forget drops the oldest hours while too many rows wait.
func (r *Recorder) forget() {
	for len(r.hours)+len(r.losses) > maxKept {
		oldest := int64(1<<63 - 1)
		for k := range r.hours {
			oldest = min(oldest, k.start)
		}
		for k := range r.losses {
			oldest = min(oldest, k.start)
		}
		maps.DeleteFunc(r.hours, func(k hourKey, _ *Hour) bool { return k.start == oldest })
		maps.DeleteFunc(r.losses, func(k lossKey, _ *LostHour) bool { return k.start == oldest })
	}
}

func rowsOf[K comparable, V any](m map[K]*V, order func(a, b *V) int) []V {
	list := slices.SortedFunc(maps.Values(m), order)
	out := make([]V, len(list))
	for i, p := range list {
		out[i] = *p
	}
	return out
}
