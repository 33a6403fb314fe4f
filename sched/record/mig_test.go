package record

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// a100Cuts are the profiles of an A100 with 40 GB (MIG User Guide, "A100 MIG Profiles").
var a100Cuts = []MigProfile{{"1g.5gb", 1, []int{0, 1, 2, 3, 4, 5, 6}}, {"1g.10gb", 2, []int{0, 2, 4, 6}}, {"2g.10gb", 2, []int{0, 2, 4}},
	{"3g.20gb", 4, []int{0, 4}}, {"4g.20gb", 4, []int{0}}, {"7g.40gb", 8, []int{0}}}

func profileAt(name string) int {
	return slices.IndexFunc(a100Cuts, func(p MigProfile) bool { return p.Name == name })
}

func TestPacks(t *testing.T) {
	for _, tt := range []struct {
		name string
		used uint64
		want int
	}{{"1g.5gb", 0, 7}, {"2g.10gb", 0, 3}, {"3g.20gb", 0, 2}, {"4g.20gb", 0, 1}, {"7g.40gb", 0, 1}, {"3g.20gb", 0b10000, 1},
		{"4g.20gb", 0b10000, 1}, {"4g.20gb", 1, 0}, {"1g.5gb", 0xff, 0}, {"2g.10gb", 0b1010, 1}} {
		if got := a100Cuts[profileAt(tt.name)].Packs(tt.used); got != tt.want {
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
		d, s, ok := ChooseCut(a100Cuts, profileAt(tt.name), tt.used)
		if ok != tt.ok || ok && (d != tt.device || s != tt.start) {
			t.Errorf(
				"%s beside %08b: GPU %d slice %d (%v), want GPU %d slice %d (%v)",
				tt.name,
				tt.used,
				d,
				s,
				ok,
				tt.device,
				tt.start,
				tt.ok,
			)
		}
	}
}

// drawUsed draws GPUs that are cut by a random sequence of instances made and merged, wherever they may be.
func drawUsed(t *rapid.T) []uint64 {
	used := make([]uint64, rapid.IntRange(1, 4).Draw(t, "gpus"))
	for range rapid.IntRange(0, 12).Draw(t, "instances") {
		p := rapid.SampledFrom(a100Cuts).Draw(t, "profile")
		span := p.Span(rapid.SampledFrom(p.Starts).Draw(t, "start"))
		if i := rapid.IntRange(0, len(used)-1).Draw(t, "gpu"); used[i]&span == 0 {
			used[i] |= span
		}
	}
	return used
}

// TestChooseCutIsBest: a place is found when there is one, it is one that the profile allows and nobody has, and no other place would
// leave more of the larger instances.
func TestChooseCutIsBest(t *testing.T) {
	order := bySize(a100Cuts)
	left := func(used []uint64) []int {
		sum := make([]int, len(order)+1)
		for _, u := range used {
			if u == 0 {
				sum[0]++
			}
			for k, i := range order {
				sum[k+1] += a100Cuts[i].Packs(u)
			}
		}
		return sum
	}
	rapid.Check(t, func(t *rapid.T) {
		used := drawUsed(t)
		want := rapid.IntRange(0, len(a100Cuts)-1).Draw(t, "want")
		p := &a100Cuts[want]
		device, start, ok := ChooseCut(a100Cuts, want, used)
		after := func(d, s int) []uint64 {
			c := slices.Clone(used)
			c[d] |= p.Span(s)
			return c
		}
		for d, u := range used {
			for _, s := range p.Starts {
				if u&p.Span(s) != 0 {
					continue
				}
				if !ok {
					t.Fatalf("no place found beside %08b, but GPU %d has slice %d", used, d, s)
				}
				if slices.Compare(left(after(d, s)), left(after(device, start))) > 0 {
					t.Fatalf(
						"%s beside %08b: GPU %d slice %d leaves %v, GPU %d slice %d %v",
						p.Name,
						used,
						device,
						start,
						left(after(device, start)),
						d,
						s,
						left(after(d, s)),
					)
				}
			}
		}
		if ok && (used[device]&p.Span(start) != 0 || !slices.Contains(p.Starts, start)) {
			t.Fatalf("%s beside %08b: GPU %d slice %d is not free", p.Name, used, device, start)
		}
	})
}

// TestSmallFirstLeavesRoom: after seven small instances in any number have come one by one to empty GPUs, the largest instances that
// could be there still can: as many GPUs are whole as possible.
func TestSmallFirstLeavesRoom(t *testing.T) {
	used := make([]uint64, 3)
	for n := 1; n <= 21; n++ {
		d, s, ok := ChooseCut(a100Cuts, 0, used)
		if !ok {
			t.Fatalf("no place for instance %d", n)
		}
		used[d] |= a100Cuts[0].Span(s)
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
