package reactor

import (
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// UpdatePartition is scontrol update PartitionName=…. What it sets lasts until the next reconfigure or restart, except State.
type UpdatePartition struct {
	Caller Caller
	Name   string
	Set    []*pb.KeyValue
}

// Handle changes the partition.
func (c UpdatePartition) Handle(tx *state.Tx) any {
	if !c.Caller.Operator {
		return pb.NewProblem(pb.CodeAccessDenied, "only root and SlurmUser may change partitions")
	}
	old := tx.Partition(c.Name)
	if old == nil {
		return pb.NewProblem(pb.CodeInvalidPartition, "there is no partition %q", c.Name)
	}
	p := state.ClonePartition(old)
	for _, kv := range c.Set {
		if problem := setPartition(p, kv.Key, kv.Value); problem != nil {
			return problem
		}
	}
	tx.Emit(state.PartitionChanged{Partition: p})
	return Outcomes{Seq: tx.Seq}
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
	case "allowgroups":
		p.AllowGroups = value
	case "oversubscribe":
		p.Oversubscribe = strings.ToUpper(value)
	default:
		return pb.NewProblem(pb.CodeNotSupported, "cannot set %s of a partition", key).WithHint("what can be set: State, MaxTime, DefaultTime, MinNodes, MaxNodes, MaxCPUsPerNode, PriorityTier, PriorityJobFactor, AllowGroups, Hidden, RootOnly, LLN, OverSubscribe")
	}
	return nil
}

func setMinutes(dst *uint32, key, value string) *pb.Problem {
	m, err := timespec.ParseMinutes(value)
	if err != nil {
		return pb.NewProblem(pb.CodeInvalidTimeLimit, "%s=%s: %v", key, value, err)
	}
	*dst = limitSeconds(m)
	return nil
}

// limitSeconds turns minutes, as timespec.ParseMinutes gives them (negative = unlimited), into a limit in seconds.
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
		return pb.NewProblem(pb.CodeInvalidSpec, "%s=%s: say YES or NO", key, value)
	}
	return nil
}
