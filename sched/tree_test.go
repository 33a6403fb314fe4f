package sched

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTree compares a class's tree with a sorted list.
func TestTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New(Params{Order: Order(rapid.IntRange(1, 2).Draw(t, "order"))})
		s.now = 500_000
		c := &class{shape: &shape{share: 3}, part: &vpart{rec: &Partition{}}}
		var list []*entry
		draw := func(id uint32) *entry {
			n := rapid.Int64Range(0, 6)
			e := &entry{class: c, job: &vjob{rec: &Job{ID: id}, prio: uint32(rapid.IntRange(0, 2).Draw(t, "prio"))}, least: n.Draw(t, "least"), elig: n.Draw(t, "elig") * 80_000, predicted: n.Draw(t, "predicted")}
			e.weigh()
			return e
		}
		for i := range rapid.IntRange(0, 30).Draw(t, "planted") {
			list = append(list, draw(uint32(i+1)))
		}
		c.root = plant(slices.Clone(list))
		for i := range rapid.IntRange(0, 20).Draw(t, "steps") {
			if len(list) > 0 && rapid.Bool().Draw(t, "remove") {
				k := rapid.IntRange(0, len(list)-1).Draw(t, "which")
				c.root = c.root.remove(list[k])
				list = slices.Delete(list, k, k+1)
				continue
			}
			e := draw(uint32(i + 100))
			list = append(list, e)
			c.root = c.root.insert(e)
		}
		slices.SortFunc(list, compareEntries)
		checkNext(t, c.root, list)
		since, most, older := rapid.Int64Range(0, 500_000).Draw(t, "older than"), rapid.IntRange(0, 40).Draw(t, "most"), 0
		for _, e := range list {
			if e.elig < since && older < most {
				older++
			}
		}
		if got := c.root.older(since, most); got != older {
			t.Fatalf("%d older ones, want %d", got, older)
		}
		checkWalk(t, s, c, list)
	})
}

func checkNext(t *rapid.T, root *entry, list []*entry) {
	w := wanted{below: rapid.Int64Range(0, 7).Draw(t, "below"), since: rapid.Int64Range(0, 500_000).Draw(t, "since"), all: rapid.IntRange(0, 5).Draw(t, "all") == 0}
	for i, at := 0, (*entry)(nil); ; i++ {
		at = root.next(at, &w)
		for i < len(list) && !w.matches(list[i].least, list[i].elig) {
			i++
		}
		if i == len(list) {
			if at != nil {
				t.Fatalf("one more than there are: %+v", at.job.rec)
			}
			break
		}
		if at != list[i] {
			t.Fatalf("entry %d is not the next", i)
		}
	}
}

func checkWalk(t *rapid.T, s *Scheduler, c *class, list []*entry) {
	below := rapid.Int64Range(0, 7).Draw(t, "shorter than")
	var want []candidate
	for _, e := range list {
		if e.least < below {
			want = append(want, candidate{s.keyOf(c, e.predicted, e.elig), e})
		}
	}
	slices.SortFunc(want, func(a, b candidate) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	var w walk
	w.start(s, c.root)
	for _, x := range want {
		got, ok := w.top(below)
		if !ok || got != x {
			t.Fatalf("%v, %v, want %v", got, ok, x)
		}
		w.pop()
	}
	if x, ok := w.top(below); ok {
		t.Fatalf("one more than there are: %v", x)
	}
}
