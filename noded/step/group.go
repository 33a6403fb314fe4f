package step

import (
	"fmt"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Group names the cgroup of a step attempt below the node's own; that of a step that srun has made lies in that of its allocation. It is
// fresh for every attempt: a cgroup that was killed once is never used again.
func Group(k *pb.StepKey) string {
	name := fmt.Sprintf("job_%d.%d", k.GetJobId(), k.GetAttempt())
	if k.GetStep() < pb.BatchStep {
		name += fmt.Sprintf("/step_%d", k.GetStep())
	}
	return name
}
