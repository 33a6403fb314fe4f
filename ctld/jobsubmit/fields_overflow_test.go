package jobsubmit

import (
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// The script sees as many CPUs as are asked for, also where they are more than 32 bits hold: a site's limit would let them through.
func TestCPUsOfManyTasks(t *testing.T) {
	if got := fields["min_cpus"].get(&pb.JobSpec{NumTasks: 1 << 24, CpusPerTask: 256}); got != float64(1<<32) {
		t.Errorf("min_cpus is %v", got)
	}
}
