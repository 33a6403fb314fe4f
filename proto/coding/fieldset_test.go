package coding

import (
	"slices"
	"testing"
)

func TestFieldSet(t *testing.T) {
	s := FieldsOf([]uint32{131, 1, 63, 64, 191, 192, 4294967295})
	if got, want := s.Numbers(), []uint32{1, 63, 64, 131, 191}; !slices.Equal(got, want) {
		t.Errorf("the numbers are %v, want %v", got, want)
	}
	if !s.Has(64) || s.Has(65) || s.Has(2) {
		t.Error("Has does not say what Numbers says")
	}
	if got := FieldsOf([]uint32{2}).With(s).Numbers(); !slices.Equal(got, []uint32{1, 2, 63, 64, 131, 191}) {
		t.Errorf("the union is %v", got)
	}
	if FieldsOf(nil) != EveryField || !EveryField.Has(0) || !EveryField.Has(191) {
		t.Error("no numbers are not all fields")
	}
}
