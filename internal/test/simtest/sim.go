package simtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/noded/agent"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// The cluster.
const (
	clusterID   = "simulated"
	nodeCPUs    = 4
	nodeMiB     = 4000
	killWaitS   = 5
	nodeTimeout = 60 // seconds, SlurmdTimeout
)

// Options of one run.
type Options struct {
	Seed  uint64
	Nodes int           // 0: the seed decides
	Jobs  int           // 0: the seed decides
	Chaos time.Duration // how long faults strike; 0: the seed decides
	Trace bool          // keep a trace
	// Restore makes and restores backups at random points. Then users submit only single jobs, and no machine is switched off.
	Restore bool
}

// Result is the result of a run.
type Result struct {
	Err    error // the first violation
	Trace  []string
	Events uint64
	Hash   uint64 // of everything that happened: the same for the same seed
	Stats  Stats
}

// Stats count events, so that a test can see that the faults did strike.
type Stats struct {
	Commits, Crashes, Starts, Requeues, Terminal int
	Ends                                         map[string]int // terminal states
	Seen                                         map[string]int // properties of jobs at their start, and what became of them
}

// sim is one run.
type sim struct {
	world
	o        Options
	faults   faults
	calm     bool
	meddling time.Duration

	cfg      *state.Config
	params   record.Params
	disk     *journal.Memory
	backup   *journal.Memory   // the newest; nil: none
	backedUp map[string]uint64 // witness.givenUp at the time of the backup
	ctl      *controller       // nil: down
	nodes    []*machine
	work     workload
	epilog   bool  // there is one
	sruns    int   // so far
	made     int   // reservations so far
	calmNS   int64 // when the calm began
	unseen   bool  // the last commit is on disk, but its controller died before it could tell anyone
	streams  int
	clocks   clocks
	resting  bool
	subs     []*submission
	witness  *witness
}

// deadline bounds the time from the last fault until the cluster is at rest.
const deadline = 6 * time.Hour

// Run simulates one seed.
func Run(o Options) Result {
	s := newSim(o)
	s.startController()
	for _, m := range s.nodes {
		s.after(s.between(0, 5*time.Second), m.start)
	}
	for _, sub := range s.subs {
		s.after(s.between(0, s.o.Chaos*3/4), func() { s.submit(sub) })
	}
	s.after(s.between(0, s.meddling), s.meddle)
	s.after(s.between(0, s.faults.every), s.strike)
	if s.chance(0.7) {
		s.after(s.between(0, s.meddling), s.srun)
	}
	if s.work.reservations {
		s.after(s.between(0, time.Minute), s.reserve)
	}
	if s.o.Restore {
		s.after(s.between(0, time.Minute), s.backUp)
		s.after(s.between(0, s.o.Chaos), s.restore)
	}
	s.after(s.o.Chaos, func() {
		s.logf("-- calm")
		s.calm, s.calmNS = true, s.now
		s.rightClocks()
		s.faults.latency, s.faults.fsync = 10*time.Millisecond, time.Millisecond
		s.repair()
		s.look()
		s.after(3*time.Minute, s.witness.strays)
	})
	end := s.now + int64(s.o.Chaos+deadline)
	for s.step() && !s.resting {
		if s.now > end {
			s.fail("the cluster does not come to rest: %s", s.unrest())
		}
	}
	if s.err == nil {
		s.witness.final()
	}
	return Result{Err: s.err, Trace: s.trace, Events: s.count, Hash: s.witness.hash.Sum64(), Stats: s.witness.stats}
}

