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

// adoption is a request to move a process into the allocation.
type adoption struct {
	pid    int
	answer chan error // buffered
}

var (
	errEnding    = errors.New("the job is ending")
	errSuspended = errors.New("the job is suspended")
)

// Adopt moves an sshd session into the allocation that this shim holds. The run's own goroutine does it, so that no session
// enters an allocation that is ending, and the end finds every session. NotFound: the step is not here, or is ending; Aborted: it
// is suspended.
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

// adopt refuses a suspended allocation: in a frozen cgroup the login would hang.
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
		r.sampleAt = time.Now().Add(r.sampleIn) // nothing to sample before
	}
	r.adopted = true
	return nil
}

// endAdopted asks sessions to end: on SIGTERM sshd hangs up. Others have KillWait, as the allocation's steps have.
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

// accountAdopted records the use of sessions in an allocation without other processes.
func (r *run) accountAdopted(u cgroup.Usage) {
	r.use.userUsec, r.use.systemUsec, r.use.maxRSSKiB = u.UserUsec, u.SystemUsec, r.maxRSS
}
