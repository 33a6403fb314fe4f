// Package profile stores the free amounts of several resources as a function of time. It is exact: a use is added and
// removed over an interval of seconds, and nothing is rounded or rebuilt.
//
// Rejected: a list of reservations that is replayed for every question, which was slower at every size from ten uses
// upward.
package profile

// Forever ends an interval that has no end.
const Forever = int64(1) << 60

// Profile is a step function from time to a vector of free amounts. Step i holds from t[i] until t[i+1]; the last one forever; the first
// one also holds for all time before t[0]. Amounts may be negative when more is in use than exists (a node that shrank): callers have to
// compare.
type Profile struct {
	dims int
	t    []int64
	v    []int64 // dims amounts per step
}

// New returns a profile in which capacity is free forever.
func New(capacity []int64) *Profile {
	return &Profile{dims: len(capacity), t: []int64{0}, v: append([]int64(nil), capacity...)}
}

// Dims returns the number of resources.
func (p *Profile) Dims() int { return p.dims }

// Steps returns the number of steps.
func (p *Profile) Steps() int { return len(p.t) }

// Begin returns the time from which step i holds.
func (p *Profile) Begin(i int) int64 { return p.t[i] }

// At returns the vector of step i: read it, do not keep it.
func (p *Profile) At(i int) []int64 { return p.v[i*p.dims : (i+1)*p.dims : (i+1)*p.dims] }

// Find returns the step that holds at time t.
func (p *Profile) Find(t int64) int {
	lo, hi := 0, len(p.t) // invariant: begin[lo] <= t (or lo == 0), begin[hi] > t
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		if p.t[mid] <= t {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// Now returns the vector of the first step.
func (p *Profile) Now() []int64 { return p.At(0) }

// Use takes use from [from, to). Free gives it back.
func (p *Profile) Use(from, to int64, use []int64)  { p.add(from, to, use, -1) }
func (p *Profile) Free(from, to int64, use []int64) { p.add(from, to, use, +1) }

func (p *Profile) add(from, to int64, use []int64, sign int64) {
	if to <= from {
		return
	}
	a := p.cut(from)
	b := len(p.t)
	if to < Forever {
		b = p.cut(to)
	}
	for i := a; i < b; i++ {
		row := p.v[i*p.dims : (i+1)*p.dims]
		for d, u := range use {
			row[d] += sign * u
		}
	}
	if b < len(p.t) {
		p.merge(b)
	}
	p.merge(a)
}

// cut makes a step begin at t and returns it. Times at or before the first
// step's begin are the first step.
func (p *Profile) cut(t int64) int {
	i := p.Find(t)
	if p.t[i] >= t {
		return i
	}
	i++
	p.t = append(p.t, 0)
	copy(p.t[i+1:], p.t[i:])
	p.t[i] = t
	n := len(p.v)
	for d := 0; d < p.dims; d++ {
		p.v = append(p.v, 0)
	}
	copy(p.v[(i+1)*p.dims:], p.v[i*p.dims:n])
	copy(p.v[i*p.dims:(i+1)*p.dims], p.v[(i-1)*p.dims:i*p.dims])
	return i
}

// merge removes step i when it equals the one before it.
func (p *Profile) merge(i int) {
	if i == 0 {
		return
	}
	a, b := p.At(i-1), p.At(i)
	for d := range a {
		if a[d] != b[d] {
			return
		}
	}
	p.drop(i, i+1)
}

func (p *Profile) drop(i, j int) {
	p.t = append(p.t[:i], p.t[j:]...)
	p.v = append(p.v[:i*p.dims], p.v[j*p.dims:]...)
}

// Advance forgets the time before now: the first step begins there, so that a use from now on is part of the first vector.
func (p *Profile) Advance(now int64) {
	if i := p.Find(now); i > 0 {
		p.drop(0, i)
	}
	p.t[0] = max(p.t[0], now)
}

// Min writes the least free amount of each resource over [from, to) to out.
func (p *Profile) Min(from, to int64, out []int64) {
	i := p.Find(from)
	copy(out, p.At(i))
	for i++; i < len(p.t) && p.t[i] < to; i++ {
		lower(out, p.At(i))
	}
}

// Until returns the first time after from at which fits no longer holds for the least amounts since from; Forever if it always holds, from
// if it does not hold at the start. scratch has Dims elements.
func (p *Profile) Until(from int64, scratch []int64, fits func([]int64) bool) int64 {
	i := p.Find(from)
	copy(scratch, p.At(i))
	if !fits(scratch) {
		return from
	}
	for i++; i < len(p.t); i++ {
		if lower(scratch, p.At(i)) && !fits(scratch) {
			return p.t[i]
		}
	}
	return Forever
}

// Window finds the first stretch [begin, end) of start times, at or after
// from, at which fits holds for the least amounts over the following lengthS
// seconds. It reports false when there is none that begins by latest. The
// stretch may end before fits stops holding: ask again from its end.
func (p *Profile) Window(from, lengthS, latest int64, scratch []int64, fits func([]int64) bool) (begin, end int64, ok bool) {
	i := p.Find(from)
	for i < len(p.t) {
		start := max(from, p.t[i])
		if start > latest {
			break
		}
		j, good := p.covers(i, start, lengthS, scratch, fits)
		if !good {
			if j == i {
				i++
			} else { // a later step fails by itself or together with earlier ones
				i = p.after(i, j, fits)
			}
			continue
		}
		if j == len(p.t) && i == j-1 {
			return start, Forever, true
		}
		return start, p.slide(i, j, lengthS, scratch, fits), true
	}
	return 0, 0, false
}

// covers tries a start in step i; it returns the step at which it failed, or
// the first one beyond the window.
func (p *Profile) covers(i int, start, lengthS int64, scratch []int64, fits func([]int64) bool) (int, bool) {
	copy(scratch, p.At(i))
	if !fits(scratch) {
		return i, false
	}
	end := sum(start, lengthS)
	j := i + 1
	for ; j < len(p.t) && p.t[j] < end; j++ {
		if lower(scratch, p.At(j)) && !fits(scratch) {
			return j, false
		}
	}
	return j, true
}

// after returns the next step worth starting in, when a window from step i failed at j.
func (p *Profile) after(i, j int, fits func([]int64) bool) int {
	if !fits(p.At(j)) {
		return j + 1
	}
	return i + 1
}

// slide returns how late a start in step i may be, given that a window up to step j fits: the end of the step, or earlier when the window
// would reach a step in which it does not fit.
func (p *Profile) slide(i, j int, lengthS int64, scratch []int64, fits func([]int64) bool) int64 {
	last := Forever
	if i+1 < len(p.t) {
		last = p.t[i+1]
	}
	for ; j < len(p.t) && p.t[j] < sum(last, lengthS); j++ {
		if lower(scratch, p.At(j)) && !fits(scratch) {
			// A start at p.t[j]-lengthS still ends in time; one later does not.
			return min(last, p.t[j]-lengthS+1)
		}
	}
	return last
}

func lower(to, by []int64) bool {
	changed := false
	for d, x := range by {
		if x < to[d] {
			to[d], changed = x, true
		}
	}
	return changed
}

func sum(a, b int64) int64 {
	if a >= Forever || b >= Forever || a+b >= Forever {
		return Forever
	}
	return a + b
}
