package folder

import (
	"fmt"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Group names the cgroup of a step attempt below the node's own; the cgroup of an srun step is inside that of its allocation.
// Every attempt has a new one: a cgroup that was killed is never reused.
func Group(k *pb.StepKey) string {
	name := fmt.Sprintf("job_%d.%d", k.GetJobId(), k.GetAttempt())
	if k.GetStep() < pb.BatchStep {
		name += fmt.Sprintf("/step_%d", k.GetStep())
	}
	return name
}
