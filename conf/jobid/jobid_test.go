package jobid

import (
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func rows(t testing.TB) [][]string {
	t.Helper()
	data, err := os.ReadFile("testdata/arrays.tsv")
	if err != nil {
		t.Fatal(err)
	}
	var out [][]string
	for line := range strings.Lines(string(data)) {
		if !strings.HasPrefix(line, "#") {
			out = append(out, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
		}
	}
	return out
}

func TestArraysAsRecorded(t *testing.T) {
	for _, r := range rows(t) {
		a, err := ParseArray(r[0])
		if r[1] == "!" {
			if err == nil {
				t.Errorf("ParseArray(%q) = %v, want an error", r[0], a)
			}
			continue
		}
		if err != nil {
			t.Errorf("ParseArray(%q): %v", r[0], err)
			continue
		}
		set, err := a.Set(100000)
		if got := FormatTasks(set, a.Throttle, 63); err != nil || got != r[1] {
			t.Errorf("%q is %s, %v, want %s", r[0], got, err, r[1])
		}
	}
}

func TestArrayErrors(t *testing.T) {
	for in, want := range map[string]string{
		"": "no index", ",": "no index", "%2": "no index", "1%-1": "not a number of tasks", "1%x": "not a number",
		"1-3%2,5": "not a number of tasks", "3-1": "runs backwards", "1-5:0": "step", "1:2": "step but no range",
		"1-4294967295": "below 4294967294",
		"+1":           "lacks a number", "1-2-3": "not a whole number", "99999999999": "not a whole number",
		strings.Repeat("1,", 70000): "more than 65536",
	} {
		if _, err := ParseArray(in); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "such as 0-31") {
			t.Errorf("ParseArray(%.20q): %v, want %q", in, err, want)
		}
	}
}

// TestHugeArrayIsNotExpanded: four thousand million tasks cost next to nothing.
func TestHugeArrayIsNotExpanded(t *testing.T) {
	for _, in := range []string{"1-4000000000", "0-4000000000:2%4"} {
		var a *Array
		if n := testing.AllocsPerRun(1, func() { a, _ = ParseArray(in) }); n > 20 {
			t.Errorf("ParseArray(%q) makes %v allocations", in, n)
		}
		if a == nil || a.Total() < 2e9 || a.Max() != 4000000000 {
			t.Errorf("ParseArray(%q) = %v", in, a)
		}
		if _, err := a.Set(10000); err == nil || !strings.Contains(err.Error(), "limit is 10000") {
			t.Errorf("Set: %v", err)
		}
	}
}

func TestIDs(t *testing.T) {
	task := func(r ...Range) *Array { return &Array{Ranges: r} }
	for in, want := range map[string]ID{
		"12":             {Job: 12, Het: -1, Step: StepNone},
		"12_3":           {Job: 12, Het: -1, Step: StepNone, Tasks: task(Range{3, 3, 1})},
		"12_[4-9%2]":     {Job: 12, Het: -1, Step: StepNone, Tasks: &Array{Ranges: []Range{{4, 9, 1}}, Throttle: 2}},
		"12_[1,3,5-9:2]": {Job: 12, Het: -1, Step: StepNone, Tasks: task(Range{1, 1, 1}, Range{3, 3, 1}, Range{5, 9, 2})},
		"12_*":           {Job: 12, Het: -1, Step: StepNone, AllTasks: true},
		"12.0":           {Job: 12, Het: -1},
		"12.batch":       {Job: 12, Het: -1, Step: StepBatch},
		"12_3.extern":    {Job: 12, Het: -1, Step: StepExtern, Tasks: task(Range{3, 3, 1})},
		"12.interactive": {Job: 12, Het: -1, Step: StepInteractive},
		"12+1":           {Job: 12, Het: 1, Step: StepNone},
		"12+1.2":         {Job: 12, Het: 1, Step: 2},
	} {
		got, err := Parse(in)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", in, got, err, want)
		}
		if got.String() != in {
			t.Errorf("Parse(%q) prints as %s", in, got)
		}
	}
	if Task(7, 2).String() != "7_2" || Job(7).String() != "7" {
		t.Errorf("Task and Job print as %s and %s", Task(7, 2), Job(7))
	}
}

