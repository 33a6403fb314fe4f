package gpuhours

import (
	"testing"

	"github.com/sluice-hpc/sluice/conf/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
