package state

import (
	"strconv"
	"strings"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// defaultShare is how many jobs may share a CPU where OverSubscribe=YES or FORCE does not say (slurm.conf(5)).
const defaultShare = 4

// OverSubscribe reads a partition's OverSubscribe: the mode, NO, EXCLUSIVE, YES or FORCE, and how many jobs may share a CPU.
func OverSubscribe(p *pb.PartitionRecord) (mode string, jobs int) {
	mode, count, counted := strings.Cut(strings.ToUpper(p.GetOversubscribe()), ":")
	switch mode {
	case "YES", "FORCE":
		jobs = defaultShare
		if n, err := strconv.Atoi(count); counted && err == nil && n > 0 {
			jobs = n
		}
		return mode, jobs
	case "EXCLUSIVE":
		return mode, 1
	}
	return "NO", 1
}

// Shares is how many jobs may have a CPU that a job of this specification has in a partition: 1 where it has them for itself.
func Shares(p *pb.PartitionRecord, s *pb.JobSpec) uint32 {
	mode, jobs := OverSubscribe(p)
	if mode == "FORCE" || mode == "YES" && s.GetSharing() == "oversubscribe" {
		return uint32(jobs)
	}
	return 1
}

// Oversubscribed is what squeue shows of a job for its partition's sake: YES under FORCE, NO under EXCLUSIVE, "" where it is for the job
// to say (squeue(1), %h).
func Oversubscribed(p *pb.PartitionRecord) string {
	switch mode, _ := OverSubscribe(p); mode {
	case "FORCE":
		return "YES"
	case "EXCLUSIVE":
		return "NO"
	}
	return ""
}
