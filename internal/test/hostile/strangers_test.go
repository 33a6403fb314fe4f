package hostile

import (
	"strings"
	"testing"
)

// TestStrangersMaySeeAndNotSubmit: who has no account. What Slurm does with the job: it takes it, and queues it again each time that it
// should start (slurmctld: "Can not create job credential, attempting to requeue batch job").
func TestStrangersMaySeeAndNotSubmit(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	out, code := c.run(stranger, "sbatch", "--wrap=true").end()
	if code == 0 || !strings.Contains(out, "sbatch: error: Batch job submission failed: Invalid user id\n") {
		t.Errorf("sbatch: exit %d: %s", code, out)
	}
	for _, command := range []string{"squeue", "sinfo", "sacct", "sdiag", "scontrol show job"} {
		words := strings.Fields(command)
		if out, code := c.run(stranger, words[0], words[1:]...).end(); code != 0 {
			t.Errorf("%s: exit %d: %s", command, code, out)
		}
	}
	c.unharmed()
}
