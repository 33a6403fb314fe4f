package state

import pb "github.com/sluice-hpc/sluice/proto/sluice/v1"

// heldJobs counts the records that take a place of MaxJobCount, in all and by user.
type heldJobs struct {
	all int
	by  map[uint32]int
}

// holdsPlace reports whether a record counts towards MaxJobCount: it is active, or it has run and is shown until MinJobAge is over. Jobs
// that ended without having run do not count: once they have been cancelled, a flood of submissions is in nobody's way.
func holdsPlace(j *pb.JobRecord) bool { return Active(j) || j.Attempt > 0 }

func (h *heldJobs) count(j *pb.JobRecord, by int) {
	if holdsPlace(j) {
		h.all += by
		add(h.by, j.Spec.GetUid(), by)
	}
}

// HeldJobs are the records that count towards MaxJobCount: those of one user, and of all. Only for the writer.
func (tx *Tx) HeldJobs(uid uint32) (own, all int) {
	h := &tx.next.writer.held
	return h.by[uid], h.all
}

// HeldByOthers are the records of all other users that count towards MaxJobCount, of each user at most so many. Only for the writer.
func (tx *Tx) HeldByOthers(uid uint32, most int) (n int) {
	for u, held := range tx.next.writer.held.by {
		if u != uid {
			n += min(held, most)
		}
	}
	return n
}
