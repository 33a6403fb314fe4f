package gpuhours

import (
	"testing"

	"github.com/sluice-hpc/sluice/internal/test/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
