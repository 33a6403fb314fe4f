package state

import (
	"fmt"
	"iter"
	"math/bits"
	"strconv"
	"strings"
)

// maxCore bounds core numbers, so that a bad list cannot make a large set.
const maxCore = 1 << 16

// ParseCores reads "0-3,6".
func ParseCores(s string) (Cores, error) {
	var c Cores
	if s == "" {
		return nil, nil
	}
	for _, part := range strings.Split(s, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(lo)
		b := a
		if err == nil && isRange {
			b, err = strconv.Atoi(hi)
		}
		if err != nil || a < 0 || b < a || b >= maxCore {
			return nil, fmt.Errorf("cannot read core list %q: want numbers and ranges below %d", s, maxCore)
		}
		for b/64 >= len(c) {
			c = append(c, 0)
		}
		for i := a; i <= b; i++ {
			c[i/64] |= 1 << (i % 64)
		}
	}
	return c, nil
}

// Count is the number of cores in the set.
func (c Cores) Count() int {
	n := 0
	for _, w := range c {
		n += bits.OnesCount64(w)
	}
	return n
}

// All yields the numbers of the cores, ascending.
func (c Cores) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, w := range c {
			for ; w != 0; w &= w - 1 {
				if !yield(i*64 + bits.TrailingZeros64(w)) {
					return
				}
			}
		}
	}
}

// beyond says whether the set has a core of number n or more.
func (c Cores) beyond(n int) bool { return c.below(n).Count() != c.Count() }

// below is the part of the set with numbers less than n.
func (c Cores) below(n int) Cores {
	out := make(Cores, 0, len(c))
	for i, w := range c {
		if left := n - i*64; left < 64 {
			w &= 1<<max(0, left) - 1
		}
		out = append(out, w)
	}
	return out
}

// String writes the set as ParseCores reads it.
func (c Cores) String() string {
	var b strings.Builder
	for i, n := 0, len(c)*64; i < n; i++ {
		if c[i/64]&(1<<(i%64)) == 0 {
			continue
		}
		j := i
		for j+1 < n && c[(j+1)/64]&(1<<((j+1)%64)) != 0 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(i))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(j))
		}
		i = j
	}
	return b.String()
}