func newSim(o Options) *sim {
	s := &sim{world: newWorld(o.Seed, o.Trace), o: o, disk: journal.NewMemory()}
	if s.o.Nodes == 0 {
		s.o.Nodes = 1 + s.rng.IntN(4)
	}
	if s.o.Jobs == 0 {
		s.o.Jobs = 5 + s.rng.IntN(30)
	}
	if s.o.Chaos == 0 {
		s.o.Chaos = s.between(2*time.Minute, 15*time.Minute)
	}
	s.meddling = s.between(time.Second, time.Minute)
	s.epilog = s.chance(0.5)
	s.witness = newWitness(s)
	s.drawFaults()
	set := &state.Settings{Cluster: "sim", CountMemory: true, DefMemPerCPUMiB: 100, KillWaitS: killWaitS, NodeTimeoutS: nodeTimeout,
		ReturnToService: 1 + s.rng.IntN(2),
		MinJobAgeS:      1e6, MaxJobCount: 10000, MaxArraySize: 1001, JobRequeue: s.chance(0.5), HoldOnPrologFail: s.chance(0.5),
		RequeueDelayS: uint32(1 + s.rng.IntN(10)), PriorityBasic: s.chance(0.8), MaxJobsPerUser: 1000}
	if s.chance(0.3) {
		set.MinJobAgeS = 300 // so that jobs are forgotten while others run
	}
	s.cfg = &state.Config{Settings: set, Default: "debug", PartitionNodes: map[string][]string{}}
	for i := range s.o.Nodes {
		m := &machine{s: s, name: fmt.Sprintf("n%d", i+1), spool: map[agent.Key]*shim{},
			launches: map[agent.Key]*pb.LaunchSpec{}, launching: map[agent.Key]*pb.LaunchSpec{},
			past: map[agent.Key]*pb.ExitRecord{}, of: map[agent.Key]*pb.StepJob{}}
		s.nodes = append(s.nodes, m)
		s.cfg.Nodes = append(s.cfg.Nodes, &pb.NodeRecord{Name: m.name, Cpus: nodeCPUs, Sockets: 1, Cores: nodeCPUs, Threads: 1,
			RealMemoryMib: nodeMiB})
		s.cfg.PartitionNodes["debug"] = append(s.cfg.PartitionNodes["debug"], m.name)
	}
	s.params = record.Params{Weights: record.Weights{Basic: set.PriorityBasic}}
	if !o.Restore { // a backup is wrong about which machines are off, and nobody switches them on
		s.drawPower()
	}
	s.drawWorkload()
	if o.Restore {
		s.work = workload{}
	}
	s.work.settings(s)
	for n := range s.o.Jobs {
		s.subs = append(s.subs, s.newSubmission(n))
	}
	return s
}

// look checks periodically whether everything submitted has ended and nothing is left of it.
func (s *sim) look() {
	s.resting = s.unrest() == ""
	if s.ctl != nil {
		s.witness.reasons(s.ctl.View(), s.calmNS)
		if s.now-s.calmNS > int64(time.Minute) { // the controller has noticed, or one runs that has
			s.witness.waits(s.ctl.View())
		}
	}
	s.after(2*time.Second, s.look)
}

// unrest returns what keeps the cluster from being at rest, "" = nothing.
func (s *sim) unrest() string {
	if s.ctl == nil {
		return "no controller"
	}
	for _, sub := range s.subs {
		if sub.id == 0 {
			return fmt.Sprintf("submission %d is not acknowledged", sub.n)
		}
	}
	for j := range s.ctl.View().Jobs.All() {
		if state.Active(j) {
			return fmt.Sprintf("%s waits for %q, reservation %q", jobWords(j), j.Dependency, j.Spec.Reservation)
		}
	}
	for _, m := range s.nodes {
		n := s.ctl.View().Node(m.name)
		if s.sleeps(m, n) {
			continue
		}
		if len(m.spool) > 0 {
			return fmt.Sprintf("%s still has %s: the node is %v, flags %#x, linked=%v", m.name, keyWords(sortedKeys(m.spool)[0]), n.State,
				n.StateFlags, n.LinkUp)
		}
		if m.d == nil || m.d.hasSteps() {
			return fmt.Sprintf("%s's daemon still has jobs, or does not run: the node is %v, flags %#x", m.name, n.State, n.StateFlags)
		}
		if !n.LinkUp || !n.Up() {
			return fmt.Sprintf("node %s is %v, flags %d, linked=%v", m.name, n.State, n.StateFlags, n.LinkUp)
		}
	}
	return ""
}

// Tail returns the end of a trace, for a failing test.
func (r Result) Tail(n int) string { return strings.Join(r.Trace[max(0, len(r.Trace)-n):], "\n") }
