package noded

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-hpc/sluice/noded/agent"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// What steps used of their devices goes on over a restart of the daemon, and is gone when nothing uses devices any more.
func TestUsesAreKept(t *testing.T) {
	n := &node{sp: &spool{dir: t.TempDir()}}
	key := agent.Key{Job: 7, Attempt: 1, Epoch: 3, Step: pb.BatchStep}
	n.keepUses([]*pb.StepUsage{{Key: key.Proto(), Devices: []*pb.DeviceUse{{Id: "GPU-1", UtilPercent: 50, Samples: 3}}}, {Key: &pb.StepKey{JobId: 8}}})
	n.loadUses()
	if got := n.priorUse[key]; len(n.priorUse) != 1 || len(got) != 1 || got[0].UtilPercent != 50 {
		t.Errorf("loaded %v", n.priorUse)
	}
	path := filepath.Join(n.sp.dir, usesFile)
	if err := os.WriteFile(path, []byte("\xff\xffnothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n.loadUses(); len(n.priorUse) != 0 {
		t.Errorf("of a broken file: %v", n.priorUse)
	}
	n.keepUses(nil)
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
}

// The exit record of a step with devices has what was used of them, also when the shim itself measured nothing; one without stays as it is.
func TestExitRecordHasDevices(t *testing.T) {
	exit := &pb.ExitRecord{CpuUsecUser: 5}
	if (&job{}).withDevices(exit) != exit || (&job{used: []*pb.DeviceUse{{}}}).withDevices(nil) != nil {
		t.Error("a record without devices was changed")
	}
	j := &job{used: []*pb.DeviceUse{{Id: "GPU-1"}}}
	got := j.withDevices(exit)
	if exit.Usage != nil || got.Usage.GetCpuUsecUser() != 5 || len(got.Usage.Devices) != 1 {
		t.Errorf("got %v of %v", got, exit)
	}
}
