package admit

import (
	"fmt"
	"strings"

	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/ctld/state"
)

// Switches returns the request "count[@max-time]" (sbatch(1), --switches) with the time for which the job waits: by default the longest
// that max_switch_wait allows. The time is formatted as minutes and seconds.
func Switches(s *state.Settings, text string) string {
	count, wait, timed := strings.Cut(text, "@")
	if count == "" || s.MaxSwitchWaitS == 0 {
		return text
	}
	longest := int64(s.MaxSwitchWaitS)
	seconds, err := timespec.ParseSeconds(wait)
	if !timed || err != nil || seconds == timespec.Unlimited || seconds > longest {
		seconds = longest
	}
	return fmt.Sprintf("%s@%d:%02d", count, seconds/60, seconds%60)
}
