package filename

import (
	"path/filepath"
	"strings"
	"testing"
)

// Each row was answered by Slurm 22.05: the name of the file that the job made (%b is newer: sbatch(1) of 24.05).
func TestOutputAsSlurmNamesIt(t *testing.T) {
	plain := Values{JobID: 309, JobName: "n x", User: "nobody", Host: "vm.example.org"}
	array := Values{JobID: 312, IsArrayTask: true, ArrayJobID: 312, ArrayTaskID: 7, JobName: "wrap", User: "nobody", Host: "vm"}
	for _, c := range []struct {
		pattern string
		v       Values
		want    string
	}{
		{"a-%%-%A-%a-%j-%J-%N-%n-%s-%t-%u-%x-%4j-%12j-%04j-%10j-%q-%", plain,
			"a-%-309-4294967294-309-309-vm-0-batch-0-nobody-n x-0309-0000000309-0309-0000000309-%q-%"},
		{`b\%j-%x`, plain, "b%j-%x"},
		{`c\\%j-%x\a`, plain, `c\%j-%xa`},
		{`m\n%j\%x%%`, plain, "mn%j%x%%"},
		{`trailing\`, plain, "trailing"},
		{"d-%A-%4a-%a-%J-%j-%3A", array, "d-312-0007-7-312-312-312"},
		{"e-%b", array, "e-7"},
		{"g%x%5u%6n%2t%3N", plain, "gn xnobody00000000vm"},
		{"i%", plain, "i%"},
		{"i%4", plain, "i%4"},
		{"j-%99j-%010j-%0j", plain, "j-0000000309-0000000309-309"},
		{"l-%4x-%4u-%4%-%4q-z", array, "l-wrap-nobody-4%-4q-z"},
		{"j-%99999999999999999999j", plain, "j-0000000309"},
		{"", plain, "slurm-309.out"},
		{"", array, "slurm-312_7.out"},
	} {
		if got, want := Output(c.pattern, "/w", c.v), filepath.Join("/w", c.want); got != want {
			t.Errorf("%q: %q, want %q", c.pattern, got, want)
		}
	}
}

func TestFolders(t *testing.T) {
	v := Values{JobID: 5}
	for _, c := range []struct{ got, want string }{
		{Output("none", "/w", v), "/dev/null"},
		{Output("NONE", "/w", v), "/dev/null"},
		{Output("/abs/%j", "/w", v), "/abs/5"},
		{Output("sub/%j/o", "/w", v), "/w/sub/5/o"},
		{Output("../o", "/w/x", v), "/w/x/../o"},
		{Error("", "/w", v), ""},
		{Error("e%j", "/w", v), "/w/e5"},
		{Output("o", "/", v), "/o"},
		{Input("", "/w", v), "/dev/null"},
		{Input("in", "/w", v), "/w/in"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

func TestStepsAndPendingArrays(t *testing.T) {
	step := Values{JobID: 128, Step: "0", Task: 1}
	if got := Expand("job%J.out job%4j job%j-%2t %3s", step); got != "job128.0.out job0128 job128-01 000" {
		t.Error(got)
	}
	pending := Values{JobID: 9, TaskUnknown: true}
	if got := Output("", "/w", pending); got != "/w/slurm-9_%a.out" {
		t.Error(got)
	}
	if got := Expand("%A.%b", pending); got != "9.%b" {
		t.Error(got)
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"slurm-%j.out", "%4%", `\%j`, "%", "%99999999999j", "%x%x", "%4"} {
		f.Add(s, "name")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		v := Values{JobID: 7, JobName: name, User: "u", Host: "h"}
		got := Output(pattern, "/w", v)
		if !strings.HasPrefix(got, "/") {
			t.Fatalf("%q is relative", got)
		}
		if !strings.ContainsAny(pattern, `%\`) && !strings.EqualFold(pattern, "none") && pattern != "" && Expand(pattern, v) != pattern {
			t.Fatalf("%q changed to %q", pattern, Expand(pattern, v))
		}
		if max := (len(pattern)+1)*(len(name)+maxWidth+5) + 20; len(got) > max {
			t.Fatalf("%d bytes of a pattern of %d", len(got), len(pattern))
		}
	})
}
