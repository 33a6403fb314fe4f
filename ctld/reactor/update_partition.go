package reactor

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// UpdatePartition is scontrol update PartitionName=…, and create and delete (make_partition.go). Its settings last until the next
// reconfigure or restart, except State.
type UpdatePartition struct {
	Caller Caller
	Name   string
	Set    []*pb.KeyValue
	// GIDs are the groups that AllowGroups of Set names; nil = all.
	GIDs           []uint32
	Create, Delete bool
}

// Handle changes the partition.
func (c UpdatePartition) Handle(tx *state.Tx) any {
	if !c.Caller.Operator {
		return pb.NewProblem(pb.CodeAccessDenied, "only root and SlurmUser may change partitions")
	}
	switch {
	case c.Create:
		return c.create(tx)
	case c.Delete:
		return c.delete(tx)
	}
	old := tx.Partition(c.Name)
	if old == nil {
		return pb.NewProblem(pb.CodeInvalidPartition, "there is no partition %q", c.Name)
	}
	return c.change(tx, state.ClonePartition(old), nil)
}

func setPartition(p *pb.PartitionRecord, key, value string) *pb.Problem {
	switch strings.ToLower(key) {
	case "state":
		switch s := strings.ToUpper(value); s {
		case "UP", "DOWN", "DRAIN", "INACTIVE":
			p.State = s
			return nil
		}
		return pb.NewProblem(pb.CodeInvalidSpec, "State=%s of a partition", value).WithHint("one of UP, DOWN, DRAIN, INACTIVE")
	case "maxtime":
		return setMinutes(&p.MaxTimeS, key, value)
	case "defaulttime":
		return setMinutes(&p.DefaultTimeS, key, value)
	case "minnodes":
		return setCount(&p.MinNodes, key, value)
	case "maxnodes":
		return setCount(&p.MaxNodes, key, value)
	case "prioritytier":
		return setCount(&p.PriorityTier, key, value)
	case "priorityjobfactor":
		return setCount(&p.PriorityJobFactor, key, value)
	case "maxcpuspernode":
		return setCount(&p.MaxCpusPerNode, key, value)
	case "hidden":
		return setBool(&p.Hidden, key, value)
	case "rootonly":
		return setBool(&p.RootOnly, key, value)
	case "lln":
		return setBool(&p.Lln, key, value)
	case "oversubscribe", "shared":
		return setOversubscribe(p, value)
	}
	return setMorePartition(p, key, value)
}

// setOversubscribe parses OverSubscribe of slurm.conf(5), and stores it as scontrol shows it, "FORCE:4".
func setOversubscribe(p *pb.PartitionRecord, value string) *pb.Problem {
	mode, count, counted := strings.Cut(strings.ToUpper(value), ":")
	n, err := strconv.Atoi(count)
	known := mode == "NO" || mode == "EXCLUSIVE" || mode == "YES" || mode == "FORCE"
	if !known || counted && (err != nil || n < 1 || n > maxShare) {
		return pb.NewProblem(pb.CodeInvalidSpec, "OverSubscribe=%s of a partition",
			value).WithHint("one of NO, EXCLUSIVE, YES, YES:n, FORCE, FORCE:n with n from 1 to %d", maxShare)
	}
	p.Oversubscribe = mode
	if mode == "YES" || mode == "FORCE" {
		_, jobs := state.OverSubscribe(&pb.PartitionRecord{Oversubscribe: mode + ":" + count})
		p.Oversubscribe = fmt.Sprintf("%s:%d", mode, jobs)
	}
	return nil
}

// maxShare is the largest number of jobs that slurm.conf lets share a CPU.
const maxShare = 32766

func setMinutes(dst *uint32, key, value string) *pb.Problem {
	m, err := timespec.ParseMinutes(value)
	if err != nil {
		return pb.NewProblem(pb.CodeInvalidTimeLimit, "%s=%s: %v", key, value, err)
	}
	*dst = limitSeconds(m)
	return nil
}

// limitSeconds converts minutes from timespec.ParseMinutes (negative = unlimited) to a limit in seconds.
func limitSeconds(minutes int64) uint32 {
	if minutes < 0 || minutes*60 >= int64(pb.Unlimited) {
		return pb.Unlimited
	}
	return uint32(minutes * 60)
}

func setCount(dst *uint32, key, value string) *pb.Problem {
	if strings.EqualFold(value, "unlimited") || strings.EqualFold(value, "infinite") {
		*dst = pb.Unlimited
		return nil
	}
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil {
		return pb.NewProblem(pb.CodeInvalidSpec, "%s=%s is not a number", key, value)
	}
	*dst = uint32(n)
	return nil
}

func setBool(dst *bool, key, value string) *pb.Problem {
	switch strings.ToLower(value) {
	case "yes", "y", "1", "true":
		*dst = true
	case "no", "n", "0", "false":
		*dst = false
	default:
		return pb.NewProblem(pb.CodeInvalidSpec, "%s=%s: use YES or NO", key, value)
	}
	return nil
}
