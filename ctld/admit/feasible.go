package admit

import (
	"cmp"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/feasible"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/fit"
)

// Feasible refuses a completed request that no set of nodes could ever hold, even if all of them were up and free. held: this check may
// wait, because Slurm looks for nodes when a job may start, and a held one waits with BadConstraints once it is released. It returns the
// number of nodes that the job would start on; 0 when unknown.
func Feasible(v *state.View, s *pb.JobSpec, held bool) (nodes int, p *pb.Problem) {
	if s.Features != "" {
		if _, err := fit.ParseConstraint(s.Features); err != nil {
			return 0, pb.NewProblem(pb.CodeInvalidFeature, "%v", err)
		}
	}
	if p := partitionMemory(v, s); p != nil {
		return 0, p
	}
	names, verdict := judge(v, s)
	if held {
		return verdict.Nodes, nil
	}
	if verdict.Nodes > 0 || !Enforced(v) && verdict.Outgrown {
		return verdict.Nodes, nil
	}
	p = pb.NewProblem(pb.CodeNodeConfig, "%s", verdict.Why).WithLead("%s", feasible.Lacking(v, s, names))
	bare := state.CloneSpec(s)
	for _, list := range gresParts(bare) {
		*list = ""
	}
	if feasible.Of(v, bare, names).Nodes == 0 { // it is refused for another reason than its devices
		return 0, p
	}
	if notes := feasible.DeviceNotes(v, s, true); len(notes) > 0 {
		p.WithHint("%s", strings.Join(notes[:min(len(notes), 3)], "; "))
	}
	return 0, p
}

// judge returns the verdict on a request, in those of its partitions that admit it, if any.
func judge(v *state.View, s *pb.JobSpec) (partitions []string, verdict feasible.Answer) {
	partitions = strings.Split(convert.PartitionList(v, s), ",")
	if open, _ := Open(v, partitions, s); len(open) > 0 {
		partitions = open
	}
	return partitions, feasible.Of(v, s, partitions)
}

// TooLarge explains why a job that Feasible accepts waits until more nodes have joined its partitions; "" for all others.
func TooLarge(v *state.View, s *pb.JobSpec) string {
	if _, verdict := judge(v, s); verdict.Outgrown {
		return "the job waits until more nodes have joined: " + verdict.Why
	}
	return ""
}

// partitionMemory refuses, with EnforcePartLimits, more memory per node than a partition allows: each of the job's partitions, or all of
// those that otherwise accept it.
func partitionMemory(v *state.View, s *pb.JobSpec) *pb.Problem {
	if !Enforced(v) {
		return nil
	}
	first := ""
	for _, name := range strings.Split(convert.PartitionList(v, s), ",") {
		if Refusal(v, v.Partition(name), s) != nil {
			continue
		}
		why := feasible.Memory(v, s, name)
		if why == "" && v.Settings.EnforcePartLimits == "ANY" {
			return nil
		}
		first = cmp.Or(first, why)
	}
	if first == "" {
		return nil
	}
	return pb.NewProblem(pb.CodeInvalidMemory, "%s", first)
}
