package reactor

import (
	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func parseMiB(s string) (uint64, error) { return tres.ParseMiB(s) }

// firstPartition returns the partition in which a waiting job is shown: the first of its list that takes it.
func firstPartition(tx *state.Tx, s *pb.JobSpec) string {
	if p := admit.First(tx.View(), s); p != nil {
		return p.Name
	}
	return s.Partition
}
