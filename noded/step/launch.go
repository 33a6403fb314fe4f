package step

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-hpc/sluice/internal/failpoint"
	"github.com/sluice-hpc/sluice/noded/private"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// launchTimeout bounds the answer of a shim, which takes a fraction of a second whatever the job does.
const launchTimeout = 10 * time.Second

// Launch writes the bundle and gives it to a shim. It returns nil once a shim has accepted it, or if the step is known already.
func (r *Runner) Launch(ctx context.Context, b *pb.Bundle, script []byte) error {
	if b.Key.GetJobId() == 0 || b.Cgroup == "" {
		return errors.New("cannot launch a step without job id or cgroup name")
	}
	e, known := r.reserve(b)
	if known {
		r.repeat(e)
		return nil
	}
	b.Room = r.roomOf(b)
	err := r.inTurn(ctx, func() error { return r.launch(ctx, e, b, script) })
	if err != nil {
		r.drop(e)
		return fmt.Errorf("cannot launch step %s: %w", e.name, err)
	}
	return nil
}

// roomOf returns where to find the namespaces of a step's allocation on this node; nil: there are none, or this is not a step of
// an allocation. The allocation runs, else the step would not be launched.
func (r *Runner) roomOf(b *pb.Bundle) *pb.Room {
	if b.Step == nil || !private.Apart(b.Privacy) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range []uint32{pb.BatchStep, pb.ExternStep} {
		key := &pb.StepKey{JobId: b.Key.GetJobId(), Attempt: b.Key.GetAttempt(), Step: s}
		e := r.steps[folder.Name(key)]
		if e == nil || e.shim == nil || e.cg.Uid != b.Uid || !proto.Equal(e.cg.Privacy, b.Privacy) {
			continue
		}
		if e.rep.GetRoomThread() > 0 {
			return &pb.Room{Shim: int64(e.shim.pid), Thread: e.rep.RoomThread}
		}
	}
	return nil
}

// maxLaunching is the limit of launches under way. A launch holds its slot until its job runs, and a few milliseconds more, in
// which a short job ends.
func maxLaunching() int { return max(4, 2*runtime.NumCPU()) }

// inTurn runs f in one of the slots. If ctx ends first, nothing has started.
func (r *Runner) inTurn(ctx context.Context, f func() error) error {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.slots }()
	return f()
}

func (r *Runner) launch(ctx context.Context, e *entry, b *pb.Bundle, script []byte) error {
	first := filepath.Join(r.o.Spool, folder.Steps, folder.New+e.name)
	tmp := first
	err := r.write(tmp, b, script)
	failpoint.Hit("noded.written")
	for try := 0; err == nil; try++ {
		var s *shim
		if s, err = r.pool.take(ctx); err != nil {
			break
		}
		if err = ctx.Err(); err != nil { // cancelled while the spool hung: it must not run
			r.pool.put(s)
			break
		}
		var taken bool
		again := fmt.Sprintf("%s.%d", first, try+1)
		if taken, err = r.offer(ctx, e, s, tmp, again); taken {
			return nil
		}
		tmp = again
		// Only a shim that is exiting is worth another try.
		if status.Code(err) == codes.Unavailable && try < 3 && ctx.Err() == nil {
			err = nil
		}
	}
	folder.Remove(tmp)
	return err
}

// offer gives the step to one shim. If the answer is lost, the directory's name tells what happened: the shim's rename accepts
// the step, and our rename to the name again makes acceptance impossible. The old name is never reused: this shim may be slow,
// not dead.
func (r *Runner) offer(ctx context.Context, e *entry, s *shim, tmp, again string) (taken bool, err error) {
	cctx, cancel := context.WithTimeout(ctx, launchTimeout)
	defer cancel()
	rep, err := s.api.Launch(cctx, &pb.LaunchRequest{Bundle: tmp})
	failpoint.Hit("noded.offered")
	if err != nil {
		if rerr := os.Rename(tmp, again); rerr == nil {
			if status.Code(err) == codes.FailedPrecondition {
				r.pool.put(s) // not the shim's fault
			} else {
				s.discard()
			}
			return false, err
		} else if !errors.Is(rerr, unix.ENOENT) {
			s.discard()
			return false, errors.Join(err, rerr)
		}
		rep = &pb.StepReport{Key: e.key, Phase: pb.StepPhase_STEP_PREPARING}
	}
	r.mu.Lock()
	e.shim = s
	r.mu.Unlock()
	r.watch(e, s, rep)
	return true, nil
}

