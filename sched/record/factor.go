package record

import (
	"cmp"
	"math"
	"math/bits"
)

// Factor multiplies the use of jobs over time. The zero value is 1.
type Factor struct {
	other      bool // not 1
	millionths uint64
}

const once = 1e6

// NewFactor makes a factor from millionths.
func NewFactor(millionths uint64) Factor {
	if millionths == once {
		return Factor{}
	}
	return Factor{true, millionths}
}

// Of returns an amount times the factor, rounded down; at most Forever.
func (f Factor) Of(n int64) int64 {
	switch {
	case !f.other || n == math.MinInt64:
		return n
	case n < 0:
		return -f.Of(-n)
	}
	hi, lo := bits.Mul64(uint64(n), f.millionths)
	if hi >= once {
		return Forever
	}
	product, _ := bits.Div64(hi, lo, once)
	return int64(min(product, uint64(Forever)))
}

// Float returns the factor as a number.
func (f Factor) Float() float64 {
	if !f.other {
		return 1
	}
	return float64(f.millionths) / once
}

// Compare orders factors; 1 is the first.
func (f Factor) Compare(o Factor) int {
	if f.other != o.other {
		if o.other {
			return -1
		}
		return 1
	}
	return cmp.Compare(f.millionths, o.millionths)
}
