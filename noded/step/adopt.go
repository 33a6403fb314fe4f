package step

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Reasons why an allocation adopts nothing.
var (
	ErrEnding    = errors.New("the job is ending")
	ErrSuspended = errors.New("the job is suspended")
)

// Adopt makes the shim of an allocation move a process into it.
func (r *Runner) Adopt(ctx context.Context, k *pb.StepKey, pid int) error {
	name := folder.Name(k)
	r.mu.Lock()
	var s *shim
	if e := r.steps[name]; e != nil {
		s = e.shim
	}
	r.mu.Unlock()
	if s == nil {
		return ErrEnding
	}
	ctx, cancel := context.WithTimeout(ctx, launchTimeout)
	defer cancel()
	_, err := s.api.Adopt(ctx, &pb.AdoptRequest{Key: k, Pid: int64(pid)})
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.NotFound:
		return ErrEnding
	case codes.Aborted:
		return ErrSuspended
	}
	return fmt.Errorf("cannot adopt a process into step %s: %w", name, err)
}
