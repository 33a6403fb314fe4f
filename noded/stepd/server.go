package stepd

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-hpc/sluice/internal/version"
	"github.com/sluice-hpc/sluice/noded/cgroup"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// shim serves StepAPI. It has at most one step; an ended one stays visible until the next launch.
type shim struct {
	spool string
	root  cgroup.Root
	log   *slog.Logger
	exit  func() // ends the process; called when it is not needed any more

	mu       sync.Mutex
	cur      *run
	launch   chan *task // to the launcher
	conns    int
	ending   bool // takes no further step
	unwanted bool // the node daemon has released it and waits for its end
	bloated  bool // it holds memory of a step's connections that an idle shim does not need
}

func newShim(spool string, root cgroup.Root, log *slog.Logger, exit func()) *shim {
	l := newLauncher(log)
	l.run(nil)
	return &shim{spool: spool, root: root, log: log, exit: exit, launch: l.tasks}
}

// endAnswer is how long Launch waits for the end: a step as short as that needs no second call and no second report.
const endAnswer = 10 * time.Millisecond

// beginAnswer is how long Launch waits for the start on an overloaded machine: the node daemon bounds its launches under way, and
// so does not add to the load.
const beginAnswer = 100 * time.Millisecond

// Launch takes the step in the directory and answers when it has ended or has run for a moment. A step that only holds an
// allocation does not end by itself, and others wait for it, so the answer comes once it has started. An error means that the
// step was not taken.
func (s *shim) Launch(ctx context.Context, q *pb.LaunchRequest) (*pb.StepReport, error) {
	r, err := s.take(q.Bundle)
	if err != nil {
		return nil, err
	}
	begun := func(p *pb.StepReport) bool { return p.Phase != pb.StepPhase_STEP_PREPARING }
	ended := func(p *pb.StepReport) bool { return p.Phase == pb.StepPhase_STEP_ENDED || r.b.HoldOnly && begun(p) }
	rep := r.board.within(ctx, endAnswer, ended)
	if !begun(rep) {
		r.board.within(ctx, beginAnswer, begun)
		rep = r.board.within(ctx, endAnswer, ended)
	}
	return rep, nil
}

func (s *shim) take(dir string) (*run, error) {
	s.settled()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending || !s.free() {
		return nil, status.Error(codes.Unavailable, "cannot take a step: this shim is busy or ending")
	}
	b, final, err := accept(s.spool, dir)
	if err != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "cannot take the step in %s: %v", dir, err)
	}
	s.cur = newRun(b, final, s.log)
	go s.serve(s.cur)
	return s.cur, nil
}

// settled gives a step whose end was reported the moment that it needs to clean up.
func (s *shim) settled() {
	r := s.current()
	if r == nil || r.board.get().Phase != pb.StepPhase_STEP_ENDED {
		return
	}
	select {
	case <-r.done:
	case <-time.After(50 * time.Millisecond):
	}
}

// free reports whether another step can be taken. The caller holds mu.
func (s *shim) free() bool {
	if s.cur == nil {
		return true
	}
	select {
	case <-s.cur.done:
		return true
	default:
		return false
	}
}

func (s *shim) serve(r *run) {
	r.loop(s.root, s.launch)
	s.mu.Lock()
	s.ending = s.ending || r.stuck
	s.bloated = s.bloated || r.crew != nil
	slim := !s.bloated
	s.mu.Unlock()
	r.crew = nil
	if !slim {
		time.AfterFunc(keptIdle, func() { s.slim(r) })
	}
	s.endIfUnused()
}

// keptIdle is how long an idle shim keeps memory of ended connections. Releasing it takes a garbage collection and new page
// faults, a quarter of the cost of a short step, and the next step often comes at once.
const keptIdle = time.Second

// slim releases memory if no other step came after r.
func (s *shim) slim(r *run) {
	s.mu.Lock()
	idle := s.cur == r && s.bloated
	s.bloated = s.bloated && !idle
	s.mu.Unlock()
	if idle {
		debug.FreeOSMemory()
	}
}

// Status returns the step's current report, or an empty one.
func (s *shim) Status(context.Context, *pb.StatusRequest) (*pb.StepReport, error) {
	rep := &pb.StepReport{}
	if r := s.current(); r != nil {
		rep = pb.ShallowCopy(r.board.get())
	}
	rep.Build = version.Ours.String()
	return rep, nil
}

func (s *shim) current() *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cur
}

// Wait also returns for a COMPLETING step that has a detail to report (it cannot be killed).
func (s *shim) Wait(ctx context.Context, q *pb.WaitRequest) (*pb.StepReport, error) {
	r := s.current()
	if r == nil {
		return nil, status.Error(codes.NotFound, "cannot wait: this shim has no step")
	}
	start := r.board.get()
	return r.board.await(ctx, func(p *pb.StepReport) bool {
		return p.Phase != q.HavePhase || p.SignalsSeen != q.HaveSignals || p != start && p.Exit != nil
	}), nil
}

// Control applies an order and returns the state after it.
func (s *shim) Control(ctx context.Context, q *pb.ControlRequest) (*pb.StepReport, error) {
	r := s.current()
	if r == nil || !sameStep(r.b.Key, q.Order.GetKey()) {
		return nil, status.Error(codes.NotFound, "cannot apply the order: this shim does not run that step")
	}
	select {
	case r.orders <- q.Order:
	case <-r.ended:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return r.board.get(), nil
}

func sameStep(a, b *pb.StepKey) bool {
	return a.GetJobId() == b.GetJobId() && a.GetAttempt() == b.GetAttempt() && a.GetStep() == b.GetStep()
}

// Release with end tells that the node daemon has enough shims, and knows how this one's last step ended, if it had one. The shim
// first finishes its work for that step, such as output that srun has not read yet.
func (s *shim) Release(_ context.Context, q *pb.ReleaseRequest) (*pb.ReleaseReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending, s.unwanted = s.ending || q.End, s.unwanted || q.End
	if s.ending && s.free() {
		time.AfterFunc(5*time.Millisecond, s.exit) // after the answer
	}
	return &pb.ReleaseReply{}, nil
}

// connected counts the node daemon's connections.
func (s *shim) connected(n int) {
	s.mu.Lock()
	s.conns += n
	s.mu.Unlock()
	if n < 0 {
		s.endIfUnused()
	}
}

// endIfUnused ends a shim without a step and without connections: at once if it takes no more steps, else after a moment in which
// a restarted node daemon may call.
func (s *shim) endIfUnused() {
	unused, ending := s.unused()
	switch {
	case unused && ending:
		s.exit()
	case unused:
		time.AfterFunc(time.Second, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.conns == 0 && s.free() {
				s.ending = true
				s.exit()
			}
		})
	}
}

func (s *shim) unused() (unused, ending bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return (s.conns == 0 || s.unwanted) && s.free(), s.ending
}
