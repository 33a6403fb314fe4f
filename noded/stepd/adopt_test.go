package stepd

import (
	"log/slog"
	"testing"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestTimeToEndIsNotUnkillable: what has KillWait to end by itself has survived no SIGKILL.
func TestTimeToEndIsNotUnkillable(t *testing.T) {
	r := newRun(&pb.Bundle{Key: &pb.StepKey{JobId: 1, Step: pb.ExternStep}, UnkillableTimeoutS: 10, KillWaitS: 60}, t.TempDir(),
		slog.New(slog.DiscardHandler))
	now := time.Now()
	r.spareSteps(now)
	r.beginKill(now)
	for second := range 71 {
		if r.unkillable(now.Add(time.Duration(second) * time.Second)); r.told != (second == 70) {
			t.Fatalf("told of it after %d seconds: %v", second, r.told)
		}
	}
}
