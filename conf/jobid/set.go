package jobid

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Span is a run of task indices, both ends included.
type Span struct{ First, Last uint32 }

// Set is a set of task indices: spans in ascending order that do not touch. The zero value is empty. Operations return new sets and
// leave their arguments unchanged, so a Set can be shared.
type Set []Span

// SetOf returns the set of the given indices, which may be in any order and repeated.
func SetOf(tasks ...uint32) Set {
	spans := make([]Span, len(tasks))
	for i, t := range tasks {
		spans[i] = Span{t, t}
	}
	return normal(spans)
}

// normal sorts spans and joins those that overlap or touch. It modifies its argument.
func normal(spans []Span) Set {
	byFirst := func(a, b Span) int { return cmp.Compare(a.First, b.First) }
	if !slices.IsSortedFunc(spans, byFirst) { // most are sorted
		slices.SortFunc(spans, byFirst)
	}
	out := Set(spans[:0])
	for _, s := range spans {
		if n := len(out); n > 0 && uint64(s.First) <= uint64(out[n-1].Last)+1 {
			out[n-1].Last = max(out[n-1].Last, s.Last)
		} else {
			out = append(out, s)
		}
	}
	return out
}

// Count returns the number of indices in the set.
func (s Set) Count() uint64 {
	var n uint64
	for _, p := range s {
		n += uint64(p.Last) - uint64(p.First) + 1
	}
	return n
}

// Has reports whether task is in the set.
func (s Set) Has(task uint32) bool {
	i := sort.Search(len(s), func(i int) bool { return s[i].Last >= task })
	return i < len(s) && s[i].First <= task
}

// Min returns the smallest index; false for the empty set.
func (s Set) Min() (uint32, bool) {
	if len(s) == 0 {
		return 0, false
	}
	return s[0].First, true
}

// Max returns the largest index; false for the empty set.
func (s Set) Max() (uint32, bool) {
	if len(s) == 0 {
		return 0, false
	}
	return s[len(s)-1].Last, true
}

// With returns the union of s and other.
func (s Set) With(other Set) Set {
	return normal(slices.Concat(s, other))
}

// Union returns the union of all sets.
func Union(sets ...Set) Set {
	return normal(slices.Concat(sets...))
}

// Common returns the intersection. It takes time proportional to the parts of the smaller set, times the logarithm of the larger
// one's, plus the size of the result.
func (s Set) Common(other Set) Set {
	if len(s) > len(other) {
		s, other = other, s
	}
	var out Set
	for _, p := range s {
		i := sort.Search(len(other), func(i int) bool { return other[i].Last >= p.First })
		for ; i < len(other) && other[i].First <= p.Last; i++ {
			out = append(out, Span{max(p.First, other[i].First), min(p.Last, other[i].Last)})
		}
	}
	return out
}

// Without returns s minus other.
func (s Set) Without(other Set) Set {
	var out Set
	j := 0
	for _, p := range s {
		first, open := p.First, true
		for j < len(other) && other[j].Last < first {
			j++
		}
		for k := j; open && k < len(other) && other[k].First <= p.Last; k++ {
			if other[k].First > first {
				out = append(out, Span{first, other[k].First - 1})
			}
			if open = other[k].Last < p.Last; open {
				first = other[k].Last + 1
			}
		}
		if open {
			out = append(out, Span{first, p.Last})
		}
	}
	return out
}

// All yields the indices in ascending order.
func (s Set) All() func(yield func(uint32) bool) {
	return func(yield func(uint32) bool) {
		for _, p := range s {
			for t := uint64(p.First); t <= uint64(p.Last); t++ {
				if !yield(uint32(t)) {
					return
				}
			}
		}
	}
}

// step returns the distance of the indices if Slurm writes the whole set as first-last:step, otherwise 0. That takes at least six
// indices at the same distance of two or more; at a distance of two at least seven.
func (s Set) step() uint32 {
	if len(s) < 6 || s[0].First != s[0].Last {
		return 0
	}
	step := s[1].First - s[0].First
	for i := 1; i < len(s); i++ {
		if s[i].First != s[i].Last || s[i].First-s[i-1].First != step {
			return 0
		}
	}
	if step == 2 && len(s) == 6 {
		return 0
	}
	return step
}

// String formats the set as scontrol prints ArrayTaskId: "0-31", "1,3,5-7", "0-30:2".
func (s Set) String() string { return s.Format(0) }

// Format is String cut to at most limit bytes (0: no limit): elements that do not fit become "...". Slurm's own limit is 63,
// SLURM_BITSTR_LEN minus one.
func (s Set) Format(limit int) string {
	if step := s.step(); step > 0 {
		return fmt.Sprintf("%d-%d:%d", s[0].First, s[len(s)-1].Last, step)
	}
	const dots = "..."
	var b strings.Builder
	if limit == 0 {
		b.Grow(6 * len(s))
	}
	fits := 0 // length up to which "..." still fits
	for i, p := range s {
		if i > 0 {
			b.WriteByte(',')
		}
		if limit > 0 && b.Len()+len(dots) <= limit {
			fits = b.Len()
		}
		b.WriteString(strconv.FormatUint(uint64(p.First), 10))
		if p.Last > p.First {
			b.WriteByte('-')
			b.WriteString(strconv.FormatUint(uint64(p.Last), 10))
		}
		if limit > 0 && b.Len() > limit {
			return b.String()[:fits] + dots
		}
	}
	return b.String()
}
