package sched

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// a100 are the profiles of an A100 with 40 GB (MIG User Guide, "A100 MIG Profiles").
var a100 = []MigProfile{{"1g.5gb", 1, []int{0, 1, 2, 3, 4, 5, 6}}, {"1g.10gb", 2, []int{0, 2, 4, 6}}, {"2g.10gb", 2, []int{0, 2, 4}},
	{"3g.20gb", 4, []int{0, 4}}, {"4g.20gb", 4, []int{0}}, {"7g.40gb", 8, []int{0}}}

func profileAt(name string) int {
	return slices.IndexFunc(a100, func(p MigProfile) bool { return p.Name == name })
}

func TestPacks(t *testing.T) {
	for _, tt := range []struct {
		name string
		used uint64
		want int
	}{{"1g.5gb", 0, 7}, {"2g.10gb", 0, 3}, {"3g.20gb", 0, 2}, {"4g.20gb", 0, 1}, {"7g.40gb", 0, 1}, {"3g.20gb", 0b10000, 1}, {"4g.20gb", 0b10000, 1}, {"4g.20gb", 1, 0}, {"1g.5gb", 0xff, 0}, {"2g.10gb", 0b1010, 1}} {
		if got := a100[profileAt(tt.name)].packs(tt.used); got != tt.want {
			t.Errorf("%s beside %08b: %d, want %d", tt.name, tt.used, got, tt.want)
		}
	}
}

// TestChooseCut: where an instance goes on GPUs of which some slices are taken.
func TestChooseCut(t *testing.T) {
	for _, tt := range []struct {
		name   string
		used   []uint64
		device int
		start  int
		ok     bool
	}{
		{"1g.5gb", []uint64{0}, 0, 6, true},          // leaves 4g or 3g at 0, and 2g at 4
		{"3g.20gb", []uint64{0}, 0, 4, true},         // leaves 4g at 0
		{"2g.10gb", []uint64{0}, 0, 4, true},         // leaves 4g at 0
		{"4g.20gb", []uint64{0}, 0, 0, true},         //
		{"1g.5gb", []uint64{0, 0xf0}, 1, 0, true},    // the GPU that is cut already, though it loses its 4g
		{"3g.20gb", []uint64{0, 0x01}, 1, 4, true},   //
		{"1g.5gb", []uint64{0x40, 0x4f}, 1, 4, true}, // the one that can no longer be a 3g
		{"7g.40gb", []uint64{0x40, 0}, 1, 0, true},   //
		{"7g.40gb", []uint64{0x40, 1}, 0, 0, false},  //
		{"3g.20gb", []uint64{0x10, ^uint64(0)}, 0, 0, true},
		{"1g.5gb", []uint64{0x7f}, 0, 0, false}, // slice 7 belongs to no small instance
	} {
		d, s, ok := ChooseCut(a100, profileAt(tt.name), tt.used)
		if ok != tt.ok || ok && (d != tt.device || s != tt.start) {
			t.Errorf("%s beside %08b: GPU %d slice %d (%v), want GPU %d slice %d (%v)", tt.name, tt.used, d, s, ok, tt.device, tt.start, tt.ok)
		}
	}
}

// drawUsed draws GPUs that are cut by a random sequence of instances made and merged, wherever they may be.
func drawUsed(t *rapid.T) []uint64 {
	used := make([]uint64, rapid.IntRange(1, 4).Draw(t, "gpus"))
	for range rapid.IntRange(0, 12).Draw(t, "instances") {
		p := rapid.SampledFrom(a100).Draw(t, "profile")
		span := p.span(rapid.SampledFrom(p.Starts).Draw(t, "start"))
		if i := rapid.IntRange(0, len(used)-1).Draw(t, "gpu"); used[i]&span == 0 {
			used[i] |= span
		}
	}
	return used
}

// TestChooseCutIsBest: a place is found when there is one, it is one that the profile allows and nobody has, and no other place would
// leave more of the larger instances.
func TestChooseCutIsBest(t *testing.T) {
	order := bySize(a100)
	left := func(used []uint64) []int {
		sum := make([]int, len(order)+1)
		for _, u := range used {
			if u == 0 {
				sum[0]++
			}
			for k, i := range order {
				sum[k+1] += a100[i].packs(u)
			}
		}
		return sum
	}
	rapid.Check(t, func(t *rapid.T) {
		used := drawUsed(t)
		want := rapid.IntRange(0, len(a100)-1).Draw(t, "want")
		p := &a100[want]
		device, start, ok := ChooseCut(a100, want, used)
		after := func(d, s int) []uint64 {
			c := slices.Clone(used)
			c[d] |= p.span(s)
			return c
		}
		for d, u := range used {
			for _, s := range p.Starts {
				if u&p.span(s) != 0 {
					continue
				}
				if !ok {
					t.Fatalf("no place found beside %08b, but GPU %d has slice %d", used, d, s)
				}
				if slices.Compare(left(after(d, s)), left(after(device, start))) > 0 {
					t.Fatalf("%s beside %08b: GPU %d slice %d leaves %v, GPU %d slice %d %v", p.Name, used, device, start, left(after(device, start)), d, s, left(after(d, s)))
				}
			}
		}
		if ok && (used[device]&p.span(start) != 0 || !slices.Contains(p.Starts, start)) {
			t.Fatalf("%s beside %08b: GPU %d slice %d is not free", p.Name, used, device, start)
		}
	})
}

