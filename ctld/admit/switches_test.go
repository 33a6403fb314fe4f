package admit

import (
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
)

func TestSwitchesWaitAtMost(t *testing.T) {
	s := &state.Settings{MaxSwitchWaitS: 600}
	for text, want := range map[string]string{"": "", "2": "2@10:00", "2@1:30": "2@1:30", "1@0:30": "1@0:30", "1@2:00:00": "1@10:00",
		"1@UNLIMITED": "1@10:00", "1@5": "1@5:00"} {
		if got := Switches(s, text); got != want {
			t.Errorf("--switches=%s becomes %q, want %q", text, got, want)
		}
	}
}
