package reactor

import (
	"testing"

	"github.com/sluice-hpc/sluice/internal/test/fieldtest"
)

// TestRequeueForgetsTheAttempt: nothing of the attempt that has ended is in the record of the job that waits again.
func TestRequeueForgetsTheAttempt(t *testing.T) {
	fieldtest.Clears(t, forgetAttempt,
		"State StateFlags StopReason StopState CancelledBy Alloc NodeList BatchHost AllocTres ResvName Oversubscribe StartNs EndNs "+
			"SuspendNs "+
			"PreSuspendNs SuspendedNs TimeLimitS ExitStatus DerivedStatus Signals Usage MaxRssKib BatchStartNs BatchEndNs BatchStatus "+
			"BatchVerdict PreemptNs PreemptedBy Scheduler WaitReason ExpectedStartNs ExpectedNodes Promised",
		// the job's own, counters that go on, and what backToQueue sets anew
		"Id Spec Priority Attempt Epoch Restarts SubmitNs EligibleNs AccrueNs LastSchedNs NumNodes NumCpus NumTasks ReqTres ArrayJobId "+
			"ArrayTaskId ArrayTasks ArrayThrottle ArraySpec IsArrayTask HoldAdmin RequestId SystemComment Dependency DependencyNever "+
			"DependencyShown Partition Reason ReasonDetail FailedNode BeginDelayed ClockNs ClockBoot ScriptKey EnvKey LaunchFailures "+
			"MadeSeq Lost FirstStep Dropped")
}
