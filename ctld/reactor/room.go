package reactor

import (
	"strconv"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// How the places of MaxJobCount are shared.
//
// A user may hold three quarters of the places that all others leave free, so a newcomer always finds some: one user alone has at most
// three quarters of the table, a second one three quarters of the rest, and so on. Root and SlurmUser have a tenth more than MaxJobCount,
// which no other user can take: they can always submit what repairs the situation. Rejected: a fixed part for each user, which either
// wastes most of the table on a cluster with one busy user, or protects nobody on one with several.
//
// Tasks of an array get records of their own when they start, without a check, so one user may hold more than that. When others are judged,
// no user counts for more than the share.
const (
	shareNum, shareDen = 3, 4
	reserveDen         = 10 // of MaxJobCount
	reserveMin         = 16
)

// scarce is the free space on the disk of the state below which jobs that ended without having run are forgotten at once: four scripts of
// the largest size.
const scarce = 4 * 4 << 20

// roomFor refuses more records than the controller has room for, or one user may have. Root and SlurmUser have no limit of their own; when
// they act on other users' jobs (operator), they have the reserved places.
func roomFor(tx *state.Tx, uid uint32, user string, more int, operator bool) *pb.Problem {
	s := tx.Settings()
	exempt := uid == 0 || uid == s.SlurmUserUID
	if p := placeFor(tx, uid, user, more, operator, exempt); p != nil {
		return p
	}
	if own := tx.UserJobs(uid); s.MaxJobsPerUser > 0 && own+more > int(s.MaxJobsPerUser) && !exempt {
		return pb.NewProblem(pb.CodeAccountingPolicy,
			"%d jobs of user %s are pending or running, this needs %d more, and the limit per user is %d", own, user, more,
			s.MaxJobsPerUser).WithHint("use a job array, or try again when some have finished")
	}
	return nil
}

// forNow turns a refusal of roomFor or bytesFor into one after which submitting commands wait and try again.
func forNow(p *pb.Problem) *pb.Problem {
	return pb.NewProblem(pb.CodeQueueFull, "%s", p.Detail).WithHint("%s", p.Hint)
}

// placeFor is the part of roomFor for MaxJobCount.
func placeFor(tx *state.Tx, uid uint32, user string, more int, operator, exempt bool) *pb.Problem {
	most := int(tx.Settings().MaxJobCount)
	own, all := tx.HeldJobs(uid)
	if most == 0 || all+more <= share(most) {
		return nil
	}
	others := tx.HeldByOthers(uid, share(most))
	operator = operator || exempt
	counted := own
	if !exempt {
		counted = min(own, share(most))
	}
	switch {
	case operator && counted+others+more > most+max(most/reserveDen, reserveMin):
		return pb.NewProblem(pb.CodeAccountingPolicy,
			"the controller holds %d jobs, this needs %d more, and MaxJobCount of slurm.conf is %d (root and SlurmUser have a tenth more)",
			all, more, most).WithHint("cancel pending jobs, or raise MaxJobCount")
	case operator:
		return nil
	case own+more > share(most-others):
		return pb.NewProblem(pb.CodeAccountingPolicy,
			"user %s holds %d jobs and this needs %d more; the limit is %d: three quarters of what other users leave free of "+
				"MaxJobCount=%d (slurm.conf)", user, own, more, max(share(most-others), 0),
			most).WithHint("use a job array, or try again when some have finished; jobs that have run count until MinJobAge is over")
	}
	return nil
}

// bytesFor refuses a change with which a user would hold more bytes in the state than SlurmctldParameters=max_user_state allows, or more
// than a share of a nearly full disk: three quarters of the user's bytes and the free room together, as with places. Jobs count until they
// are forgotten, because even a job that ends at once is written to the disk. Root and SlurmUser are exempt, also when they act on other
// users' jobs (operator).
func bytesFor(tx *state.Tx, uid uint32, user string, more int64, operator bool) *pb.Problem {
	s := tx.Settings()
	own := tx.UserBytes(uid)
	if more <= 0 || operator || uid == 0 || uid == s.SlurmUserUID {
		return nil
	}
	if most := max((own+tx.Room)/shareDen*shareNum, 0); own+more > most {
		return pb.NewProblem(pb.CodeNoSpace,
			"the disk of StateSaveLocation is nearly full: user %s holds %s in the controller's state (scripts, environments, records of "+
				"jobs, crontab), this needs %s more, and the current limit per user is %s", user, mebibytes(own), mebibytes(more),
			mebibytes(most)).
			WithHint("cancel pending jobs, submit arrays or the same script; root can free space on that disk, and submit all the same")
	}
	if s.MaxUserBytes == 0 || own+more <= s.MaxUserBytes {
		return nil
	}
	return pb.NewProblem(pb.CodeAccountingPolicy,
		"user %s holds %s in the controller's state (scripts, environments, records of jobs, crontab), this needs %s more, and %s are "+
			"allowed (max_user_state of SlurmctldParameters)", user, mebibytes(own), mebibytes(more), mebibytes(s.MaxUserBytes)).
		WithHint("submit arrays or the same script, put data and long arguments into files, cancel pending jobs; jobs that have ended " +
			"count until MinJobAge is over")
}

// mebibytes writes a number of bytes for people: "255.9 MiB".
func mebibytes(n int64) string { return strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64) + " MiB" }

// share returns the part of n places that one user may hold: of few places all but the last.
func share(n int) int { return (n*shareNum + shareDen - 1) / shareDen }
