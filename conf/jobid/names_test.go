package jobid

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func names(t interface{ Fatal(...any) }, words ...string) *Names {
	n := &Names{}
	for _, w := range words {
		id, err := Parse(w)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Add(id); err != nil {
			t.Fatal(err)
		}
	}
	n.Sort()
	return n
}

// A stepped list of half of all tasks there can be is one range in memory, however often and in however many variants it is named.
func TestSteppedListsAreNotExpanded(t *testing.T) {
	var words []string
	for i := range 200 {
		words = append(words, fmt.Sprintf("1_[0-%d:2],7_[%d-%d:3]", 8388606-2*(i%3), i%3, math.MaxUint32-2))
	}
	var ids []string
	for _, w := range words {
		a, b, _ := strings.Cut(w, "],")
		ids = append(ids, a+"]", b)
	}
	n := names(t, ids...)
	if got := n.kept(); got != 4 {
		t.Errorf("%d ranges are kept, want 1 of array 1 and 3 of array 7", got)
	}
	one := n.Tasks(1)
	for task, want := range map[uint32]bool{0: true, 1: false, 8388606: true, 8388605: false, 8388608: false} {
		if one.Has(task) != want {
			t.Errorf("Has(%d) = %v", task, !want)
		}
	}
	if !n.Tasks(7).Meet(Set{{math.MaxUint32 - 3, math.MaxUint32 - 3}}) || one.Meet(SetOf(1, 3, 5, 8388607)) {
		t.Error("Meet is wrong at the edges")
	}
	if n.Whole(1) || n.Tasks(2) != nil || !slices.Equal(n.Arrays(), []uint32{1, 7}) {
		t.Error("what is not named is named")
	}
}

// What one request names has bounds: ranges in all, and stepped ones of one array, which are asked one by one.
func TestNamesAreBounded(t *testing.T) {
	var plain, steps []string
	for i := range MaxNamedRanges {
		plain = append(plain, fmt.Sprint(2*i))
	}
	for i := range 4 * MaxNamedSteps {
		steps = append(steps, fmt.Sprintf("0-4000000:%d", i+2))
	}
	add := func(words ...string) (err error) {
		n := &Names{}
		for _, w := range words {
			id, parseErr := Parse(w)
			if parseErr != nil {
				t.Fatal(parseErr)
			}
			if err = n.Add(id); err != nil {
				break
			}
		}
		if n.kept() > MaxNamedRanges+MaxNamedSteps {
			t.Errorf("%d ranges are kept", n.kept())
		}
		return err
	}
	all := "1_[" + strings.Join(plain, ",") + "]"
	if err := add(all); err != nil {
		t.Error(err)
	}
	if err := add(all, "2"); err == nil {
		t.Error("more ranges than the limit are taken")
	}
	if err := add("1_["+strings.Join(steps[:MaxNamedSteps], ",")+"]", "2_["+steps[0]+"]"); err != nil {
		t.Error(err)
	}
	if err := add("1_[" + strings.Join(steps, ",") + "]"); err == nil {
		t.Error("more stepped ranges than the limit are taken")
	}
	a, err := ParseArray("0-8388606:2")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Set(1 << 30); err == nil || !strings.Contains(err.Error(), "4194304 separate") {
		t.Errorf("a set of four million parts is made: %v", err)
	}
}

// Names decides as the sets that its ranges stand for.
func TestNamesAreSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, want := &Names{}, Set(nil)
		for range rapid.IntRange(0, 12).Draw(t, "ranges") {
			first := rapid.Uint32Range(0, 90).Draw(t, "first")
			r := Range{first, rapid.Uint32Range(first, 120).Draw(t, "last"), rapid.Uint32Range(1, 9).Draw(t, "step")}
			r.Last -= (r.Last - r.First) % r.Step
			id := Job(1)
			id.Tasks = &Array{Ranges: []Range{r}}
			if err := n.Add(id); err != nil {
				t.Fatal(err)
			}
			set, err := id.Tasks.Set(1000)
			if err != nil {
				t.Fatal(err)
			}
			want = want.With(set)
		}
		n.Sort()
		tasks := n.Tasks(1)
		if tasks == nil {
			return
		}
		for i := range uint32(130) {
			if tasks.Has(i) != want.Has(i) {
				t.Fatalf("Has(%d) is %v for %v", i, tasks.Has(i), want)
			}
		}
		have, _ := drawSet(t, "have")
		if tasks.Meet(have) != (have.Without(want).Count() < have.Count()) {
			t.Fatalf("Meet(%v) is %v for %v", have, tasks.Meet(have), want)
		}
	})
}

// kept is how many ranges are kept: what a request costs in memory.
func (n *Names) kept() (count int) {
	for _, t := range n.tasks {
		count += len(t.spans) + len(t.stepped)
	}
	return count + len(n.whole)
}
