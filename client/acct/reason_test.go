package acct

import (
	"testing"

	"github.com/sluice-hpc/sluice/client/msg"
)

func TestReasonOfLaunchFailure(t *testing.T) {
	for want, j := range map[string]*msg.JobRecord{
		"JobLaunchFailure: cannot open /nope/x": {Reason: "JobLaunchFailure", ReasonDetail: "cannot open /nope/x", WaitReason: "BeginTime"},
		"JobLaunchFailure":                      {Reason: "JobLaunchFailure"},
		"BeginTime":                             {Reason: "NonZeroExitCode", WaitReason: "BeginTime"},
		"None":                                  {Reason: "NonZeroExitCode", WaitReason: "Priority", Alloc: []*msg.NodeAlloc{{}}},
	} {
		if got := (Row{JobRecord: j}).reason(); got != want {
			t.Errorf("%s: %q, want %q", j.Reason, got, want)
		}
	}
}
