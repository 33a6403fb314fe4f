package explain

import (
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestRestoredNotes: of a job that waits because the state was restored it is said which nodes it waits for, and what to do about them.
func TestRestoredNotes(t *testing.T) {
	v := state.New(&state.Config{Settings: &state.Settings{}, Nodes: []*pb.NodeRecord{{Name: "n1", ToldSeq: 100}, {Name: "n2"},
		{Name: "n3", UntoldNs: 3600e9}}}, "c", 1)
	v.Lose(7, 100)
	got := strings.Join(restoredNotes(v), "\n")
	for _, want := range []string{"1 have not: n2;", "1 have no record of jobs before 1970-01-01T01:00:00Z: n3;",
		"scontrol update NodeName=n3 State=RESUME Reason=…"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}