// TestSmallFirstLeavesRoom: after seven small instances in any number have come one by one to empty GPUs, the largest instances that
// could be there still can: as many GPUs are whole as possible.
func TestSmallFirstLeavesRoom(t *testing.T) {
	used := make([]uint64, 3)
	for n := 1; n <= 21; n++ {
		d, s, ok := ChooseCut(a100, 0, used)
		if !ok {
			t.Fatalf("no place for instance %d", n)
		}
		used[d] |= a100[0].span(s)
		whole := 0
		for _, u := range used {
			if u == 0 {
				whole++
			}
		}
		if whole != 3-(n+6)/7 {
			t.Errorf("after %d instances %d GPUs are whole: %08b", n, whole, used)
		}
	}
}

// cutWorld has one node with GPUs that are cut on demand.
func cutWorld(t testingT, gpus int, p Params) *world {
	w := newWorld(t, p, 1, 64)
	g := Gres{Name: "gpu", Type: "a100", Count: int64(gpus), Profiles: a100}
	for i := range gpus {
		g.Devices = append(g.Devices, Device{Index: i})
	}
	w.in.Nodes[0].Gres = []Gres{g}
	return w
}

func migJob(typ string, count int64) Request {
	return Request{Tasks: 1, Gres: []GresRequest{{Name: "gpu", Type: typ, Count: count}}}
}

// cuts shows what runs: "1:a100_3g.20gb@0/4".
func cutsOf(in *Snapshot) string {
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
	w := cutWorld(t, 2, Params{})
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
	w := cutWorld(t, 1, Params{})
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

// TestInstancesNeverOverlap: whatever comes and goes, no slice has two owners and a whole GPU is nobody else's; what waits at the end
// starts when the GPUs are free.
func TestInstancesNeverOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := cutWorld(t, rapid.IntRange(1, 3).Draw(t, "gpus"), Params{Placement: rapid.SampledFrom([]Placement{Pack, FGD, BestFit}).Draw(t, "placement"), Policy: rapid.SampledFrom([]Policy{EASY, Conservative}).Draw(t, "policy")})
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
			w.in.Running = slices.DeleteFunc(slices.Clone(w.in.Running), func(r *Run) bool { return r.End <= w.in.Now })
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
					p := a100[slices.IndexFunc(a100, func(p MigProfile) bool { return "a100_"+p.Name == g.Type })]
					if span = p.span(g.Starts[i]); int64(bits.OnesCount64(span)) != g.Shares || !slices.Contains(p.Starts, g.Starts[i]) {
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
	w := cutWorld(t, 2, Params{})
	for typ, want := range map[string]bool{"3g.20gb": true, "9g.90gb": false} {
		r := migJob(typ, 1)
		ok, why := Admissible(&Job{ID: 1, Request: &r, Partitions: []string{"p"}}, w.in.Nodes, w.in.Partitions)
		if ok != want || !ok && !strings.HasSuffix(why, "2 gpu:a100; instances are cut of a100_1g.5gb, a100_1g.10gb, a100_2g.10gb, a100_3g.20gb, a100_4g.20gb, a100_7g.40gb") {
			t.Errorf("%s: %v %q", typ, ok, why)
		}
	}
	r := migJob("3g.20gb", 5)
	if ok, _ := Admissible(&Job{ID: 1, Request: &r, Partitions: []string{"p"}}, w.in.Nodes, w.in.Partitions); ok {
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
		{1, "3g.20gb", 100, "[2]"}, // its slices are free first
		{1, "7g.40gb", 100, "[2 3]"},
		{1, "3g.20gb", 60, "[2 3]"}, // either will do
		{2, "3g.20gb", 100, "[5]"},
	} {
		w := cutWorld(t, tt.gpus, Params{})
		w.add(1, 50, Request{Tasks: 2})
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
		if !ok || fmt.Sprint(x.After) != tt.want {
			t.Errorf("%d GPUs, %s: after the end of %v, want %s\n%s\n%s", tt.gpus, tt.typ, x.After, tt.want, x, cutsOf(&w.in))
		}
		before := cutsOf(&w.in)
		w.plan() // and nothing of the state has changed by asking
		if cutsOf(&w.in) != before {
			t.Errorf("after Explain: %s, before %s", cutsOf(&w.in), before)
		}
	}
}
