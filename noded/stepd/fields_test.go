package stepd

import (
	"testing"

	"github.com/sluice-hpc/sluice/internal/test/fieldtest"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestStepsCompareEveryField: a shim obeys orders for its own step alone.
func TestStepsCompareEveryField(t *testing.T) {
	fieldtest.Compares(t, nil, func(a, b *pb.StepKey) bool { return sameStep(a, b) }, fieldtest.LeftOut{
		"Epoch": "the node daemon compares it before it sends an order",
	})
}
