package planner

import (
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
)

// TestRestoredNotes: of a job that waits because the state was restored it is said which nodes it waits for, and what to do about them.
func TestRestoredNotes(t *testing.T) {
	cfg := config(3)
	cfg.Nodes[0].ToldSeq = 100
	cfg.Nodes[2].UntoldNs = 3600e9
	v := state.New(cfg, "c", 1)
	v.Lose(7, 100)
	got := strings.Join(restoredNotes(v), "\n")
	for _, want := range []string{"1 have not: n2;", "1 do not remember what they ran before 1970-01-01T01:00:00Z: n3;",
		"scontrol update NodeName=n3 State=RESUME Reason=…"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}
