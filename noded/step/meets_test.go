package step

import (
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/internal/version"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestMeets: steps are taken over from shims that predate protocol numbers; from one of a release that is too far away they are not, in
// words that name the job.
func TestMeets(t *testing.T) {
	key := &pb.StepKey{JobId: 12, Attempt: 1, Step: pb.BatchStep}
	far := version.Build{Protocol: 9, Oldest: 9, Release: "9.0"}
	for _, c := range []struct {
		ours, shim string
		refused    string
	}{
		{version.Ours.String(), "", ""},
		{version.Ours.String(), version.Ours.String(), ""},
		{far.String(), "", "earlier sluice-noded until the job has ended"},
		{version.Ours.String(), far.String(), ": start a newer one"},
	} {
		err := meets(version.Parse(c.ours), &pb.StepReport{Key: key, Build: c.shim})
		if (err == nil) != (c.refused == "") {
			t.Errorf("%q with a shim of %q: %v", c.ours, c.shim, err)
		}
		if err != nil && (!strings.Contains(err.Error(), c.refused) || !strings.Contains(err.Error(), "the shim of job 12 (")) {
			t.Errorf("%q with a shim of %q: %v", c.ours, c.shim, err)
		}
	}
}
