package coding

import "math/bits"

// FieldSet is a set of fields of a message, by their numbers; it has room for those below 192.
type FieldSet [3]uint64

// EveryField is the set of all fields.
var EveryField = FieldSet{^uint64(0), ^uint64(0), ^uint64(0)}

// FieldsOf is the set of the numbers of a request, none standing for all. Numbers that no field has are left out.
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

// With is the union of two sets.
func (s FieldSet) With(o FieldSet) FieldSet {
	for i := range s {
		s[i] |= o[i]
	}
	return s
}

// Numbers are the fields in ascending order.
func (s FieldSet) Numbers() []uint32 {
	var list []uint32
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			list = append(list, uint32(64*i+bits.TrailingZeros64(word)))
		}
	}
	return list
}
