package lifecycle

import (
	"testing"

	"github.com/sluice-hpc/sluice/internal/test/fieldtest"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func TestBareLaunch(t *testing.T) {
	large := "large, and only the start needs it"
	fieldtest.Copies(t, bare, fieldtest.LeftOut{"Script": large, "Env": large})
}

func TestRefusal(t *testing.T) {
	if held := (&pb.Bundle{HoldOnly: true, Cgroup: "job_12.2"}); isRefusal(held) || !isRefusal(refusal(&pb.StepKey{JobId: 12})) {
		t.Error("an allocation that is held is taken for a refusal, or a refusal is not recognised")
	}
}
