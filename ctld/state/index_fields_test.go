package state

import (
	"testing"

	"github.com/sluice-hpc/sluice/internal/test/fieldtest"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestIndexFollowsTheRecord: every field from which the writer's index is made is among the fields that are compared to see whether it has
// to change.
func TestIndexFollowsTheRecord(t *testing.T) {
	for _, state := range []pb.JobState{pb.JobState_JOB_PENDING, pb.JobState_JOB_RUNNING, pb.JobState_JOB_COMPLETED} {
		t.Run(state.String(), func(t *testing.T) {
			made := func() *pb.JobRecord {
				j := fieldtest.Filled[pb.JobRecord]()
				j.State, j.StateFlags, j.ExitStatus, j.StartNs, j.Dependency, j.ArrayTasks = state, 0, 0, 0, "afterok:3", ""
				return j
			}
			fieldtest.Follows(t, made, func(j *pb.JobRecord) any {
				tx := Begin(New(testConfig(1, 8), "c", 1), 1)
				tx.reindex(nil, j)
				return tx.next.writer
			}, func(j *pb.JobRecord) any { return indexedOf(j) }, fieldtest.LeftOut{"Id": "a record keeps its id"})
		})
	}
}

// TestLimitsCompareEveryField: jobs share the list of their user's last job only where the limits are the same.
func TestLimitsCompareEveryField(t *testing.T) {
	fieldtest.Compares(t, nil, equalLimits, nil)
}
