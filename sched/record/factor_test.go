package record

import (
	"math"
	"testing"
)

// TestFactor: products are exact and rounded down, and saturate instead of overflowing.
func TestFactor(t *testing.T) {
	for _, tt := range []struct {
		millionths uint64
		n, want    int64
	}{
		{1e6, 7, 7}, {0, 7, 0}, {5e5, 7, 3}, {5e5, -7, -3}, {25e5, 4, 10}, {1, 999999, 0}, {1, 1e6, 1},
		{333333, 3e18, 999999e12}, {1, math.MaxInt64, math.MaxInt64 / 1000000}, {2e6, Forever, Forever},
		{math.MaxUint64, math.MaxInt64, Forever},
		{1e6, math.MinInt64, math.MinInt64},
	} {
		if got := NewFactor(tt.millionths).Of(tt.n); got != tt.want {
			t.Errorf("%d millionths of %d: %d, want %d", tt.millionths, tt.n, got, tt.want)
		}
	}
	if f := NewFactor(1e6); f != (Factor{}) || f.Float() != 1 || NewFactor(0).Float() != 0 || NewFactor(25e5).Float() != 2.5 {
		t.Error("as a number it is another")
	}
}
