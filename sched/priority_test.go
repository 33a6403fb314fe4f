package sched

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-hpc/sluice/sched/priority"
	"github.com/sluice-hpc/sluice/sched/record"
)

// contested is a busy cluster of two partitions with a node in common, whose waiting jobs have priorities by QOS and nice.
func contested(t *rapid.T) *world {
	p := record.DefaultParams()
	p.Weights = record.Weights{QOS: 1000}
	w := newWorld(t, p, rapid.IntRange(2, 4).Draw(t, "nodes"), 4)
	w.in.Partitions = append(w.in.Partitions, &record.Partition{Name: "q", Nodes: []string{"n1", "n2"}})
	w.in.QOS = []*record.QOS{{Name: "low", Priority: 1}, {Name: "middle", Priority: 2}, {Name: "high", Priority: 3}}
	id := uint32(0)
	for range rapid.IntRange(1, 3).Draw(t, "rounds") {
		for range rapid.IntRange(1, 8).Draw(t, "jobs") {
			id++
			n := rapid.IntRange(1, 2).Draw(t, "n")
			j := w.add(id, rapid.Int64Range(1, 40).Draw(t, "limit"),
				record.Request{MinNodes: n, MaxNodes: n, TasksPerNode: rapid.IntRange(1, 4).Draw(t, "tpn")})
			j.QOS = rapid.SampledFrom([]string{"low", "middle", "high"}).Draw(t, "qos")
			j.Nice = int32(rapid.IntRange(0, 1).Draw(t, "nice"))
			j.PredictedS = rapid.Int64Range(0, j.LimitS).Draw(t, "predicted")
			j.Partitions = rapid.SampledFrom([][]string{{"p"}, {"q"}, {"p", "q"}}).Draw(t, "partitions")
		}
		w.plan()
		w.in.Now += rapid.Int64Range(0, 200_000).Draw(t, "dt") // beyond all guards, too
		w.in.Running = slices.DeleteFunc(slices.Clone(w.in.Running), func(r *record.Run) bool { return rapid.Bool().Draw(t, "ended") })
	}
	return w
}

// prioritiesOf are the priorities of the jobs that wait, by id.
func (w *world) prioritiesOf() map[uint32]uint32 {
	of := map[uint32]uint32{}
	for i, parts := range priority.Of(&w.s.params, &w.in, w.in.Pending) {
		of[w.in.Pending[i].ID] = priority.Total(parts)
	}
	return of
}

// TestLowerPriorityTakesNothing: with a weight, jobs of lower priority change neither the starts of the jobs above them, nor their nodes,
// nor the promise to the first waiting job of each partition.
func TestLowerPriorityTakesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := contested(t)
		of := w.prioritiesOf()
		in := w.in
		whole := w.s.Plan(&in)
		for _, least := range slices.Sorted(maps.Values(of)) {
			some := w.in
			some.Pending = slices.DeleteFunc(slices.Clone(w.in.Pending), func(j *record.Job) bool { return of[j.ID] < least })
			alone := New(w.s.params).Plan(&some)
			if got, want := startsOf(whole, of, least), startsOf(alone, of, least); !slices.Equal(got, want) {
				t.Fatalf("of the jobs of priority %d and more start %s; without those of lower priority %s\n%s", least, got, want,
					showPlan(whole))
			}
		}
	})
}

func startsOf(p *record.Plan, of map[uint32]uint32, least uint32) (list []string) {
	for _, s := range p.Start {
		if of[s.Job.ID] >= least {
			list = append(list, fmt.Sprint(s.Job.ID, s.Partition, s.Allocs))
		}
	}
	slices.Sort(list)
	return list
}

// TestHighestIsPromised: with a weight, the job of the highest priority that waits is promised a start at once.
func TestHighestIsPromised(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := contested(t)
		of := w.prioritiesOf()
		in := w.in
		p := w.s.Plan(&in)
		waiting := slices.DeleteFunc(slices.Clone(in.Pending), func(j *record.Job) bool {
			return slices.ContainsFunc(p.Start, func(s record.Start) bool { return s.Job.ID == j.ID })
		})
		if len(waiting) == 0 {
			return
		}
		highest := slices.MinFunc(waiting, func(a, b *record.Job) int {
			return cmp.Or(cmp.Compare(of[b.ID], of[a.ID]), cmp.Compare(a.Submit, b.Submit), cmp.Compare(a.ID, b.ID))
		})
		if !slices.ContainsFunc(p.Reserve, func(r record.Reserve) bool { return r.ID == highest.ID && r.First }) {
			t.Fatalf("job %d is promised nothing: %s", highest.ID, showPlan(p))
		}
	})
}

// TestMeritOrdersEquals: among jobs of equal priority the shorter ones are taken first once the first of them waits; a job of higher
// priority goes before them, however long it is.
func TestMeritOrdersEquals(t *testing.T) {
	for _, c := range []struct {
		weights record.Weights
		want    string
	}{
		{record.Weights{QOS: 1000}, "start 5 n1:1; reserve 2 at 100 on n1; 2: Resources; 3: Priority; 4: Priority"},
		{record.Weights{Basic: true}, "start 4 n1:1; 2: Resources; 3: Priority; 5: Priority"},
	} {
		p := record.DefaultParams()
		p.Weights, p.ShortQueue = c.weights, 0
		w := newWorld(t, p, 1, 4)
		w.in.QOS = []*record.QOS{{Name: "high", Priority: 10}, {Name: "low", Priority: 1}}
		w.add(1, 100, record.Request{Tasks: 3})
		w.want("start 1 n1:3")
		w.add(2, 100, record.Request{Tasks: 4}).QOS = "high"
		w.add(3, 90, record.Request{Tasks: 1}).QOS = "low"
		w.add(4, 50, record.Request{Tasks: 1}).QOS = "low"
		w.add(5, 95, record.Request{Tasks: 1}).QOS = "high"
		w.want(c.want)
		w.end(4)
		w.end(5)
		if w.add(6, 95, record.Request{Tasks: 1}).QOS = "low"; c.weights.Basic {
			continue
		}
		w.want("start 4 n1:1; reserve 2 at 100 on n1; 6: Priority")
	}
}
