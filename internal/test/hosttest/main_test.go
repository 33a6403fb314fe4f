package hosttest_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-hpc/sluice/internal/test/daemontest"
	"github.com/sluice-hpc/sluice/internal/test/hosttest"
	"github.com/sluice-hpc/sluice/internal/test/leaktest"
)

var (
	built = flag.String("bin", "", "folder with the programs to test; empty: build them")
	logs  = flag.String("logs", "", "folder that gets the daemons' logs of failed tests")
)

// base is the folder of this run, bin the programs under test.
var base, bin string

func TestMain(m *testing.M) {
	hosttest.Main()
	flag.Parse()
	if err := hosttest.Missing(); err != nil {
		fmt.Println("skipped: clusters of several hosts:", err)
		os.Exit(0)
	}
	os.Exit(runAll(m))
}

func runAll(m *testing.M) (code int) {
	var err error
	if base, err = os.MkdirTemp("/var/tmp", "sluice-hosts-"); err == nil {
		err = os.Chmod(base, 0o755) // jobs of ordinary users pass through
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// What a killed test leaves are files: its hosts end with it.
	defer func() { daemontest.Sweep(base, filepath.Base(base)) }()
	bin = filepath.Join(base, "bin")
	if err := daemontest.Programs(bin, *built, commands...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if code = m.Run(); code == 0 {
		if err := leaktest.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

var commands = []string{"sbatch", "squeue", "sinfo", "scontrol", "scancel", "sacct", "sprio", "sdiag", "seff", "sstat", "scrontab", "srun"}
