package index

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTable: for any input, the table is sorted, and the callbacks report every change.
func TestTable(t *testing.T) {
	type rec struct{ key int }
	rapid.Check(t, func(t *rapid.T) {
		var tab Table[rec, int]
		live := map[int]bool{}
		ops := &TableOps[rec, int]{
			Cmp: func(a, b *rec) int { return cmp.Compare(a.key, b.key) },
			Add: func(r *rec) int {
				if live[r.key] {
					t.Fatalf("%d is added twice", r.key)
				}
				live[r.key] = true
				return r.key
			},
			Change: func(v int, r *rec) int {
				if v != r.key || !live[v] {
					t.Fatalf("%d changes into %d", v, r.key)
				}
				return v
			},
			Remove: func(v int) {
				if !live[v] {
					t.Fatalf("%d is removed and was not there", v)
				}
				delete(live, v)
			},
		}
		pool := make([]*rec, 12)
		for i := range pool {
			pool[i] = &rec{i}
		}
		for range rapid.IntRange(1, 10).Draw(t, "rounds") {
			if i := rapid.IntRange(0, 11).Draw(t, "renew"); i%2 == 0 {
				pool[i] = &rec{i}
			}
			in := rapid.SliceOfNDistinct(rapid.IntRange(0, 11), 0, 12, rapid.ID[int]).Draw(t, "in")
			if rapid.Bool().Draw(t, "sort") {
				slices.Sort(in)
			}
			recs := make([]*rec, len(in))
			for i, k := range in {
				recs[i] = pool[k]
			}
			tab.Update(recs, ops)
			slices.Sort(in)
			if !slices.Equal(tab.Vals, in) || len(live) != len(in) {
				t.Fatalf("table %v, live %v, want %v", tab.Vals, live, in)
			}
		}
	})
}
