package noded

import (
	"os"
	"testing"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestUsesAreShown: exporters see whose a GPU is for as long as the job lasts, over a restart of the daemon, and also when the job
// ended while there was none.
func TestUsesAreShown(t *testing.T) {
	c, steps := newController(t), newFakeSteps(t)
	base := t.TempDir()
	c.settings.Gpu = &pb.GpuPolicy{JobMapDir: base + "/jobs", StatDir: base + "/stat"}
	d := newDaemon(t, c, steps)
	f := d.pretend("t4:2")
	d.start()
	see := func(want string) {
		t.Helper()
		got := ""
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			jobs, _ := os.ReadFile(base + "/jobs/1")
			stat, _ := os.ReadFile(base + "/stat/1")
			if got = string(jobs) + string(stat); got == want {
				return
			}
		}
		t.Errorf("the files say %q, want %q", got, want)
	}
	l := withDevices(7, &pb.GresDevice{Name: "gpu", Index: 1, Id: f.ID(1)})
	l.Spec.Uid = 1234
	one := c.submit(l)
	c.phase(one, pb.StepPhase_STEP_RUNNING)
	see("7\n7 1234\n")
	d.stop()
	see("7\n7 1234\n") // the job goes on
	must(t, os.WriteFile(base+"/stat/0", []byte("99 1\n"), 0o644))
	d.pretend("t4:2")
	d.start()
	see("7\n7 1234\n")
	for _, err := os.Stat(base + "/stat/0"); err == nil; _, err = os.Stat(base + "/stat/0") {
		time.Sleep(time.Millisecond) // what an earlier daemon left
	}
	steps.exit(one, 0)
	c.end(one)
	see("")
	d.stop()
	if _, err := os.ReadDir(base + "/jobs"); err != nil {
		t.Error(err)
	}
}
