package coding

import "math/bits"

// FieldSet is a set of field numbers of a message, below 192.
type FieldSet [3]uint64

// EveryField is the set of all fields.
var EveryField = FieldSet{^uint64(0), ^uint64(0), ^uint64(0)}

// FieldsOf returns the set of the field numbers in a request; an empty list means all. Numbers out of range are ignored.
func FieldsOf(numbers []uint32) (s FieldSet) {
	if len(numbers) == 0 {
		return EveryField
	}
	for _, n := range numbers {
		if int(n) < 64*len(s) {
			s[n/64] |= 1 << (n % 64)
		}
	}
	return s
}

// Has reports whether a field is in the set.
func (s *FieldSet) Has(number int) bool { return s[number/64]&(1<<(number%64)) != 0 }

// With returns the union of two sets.
func (s FieldSet) With(o FieldSet) FieldSet {
	for i := range s {
		s[i] |= o[i]
	}
	return s
}

// Numbers returns the fields in ascending order.
func (s FieldSet) Numbers() []uint32 {
	var list []uint32
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			list = append(list, uint32(64*i+bits.TrailingZeros64(word)))
		}
	}
	return list
}
