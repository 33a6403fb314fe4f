package sched

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/sched/record"
	"pgregory.net/rapid"
)

// a100 are the profiles of an A100 with 40 GB (MIG User Guide, "A100 MIG Profiles").
var a100 = []record.MigProfile{
	{Name: "1g.5gb", Size: 1, Starts: []int{0, 1, 2, 3, 4, 5, 6}},
	{Name: "1g.10gb", Size: 2, Starts: []int{0, 2, 4, 6}},
	{Name: "2g.10gb", Size: 2, Starts: []int{0, 2, 4}},
	{
		Name:   "3g.20gb",
		Size:   4,
		Starts: []int{0, 4},
	},
	{Name: "4g.20gb", Size: 4, Starts: []int{0}},
	{Name: "7g.40gb", Size: 8, Starts: []int{0}},
}

// cutWorld has one node with GPUs that are cut on demand.
func cutWorld(t testingT, gpus int, p record.Params) *world {
	w := newWorld(t, p, 1, 64)
	g := record.Gres{Name: "gpu", Type: "a100", Count: int64(gpus), Profiles: a100}
	for i := range gpus {
		g.Devices = append(g.Devices, record.Device{Index: i})
	}
	w.in.Nodes[0].Gres = []record.Gres{g}
	return w
}

func migJob(typ string, count int64) record.Request {
	return record.Request{Tasks: 1, Gres: []record.GresRequest{{Name: "gpu", Type: typ, Count: count}}}
}

// cuts shows what runs: "1:a100_3g.20gb@0/4".
func cutsOf(in *record.Snapshot) string {
	var out []string
	for _, r := range in.Running {
		for _, a := range r.Allocs {
			for _, g := range a.Gres {
				text := fmt.Sprintf("%d:%s", r.ID, g.Type)
				for i, d := range g.Devices {
					text += fmt.Sprintf("@%d", d)
					if g.Starts != nil {
						text += fmt.Sprintf("/%d", g.Starts[i])
					}
				}
				out = append(out, text)
			}
		}
	}
	return strings.Join(out, " ")
}

func TestDynamicMIG(t *testing.T) {
	w := cutWorld(t, 2, record.Params{})
	w.add(1, 100, migJob("3g.20gb", 1))
	w.add(2, 100, migJob("a100", 1))
	w.add(3, 100, migJob("1g.5gb", 2))
	w.add(4, 100, migJob("a100_2g.10gb", 1))
	w.add(5, 100, migJob("4g.20gb", 1))
	w.plan()
	if got, want := cutsOf(&w.in), "1:a100_3g.20gb@0/4 2:a100@1 3:a100_1g.5gb@0/0@0/1 4:a100_2g.10gb@0/2"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if len(w.in.Pending) != 1 || w.in.Pending[0].ID != 5 {
		t.Errorf("%d jobs wait", len(w.in.Pending))
	}
	w.end(3)
	w.end(4)
	w.plan()
	if got, want := cutsOf(&w.in), "1:a100_3g.20gb@0/4 2:a100@1 5:a100_4g.20gb@0/0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestFragmentsAreNotRoom: four slices are free, but not four in a row.
func TestFragmentsAreNotRoom(t *testing.T) {
	w := cutWorld(t, 1, record.Params{})
	for id := uint32(1); id <= 7; id++ {
		w.add(id, 100+int64(id), migJob("1g.5gb", 1))
	}
	w.plan()
	for _, id := range []uint32{1, 3, 5} { // at 6, 4, 2 or so
		w.end(id)
	}
	w.add(8, 100, migJob("3g.20gb", 1))
	for range 3 {
		w.plan()
	}
	if strings.Contains(cutsOf(&w.in), "8:") {
		t.Errorf("an instance of four slices was placed among %s", cutsOf(&w.in))
	}
	for _, id := range []uint32{2, 4, 6, 7} {
		w.end(id)
	}
	w.plan()
	if !strings.Contains(cutsOf(&w.in), "8:a100_3g.20gb") {
		t.Errorf("it does not start when there is room: %s", cutsOf(&w.in))
	}
}

// TestInstancesNeverOverlap: in any sequence of jobs, no slice has two owners, and a whole GPU has no other owner. Jobs that wait at the
// end start when the GPUs are free.
func TestInstancesNeverOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := cutWorld(
			t,
			rapid.IntRange(1, 3).Draw(t, "gpus"),
			record.Params{
				Placement: rapid.SampledFrom([]record.Placement{record.Pack, record.FGD, record.BestFit}).Draw(t, "placement"),
				Policy:    rapid.SampledFrom([]record.Policy{record.EASY, record.Conservative}).Draw(t, "policy"),
			},
		)
		next := uint32(1)
		for range rapid.IntRange(1, 15).Draw(t, "steps") {
			switch {
			case rapid.IntRange(0, 2).Draw(t, "end") == 0 && len(w.in.Running) > 0:
				w.end(rapid.SampledFrom(w.in.Running).Draw(t, "run").ID)
			default:
				typ := rapid.SampledFrom([]string{"a100", "", "1g.5gb", "2g.10gb", "a100_3g.20gb", "4g.20gb", "7g.40gb"}).Draw(t, "type")
				w.add(next, rapid.Int64Range(10, 300).Draw(t, "limit"), migJob(typ, rapid.Int64Range(1, 2).Draw(t, "count")))
				next++
			}
			w.in.Now += rapid.Int64Range(0, 20).Draw(t, "later")
			w.in.Running = slices.DeleteFunc(slices.Clone(w.in.Running), func(r *record.Run) bool { return r.End <= w.in.Now })
			w.plan()
			checkCuts(t, w)
		}
	})
}

