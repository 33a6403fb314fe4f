package simtest

import (
	"flag"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/reactor"
)

// What follows from a command is cut into many turns, so that controllers die between them.
func init() { reactor.FollowUnits = 30 }

var (
	firstSeed = flag.Uint64("seed", 1, "the first seed to simulate")
	seeds     = flag.Uint64("seeds", usualSeeds(), "how many seeds to simulate")
	tail      = flag.Int("tail", 150, "how much of the trace of a failing seed to print")
)

// usualSeeds is few with the detector of data races: a simulation is one goroutine, there is little for it to find.
func usualSeeds() uint64 {
	if raced {
		return 20
	}
	return 250
}

// TestCluster simulates seeds; go test ./internal/test/simtest -seed 1000 -seeds 10000 looks for longer.
func TestCluster(t *testing.T) {
	total := Stats{Ends: map[string]int{}, Seen: map[string]int{}}
	var events uint64
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		r := Run(Options{Seed: seed})
		if r.Err != nil {
			again := Run(Options{Seed: seed, Trace: true})
			t.Fatalf("seed %d: %v\nthe end of its trace (repeat with -seed %d -seeds 1):\n%s", seed, r.Err, seed, again.Tail(*tail))
		}
		events += r.Events
		total.add(r.Stats)
	}
	t.Logf("%d seeds, %d events: %+v", *seeds, events, total)
	if *seeds < 200 {
		return
	}
	// Simulations in which nothing goes wrong, or nothing goes right, prove nothing.
	if total.Crashes < 200 || total.Requeues < 200 {
		t.Errorf("only %d crashes of the controller and %d requeues", total.Crashes, total.Requeues)
	}
	for _, end := range []string{"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"} {
		if total.Ends[end] < 50 {
			t.Errorf("only %d jobs ended as %s", total.Ends[end], end)
		}
	}
	for _, what := range []string{"array task", "array task of a limited array", "dependency", "devices", "licenses", "in a reservation",
		"drawn into a reservation",
		"clock of the controller set", "clock of a node set", "clock after a reboot",
		"program suspend", "program resume", "program fail", "program that fails",
		"given back", "first step", "epilog", "launch that fails",
		"step", "step JOB_COMPLETED", "step JOB_FAILED", "step JOB_CANCELLED", "step JOB_TIMEOUT", "step JOB_NODE_FAIL",
		"beside a reservation of cores", "shared core", "preempted by JOB_SUSPENDED", "preempted by JOB_RUNNING"} {
		if total.Seen[what] < 10 {
			t.Errorf("only %d of %q: %v", total.Seen[what], what, total.Seen)
		}
	}
}

func (s *Stats) add(o Stats) {
	s.Commits += o.Commits
	s.Crashes += o.Crashes
	s.Starts += o.Starts
	s.Requeues += o.Requeues
	s.Terminal += o.Terminal
	for k, n := range o.Ends {
		s.Ends[k] += n
	}
	for k, n := range o.Seen {
		s.Seen[k] += n
	}
}

// TestSameSeedSameRun: a failure can be repeated only if nothing but the seed decides.
func TestSameSeedSameRun(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		a, b := Run(Options{Seed: seed}), Run(Options{Seed: seed, Trace: true})
		if a.Hash != b.Hash || a.Events != b.Events {
			t.Errorf("seed %d: %d events with hash %x, then %d with %x", seed, a.Events, a.Hash, b.Events, b.Hash)
		}
	}
	if a, b := Run(Options{Seed: 1}), Run(Options{Seed: 2}); a.Hash == b.Hash {
		t.Error("two seeds gave the same run")
	}
}

// TestRestore simulates seeds in which backups are restored at random points: nothing runs twice, what is acknowledged afterwards is not
// lost, and what the backup did not know ends.
func TestRestore(t *testing.T) {
	total := Stats{Ends: map[string]int{}, Seen: map[string]int{}}
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		r := Run(Options{Seed: seed, Restore: true})
		if r.Err != nil {
			again := Run(Options{Seed: seed, Restore: true, Trace: true})
			t.Fatalf("seed %d: %v\nthe end of its trace (repeat with -run TestRestore -seed %d -seeds 1):\n%s", seed, r.Err, seed,
				again.Tail(*tail))
		}
		total.add(r.Stats)
	}
	t.Logf("%d seeds: %+v", *seeds, total)
	for what, least := range map[string]int{"restore": 50, "lost job": 50, "lost attempt": 50, "found attempt": 50, "forgetful node": 20,
		"forgotten": 20, "recalled": 50} {
		if *seeds >= 200 && total.Seen[what] < least {
			t.Errorf("only %d of %q: %v", total.Seen[what], what, total.Seen)
		}
	}
}
