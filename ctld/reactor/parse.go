package reactor

import (
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func parseMoment(s string, nowNS int64) (time.Time, error) {
	return timespec.ParseMoment(s, time.Unix(0, nowNS), time.Local, timespec.Future)
}

func parseMiB(s string) (uint64, error) { return tres.ParseMiB(s) }

// firstPartition is the first partition of a job's list that exists; the default one when it named none.
func firstPartition(tx *state.Tx, s *pb.JobSpec) (string, bool) {
	for _, p := range strings.Split(admit.PartitionList(tx.View(), s), ",") {
		if tx.Partition(p) != nil {
			return p, true
		}
	}
	return s.Partition, false
}
