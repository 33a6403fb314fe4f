package sim

import (
	"testing"
	"time"
)

// TestPolicies prints the comparison of policies on the traces.
func TestPolicies(t *testing.T) {
	for _, c := range []struct {
		trace string
		procs int
	}{{"KTH-SP2.swf.gz", 100}, {"CTC-SP2.swf.gz", 338}, {"SDSC-SP2.swf.gz", 128}} {
		for _, policy := range []string{"easy", "easy-sjbf", "default"} {
			r, err := Run(Options{SWF: needTrace(t, c.trace), Procs: c.procs, Policy: policy, Clock: time.Now})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s %s: wait %.0f p90 %d p99 %d max %d, slowdown %.2f, jain %.3f util %.3f, %d passes, %d probes, %.1f s", c.trace, policy, r.WaitMean, r.WaitP90, r.WaitP99, r.WaitMax, r.Slowdown, r.Fairness, r.Utilization, r.Passes, r.Probes, r.WallS)
		}
	}
}