func TestIDErrors(t *testing.T) {
	for _, in := range []string{"", "abc", "0", "-1", "12_", "12_x", "12_[", "12_[]", "12_[1", "12.", "12.x", "12.-1", "12.0.1", "12+",
		"12+x", "12_3+1",
		"12 ", " 12", "12,13", "4294967295", "99999999999", "12_3_4", "12.4294967295", "1e3", "+1"} {
		if got, err := Parse(in); err == nil || !strings.Contains(err.Error(), "cannot read job id") {
			t.Errorf("Parse(%q) = %+v, %v, want an error", in, got, err)
		}
	}
}

func TestParseList(t *testing.T) {
	ids, err := ParseList("12,13_[1,3],14.batch")
	var got []string
	for _, id := range ids {
		got = append(got, id.String())
	}
	if want := []string{"12", "13_[1,3]", "14.batch"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("ParseList = %v, %v", got, err)
	}
	if ids, err := ParseList(""); err != nil || ids != nil {
		t.Errorf("ParseList of nothing = %v, %v", ids, err)
	}
	for _, in := range []string{"1,", ",1", "1,,2", "1,x"} {
		if _, err := ParseList(in); err == nil {
			t.Errorf("ParseList(%q) gives no error", in)
		}
	}
}

func TestDependencies(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"afterok:190":                  "afterok:190",
		"afterok:190:191":              "afterok:190,afterok:191",
		"after:190+5:191":              "after:190+5,after:191",
		"after:190":                    "after:190",
		"afterany:190?singleton":       "afterany:190?singleton",
		"afterok:190,afterany:191":     "afterok:190,afterany:191",
		"AFTEROK:190":                  "afterok:190",
		"afterok:191_3":                "afterok:191_3",
		"afterok:191_[1-3]":            "afterok:191_1,afterok:191_2,afterok:191_3",
		"afterok:191_[1,3],singleton":  "afterok:191_1,afterok:191_3,singleton",
		"afterok:191_*":                "afterok:191",
		"190":                          "afterany:190",
		"190:191":                      "afterany:190,afterany:191",
		"afterok:190:190":              "afterok:190",
		"singleton,singleton":          "singleton",
		"aftercorr:191,afternotok:190": "aftercorr:191,afternotok:190",
	} {
		d, err := ParseDependency(in)
		if err != nil || d.String() != want {
			t.Errorf("ParseDependency(%q) = %s, %v, want %s", in, d, err, want)
		}
	}
	for in, want := range map[string]string{
		"afterok:":                               "where a job id belongs",
		"afterok":                                "where a job id belongs",
		"afterok:0":                              "where a job id belongs",
		"afterok:-1":                             "where a job id belongs",
		"afterok:1.0":                            "where a job id belongs",
		"foo:190":                                "unknown kind",
		"afterok:190,":                           "unknown kind",
		"singleton:1":                            "singleton has none",
		"afterok:190+5":                          "only the kind after takes",
		"after:190+5+6":                          "has a delay",
		"after:190+x":                            "has a delay",
		"expand:190":                             "not supported",
		"afterok:1,afterok:2?3":                  "both ',' and '?'",
		"afterok:1_[1-32769]":                    "more than 32768 tasks",
		"afterok:1_[1-32000],afterok:2_[1-1000]": "more than 32768 conditions",
		"afterok:1_[1-32000]:2_[1-1000]":         "more than 32768 jobs",
		"afterok:1_[0-4000000000]":               "more than 32768 tasks",
		"aftercorr:1,afterok:1_[1-1024]":         "aftercorr and more than 1024 conditions",
	} {
		if d, err := ParseDependency(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseDependency(%q) = %d conditions, %v, want %q", in, len(d.Conditions), err, want)
		}
	}
	for in, want := range map[string]int{"after:4294967293_[1-32768]+4294967293,after:4294967293_7+4294967293": 32768,
		"aftercorr:1,afterok:1_[1-1023]": 1024, "aftercorr" + strings.Repeat(":4294967293", 20000): 1} {
		d, err := ParseDependency(in)
		if err != nil || len(d.Conditions) != want {
			t.Errorf("ParseDependency(%.40q) = %d conditions, %v, want %d", in, len(d.Conditions), err, want)
		}
		if back, err := ParseDependency(d.String()); err != nil || !slices.Equal(back.Conditions, d.Conditions) {
			t.Errorf("%.40q written out: %d conditions, %v", in, len(back.Conditions), err)
		}
	}
	d, _ := ParseDependency("afterok:1,afterany:2")
	if got := d.Format(func(c Condition) string {
		return c.String() +
			"(unfulfilled)"
	}); got != "afterok:1(unfulfilled),afterany:2(unfulfilled)" {
		t.Errorf("Format = %s", got)
	}
}

