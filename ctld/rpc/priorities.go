package rpc

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/priority"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Priorities returns the components of the priorities of waiting jobs (sprio).
func (s *Service) Priorities(ctx context.Context, r *pb.PrioritiesRequest) (*pb.PrioritiesReply, error) {
	f := r.Filter
	if f == nil {
		f = &pb.JobsRequest{}
	}
	sel, p := selectionOf(f)
	if p != nil {
		return nil, problem(p)
	}
	v := s.Writer.View()
	if v.Settings.PriorityBasic {
		return &pb.PrioritiesReply{Weights: map[string]float64{"basic": 1}}, nil
	}
	var jobs []*pb.JobRecord
	var parts []string
	sees := s.sees(ctx)
	wanted := state.OneOf(f.Partitions)
	for j := range attentive(ctx, sel.candidates(v)) {
		if !competes(v, j) || !sel.match(j) || !sees(j) {
			continue
		}
		for p := range strings.SplitSeq(convert.PartitionList(v, j.Spec), ",") {
			if len(f.Partitions) == 0 || wanted(p) {
				jobs, parts = append(jobs, j), append(parts, p)
			}
		}
	}
	if err := gone(ctx); err != nil {
		return nil, err
	}
	terms, w := s.Terms(v, jobs, parts)
	reply := &pb.PrioritiesReply{Weights: weights(&w)}
	for i, j := range jobs {
		reply.Jobs = append(reply.Jobs, priorityRecord(j, parts[i], &terms[i]))
	}
	return reply, nil
}

// competes reports whether a job waits only for its turn: held jobs, and those whose time has not come, have no priority yet.
func competes(v *state.View, j *pb.JobRecord) bool {
	return state.Pending(j) && j.Priority != 0 && j.Dependency == "" && j.EligibleNs != 0 && j.EligibleNs <= v.NowNS &&
		j.Spec.BeginNs <= v.NowNS
}

func weights(w *record.Weights) map[string]float64 {
	return map[string]float64{"site": 1, "age": float64(w.Age), "fairshare": float64(w.FairShare), "jobsize": float64(w.JobSize),
		"partition": float64(w.Partition), "qos": float64(w.QOS), "assoc": float64(w.Assoc), "cpu": w.TRES.CPU, "mem": w.TRES.MemGiB,
		"node": w.TRES.Node, "gres/gpu": w.TRES.GPU}
}

// sum returns the priority before rounding.
func sum(t *priority.Parts) float64 {
	whole := priority.Total(*t)
	exact := float64(t.Site) - float64(t.Nice)
	for _, x := range [...]priority.Part{t.Age, t.Assoc, t.FairShare, t.JobSize, t.Partition, t.QOS, t.CPU, t.Mem, t.Node, t.GPU} {
		exact += x.Value()
	}
	if uint32(min(max(exact, 0), math.MaxUint32)) == whole {
		return exact
	}
	return float64(whole)
}

// norm returns a factor before weighting; without a weight it is 0, as in Slurm.
func norm(p priority.Part) float64 {
	if p.Weight == 0 {
		return 0
	}
	return p.Factor
}

func priorityRecord(j *pb.JobRecord, part string, t *priority.Parts) *pb.PriorityRecord {
	r := &pb.PriorityRecord{JobId: j.Id, User: j.Spec.User, Partition: part,
		Priority: sum(t), Site: float64(t.Site), Age: t.Age.Value(), Assoc: t.Assoc.Value(), FairShare: t.FairShare.Value(),
		JobSize: t.JobSize.Value(), PartitionPart: t.Partition.Value(), QosPart: t.QOS.Value(), Nice: t.Nice,
		AgeNorm: norm(t.Age), AssocNorm: norm(t.Assoc), FairShareNorm: norm(t.FairShare), JobSizeNorm: norm(t.JobSize),
		PartitionNorm: norm(t.Partition), QosNorm: norm(t.QOS)}
	if j.Spec.Priority != 0 {
		r.Priority = float64(j.Spec.Priority)
	}
	var tres []string
	for _, x := range []struct {
		name string
		part priority.Part
	}{{"cpu", t.CPU}, {"mem", t.Mem}, {"node", t.Node}, {"gres/gpu", t.GPU}} {
		if x.part.Weight != 0 {
			tres = append(tres, fmt.Sprintf("%s=%.0f", x.name, x.part.Value()))
		}
	}
	r.Tres = strings.Join(tres, ",")
	return r
}
