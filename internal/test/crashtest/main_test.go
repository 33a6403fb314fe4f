package crashtest

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/internal/test/daemontest"
)

var (
	kills = flag.Int("kills", 0, "how often each daemon is killed; 0: 50 times, or fewer with -race and with -short")
	seed  = flag.Uint64("seed", daemontest.Seed(), "seed of the random decisions; 0: another one each time")
	logs  = flag.String("logs", "", "folder that gets the daemons' logs of failed tests")
	built = flag.String("bin", "", "folder with the programs to test; empty: build them")
)

// base is the folder of this run, bin the programs under test.
var base, bin string

// commands are those that the suite uses.
var commands = []string{"sbatch", "scontrol", "squeue", "sinfo", "scancel", "sacct"}

// keeperEnv makes the test binary the keeper of the folder that it names.
const keeperEnv = "SLUICE_CRASHTEST_KEEPER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(keeperEnv); dir != "" {
		os.Exit(keep(dir))
	}
	flag.Parse()
	if os.Geteuid() != 0 {
		fmt.Println("skipped: the crash suite needs root (cgroups, jobs as other users, loop devices)")
		os.Exit(0)
	}
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	if *kills == 0 {
		*kills = usualKills()
	}
	fmt.Printf("seed %d, %d kills\n", *seed, *kills)
	var err error
	if base, err = os.MkdirTemp("/var/tmp", "sluice-crash-"); err == nil {
		err = os.Chmod(base, 0o755) // jobs of ordinary users pass through
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	stop, err := startKeeper()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer stop()
	bin = filepath.Join(base, "bin") // where every user can reach it
	if err := daemontest.Programs(bin, *built, append(commands, "salloc", "srun")...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// startKeeper starts the process that cleans up when this one has ended, however it ends.
func startKeeper() (stop func(), err error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), keeperEnv+"="+base)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the keeper: %w", err)
	}
	return func() {
		pipe.Close()
		_ = cmd.Wait()
	}, nil
}

// keep waits for the end of its parent, which holds the other end of the pipe.
func keep(dir string) int {
	_, _ = io.Copy(io.Discard, os.Stdin)
	daemontest.Sweep(dir, filepath.Base(dir))
	return 0
}

// newRand is a source of decisions for one test; name tells the tests apart.
func newRand(name string) *rand.Rand {
	var n uint64
	for _, c := range name {
		n = n*131 + uint64(c)
	}
	return rand.New(rand.NewPCG(*seed, n))
}

// usualKills is fewer with the detector of data races, with which everything takes ten times as long, and in the tests of every change.
func usualKills() int {
	switch {
	case testing.Short():
		return 4
	case daemontest.Raced:
		return 10
	}
	return 50
}

// rounds are those of n, or in the tests of every change the one in the middle.
func rounds(n ...int) []int {
	if testing.Short() {
		return n[len(n)/2 : len(n)/2+1]
	}
	return n
}

// long skips a test that needs minutes in the tests of every change.
func long(t *testing.T) {
	if testing.Short() {
		t.Skip("needs minutes: make nightly runs it, or go test without -short")
	}
}
