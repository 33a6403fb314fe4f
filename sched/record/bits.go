package record

import "math/bits"

// Bits is a set of small numbers: bit i of word w is the number 64*w+i.
// Trailing zero words mean nothing.
type Bits []uint64

// Has reports whether i is in the set.
func (b Bits) Has(i int) bool {
	w := i >> 6
	return w < len(b) && b[w]>>(uint(i)&63)&1 == 1
}

// Set adds i and returns the set, grown where needed.
func (b Bits) Set(i int) Bits {
	for len(b) <= i>>6 {
		b = append(b, 0)
	}
	b[i>>6] |= 1 << (uint(i) & 63)
	return b
}

// Count returns the size of the set.
func (b Bits) Count() int {
	n := 0
	for _, w := range b {
		n += bits.OnesCount64(w)
	}
	return n
}

// List returns the members, ascending.
func (b Bits) List() []int {
	out := make([]int, 0, b.Count())
	for i, w := range b {
		for ; w != 0; w &= w - 1 {
			out = append(out, i<<6+bits.TrailingZeros64(w))
		}
	}
	return out
}

// BitsOf returns the set of the given numbers.
func BitsOf(list ...int) Bits {
	var b Bits
	for _, i := range list {
		b = b.Set(i)
	}
	return b
}

// And returns the intersection.
func (b Bits) And(c Bits) Bits {
	out := make(Bits, min(len(b), len(c)))
	for i := range out {
		out[i] = b[i] & c[i]
	}
	return out
}

// Or returns the union.
func (b Bits) Or(c Bits) Bits {
	out := make(Bits, max(len(b), len(c)))
	copy(out, b)
	for i, w := range c {
		out[i] |= w
	}
	return out
}
