package stepd

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-hpc/sluice/noded/cgroup"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// adoption is a process that is to become part of the allocation.
type adoption struct {
	pid    int
	answer chan error // of one
}

var (
	errEnding    = errors.New("the job is ending")
	errSuspended = errors.New("the job is suspended")
)

// Adopt moves a session of sshd into the allocation that this shim holds. It is the run's own goroutine that does, so that no session
// comes into an allocation whose end has begun, and none is there that its end does not find. NotFound: the step is not here, or it is
// ending; Aborted: it is suspended.
func (s *shim) Adopt(ctx context.Context, q *pb.AdoptRequest) (*pb.AdoptReply, error) {
	r := s.current()
	if r == nil || !sameStep(r.b.Key, q.Key) {
		return nil, status.Error(codes.NotFound, "cannot adopt a process: this shim does not run that step")
	}
	a := adoption{int(q.Pid), make(chan error, 1)}
	select {
	case r.adopts <- a:
	case <-r.ended:
		return nil, status.Error(codes.NotFound, errEnding.Error())
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	switch err := <-a.answer; {
	case err == nil:
		return &pb.AdoptReply{}, nil
	case errors.Is(err, errEnding):
		return nil, status.Error(codes.NotFound, err.Error())
	case errors.Is(err, errSuspended):
		return nil, status.Error(codes.Aborted, err.Error())
	default:
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
}

// adopt: in a frozen group a process that is to log somebody in would stand still, and the login with it.
func (r *run) adopt(pid int) error {
	switch {
	case r.f.stop != "" || r.phase >= pb.StepPhase_STEP_COMPLETING:
		return errEnding
	case r.frozen:
		return errSuspended
	}
	if err := r.grp.Adopt(pid); err != nil {
		return err
	}
	if r.f.holdOnly && !r.adopted {
		r.sampleAt = time.Now().Add(r.sampleIn) // there has been nothing to look at
	}
	r.adopted = true
	return nil
}

// endAdopted has sessions end by themselves: sshd hangs up. What does not has KillWait, as the allocation's steps have.
func (r *run) endAdopted() {
	if !r.adopted {
		return
	}
	r.must("end the sessions in the allocation", r.grp.SignalAdopted(int(unix.SIGTERM)))
	r.must("end the sessions in the allocation", r.grp.SignalAdopted(int(unix.SIGCONT)))
	if r.f.holdOnly && r.frozen {
		r.frozen = false
		r.must("resume the sessions in the allocation", r.grp.Freeze(false))
	}
}

// accountAdopted is what sessions used of an allocation that nothing else runs in.
func (r *run) accountAdopted(u cgroup.Usage) {
	r.use.userUsec, r.use.systemUsec, r.use.maxRSSKiB = u.UserUsec, u.SystemUsec, r.maxRSS
}
