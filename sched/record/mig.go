package record

import (
	"math/bits"
	"slices"
)

// Cutting devices into instances (NVIDIA's MIG). A device has memory slices, at most 64; a profile is an instance of Size slices that may
// begin at some of them (MIG User Guide, "Supported MIG profiles"). Compute slices need no accounting: every placement that fits by memory
// fits by compute.
//
// In the profile of a node's resources over time the slices of a device count like its shares; which slices they are only matters for jobs
// that start now.

// MigProfile is a way to cut an instance out of a device.
type MigProfile struct {
	Name   string // "3g.20gb"
	Size   int
	Starts []int // ascending
}

// Span returns the slices of an instance that begins at start.
func (p *MigProfile) Span(start int) uint64 { return (1<<p.Size - 1) << start }

// Packs returns how many instances of the profile still fit on a device with the slices used taken. Taking the first free place each time
// is optimal, because all instances have the same length.
func (p *MigProfile) Packs(used uint64) int {
	n := 0
	for _, s := range p.Starts {
		if used&p.Span(s) == 0 {
			used |= p.Span(s)
			n++
		}
	}
	return n
}

// ChooseCut chooses the device and slice at which an instance of profiles[want] costs least, where used are the taken slices of each
// device: it leaves as many places as possible for the largest profile, then for the next, and so on. Among equal choices it takes the
// device that is cut most already, so that whole devices stay whole. ok is false when there is no place.
func ChooseCut(profiles []MigProfile, want int, used []uint64) (device, start int, ok bool) {
	order := bySize(profiles)
	p := &profiles[want]
	var best []int
	fullest := 0
	for i, u := range used {
		for _, s := range p.Starts {
			if u&p.Span(s) != 0 {
				continue
			}
			lost := loss(profiles, order, u, u|p.Span(s))
			c := -1
			if ok {
				c = slices.Compare(lost, best)
			}
			full := bits.OnesCount64(u)
			if c < 0 || c == 0 && full > fullest {
				device, start, ok, best, fullest = i, s, true, lost, full
			}
		}
	}
	return device, start, ok
}

// bySize returns the indexes of the profiles, the largest first.
func bySize(profiles []MigProfile) []int {
	order := make([]int, len(profiles))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return profiles[b].Size - profiles[a].Size })
	return order
}

// loss returns how many instances of each profile no longer have a place; the first element tells whether a device is no longer whole.
func loss(profiles []MigProfile, order []int, before, after uint64) []int {
	out := make([]int, 1, len(order)+1)
	if before == 0 {
		out[0] = 1
	}
	for _, i := range order {
		out = append(out, profiles[i].Packs(before)-profiles[i].Packs(after))
	}
	return out
}
