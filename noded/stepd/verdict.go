package stepd

import (
	"fmt"
	"strconv"
	"syscall"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// facts are what the verdict on a step is made from.
type facts struct {
	failed     string // launch_failed, output_failed, or exited when execve was refused; empty when the first process ran
	detail     string
	holdOnly   bool
	status     syscall.WaitStatus
	hasStatus  bool
	stop       string // reason of the stop that came before the first process ended by itself: "timeout", "cancel", …
	onOrder    bool   // the stop was an order, not the shim's own clock
	oomKills   uint32
	memLimited uint64 // MiB, for the words
}

// verdict decides in this order: what never ran; what was stopped, whatever it answered to the signal (a script that traps
// SIGTERM and exits 0 at its time limit has still timed out); what the kernel killed for memory; then the wait status.
func verdict(f facts) *pb.ExitRecord {
	r := &pb.ExitRecord{WaitStatus: uint32(f.status), Detail: f.detail, StoppedOnOrder: f.onOrder, OomKills: f.oomKills}
	switch {
	case f.failed != "" && f.stop == "":
		r.Verdict = f.failed
	case f.holdOnly:
		r.Verdict = "exited"
	case f.stop == "timeout":
		r.Verdict = "timeout"
	case f.stop != "":
		r.Verdict = "cancelled"
	case f.oomKills > 0:
		r.Verdict = "oom"
		r.Detail = fmt.Sprintf("%d process(es) killed for want of memory", f.oomKills)
		if f.memLimited > 0 {
			r.Detail += fmt.Sprintf(", the limit is %d MiB", f.memLimited)
		}
	case f.status.Signaled():
		r.Verdict = "signaled"
	default:
		r.Verdict = "exited"
	}
	return r
}

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
