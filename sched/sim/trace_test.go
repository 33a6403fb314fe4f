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
		t.Logf("%s exact=%v: wait %.2f, slowdown %.4f, %d passes, %d probes, %.1f s", c.trace, c.exact, r.WaitMean, r.Slowdown, r.Passes, r.Probes, r.WallS)
		if d := r.WaitMean - c.wait; d > 0.5 || d < -0.5 {
			t.Errorf("%s exact=%v: mean wait %.2f, want %.0f", c.trace, c.exact, r.WaitMean, c.wait)
		}
		if d := r.Slowdown - c.slowdown; d > 0.005 || d < -0.005 {
			t.Errorf("%s exact=%v: mean bounded slowdown %.4f, want %.2f", c.trace, c.exact, r.Slowdown, c.slowdown)
		}
	}
}