func checkCuts(t *rapid.T, w *world) {
	owner := map[int]uint64{}
	for _, r := range w.in.Running {
		for _, g := range r.Allocs[0].Gres {
			for i, d := range g.Devices {
				span := uint64(0xff)
				if g.Starts != nil {
					p := a100[slices.IndexFunc(a100, func(p record.MigProfile) bool { return "a100_"+p.Name == g.Type })]
					if span = p.Span(g.Starts[i]); int64(bits.OnesCount64(span)) != g.Shares || !slices.Contains(p.Starts, g.Starts[i]) {
						t.Fatalf("job %d has %s at slice %d", r.ID, g.Type, g.Starts[i])
					}
				}
				if owner[d]&span != 0 {
					t.Fatalf("GPU %d has two owners: %s", d, cutsOf(&w.in))
				}
				owner[d] |= span
			}
		}
	}
}

// TestImpossibleInstance: a refusal says which instances there are.
func TestImpossibleInstance(t *testing.T) {
	w := cutWorld(t, 2, record.Params{})
	for typ, want := range map[string]bool{"3g.20gb": true, "9g.90gb": false} {
		r := migJob(typ, 1)
		ok, why := admissible(&record.Job{ID: 1, Request: &r, Partitions: []string{"p"}}, w.in.Nodes, w.in.Partitions)
		if ok != want ||
			!ok &&
				!strings.HasSuffix(
					why,
					"2 gpu:a100; instances are cut of a100_1g.5gb, a100_1g.10gb, a100_2g.10gb, a100_3g.20gb, a100_4g.20gb, a100_7g.40gb",
				) {
			t.Errorf("%s: %v %q", typ, ok, why)
		}
	}
	r := migJob("3g.20gb", 5)
	if ok, _ := admissible(&record.Job{ID: 1, Request: &r, Partitions: []string{"p"}}, w.in.Nodes, w.in.Partitions); ok {
		t.Error("five instances where four can be")
	}
}

// TestExplainNamesWhoHoldsTheGPU: a job that waits for an instance is told of those jobs alone whose slices it needs, not of what else ends
// on the node.
func TestExplainNamesWhoHoldsTheGPU(t *testing.T) {
	for _, tt := range []struct {
		gpus  int
		typ   string
		ends3 int64
		want  string
	}{
		{1, "3g.20gb", 100, "job 2 or 3 ended"},
		{1, "7g.40gb", 100, "jobs 2 and 3 ended"},
		{1, "3g.20gb", 60, "job 2 or 3 ended"},
		{2, "3g.20gb", 100, "job 2, 3 or 5 ended"},
	} {
		w := cutWorld(t, tt.gpus, record.Params{})
		w.add(1, 50, record.Request{Tasks: 2})
		w.add(2, 60, migJob("3g.20gb", 1))
		w.add(3, tt.ends3, migJob("4g.20gb", 1))
		if tt.gpus == 2 {
			w.add(5, 30, migJob("a100", 1))
		}
		w.plan()
		w.in.Now += 5
		w.add(9, 10, migJob(tt.typ, 1))
		w.plan()
		in := w.in
		x, ok := w.s.Explain(&in, 9)
		if !ok || !strings.Contains(x.String(), "\nwould start now if "+tt.want+"\n") {
			t.Errorf("%d GPUs, %s: want %s\n%s\n%s", tt.gpus, tt.typ, tt.want, x, cutsOf(&w.in))
		}
		before := cutsOf(&w.in)
		w.plan() // and nothing of the state has changed by asking
		if cutsOf(&w.in) != before {
			t.Errorf("after Explain: %s, before %s", cutsOf(&w.in), before)
		}
	}
}
