package state

import pb "github.com/sluice-hpc/sluice/proto/sluice/v1"

// heldJobs counts the records that count towards MaxJobCount, in total and by user.
type heldJobs struct {
	all int
	by  map[uint32]int
}

// holdsPlace reports whether a record counts towards MaxJobCount: it is active, or it has run and is shown until MinJobAge is over. Jobs
// that ended without having run do not count, so a cancelled flood of submissions blocks nobody.
func holdsPlace(j *pb.JobRecord) bool { return Active(j) || j.Attempt > 0 }

func (h *heldJobs) count(j *pb.JobRecord, by int) {
	if holdsPlace(j) {
		h.all += by
		add(h.by, j.Spec.GetUid(), by)
	}
}

// HeldJobs returns how many records count towards MaxJobCount: those of one user, and all. Only for the writer.
func (tx *Tx) HeldJobs(uid uint32) (own, all int) {
	h := &tx.next.writer.held
	return h.by[uid], h.all
}

// HeldByOthers returns how many records of all other users count towards MaxJobCount; no user counts for more than most. Only for the
// writer.
func (tx *Tx) HeldByOthers(uid uint32, most int) (n int) {
	for u, held := range tx.next.writer.held.by {
		if u != uid {
			n += min(held, most)
		}
	}
	return n
}
