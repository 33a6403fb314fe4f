package rpc

import (
	"context"
	"fmt"
	"strconv"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Explain says in words why a job waits, or what has become of it.
func (s *Service) Explain(_ context.Context, r *pb.ExplainRequest) (*pb.ExplainReply, error) {
	v := s.Writer.View()
	var found *pb.JobRecord
	match := named([]string{r.Id})
	for j := range candidates(v, &pb.JobsRequest{Ids: []string{r.Id}}) {
		if match(j) && (found == nil || state.Pending(j)) {
			found = j
		}
	}
	switch {
	case found == nil:
		return nil, problem(pb.NewProblem(pb.CodeInvalidJobID, "there is no job %s", r.Id))
	case !state.Pending(found):
		text := fmt.Sprintf("Job %d does not wait: it is %s (%s).\n", found.Id, state.StateName(found), found.Reason)
		if found.ReasonDetail != "" {
			text += found.ReasonDetail + "\n"
		}
		return &pb.ExplainReply{Text: text}, nil
	}
	text, start, nodes := s.Explainer(v, found)
	return &pb.ExplainReply{Text: text, StartNs: start, Nodes: hostlist.FoldSorted(nodes)}, nil
}

// Priorities answers what the priorities of waiting jobs are made of (sprio).
func (s *Service) Priorities(_ context.Context, r *pb.PrioritiesRequest) (*pb.PrioritiesReply, error) {
	f := r.Filter
	if f == nil {
		f = &pb.JobsRequest{}
	}
	match, p := matcher(f)
	if p != nil {
		return nil, problem(p)
	}
	v := s.Writer.View()
	var jobs []*pb.JobRecord
	for j := range candidates(v, f) {
		if state.Pending(j) && match(j) {
			jobs = append(jobs, j)
		}
	}
	parts, w := s.Terms(v, jobs)
	reply := &pb.PrioritiesReply{Weights: map[string]float64{"age": float64(w.Age), "fairshare": float64(w.FairShare), "jobsize": float64(w.JobSize),
		"partition": float64(w.Partition), "qos": float64(w.QOS), "assoc": float64(w.Assoc)}}
	for i, j := range jobs {
		t := &parts[i]
		reply.Jobs = append(reply.Jobs, &pb.PriorityRecord{JobId: j.Id, Id: strconv.FormatUint(uint64(j.Id), 10), User: j.Spec.User, Partition: j.Partition, Account: j.Spec.Account,
			Qos: j.Spec.Qos, Priority: float64(j.Priority), Site: float64(t.Site), Age: t.Age.Value(), Assoc: t.Assoc.Value(), FairShare: t.FairShare.Value(),
			JobSize: t.JobSize.Value(), PartitionPart: t.Partition.Value(), QosPart: t.QOS.Value(), Nice: t.Nice, AgeNorm: t.Age.Factor, AssocNorm: t.Assoc.Factor,
			FairShareNorm: t.FairShare.Factor, JobSizeNorm: t.JobSize.Factor, PartitionNorm: t.Partition.Factor, QosNorm: t.QOS.Factor})
	}
	return reply, nil
}
