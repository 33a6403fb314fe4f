package state

import pb "github.com/sluice-hpc/sluice/proto/sluice/v1"

// writerIndex is what only the writer looks up. It is shared by successive views and changed in place: a batch that fails to
// commit ends the process, so there is nothing to take back.
type writerIndex struct {
	requests map[string]uint32 // request id -> job
	userJobs map[uint32]int    // active jobs by uid
}

func (tx *Tx) countUser(j *pb.JobRecord, by int) {
	if j == nil || !Active(j) {
		return
	}
	m := tx.next.writer.userJobs
	if m[j.Spec.GetUid()] += by; m[j.Spec.GetUid()] == 0 {
		delete(m, j.Spec.GetUid())
	}
}

// Reindex computes the writer's index anew, after a batch whose commit was refused.
func (v *View) Reindex() {
	v.writer.requests, v.writer.userJobs = map[string]uint32{}, map[uint32]int{}
	tx := &Tx{next: *v}
	for j := range v.Jobs.All() {
		tx.countUser(j, 1)
		tx.rememberRequest(j.RequestId, j.Id)
	}
}
