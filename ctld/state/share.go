package state

import (
	"strconv"
	"strings"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// defaultShare is the number of jobs that may share a CPU when OverSubscribe=YES or FORCE gives none (slurm.conf(5)).
const defaultShare = 4

// OverSubscribe reads a partition's OverSubscribe: the mode (NO, EXCLUSIVE, YES or FORCE), and the number of jobs that may share a CPU.
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

// Shares returns how many jobs may share a CPU with a job of this specification in a partition, itself included: 1 if it has its CPUs
// alone.
func Shares(p *pb.PartitionRecord, s *pb.JobSpec) uint32 {
	mode, jobs := OverSubscribe(p)
	if mode == "FORCE" || mode == "YES" && s.GetSharing() == "oversubscribe" {
		return uint32(jobs)
	}
	return 1
}

// Oversubscribed returns the value that squeue shows because of a job's partition: YES under FORCE, NO under EXCLUSIVE, "" where the job
// decides (squeue(1), %h).
func Oversubscribed(p *pb.PartitionRecord) string {
	switch mode, _ := OverSubscribe(p); mode {
	case "FORCE":
		return "YES"
	case "EXCLUSIVE":
		return "NO"
	}
	return ""
}
