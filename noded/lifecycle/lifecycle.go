// Package lifecycle takes the steps of a node from the order to start them to the order to forget them: devices, prolog, launch,
// signals and limits, epilog, the report of the end, and the final deletion.
//
// Steps belong to one goroutine, the loop of the node daemon. They read no clock and start no goroutine: anything that waits (a
// request to noded-root, a pause) runs in Host.Work, and returns its result to the loop as a function. The cluster simulator
// (internal/test/simtest) runs the same code on its own Host.
package lifecycle

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/taskenv"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Host is the daemon around the steps.
type Host interface {
	// Call sends noded-root a request and waits for the answer (privsep.Client.Call). Only what runs in Work may call it.
	Call(ctx context.Context, r *nodepb.Request) (*nodepb.Answer, error)
	// Work runs f beside the loop. The loop then runs the function that f returns, unless ctx has ended. Signal does the same
	// with a limit of its own, so that no signal waits for a prolog or a disk.
	Work(ctx context.Context, f func() func())
	Signal(ctx context.Context, f func() func())
	// Later makes the loop run f after d, unless ctx has ended. Pause waits for d within Work, or until ctx ends.
	Later(ctx context.Context, d time.Duration, f func())
	Pause(ctx context.Context, d time.Duration)
	// Now is the time of day, Boot the time since boot in nanoseconds (CLOCK_BOOTTIME).
	Now() time.Time
	Boot() int64

	// Settings returns the controller's settings; nil before it has ever sent any.
	Settings() *pb.NodeSettings
	// Bundle builds the shim's description of a launch, Daemon describes this node for job environments.
	Bundle(l *pb.LaunchSpec) *pb.Bundle
	Daemon() taskenv.Daemon
	// Fault receives the reason why this node cannot start steps, "" if it can.
	Fault(why string)
}

// Steps are the steps on one node, and the controller's orders about them.
type Steps struct {
	host    Host
	log     *slog.Logger
	node    string // its name
	boot    string // its boot id
	desired *agent.Desired
	steps   map[agent.Key]*Step
	dirty   map[agent.Key]bool        // changed since the last report
	changed bool                      // Reconcile must run
	actual  map[agent.Key]agent.State // used by Reconcile alone: cleared and refilled each time

	stream  int             // number of the current stream
	history *pb.NodeHistory // to be reported
}

// Step is one attempt of a step on this node.
type Step struct {
	key     agent.Key
	phase   pb.StepPhase
	applied agent.Applied
	rep     *pb.StepReport // newest from noded-root
	spec    *pb.LaunchSpec // without script and environment; nil for a step found at startup that has no epilog
	brief   *pb.Bundle     // for a step found at startup
	cpus    uint32         // CPUs of this node
	refused bool           // never began here
	// launching is set from the order until noded-root has the step; cancel aborts the launch.
	launching bool
	cancel    context.CancelCauseFunc
	begun     int64 // when it was ordered, by Host.Boot; 0 for a step found at startup
	busy      bool  // an order is being passed on
	epilog    bool  // the epilog was started
	epilogErr string
	asked     bool   // noded-root was asked why this node could not start it
	asking    bool   // that request is under way
	fault     string // its answer
	stuck     bool   // UnkillableStepProgram was started
}

// New returns the steps of a node in this boot. Those that ended and were forgotten before (ended) are never started again.
func New(h Host, log *slog.Logger, node, boot string, ended []*pb.StepKey, have []*nodepb.Known) *Steps {
	s := &Steps{host: h, log: log, node: node, boot: boot, desired: agent.NewDesired(), steps: map[agent.Key]*Step{},
		dirty: map[agent.Key]bool{}, actual: map[agent.Key]agent.State{}}
	for _, k := range ended {
		s.desired.Past(agent.KeyOf(k))
	}
	for _, h := range have {
		k := agent.KeyOf(h.Report.GetKey())
		s.steps[k] = &Step{key: k, phase: pb.StepPhase_STEP_RUNNING, rep: h.Report, brief: h.Bundle, spec: h.Launch,
			cpus: h.Bundle.GetCpus(), refused: isRefusal(h.Bundle)}
		s.desired.Present(k)
	}
	return s
}

// Resume continues the steps found at startup: those that ended without a daemon may still need an epilog.
func (s *Steps) Resume(ctx context.Context) {
	for _, k := range sorted(s.steps) {
		s.advance(ctx, s.steps[k])
	}
}

// Order applies the controller's orders.
func (s *Steps) Order(m *pb.NodeOrders) {
	s.desired.Apply(m)
	s.changed = true
}

// Report handles a report of noded-root.
func (s *Steps) Report(ctx context.Context, rep *pb.StepReport) {
	j := s.steps[agent.KeyOf(rep.Key)]
	if j == nil || j.phase == pb.StepPhase_STEP_ENDED {
		return
	}
	j.rep = rep
	s.advance(ctx, j)
}

// Reconcile carries out the missing actions, if anything has changed since its last run.
func (s *Steps) Reconcile(ctx context.Context) {
	if !s.changed {
		return
	}
	s.changed = false
	clear(s.actual)
	for k, j := range s.steps {
		s.actual[k] = agent.State{Phase: j.phase, Applied: j.applied, Limit: s.limitOfAllocation(j)}
	}
	for _, a := range agent.Reconcile(s.desired, s.actual) {
		switch a.Kind {
		case agent.Start:
			s.start(ctx, a)
		case agent.Control:
			s.control(ctx, s.steps[a.Key], a)
		case agent.Forget:
			s.forget(ctx, s.steps[a.Key])
		case agent.Refuse:
			s.refuse(ctx, a)
		}
	}
	s.desired.Tidy(s.actual)
}

// HighestJob returns the highest job id that this node has heard of.
func (s *Steps) HighestJob() uint32 { return s.desired.Highest() }

// All returns the steps on this node, in no order.
func (s *Steps) All() iter.Seq[*Step] { return maps.Values(s.steps) }

// Running reports whether a step is on this node and its processes run.
func (s *Steps) Running(k agent.Key) bool {
	j := s.steps[k]
	return j != nil && j.phase == pb.StepPhase_STEP_RUNNING
}

// Key returns the step's key.
func (j *Step) Key() agent.Key { return j.key }

// Phase returns the phase that the controller sees.
func (j *Step) Phase() pb.StepPhase { return j.phase }

// CPUs returns how many of this node's CPUs the step's allocation has; 0 for an srun step.
func (j *Step) CPUs() uint32 { return j.cpus }

// Pid returns the step's first process on this node, 0 without one.
func (j *Step) Pid() int64 { return j.rep.GetPid() }

// Refused reports whether the step never began here.
func (j *Step) Refused() bool { return j.refused }

// Launch returns the step's launch, without script and environment; nil for a step found at startup that has no epilog.
func (j *Step) Launch() *pb.LaunchSpec { return j.spec }

// UID returns the user's uid.
func (j *Step) UID() uint32 {
	if j.spec != nil {
		return j.spec.GetSpec().GetUid()
	}
	return j.brief.GetUid()
}

func sorted[V any](m map[agent.Key]V) []agent.Key {
	return slices.SortedFunc(maps.Keys(m), agent.Key.Compare)
}

// mark notes that a step must be reported, and that Reconcile must run.
func (s *Steps) mark(j *Step) {
	s.dirty[j.key], s.changed = true, true
}
