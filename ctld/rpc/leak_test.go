package rpc

import (
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/internal/test/leaktest"
)

// TestMain fails when a test leaves a goroutine behind.
func TestMain(m *testing.M) { leaktest.Main(m) }

// patience bounds every wait for a state; nothing takes as long unless something is wrong.
const patience = 5 * time.Minute
