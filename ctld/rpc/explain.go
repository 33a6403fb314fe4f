package rpc

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/priority"
	"github.com/sluice-hpc/sluice/sched/record"
	"google.golang.org/protobuf/proto"
)

// Explain says in words why a job waits, or what has become of it; of an array first how many of its tasks are in which state.
func (s *Service) Explain(ctx context.Context, r *pb.ExplainRequest) (*pb.ExplainReply, error) {
	v := s.Writer.View()
	sel, p := selectionOf(&pb.JobsRequest{Ids: []string{r.Id}, AllStates: true})
	if p != nil {
		return nil, problem(p)
	}
	a := &subject{tally: state.Tally{}}
	sees := s.sees(ctx)
	for j := range attentive(ctx, sel.candidates(v)) {
		if sel.match(j) && sees(j) {
			a.add(j)
		}
	}
	if err := gone(ctx); err != nil {
		return nil, err
	}
	if a.job == nil { // forgotten MinJobAge after its end
		a = s.remembered(ctx, r.Id, sees)
	}
	if a.job == nil {
		return nil, problem(pb.NewProblem(pb.CodeInvalidJobID, "there is no job %s", r.Id))
	}
	text := a.summary(r.Id)
	switch {
	case state.Pending(a.job):
		text += s.Explainer(v, a.job)
	case text == "":
		peer := peerOf(ctx)
		text = s.fate(v, a.job, peer.Operator || peer.UID == a.job.Spec.Uid)
	}
	return &pb.ExplainReply{Text: text}, nil
}

// subject is what an id names: a job, or some tasks of an array.
type subject struct {
	job   *pb.JobRecord // the first that waits, else the last
	bad   *pb.JobRecord // one that ended otherwise than it should
	tally state.Tally
}

func (a *subject) add(j *pb.JobRecord) {
	a.tally.Add(j)
	if a.job == nil || !state.Pending(a.job) {
		a.job = j
	}
	if j.State.Terminal() && j.State != pb.JobState_JOB_COMPLETED {
		a.bad = j
	}
}

// summary counts the tasks of an array by their state; "" where the id names a single job or task.
func (a *subject) summary(id string) string {
	n := a.tally.Total()
	named, err := jobid.Parse(id)
	if err != nil || a.job.ArrayJobId == 0 || named.Tasks != nil && n < 2 {
		return ""
	}
	text := fmt.Sprintf("Array %d: %s", a.job.ArrayJobId, a.tally)
	if all, err := jobid.ParseArray(a.job.ArraySpec); err == nil && named.Tasks == nil && all.Total() > n {
		text += fmt.Sprintf(", %d ended earlier", all.Total()-n)
	}
	text += ".\n"
	if one := cmp.Or(a.bad, a.job); !state.Pending(one) {
		text += fmt.Sprintf("For one of its tasks: sluice explain %s\n", state.JobName(one))
	}
	return text
}

// remembered is what only accounting knows: of each job or task its last attempt, if it has ended.
func (s *Service) remembered(ctx context.Context, id string, sees func(*pb.JobRecord) bool) *subject {
	a := &subject{tally: state.Tally{}}
	sel, p := selectionOf(&pb.JobsRequest{Ids: []string{id}, AllStates: true})
	if _, err := jobid.Parse(id); err != nil || p != nil || s.Acct == nil {
		return a
	}
	var last *pb.JobRecord // attempts of a job come one after the other
	settle := func() {
		if last != nil && last.State.Terminal() {
			a.add(last)
		}
	}
	_ = s.Acct.Select(ctx, &pb.AccountingRequest{Ids: []string{id}}, s.Writer.View, func(record []byte) error {
		j := &pb.JobRecord{}
		if err := proto.Unmarshal(record, j); err != nil {
			return err
		}
		if !sel.match(j) || !sees(j) {
			return nil
		}
		if last != nil && last.Id != j.Id {
			settle()
		}
		for _, n := range j.Alloc { // a job is forgotten only when nothing of it is left anywhere; accounting does not keep that
			n.Ended = true
		}
		last = j
		return nil
	})
	settle()
	return a
}

// Priorities answers what the priorities of waiting jobs are made of (sprio).
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

// competes reports whether a job waits for nothing but its turn: held jobs, and those whose time has not come, have no priority yet.
func competes(v *state.View, j *pb.JobRecord) bool {
	return state.Pending(j) && j.Priority != 0 && j.Dependency == "" && j.EligibleNs != 0 && j.EligibleNs <= v.NowNS &&
		j.Spec.BeginNs <= v.NowNS
}

func weights(w *record.Weights) map[string]float64 {
	return map[string]float64{"site": 1, "age": float64(w.Age), "fairshare": float64(w.FairShare), "jobsize": float64(w.JobSize),
		"partition": float64(w.Partition), "qos": float64(w.QOS), "assoc": float64(w.Assoc), "cpu": w.TRES.CPU, "mem": w.TRES.MemGiB,
		"node": w.TRES.Node, "gres/gpu": w.TRES.GPU}
}

// sum is the priority before it is cut to a whole number.
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

// norm is a term before it is weighted; one without a weight is not looked at, and is shown as 0, as by Slurm.
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