// watch follows a step to its end in a goroutine, then returns its shim to the pool.
func (r *Runner) watch(e *entry, s *shim, rep *pb.StepReport) {
	r.report(e, rep)
	if rep.Phase == pb.StepPhase_STEP_ENDED {
		r.pool.put(s)
		return
	}
	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		r.follow(e, s, rep)
	}()
}

func (r *Runner) follow(e *entry, s *shim, rep *pb.StepReport) {
	for {
		next, err := s.api.Wait(r.ctx, &pb.WaitRequest{HavePhase: rep.Phase, HaveSignals: rep.SignalsSeen})
		switch {
		case r.ctx.Err() != nil:
			s.discard() // the step keeps running
			return
		case err != nil:
			r.log.Warn("lost the connection to a shim", "step", e.name, "shim", s.pid, "err", err)
			if again := r.pool.redial(s); again != nil {
				s = again
				r.mu.Lock()
				e.shim = s
				r.mu.Unlock()
				continue
			}
			r.lost(e)
			return
		}
		rep = next
		r.report(e, rep)
		if rep.Phase == pb.StepPhase_STEP_ENDED {
			r.pool.put(s)
			return
		}
	}
}

// lost ends a step whose shim is dead, with the record that the shim left, or with one that says "lost".
func (r *Runner) lost(e *entry) {
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		rep, err := r.bury(e.name, e.cg, e.key)
		if err == nil {
			r.report(e, rep)
			return
		}
		// It may still have processes, so it has not ended: its processors must not be given away.
		r.log.Error("cannot clean up a step whose shim is dead", "step", e.name, "err", err)
		select {
		case <-time.After(pause):
		case <-r.ctx.Done():
			return
		}
	}
}

// bury kills what remains of a step and returns its exit record, which it writes if there is none.
func (r *Runner) bury(name string, b *pb.Bundle, key *pb.StepKey) (*pb.StepReport, error) {
	dir := r.dir(name)
	if full, err := r.readBundle(name); err == nil {
		b = full // with the environment, which the process-tree layout needs
	}
	if b.GetCgroup() != "" {
		if err := r.root.Reclaim(b); err != nil {
			return nil, err
		}
	}
	exit, err := folder.ReadExit(dir)
	if err != nil {
		r.log.Error("cannot read an exit record: the step counts as lost", "step", name, "err", err)
	}
	if exit != nil {
		return ended(exit.Key, exit), nil
	}
	exit = &pb.ExitRecord{Key: key, Verdict: pb.VerdictLost, EndNs: time.Now().UnixNano(),
		Detail: "the process that watched over it died; what was left of it has been killed"}
	if err := folder.WriteExit(dir, exit); err != nil {
		return nil, err
	}
	return ended(key, exit), nil
}

// Control passes an order to the step's shim. An order for an ended or unknown step changes nothing.
func (r *Runner) Control(ctx context.Context, o *pb.StepOrder) error {
	name := folder.Name(o.Key)
	r.mu.Lock()
	var s *shim
	e := r.steps[name]
	if e != nil {
		s = e.shim
	}
	r.mu.Unlock()
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, launchTimeout)
	defer cancel()
	_, err := s.api.Control(ctx, &pb.ControlRequest{Order: o})
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("cannot pass an order to step %s: %w", name, err)
	}
	return nil
}
