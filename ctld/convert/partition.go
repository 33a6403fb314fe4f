package convert

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

var partitionStates = map[string]record.PartitionState{"UP": record.PartitionUp, "DOWN": record.PartitionDown,
	"DRAIN":    record.PartitionDrain,
	"INACTIVE": record.PartitionInactive}

func Partition(v *state.View, p *pb.PartitionRecord) *record.Partition {
	s := &record.Partition{Name: p.Name, Nodes: v.PartitionNodes(p.Name), State: partitionStates[p.State],
		PriorityTier:   uint16(p.PriorityTier),
		PriorityFactor: uint16(p.PriorityJobFactor), MaxTimeS: LimitS(p.MaxTimeS), DefaultTimeS: LimitS(p.DefaultTimeS),
		MinNodes:       int(p.MinNodes),
		MaxCPUsPerNode: int(p.MaxCpusPerNode), LLN: p.Lln, ExclusiveUser: p.ExclusiveUser, PreemptMode: PreemptMode(p.PreemptMode),
		GraceTimeS: int64(p.GraceTimeS)}
	if p.MaxNodes != pb.Unlimited {
		s.MaxNodes = int(p.MaxNodes)
	}
	if p.MaxCpusPerNode == pb.Unlimited {
		s.MaxCPUsPerNode = 0
	}
	if s.MaxMemNodeMiB = int64(p.MaxMemPerNodeMib); s.MaxMemNodeMiB == 0 && p.MaxMemPerCpuMib == 0 {
		s.MaxMemNodeMiB = int64(v.Settings.MaxMemPerNodeMiB)
	}
	mode, jobs := state.OverSubscribe(p)
	s.Share, s.MaxShare = shareModes[mode], jobs
	return s
}

var shareModes = map[string]record.ShareMode{"NO": record.ShareNo, "EXCLUSIVE": record.ShareExclusive, "YES": record.ShareYes,
	"FORCE": record.ShareForce}

var PreemptModes = map[record.PreemptMode]string{record.PreemptRequeue: "REQUEUE", record.PreemptCancel: "CANCEL",
	record.PreemptSuspend: "SUSPEND"}

// PreemptMode parses PreemptMode= of a QOS, a partition or the cluster. GANG without SUSPEND preempts nothing; an empty value, CLUSTER and
// WITHIN alone leave it to the cluster.
func PreemptMode(text string) record.PreemptMode {
	for _, word := range strings.Split(strings.ToUpper(text), ",") {
		for mode, name := range PreemptModes {
			if word == name {
				return mode
			}
		}
	}
	if words := strings.Split(strings.ToUpper(text), ","); slices.Contains(words, "OFF") || slices.Contains(words, "GANG") {
		return record.PreemptOff
	}
	return record.PreemptInherit
}

// QOS converts a QOS for the scheduler.
func QOS(q *pb.QosRecord) *record.QOS {
	out := &record.QOS{Name: q.Name, Preempts: q.Preempt, PreemptMode: PreemptMode(q.PreemptMode)}
	for _, v := range q.Values {
		switch v.Name {
		case "Priority":
			out.Priority = uint32(v.Value)
		case "GraceTime":
			out.GraceTimeS = int64(v.Value)
		case "PreemptExemptTime":
			out.ExemptS = cmp.Or(int64(v.Value), -1)
		}
	}
	return out
}

// LimitS converts a time limit for the scheduler: 0 is none.
func LimitS(s uint32) int64 {
	if s == pb.Unlimited {
		return 0
	}
	return int64(s)
}

// PartitionList returns the partitions that a job may run in: those it names, or the default.
func PartitionList(v *state.View, spec *pb.JobSpec) string {
	if spec.Partition == "" {
		return v.Default
	}
	return spec.Partition
}
