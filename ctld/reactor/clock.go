package reactor

import (
	"github.com/sluice-hpc/sluice/ctld/crontab"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// clockToleranceNS is the change of the clock against CLOCK_BOOTTIME from which on it counts as set. Slewing, by which a time daemon
// corrects small errors, moves both.
const clockToleranceNS = 1e9

// cronCorrectionNS: a clock that is set back by more was wrong, and crontabs follow the new time; if it is set back by less, jobs that have
// run at a fixed hour do not run again (cron(8)).
const cronCorrectionNS = 3 * 3600e9

// KeepTime comes before the commands of a batch: it notices that somebody has set the clock, and moves the times in the records of jobs and
// nodes with it (state.ClockSet). bootID identifies the boot of the controller's machine, and bootNS is its CLOCK_BOOTTIME at the moment of
// tx.NowNS.
func KeepTime(tx *state.Tx, bootID string, bootNS int64) {
	old, now := tx.View().Clock(), &pb.ClockRecord{BootId: bootID, OffsetNs: tx.NowNS - bootNS, SinceNs: tx.NowNS}
	if old.GetBootId() != bootID {
		tx.Emit(state.ClockSet{Clock: now})
		renewCrontabs(tx, -cronCorrectionNS) // the error of the clock in the last boot is not known
		tx.WriteWithClock()
		return
	}
	by := now.OffsetNs - old.OffsetNs
	if by <= clockToleranceNS && by >= -clockToleranceNS {
		return
	}
	now.SinceNs = old.SinceNs + by
	tx.Emit(state.ClockSet{Clock: now, ByNS: by})
	if by < 0 {
		renewCrontabs(tx, by)
	}
	tx.WriteWithClock()
}

// renewCrontabs recomputes the next run of crontab jobs whose run lies further ahead than it would by the current clock: it was computed by
// a clock that was fast.
func renewCrontabs(tx *state.Tx, byNS int64) {
	var late []*pb.JobRecord
	for j := range tx.Jobs().All() {
		if j.Spec.GetCron() == "" || !state.Pending(j) || j.Spec.BeginNs <= tx.NowNS {
			continue
		}
		if (byNS <= -cronCorrectionNS || everyHour(j.Spec.Cron)) && nextRun(tx, j.Spec) < j.Spec.BeginNs {
			late = append(late, j)
		}
	}
	for _, j := range late {
		n := state.CloneJob(j)
		n.Spec = state.CloneSpec(j.Spec)
		runAgainAt(tx, n)
		n.Spec.BeginNs = n.EligibleNs
		if n.AccrueNs > tx.NowNS {
			n.AccrueNs = accrueFrom(tx, n, n.EligibleNs)
		}
		tx.Emit(state.JobChanged{Job: n, What: "next run, by the clock as it is now"})
	}
}

func everyHour(cron string) bool {
	s, err := crontab.Parse(cron)
	return err == nil && s.Hourly()
}

// ownTime gives an exit record times of the controller's clock: the node reports how long ago the step ended and how long it ran, which
// needs no clock of the node. If the node cannot tell, because it has rebooted since, its clock is used, corrected by its known offset.
func ownTime(tx *state.Tx, node string, agoNS int64, x *pb.ExitRecord) *pb.ExitRecord {
	ahead := int64(0)
	if n := tx.Node(node); n != nil {
		ahead = n.ClockOffNs
	}
	if agoNS > 0 {
		x.EndNs = tx.NowNS - agoNS
	} else if x.EndNs != 0 {
		x.EndNs -= ahead
	}
	x.EndNs = min(x.EndNs, tx.NowNS)
	switch {
	case x.StartNs == 0 || x.EndNs == 0:
	case x.RanNs > 0:
		x.StartNs = x.EndNs - x.RanNs
	default:
		x.StartNs = min(x.StartNs-ahead, x.EndNs)
	}
	return x
}

// ClockDiffersNS is the difference between the clocks of node and controller from which on it is reported: messages take a while.
const ClockDiffersNS = 5e9

// clockOff notes by how much the clock of a node is ahead; n is a copy of its record.
func clockOff(n *state.Node, offNS int64) {
	if offNS <= ClockDiffersNS && offNS >= -ClockDiffersNS {
		offNS = 0
	}
	if offNS == 0 || offNS-n.ClockOffNs > ClockDiffersNS || n.ClockOffNs-offNS > ClockDiffersNS {
		n.ClockOffNs = offNS
	}
}
