package reactor

import (
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// top moves a pending job before the others of its user in its partitions (scontrol(1), top): it lowers the job's nice value as far as
// needed, and spreads the difference over the others, so that a user gains nothing over other users. Users may not do so, because
// SchedulerParameters=enable_user_top is not supported.
func top(tx *state.Tx, c Caller, j *pb.JobRecord) *pb.Problem {
	switch {
	case !c.Operator:
		return pb.NewProblem(pb.CodeAccessDenied,
			"only root and SlurmUser may move jobs to the top").WithHint("scontrol update JobId=%d Nice=… moves one back", j.Id)
	case !state.Pending(j):
		return pb.NewProblem(pb.CodeNotPending, "job %s is %s", state.JobName(j), state.StateName(j))
	case j.Priority == 0:
		return pb.NewProblem(pb.CodeJobHeld, "job %s is held", state.JobName(j)).WithHint("scontrol release releases it")
	}
	rivals := rivalsOf(tx, j)
	if len(rivals) == 0 {
		return nil
	}
	best := slices.MaxFunc(rivals, func(a, b *pb.JobRecord) int { return int(int64(a.Priority) - int64(b.Priority)) }).Priority
	rise := max(int64(best)-int64(j.Priority), 0)
	shift(tx, j, -rise)
	share := (rise + int64(len(rivals)) - 1) / int64(len(rivals))
	for _, r := range rivals {
		fall := share
		if int64(r.Priority)-fall >= max(int64(best), int64(j.Priority)) { // it would not fall below j's
			fall++
		}
		if fall > 0 {
			shift(tx, r, fall)
		}
	}
	return nil
}

// rivalsOf returns the other pending, unheld jobs of the same user in any of the same partitions.
func rivalsOf(tx *state.Tx, j *pb.JobRecord) (list []*pb.JobRecord) {
	mine := strings.Split(convert.PartitionList(tx.View(), j.Spec), ",")
	for o := range tx.Jobs().All() {
		if o.Id != j.Id && o.Spec.Uid == j.Spec.Uid && state.Pending(o) && o.Priority != 0 &&
			slices.ContainsFunc(strings.Split(convert.PartitionList(tx.View(), o.Spec), ","),
				func(p string) bool { return slices.Contains(mine, p) }) {
			list = append(list, o)
		}
	}
	return list
}

// maxNice bounds nice values (sbatch(1)).
const maxNice = 2147483645

// shift raises a job's nice value by by and lowers its priority at once; a computed priority is recomputed from the nice value.
func shift(tx *state.Tx, j *pb.JobRecord, by int64) {
	if by == 0 {
		return
	}
	n := state.CloneJob(j)
	n.Spec = state.CloneSpec(j.Spec)
	n.Spec.Nice = int32(min(max(int64(j.Spec.Nice)+by, -maxNice), maxNice))
	n.Priority = uint32(min(max(int64(j.Priority)-by, 1), 1<<32-3))
	tx.Emit(state.JobChanged{Job: n, What: "top"})
}
