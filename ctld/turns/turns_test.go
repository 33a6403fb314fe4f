package turns

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestTurnsAreSharedByUser: for any costs and arrival times of calls, no place is free while a call waits that could have it, no more calls
// work than there are places, and users who always have calls waiting get equal time, to within a call each.
func TestTurnsAreSharedByUser(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const longest = 50 * time.Millisecond
		places := rapid.IntRange(1, 4).Draw(t, "places")
		g := newGate(places, places)
		type call struct {
			uid  uint32
			turn <-chan struct{}
		}
		var waiting, working []call
		greedy := rapid.IntRange(2, 5).Draw(t, "greedy") // users who always ask for more; the others come and go
		used, lately := map[uint32]time.Duration{}, map[uint32]time.Duration{}
		begin := func(uid uint32) { waiting = append(waiting, call{uid, g.queue(uid)}) }
		settle := func() {
			rest := waiting[:0:0]
			for _, c := range waiting {
				select {
				case <-c.turn:
					working = append(working, c)
				default:
					rest = append(rest, c)
				}
			}
			if waiting = rest; len(working) > places || len(working) < places && len(waiting) > 0 {
				t.Fatalf("%d work, %d wait, there are %d places", len(working), len(waiting), places)
			}
		}
		for uid := range greedy {
			for range places + 1 {
				begin(uint32(uid))
			}
		}
		for range rapid.IntRange(50, 400).Draw(t, "steps") {
			settle()
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0: // somebody else, perhaps with many at once
				for range rapid.IntRange(1, 5).Draw(t, "calls") {
					begin(uint32(100 + rapid.IntRange(0, 3).Draw(t, "who")))
				}
			case 1: // somebody gives up
				if i := slices.IndexFunc(waiting, func(c call) bool { return c.uid >= 100 }); i >= 0 {
					g.quit(waiting[i].uid, waiting[i].turn)
					waiting = slices.Delete(waiting, i, i+1)
				}
			default:
				i := rapid.IntRange(0, len(working)-1).Draw(t, "which")
				c, cost := working[i], time.Duration(rapid.Int64Range(0, int64(longest)).Draw(t, "cost"))
				working = slices.Delete(working, i, i+1)
				g.leave(c.uid, cost)
				if used[c.uid] += cost; int(c.uid) < greedy {
					lately[c.uid] = used[c.uid]
					begin(c.uid)
				}
			}
		}
		if len(lately) == 0 {
			return
		}
		var all []time.Duration
		for uid := range greedy {
			all = append(all, used[uint32(uid)])
		}
		// The cost of working calls is not known yet.
		if most, least := slices.Max(all), slices.Min(all); most-least > time.Duration(2*places)*longest {
			t.Errorf("users who always ask have had %v", all)
		}
		settle()
		for _, c := range slices.Concat(waiting, working) {
			g.quit(c.uid, c.turn)
		}
		if len(g.users) != 0 || g.free != places || g.crowd.Load() != 0 {
			t.Errorf("left: %v, %d of %d places, %d waiting", slices.Collect(maps.Keys(g.users)), g.free, places, g.crowd.Load())
		}
	})
}

// TestSelectionsOfOneUser: a user with many reads of accounting leaves half of the places to others.
func TestSelectionsOfOneUser(t *testing.T) {
	g := newGate(4, 2)
	got := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	a, b, c := g.queue(1), g.queue(1), g.queue(1)
	if !got(a) || !got(b) || got(c) {
		t.Error("one user does not have two of four places")
	}
	if !got(g.queue(2)) || !got(g.queue(3)) {
		t.Error("others have no place")
	}
	if g.leave(2, 0); got(c) {
		t.Error("one user has three places")
	}
	if g.leave(1, 0); !got(c) {
		t.Error("a call waits and has a place")
	}
}

// TestCheapReadsBesideExpensiveOnes: the calls of one user that never end are let go by one of another's, and it waits for no more than
// what is worked on between two looks.
func TestCheapReadsBesideExpensiveOnes(t *testing.T) {
	g := newGate(2, 2)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			my := &Turn{gate: g, uid: 1}
			defer my.Give()
			for my.Take(ctx) == nil && my.Pass(ctx) == nil { // a walk
			}
		})
	}
	for i := range 100 {
		other := &Turn{gate: g, uid: 2}
		if err := other.Take(context.Background()); err != nil {
			t.Error(fmt.Sprint(i), err)
		}
		other.Give()
	}
	cancel()
	wg.Wait()
	if g.free != 2 || len(g.users) != 0 {
		t.Errorf("%d places are free, %d users left", g.free, len(g.users))
	}
}
