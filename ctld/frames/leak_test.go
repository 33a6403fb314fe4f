package frames

import (
	"testing"

	"github.com/sluice-hpc/sluice/internal/test/leaktest"
)

// TestMain fails when a test leaves a goroutine behind.
func TestMain(m *testing.M) { leaktest.Main(m) }
