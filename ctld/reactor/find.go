package reactor

import (
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// findJob reads "12", "12.0", "12.batch" and finds the job.
func findJob(tx *state.Tx, id string) (j *pb.JobRecord, step string, p *pb.Problem) {
	num, step, _ := strings.Cut(id, ".")
	n, err := strconv.ParseUint(num, 10, 32)
	if err == nil {
		j = tx.Job(uint32(n))
	}
	if j == nil {
		return nil, "", pb.NewProblem(pb.CodeInvalidJobID, "there is no job %s", id)
	}
	return j, step, nil
}

func jobName(j *pb.JobRecord) string { return strconv.FormatUint(uint64(j.Id), 10) }

func outcome(id string, p *pb.Problem) *pb.JobOutcome { return &pb.JobOutcome{Id: id, Problem: p} }
