package hosttest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/client/msg"
)

// TestJobsOnEveryHost: a cluster over real TCP, with certificates that were brought to the hosts by hand. A job runs on the host that it
// was meant for, as its user and with the groups of the controller's host.
func TestJobsOnEveryHost(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for _, h := range c.compute {
		out := filepath.Join(c.dir, h.Name+".out")
		id := c.submit("-w", h.Name, "-o", out, "--wrap",
			"cat /proc/sys/kernel/hostname /etc/hostname; id -un; id -Gn; echo $SLURMD_NODENAME")
		if j := c.wait(id); j.State != msg.JobState_JOB_COMPLETED {
			t.Errorf("the job on %s is %v: %s", h.Name, j.State, j.ReasonDetail)
		}
		text, err := os.ReadFile(out)
		must(t, err)
		if want := strings.Join([]string{h.Name, h.Name, "alice", "alice lab", h.Name, ""}, "\n"); string(text) != want {
			t.Errorf("the job on %s says %q, want %q", h.Name, text, want)
		}
	}
}
