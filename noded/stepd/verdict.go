package stepd

import (
	"fmt"
	"strconv"
	"syscall"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// facts are the basis of a step's verdict.
type facts struct {
	failed     string // a Verdict for a failure before the step ran, or exited when execve was refused; empty: the first process ran
	detail     string
	holdOnly   bool
	status     syscall.WaitStatus
	hasStatus  bool
	stop       string // reason of a stop before the first process ended by itself: "timeout", "cancel", …
	atOnce     bool   // SIGKILL only: a cancelled srun step
	onOrder    bool   // the stop was an order, not the shim's own time limit
	oomKills   uint32
	memLimited uint64 // MiB, for the message
}

// verdict decides in this order: a step that never ran; one that was stopped, whatever its answer to the signal (a script that
// traps SIGTERM and exits 0 at its time limit has still timed out); one killed for memory; then the wait status.
func verdict(f facts) *pb.ExitRecord {
	r := &pb.ExitRecord{WaitStatus: uint32(f.status), Detail: f.detail, StoppedOnOrder: f.onOrder}
	if f.onOrder {
		r.StopReason = f.stop
	}
	if f.stop != "" && !f.hasStatus && !f.holdOnly {
		r.WaitStatus = uint32(syscall.SIGTERM) // stopped before it ran: it has no exit code of its own
		if f.atOnce {
			r.WaitStatus = uint32(syscall.SIGKILL)
		}
	}
	switch {
	case f.failed != "" && f.stop == "":
		r.Verdict = f.failed
	case f.holdOnly:
		r.Verdict = pb.VerdictExited
	case f.stop == pb.StopTimeout:
		r.Verdict = pb.VerdictTimeout
	case f.stop != "":
		r.Verdict = pb.VerdictCancelled
	case f.oomKills > 0:
		r.Verdict = pb.VerdictOOM
		r.Detail = fmt.Sprintf("killed for lack of memory: %d of its processes", f.oomKills)
		if f.memLimited > 0 {
			r.Detail += fmt.Sprintf(", the limit is %d MiB", f.memLimited)
		}
	case f.status.Signaled():
		r.Verdict = pb.VerdictSignaled
	default:
		r.Verdict = pb.VerdictExited
	}
	return r
}

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
