package sim

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The traces are research data of others and are not kept here: -traces names
// the folder that has them, or SLUICE_TRACES.
var traces = flag.String("traces", os.Getenv("SLUICE_TRACES"), "folder with KTH-SP2.swf.gz and others")

func needTrace(t testing.TB, name string) string {
	if *traces == "" {
		t.Skip("no traces: give -traces or SLUICE_TRACES the folder that has " + name)
	}
	return filepath.Join(*traces, name)
}

// TestTextbookEASY compares with an independent implementation of the textbook
// rule, in figures.
func TestTextbookEASY(t *testing.T) {
	for _, c := range []struct {
		trace    string
		procs    int
		exact    bool
		wait     float64
		slowdown float64
	}{
		{"KTH-SP2.swf.gz", 100, true, 6328, 71.72},
		{"CTC-SP2.swf.gz", 338, true, 13582, 37.17},
		{"SDSC-SP2.swf.gz", 128, true, 17337, 70.48},
		{"KTH-SP2.swf.gz", 100, false, 6835, 92.69},
		{"CTC-SP2.swf.gz", 338, false, 13943, 48.84},
		{"SDSC-SP2.swf.gz", 128, false, 20571, 87.81},
	} {
		r, err := Run(Options{SWF: needTrace(t, c.trace), Procs: c.procs, Policy: "easy", Exact: c.exact, Clock: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf(
			"%s exact=%v: wait %.2f, slowdown %.4f, %d passes, %d probes, %.1f s",
			c.trace,
			c.exact,
			r.WaitMean,
			r.Slowdown,
			r.Passes,
			r.Probes,
			r.WallS,
		)
		if d := r.WaitMean - c.wait; d > 0.5 || d < -0.5 {
			t.Errorf("%s exact=%v: mean wait %.2f, want %.0f", c.trace, c.exact, r.WaitMean, c.wait)
		}
		if d := r.Slowdown - c.slowdown; d > 0.005 || d < -0.005 {
			t.Errorf("%s exact=%v: mean bounded slowdown %.4f, want %.2f", c.trace, c.exact, r.Slowdown, c.slowdown)
		}
	}
}

// TestAims: the default against the Slurm-like rule and EASY, whose figures stand in docs/scheduling.md: mean wait at least 25 % and mean
// bounded slowdown at least 30 % below the one, the longest wait at most 10 % above the other's.
func TestAims(t *testing.T) {
	for _, c := range []struct {
		trace          string
		procs          int
		wait, slowdown float64 // of the Slurm-like rule, by an independent implementation
		longest        float64 // of EASY
	}{{"KTH-SP2", 100, 7828, 99.4, 262194}, {"CTC-SP2", 338, 22806, 71.2, 303954}, {"SDSC-SP2", 128, 24925, 104.5, 459740}} {
		r, err := Run(Options{SWF: needTrace(t, c.trace+".swf.gz"), Procs: c.procs})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf(
			"%s: wait %.0f (%+.0f %%), slowdown %.2f (%+.0f %%), longest wait %d (%+.1f %%)",
			c.trace,
			r.WaitMean,
			percent(r.WaitMean, c.wait),
			r.Slowdown,
			percent(r.Slowdown, c.slowdown),
			r.WaitMax,
			percent(float64(r.WaitMax), c.longest),
		)
		if r.WaitMean > 0.75*c.wait || r.Slowdown > 0.7*c.slowdown || float64(r.WaitMax) > 1.1*c.longest {
			t.Errorf("%s misses an aim", c.trace)
		}
	}
}
