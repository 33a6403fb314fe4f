package hostlist

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestScontrol holds the package against recorded answers of a real Slurm.
func TestScontrol(t *testing.T) {
	data, err := os.ReadFile("testdata/scontrol.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		names, err := Expand(f[0])
		if f[1] == "!" {
			if err == nil {
				t.Errorf("Expand(%q) = %v, want an error", f[0], names)
			}
			continue
		}
		if err != nil || strings.Join(names, " ") != f[1] {
			t.Errorf("Expand(%q) = %v, %v, want %s", f[0], names, err, f[1])
		}
		if got := Fold(names); got != f[2] {
			t.Errorf("Fold(%v) = %s, want %s", names, got, f[2])
		}
		if got := FoldSorted(names); got != f[3] {
			t.Errorf("FoldSorted(%v) = %s, want %s", names, got, f[3])
		}
	}
}

func TestErrorsSayWhere(t *testing.T) {
	for _, c := range []struct {
		in   string
		pos  int
		want string
	}{
		{"n[1-", 1, `cannot read hostlist "n[1-": at character 2: '[' without a ']'`},
		{"a,n]1", 3, "']' without a '['"},
		{"n[5-3]", 2, "write 3-5"},
		{"n[1-3]x", 6, "list the names one by one"},
		{"n[1 - 2]", 3, `' ' is not allowed in a range`},
		{"n[1-]", 4, "a number is missing"},
		{"n[9999999999999999999]", 2, "more than 18 digits"},
		{"a\x01", 1, "control character"},
		{"x" + strings.Repeat("y", 300), 0, "longer than 255"},
		{strings.Repeat("x[1-2]", 200), 0, "longer than 255"},
	} {
		_, err := Expand(c.in)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || syntax.Pos != c.pos || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Expand(%q): %v, want position %d and %q", c.in, err, c.pos, c.want)
		}
	}
}

func TestLimitIsCheckedBeforeExpanding(t *testing.T) {
	for _, in := range []string{
		"n[1-65537]",
		"n[0-999999999999999999]",
		"n[1-300][1-300]",
		"n[0-999999999999999999][0-999999999999999999][0-999999999999999999]",
		"a[1-40000],b[1-40000]",
		strings.Repeat("a,", 70000),
	} {
		var limit *LimitError
		if n, err := Count(in); !errors.As(err, &limit) || !strings.Contains(err.Error(), "65536") {
			t.Errorf("Count(%.40q) = %d, %v, want a LimitError", in, n, err)
		}
		if allocs := testing.AllocsPerRun(1, func() { Expand(in) }); !strings.HasPrefix(in, "a,") && allocs > 100 {
			t.Errorf("Expand(%.40q) allocated %v times before refusing", in, allocs)
		}
	}
	if names, err := Expand("n[1-65536]"); err != nil || len(names) != Limit {
		t.Errorf("Expand at the limit: %d names, %v", len(names), err)
	}
}

func TestCompare(t *testing.T) {
	sorted := []string{"A", "a1", "a01", "a2", "a9b1", "a10", "a10b1", "b", "n099", "n100"}
	for i, a := range sorted {
		for j, b := range sorted {
			if got, want := Compare(a, b), min(1, max(-1, i-j)); got != want {
				t.Errorf("Compare(%s, %s) = %d, want %d", a, b, got, want)
			}
		}
	}
}

func TestSplit(t *testing.T) {
	got := Split("n[1,2],, m x[3-4,5]")
	if want := []string{"n[1,2]", "m", "x[3-4,5]"}; !slices.Equal(got, want) {
		t.Errorf("Split = %q, want %q", got, want)
	}
}

var anyName = rapid.StringMatching(`[a-c]?-?[0-9]{0,3}[a-b]?[0-9]{0,4}`).Filter(func(s string) bool { return s != "" })

// TestFoldLosesNothing: expanding what was folded gives the names back.
func TestFoldLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(anyName, 0, 40).Draw(t, "names")
		back, err := Expand(Fold(names))
		if err != nil || !slices.Equal(back, names) {
			t.Fatalf("Expand(%s) = %v, %v, want %v", Fold(names), back, err, names)
		}
		sorted, err := Expand(FoldSorted(names))
		if err != nil {
			t.Fatalf("Expand(%s): %v", FoldSorted(names), err)
		}
		slices.Sort(sorted)
		slices.Sort(names)
		if !slices.Equal(sorted, names) {
			t.Fatalf("FoldSorted lost names: %v, want %v", sorted, names)
		}
	})
}

// TestFoldSortedIgnoresOrder: the sorted form depends on the set alone.
func TestFoldSortedIgnoresOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(anyName, 0, 40).Draw(t, "names")
		shuffled := rapid.Permutation(names).Draw(t, "shuffled")
		if a, b := FoldSorted(names), FoldSorted(shuffled); a != b {
			t.Fatalf("FoldSorted: %s and %s", a, b)
		}
	})
}

func TestCompareIsAnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := anyName.Draw(t, "a"), anyName.Draw(t, "b"), anyName.Draw(t, "c")
		if Compare(a, b) != -Compare(b, a) || (Compare(a, b) == 0) != (a == b) {
			t.Fatalf("Compare(%s, %s) = %d, reversed %d", a, b, Compare(a, b), Compare(b, a))
		}
		if Compare(a, b) <= 0 && Compare(b, c) <= 0 && Compare(a, c) > 0 {
			t.Fatalf("%s <= %s <= %s, but not %s <= %s", a, b, c, a, c)
		}
	})
}

func FuzzExpand(f *testing.F) {
	data, err := os.ReadFile("testdata/scontrol.tsv")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		f.Add(strings.SplitN(line, "\t", 2)[0])
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := Count(s)
		names, err2 := Expand(s)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("Count: %v, Expand: %v", err, err2)
		}
		if err != nil {
			return
		}
		if n != len(names) {
			t.Fatalf("Count = %d, Expand gave %d", n, len(names))
		}
		back, err := Expand(Fold(names))
		if err != nil || !slices.Equal(back, names) {
			t.Fatalf("%q folds to %q, which expands to %q, %v", names, Fold(names), back, err)
		}
	})
}
