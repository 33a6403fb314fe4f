package reactor

import (
	"strconv"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// How the places of MaxJobCount are shared.
//
// A user may hold three quarters of the places that all others leave free, so whoever comes finds some: one user alone has at most three
// quarters of the table, a second one three quarters of the rest, and so on. Root and SlurmUser have a tenth more than MaxJobCount, which
// nobody else can take: they can always submit what puts things right. A rule by fixed parts (each user so many) was rejected: it
// either wastes most of the table on a cluster with one busy user, or protects nobody on one with several.
//
// Tasks of an array that start get records of their own without being asked about, so one user may hold more than that; of each user no
// more than the share counts when others are judged.
const (
	shareNum, shareDen = 3, 4
	reserveDen         = 10 // of MaxJobCount
	reserveMin         = 16
)

// scarce is the room on the disk of the state below which jobs that have ended without having run are forgotten at once: four scripts of
// the largest size.
const scarce = 4 * 4 << 20

// roomFor refuses more records than the controller has room for, or one user may have. Root and SlurmUser have no limit of their own, and
// for what they do to the jobs of others (operator) the places that are kept for them.
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

// forNow gives a refusal of roomFor or bytesFor the code upon which commands that submit say that they wait, and try again.
func forNow(p *pb.Problem) *pb.Problem {
	return pb.NewProblem(pb.CodeQueueFull, "%s", p.Detail).WithHint("%s", p.Hint)
}

// placeFor is roomFor's part that concerns MaxJobCount.
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

// bytesFor refuses what would make a user hold more bytes in the state than SlurmctldParameters=max_user_state allows, or than his share
// of a disk that is nearly full: three quarters of what he has and there is room for, as with places. Jobs count until they are forgotten:
// what is written for a job that ends at once is on the disk all the same. Root and SlurmUser are exempt, and what they do to the jobs of
// others (operator).
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

// share is the part of n places that one user may hold: of few all but the last.
func share(n int) int { return (n*shareNum + shareDen - 1) / shareDen }
