package sbatch

import (
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func TestCodesAreThoseOfTheMessages(t *testing.T) {
	if codeInvalidPartition != pb.CodeInvalidPartition || codeQueueFull != pb.CodeQueueFull || codeRateLimited != pb.CodeRateLimited {
		t.Error("the codes of problems have changed")
	}
	if stateCompleted != pb.JobState_JOB_COMPLETED {
		t.Error("the number of COMPLETED has changed")
	}
}
