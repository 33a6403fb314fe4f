package acct

import (
	"context"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"pgregory.net/rapid"
)

const halfLife = 12 * time.Hour

// slow sums up every attempt second by second. Usage must give the same sum, however often it was queried before.
func (w *world) slow(since, until int64, faded bool) map[shareKey]float64 {
	sums := map[shareKey]float64{}
	now := w.now.UnixNano()
	for _, j := range w.seen {
		if j.StartNs == 0 {
			continue
		}
		end := endOf(j)
		if end == running {
			end = now
		}
		for t := j.StartNs; t < end; t += second {
			if t < since || t >= until {
				continue
			}
			weight := 1.0
			if faded {
				weight = math.Exp2(-float64(now-t-second/2) / float64(halfLife))
			}
			sums[shareKey{account: j.Spec.Account, uid: j.Spec.Uid}] += weight
		}
	}
	return sums
}

func (w *world) decayed(ctx context.Context, fading Fading, view func() *state.View) ([]*Share, error) {
	parts, _, err := w.a.Parts(ctx, fading, view)
	return Merged(parts), err
}

func (w *world) compare(t rapid.TB, what string, got []*Share, err error, want map[shareKey]float64) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, s := range got {
		if s.Used["cpu"] == 0 {
			continue
		}
		n++
		if v := want[shareKey{account: s.Account, uid: s.UID}]; math.Abs(v-s.Used["cpu"]) > 1e-6*v+1e-3 {
			t.Fatalf("%s: account %s, uid %d: %f cpu seconds, want %f", what, s.Account, s.UID, s.Used["cpu"], v)
		}
		if s.Used["mem"] != 100*s.Used["cpu"] && math.Abs(s.Used["mem"]-100*s.Used["cpu"]) > 1e-3 {
			t.Fatalf("%s: %f MiB seconds beside %f cpu seconds", what, s.Used["mem"], s.Used["cpu"])
		}
	}
	if n != len(want) {
		t.Fatalf("%s: %d users, want %d", what, n, len(want))
	}
}

// Usage is the sum over every attempt, in any order of starts, ends, writes, purges and queries.
func TestUsageIsTheSumOfAllAttempts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(memory(), "acct")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		w := newWorld(t, dir)
		defer func() { w.a.shut() }()
		begin := w.now
		ctx := context.Background()
		t.Repeat(map[string]func(*rapid.T){
			"run": func(t *rapid.T) { w.begin(w.submit(uint32(rapid.IntRange(1, 3).Draw(t, "uid")))) },
			"end": func(t *rapid.T) { w.end(w.pick(t, state.Live).Id, 0) },
			"requeue": func(t *rapid.T) {
				j := w.pick(t, func(j *pb.JobRecord) bool { return j.Attempt > 0 && j.StopReason == "" && !state.Pending(j) })
				w.turn(reactor.Control{Caller: reactor.Caller{Operator: true}, Verb: "requeue", IDs: []string{fmt.Sprint(j.Id)}})
			},
			"time": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.SampledFrom([]int{1, 30, 600, 7200, 20000}).Draw(t, "seconds")) * time.Second)
				// Nothing ends by itself here: the test ends jobs.
				w.turn(reactor.NodeHello{Hello: &pb.NodeHello{Node: "n1", BootId: "b"}})
			},
			"store": func(t *rapid.T) {
				if err := w.a.store(ctx); err != nil {
					t.Fatal(err)
				}
			},
			"forget": func(*rapid.T) { w.turn(reactor.Tick{Purge: true, Unstored: w.a.Unstored()}) },
			"crash":  func(*rapid.T) { w.crash() },
			"faded": func(t *rapid.T) {
				got, err := w.decayed(ctx, Fading{HalfLife: halfLife}, w.loop.View)
				w.compare(t, "faded", got, err, w.slow(0, math.MaxInt64, true))
			},
			"reset": func(t *rapid.T) {
				at := rapid.IntRange(0, int(w.now.Sub(begin)/time.Second)).Draw(t, "reset")
				since := begin.Add(time.Duration(at) * time.Second).UnixNano()
				got, err := w.decayed(ctx, Fading{HalfLife: halfLife, SinceNS: since}, w.loop.View)
				w.compare(t, "reset", got, err, w.slow(since, math.MaxInt64, true))
			},
			"window": func(t *rapid.T) {
				span := int(w.now.Sub(begin)/time.Second) + 1
				from := rapid.IntRange(0, span).Draw(t, "from")
				since := begin.Add(time.Duration(from) * time.Second).UnixNano()
				until := since + int64(rapid.IntRange(1, span).Draw(t, "length"))*second
				got, err := w.a.Between(ctx, since, until, w.loop.View)
				w.compare(t, "window", got, err, w.slow(since, until, false))
			},
		})
	})
}

// TestResetAt: when PriorityUsageResetPeriod forgets usage, by the cluster's calendar.
func TestResetAt(t *testing.T) {
	zone := time.FixedZone("X", 3600)
	now := time.Date(2026, 11, 25, 0, 30, 0, 0, zone) // a Wednesday
	for period, want := range map[string]string{"DAILY": "2026-11-25", "WEEKLY": "2026-11-22", "MONTHLY": "2026-11-01",
		"QUARTERLY": "2026-10-01", "YEARLY": "2026-01-01"} {
		at, _ := time.ParseInLocation(time.DateOnly, want, zone)
		if got := ResetAt(period, now); got != at.UnixNano() {
			t.Errorf("%s: %v, want %v", period, time.Unix(0, got).In(zone), at)
		}
	}
	if got := ResetAt("NONE", now); got != 0 {
		t.Errorf("NONE: %d", got)
	}
}

// TestEndsThatAreNotedLate: an attempt that held its allocation when somebody asked counts until its end, and not on and not nothing,
// also when that turns out to lie longer ago than attempts that have ended are looked at again.
func TestEndsThatAreNotedLate(t *testing.T) {
	w := newWorld(t, t.TempDir())
	defer func() { w.a.shut() }()
	const late = settled * 3
	pass := func(ns int64) { w.now = w.now.Add(time.Duration(ns)) }
	faded := func(what string) {
		t.Helper()
		got, err := w.decayed(t.Context(), Fading{HalfLife: halfLife}, w.loop.View)
		w.compare(t, what, got, err, w.slow(0, math.MaxInt64, true))
	}
	requeued, reported, on := w.submit(1), w.submit(2), w.submit(3)
	for _, id := range []uint32{requeued, reported, on} {
		w.begin(id)
	}
	pass(60 * second)
	w.turn(reactor.Control{Caller: reactor.Caller{Operator: true}, Verb: "requeue", IDs: []string{fmt.Sprint(requeued)}})
	pass(late)
	faded("all hold")
	w.end(requeued, 0) // as of when it was ordered to
	w.endAgo(reported, late-60*second)
	faded("two have ended long ago")
	if err := w.a.store(t.Context()); err != nil {
		t.Fatal(err)
	}
	pass(60 * second)
	faded("a minute later, from the database")
	pass(late)
	w.turn(reactor.Tick{Purge: true, Unstored: w.a.Unstored()})
	faded("one holds on")
	w.endAgo(on, late)
	w.turn(reactor.Tick{Purge: true})
	if err := w.a.store(t.Context()); err != nil {
		t.Fatal(err)
	}
	faded("the last one has ended long ago")
}
