package profile

import (
	"testing"

	"pgregory.net/rapid"
)

const horizon = 60

// model is the same thing, second by second.
type model [horizon][2]int64

func (m *model) add(from, to int64, use [2]int64, sign int64) {
	for t := from; t < to && t < horizon; t++ {
		m[t][0] += sign * use[0]
		m[t][1] += sign * use[1]
	}
}

func (m *model) fits(from, length int64, need [2]int64) bool {
	for t := from; t < from+length && t < horizon; t++ {
		if m[t][0] < need[0] || m[t][1] < need[1] {
			return false
		}
	}
	return true
}

func TestProfileAgainstSeconds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := New([]int64{10, 10})
		var m model
		m.add(0, horizon, [2]int64{10, 10}, 1)
		type use struct {
			from, to int64
			u        [2]int64
		}
		var live []use
		for range rapid.IntRange(0, 25).Draw(t, "n") {
			if len(live) > 0 && rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
				i := rapid.IntRange(0, len(live)-1).Draw(t, "which")
				p.Free(live[i].from, live[i].to, live[i].u[:])
				m.add(live[i].from, live[i].to, live[i].u, 1)
				live = append(live[:i], live[i+1:]...)
				continue
			}
			from := rapid.Int64Range(0, 40).Draw(t, "from")
			u := use{
				from,
				from + rapid.Int64Range(1, 19).Draw(t, "len"),
				[2]int64{rapid.Int64Range(0, 4).Draw(t, "a"), rapid.Int64Range(0, 4).Draw(t, "b")},
			}
			live = append(live, u)
			p.Use(u.from, u.to, u.u[:])
			m.add(u.from, u.to, u.u, -1)
		}
		if n := len(live); n == 0 && p.Steps() != 1 {
			t.Fatalf("%d steps left when nothing is in use", p.Steps())
		}
		for s := int64(0); s < horizon; s++ {
			if at := p.At(p.Find(s)); at[0] != m[s][0] || at[1] != m[s][1] {
				t.Fatalf("at %d: %v, want %v", s, at, m[s])
			}
		}
		need := [2]int64{rapid.Int64Range(0, 10).Draw(t, "na"), rapid.Int64Range(0, 10).Draw(t, "nb")}
		length := rapid.Int64Range(1, 30).Draw(t, "length")
		checkWindows(t, p, &m, length, need)
	})
}

func checkWindows(t *rapid.T, p *Profile, m *model, length int64, need [2]int64) {
	fits := func(v []int64) bool { return v[0] >= need[0] && v[1] >= need[1] }
	scratch := make([]int64, 2)
	got := [horizon]bool{}
	for from := int64(0); from < horizon; {
		begin, end, ok := p.Window(from, length, Forever, scratch, fits)
		if !ok {
			break
		}
		if begin < from || end <= begin {
			t.Fatalf("window from %d is [%d,%d)", from, begin, end)
		}
		for s := begin; s < min(end, horizon); s++ {
			got[s] = true
		}
		from = end
	}
	for s := int64(0); s < horizon; s++ {
		if want := m.fits(s, length, need); got[s] != want {
			t.Fatalf("start at %d for %d of %v: %v, want %v", s, length, need, got[s], want)
		}
	}
	until := p.Until(0, scratch, fits)
	want := int64(0)
	for want < horizon && m.fits(want, 1, need) {
		want++
	}
	if min(until, horizon) != want {
		t.Fatalf("until %d, want %d", until, want)
	}
}

func TestAdvance(t *testing.T) {
	p := New([]int64{4})
	p.Use(0, 10, []int64{1})
	p.Use(5, 20, []int64{2})
	p.Advance(7)
	if p.Steps() != 3 || p.Now()[0] != 1 || p.Begin(1) != 10 {
		t.Fatalf("after advance: %+v", p)
	}
	p.Free(5, 20, []int64{2}) // its begin is forgotten already
	if p.Now()[0] != 3 || p.Steps() != 2 {
		t.Fatalf("after free: %+v", p)
	}
}
