package priority

import (
	"math"
	"testing"
)

func TestTotal(t *testing.T) {
	for _, c := range []struct {
		name string
		p    Parts
		want uint32
	}{
		{"nothing", Parts{}, 1},
		{"age", Parts{Age: Part{0.5, 1000}}, 500},
		{"all", Parts{Age: Part{1, 10}, FairShare: Part{0.5, 100}, JobSize: Part{0.25, 1000}, Partition: Part{1, 1}, QOS: Part{1, 2},
			Assoc: Part{1, 3}, CPU: Part{1, 4}, GPU: Part{0.5, 10}}, 325},
		{"nice", Parts{Age: Part{1, 1000}, Nice: 300}, 700},
		{"negative nice", Parts{Nice: -300}, 300},
		{"below zero", Parts{Age: Part{1, 1000}, Nice: math.MaxInt32}, 1},
		{"site", Parts{Site: 50}, 50},
		{"no number", Parts{Age: Part{math.NaN(), 1000}, Assoc: Part{-3, 100}, QOS: Part{9, 7}}, 7},
		{"too much", Parts{Age: Part{1, 1e18}}, math.MaxUint32},
	} {
		if got := Total(c.p); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestFactors(t *testing.T) {
	for _, c := range []struct{ got, want float64 }{
		{Age(100, 50, 100), 0.5}, {Age(100, 150, 100), 0}, {Age(1000, 0, 100), 1}, {Age(5, 0, 0), 0},
		{JobSize(1, 2, 4, 4, false), 0.75}, {JobSize(1, 2, 4, 4, true), 0.25}, {JobSize(1, 0, 1, 0, false), 0},
		{Fraction(9, 3), 1}, {Fraction(1, 0), 0},
	} {
		if c.got != c.want {
			t.Errorf("%v, want %v", c.got, c.want)
		}
	}
}