func drawSet(t *rapid.T, name string) (Set, map[uint32]bool) {
	tasks := rapid.SliceOfN(rapid.Uint32Range(0, 60), 0, 40).Draw(t, name)
	model := map[uint32]bool{}
	for _, n := range tasks {
		model[n] = true
	}
	return SetOf(tasks...), model
}

// TestSetIsASet holds Set against a map.
func TestSetIsASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, inA := drawSet(t, "a")
		b, inB := drawSet(t, "b")
		with, without := a.With(b), a.Without(b)
		for n := range uint32(64) {
			if union, both := Union(a, b), a.Common(b); union.Has(n) != with.Has(n) || both.Has(n) != (inA[n] && inB[n]) {
				t.Fatalf("%d in %s, %s, common %s, union %s", n, a, b, both, union)
			}
			if a.Has(n) != inA[n] || with.Has(n) != (inA[n] || inB[n]) || without.Has(n) != (inA[n] && !inB[n]) {
				t.Fatalf("%d in %s, %s, with %s, without %s", n, a, b, with, without)
			}
		}
		if a.Count() != uint64(len(inA)) || int(without.Count()) != len(slices.Collect(without.All())) {
			t.Fatalf("Count of %s is %d, of %s is %d", a, a.Count(), without, without.Count())
		}
		for _, s := range []Set{a, with, without, a.Common(b)} {
			for i := 1; i < len(s); i++ {
				if s[i].First <= s[i-1].Last+1 {
					t.Fatalf("spans of %v touch", s)
				}
			}
		}
	})
}

func TestSetAtTheEdge(t *testing.T) {
	s := Set{{0, math.MaxUint32}}
	if s.Count() != 1<<32 || s.Without(SetOf(0, math.MaxUint32)).Count() != 1<<32-2 || s.With(SetOf(5)).String() != "0-4294967295" {
		t.Errorf("the full set misbehaves: %v", s.Without(SetOf(0, math.MaxUint32)))
	}
	if SetOf().String() != "" || SetOf().Has(0) {
		t.Error("the empty set misbehaves")
	}
}

// TestTasksRoundTrip: what is printed for a set reads as the same set.
func TestTasksRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, _ := drawSet(t, "s")
		if len(s) == 0 {
			return
		}
		a, err := ParseArray(s.String())
		if err != nil {
			t.Fatal(err)
		}
		if back, err := a.Set(100); err != nil || !slices.Equal(back, s) {
			t.Fatalf("%s reads as %s, %v", s, back, err)
		}
		limit := rapid.IntRange(4, 70).Draw(t, "limit")
		if cut := s.Format(limit); len(cut) > limit && s.step() == 0 {
			t.Fatalf("Format(%d) = %s", limit, cut)
		}
	})
}

func FuzzArray(f *testing.F) {
	for _, r := range rows(f) {
		f.Add(r[0])
	}
	f.Add("1-4000000000")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseArray(s)
		if err != nil {
			return
		}
		b, err := ParseArray(a.String())
		if err != nil || b.String() != a.String() {
			t.Fatalf("%q prints as %s, which reads as %v, %v", s, a, b, err)
		}
		sa, err1 := a.Set(1000)
		sb, err2 := b.Set(1000)
		if (err1 == nil) != (err2 == nil) || !slices.Equal(sa, sb) {
			t.Fatalf("%q is %s, printed %s", s, sa, sb)
		}
	})
}

func FuzzID(f *testing.F) {
	for _, s := range []string{"12", "12_3", "12_[4-9%2]", "12_[1,3,5-9:2]", "12.0", "12.batch", "12+1", "12_*", "1,2_[1,2],3.extern"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ids, err := ParseList(s)
		if err != nil {
			return
		}
		for _, id := range ids {
			back, err := Parse(id.String())
			if err != nil || back.String() != id.String() {
				t.Fatalf("%q prints as %s, which reads as %v, %v", s, id, back, err)
			}
		}
	})
}

func FuzzDependency(f *testing.F) {
	for _, s := range []string{"afterok:1:2+5,afterany:3", "after:1+5?singleton", "12:13", "afterok:1_[1-3]", "aftercorr:1_*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDependency(s)
		if err != nil {
			return
		}
		back, err := ParseDependency(d.String())
		if err != nil || back.String() != d.String() {
			t.Fatalf("%q prints as %s, which reads as %v, %v", s, d, back, err)
		}
	})
}
