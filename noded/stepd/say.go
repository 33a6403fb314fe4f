package stepd

import (
	"os"
	"strings"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// complain writes one of the lines that Slurm's slurmstepd writes into a job's stderr, which people and tools look for. errFile is nil
// unless it is a regular file: a write there cannot hang on a reader.
func complain(errFile *os.File, line string) {
	if errFile != nil {
		_, _ = errFile.WriteString("slurmstepd: error: " + line + "\n")
	}
}

// farewell is Slurm's line about the end of a job that did not end by itself.
func farewell(b *pb.Bundle, reason string, now time.Time) string {
	why := map[string]string{
		"timeout": " DUE TO TIME LIMIT",
		"preempt": " DUE TO PREEMPTION",
		"requeue": " DUE TO JOB REQUEUE",
	}[reason]
	what := "JOB " + number(b.Key.GetJobId())
	if b.Key.GetStep() != pb.BatchStep {
		what = "STEP " + number(b.Key.GetJobId()) + "." + number(b.Key.GetStep())
	}
	return "*** " + what + " ON " + nodeName(b.Env) + " CANCELLED AT " + now.Format("2006-01-02T15:04:05") + why + " ***"
}

func nodeName(env []string) string {
	for _, kv := range env {
		if n, ok := strings.CutPrefix(kv, "SLURMD_NODENAME="); ok {
			return n
		}
	}
	n, _ := os.Hostname()
	return n
}
