package queue

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-hpc/sluice/sched/index"
	"github.com/sluice-hpc/sluice/sched/record"
)

// TestTree compares a class's tree with a sorted list.
func TestTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := byRunAndWait(rapid.Int64Range(0, 2).Draw(t, "order"))
		c := &Class{Family: &Family{Part: &index.Partition{Rec: &record.Partition{}}}}
		var list []*Entry
		draw := func(id uint32) *Entry {
			n := rapid.Int64Range(0, 6)
			e := &Entry{
				Class:     c,
				Job:       &Job{Rec: &record.Job{ID: id}, Priority: uint32(rapid.IntRange(0, 2).Draw(t, "prio"))},
				Least:     n.Draw(t, "least"),
				Eligible:  n.Draw(t, "elig") * 80_000,
				predicted: n.Draw(t, "predicted"),
			}
			e.Job.Rank = e.Job.Priority / 2
			e.weigh()
			return e
		}
		for i := range rapid.IntRange(0, 30).Draw(t, "planted") {
			list = append(list, draw(uint32(i+1)))
		}
		c.Root = plant(slices.Clone(list))
		for i := range rapid.IntRange(0, 20).Draw(t, "steps") {
			if len(list) > 0 && rapid.Bool().Draw(t, "remove") {
				k := rapid.IntRange(0, len(list)-1).Draw(t, "which")
				c.Root = c.Root.remove(list[k])
				list = slices.Delete(list, k, k+1)
				continue
			}
			e := draw(uint32(i + 100))
			list = append(list, e)
			c.Root = c.Root.insert(e)
		}
		slices.SortFunc(list, CompareEntries)
		checkNext(t, c.Root, list)
		since, most, older := rapid.Int64Range(0, 500_000).Draw(t, "older than"), rapid.IntRange(0, 40).Draw(t, "most"), 0
		for _, e := range list {
			if e.Eligible < since && older < most {
				older++
			}
		}
		if got := c.Root.Older(since, most); got != older {
			t.Fatalf("%d older ones, want %d", got, older)
		}
		checkWalk(t, o, c, list)
	})
}

// byRunAndWait orders candidates by run time and, with this weight, by waiting time.
type byRunAndWait int64

func (o byRunAndWait) Key(_ *Class, predicted, elig int64) int64 {
	return 2*predicted + int64(o)*elig/80_000
}

func checkNext(t *rapid.T, root *Entry, list []*Entry) {
	w := Wanted{
		Below: rapid.Int64Range(0, 7).Draw(t, "below"),
		Since: rapid.Int64Range(0, 500_000).Draw(t, "since"),
		All:   rapid.IntRange(0, 5).Draw(t, "all") == 0,
	}
	for i, at := 0, (*Entry)(nil); ; i++ {
		at = root.Next(at, &w)
		for i < len(list) && !w.matches(list[i].Least, list[i].Eligible) {
			i++
		}
		if i == len(list) {
			if at != nil {
				t.Fatalf("one more than there are: %+v", at.Job.Rec)
			}
			break
		}
		if at != list[i] {
			t.Fatalf("entry %d is not the next", i)
		}
	}
}

func checkWalk(t *rapid.T, o Order, c *Class, list []*Entry) {
	below, rank := rapid.Int64Range(0, 7).Draw(t, "shorter than"), uint32(rapid.IntRange(0, 1).Draw(t, "rank"))
	var want []Candidate
	for _, e := range list {
		if e.Least < below && e.Job.Rank == rank {
			want = append(want, Candidate{o.Key(c, e.predicted, e.Eligible), e})
		}
	}
	slices.SortFunc(want, func(a, b Candidate) int {
		if a.Before(b) {
			return -1
		}
		return 1
	})
	var w Walk
	w.Start(o, c.Root, rank)
	for _, x := range want {
		got, ok := w.Top(below)
		if !ok || got != x {
			t.Fatalf("%v, %v, want %v", got, ok, x)
		}
		w.Pop()
	}
	if x, ok := w.Top(below); ok {
		t.Fatalf("one more than there are: %v", x)
	}
}
