package explain

import (
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func nobody(uint32) string { return "nobody" }

func twoNodes() *state.View {
	return state.New(&state.Config{Settings: &state.Settings{}, Nodes: []*pb.NodeRecord{{Name: "n1"}, {Name: "n2"}}}, "c", 1)
}

func TestFate(t *testing.T) {
	v := twoNodes()
	const hour = int64(3600e9)
	for want, j := range map[string]*pb.JobRecord{
		"It reached its time limit of 01:00:00; request more with --time.": {State: pb.JobState_JOB_TIMEOUT, TimeLimitS: 3600,
			NodeList: "n1"},
		"It used more memory than it was allocated (mem=2G); request more with --mem": {State: pb.JobState_JOB_OUT_OF_MEMORY,
			AllocTres: "cpu=1,mem=2G,node=1"},
		"02:00:00 after its start on n1: TIMEOUT": {State: pb.JobState_JOB_TIMEOUT, StartNs: hour,
			EndNs: 3 * hour, NodeList: "n1"},
		"It was preempted by job 7.":       {State: pb.JobState_JOB_PREEMPTED, PreemptedBy: "7"},
		"Node n1 failed while running it.": {State: pb.JobState_JOB_NODE_FAIL, FailedNode: "n1"},
		"Node gone is no longer in slurm.conf.": {State: pb.JobState_JOB_RUNNING,
			Alloc: []*pb.NodeAlloc{{Node: "gone"}}},
		"has not been cleaned up yet on n1, n2.": {State: pb.JobState_JOB_COMPLETED,
			Alloc: []*pb.NodeAlloc{{Node: "n1"}, {Node: "n2"}}},
		"ended at 1970-01-01T03:00:00Z while it waited to be started again: CANCELLED. It had been requeued": {
			State: pb.JobState_JOB_CANCELLED, Restarts: 1, EndNs: 3 * hour},
		"It was ended for being idle": {State: pb.JobState_JOB_TIMEOUT, Reason: "InactiveLimit", NodeList: "n1",
			ReasonDetail: "It was ended for being idle"},
		"The prolog failed on node n1; its script was not started.": {State: pb.JobState_JOB_FAILED, Reason: "Prolog", FailedNode: "n1",
			ExitStatus: 256},
		"It is being ended (timeout).": {State: pb.JobState_JOB_RUNNING,
			StopReason: "timeout"},
	} {
		j.Id, j.Spec = 3, &pb.JobSpec{WorkDir: "/secret"}
		if got := Fate(v, j, nobody, false); !strings.Contains(got, want) || strings.Contains(got, "/secret") {
			t.Errorf("%q lacks %q, or names files", got, want)
		}
		if got := Fate(v, j, nobody, true); strings.Contains(got, "/secret") != (j.NodeList != "") {
			t.Errorf("told its owner: %q", got)
		}
	}
}

// TestFateSaysNothingFalse: a sentence that would be false for a job is left out.
func TestFateSaysNothingFalse(t *testing.T) {
	v := twoNodes()
	for not, j := range map[string]*pb.JobRecord{
		"Its output is in": {State: pb.JobState_JOB_FAILED, Reason: "JobLaunchFailure", ReasonDetail: "cannot open output file /x",
			NodeList: "n1"},
		"Its output":             {State: pb.JobState_JOB_RUNNING, NodeList: "n1", Spec: &pb.JobSpec{Interactive: true}},
		"output is":              {State: pb.JobState_JOB_RUNNING, NodeList: "n1", StateFlags: pb.JobPowerUp},
		"sacct -j 3":             {State: pb.JobState_JOB_CANCELLED},
		"Its script":             {State: pb.JobState_JOB_FAILED, NodeList: "n1", ExitStatus: 256, Spec: &pb.JobSpec{Interactive: true}},
		"reached its time limit": {State: pb.JobState_JOB_TIMEOUT, Reason: "InactiveLimit", NodeList: "n1"},
		"without having started": {State: pb.JobState_JOB_CANCELLED, Restarts: 1},
		"ended with exit code":   {State: pb.JobState_JOB_FAILED, Reason: "Prolog", ExitStatus: 256, NodeList: "n1"},
	} {
		if j.Id = 3; j.Spec == nil {
			j.Spec = &pb.JobSpec{}
		}
		if got := Fate(v, j, nobody, true); strings.Contains(got, not) {
			t.Errorf("%q says %q", got, not)
		}
	}
}
