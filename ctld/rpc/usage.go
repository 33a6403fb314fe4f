package rpc

import (
	"context"

	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// maxUsage bounds the bytes of one reply to Usage, which is a single message.
const maxUsage = 3 << 20

// asked is one id of a request for usage, and its jobs.
type asked struct {
	word           string
	id             jobid.ID
	tasks          *jobid.Tasks // nil: all of the job or array
	known, running bool
	outcomes       []*pb.JobOutcome
	usage          []*pb.StepUsage
}

// askedBy holds the ids of a request by the job or array that they name.
type askedBy map[uint32][]*asked

// each calls f with the ids that name a job.
func (m askedBy) each(j *pb.JobRecord, f func(*asked)) {
	for _, a := range m[j.Id] {
		if a.tasks == nil {
			f(a)
		}
	}
	if j.ArrayJobId == 0 {
		return
	}
	for _, a := range m[j.ArrayJobId] {
		switch {
		case a.tasks == nil && j.ArrayJobId == j.Id: // already called above
		case a.tasks == nil, j.IsArrayTask && a.tasks.Has(j.ArrayTaskId), !j.IsArrayTask && a.tasks.Meet(state.ArraySet(j)):
			f(a)
		}
	}
}

// Usage returns the resource use of running steps so far. Users may ask about their own jobs, operators about all. One walk over the jobs
// answers all ids; a repeated id counts once.
func (s *Service) Usage(ctx context.Context, r *pb.UsageRequest) (*pb.UsageReply, error) {
	peer, v := peerOf(ctx), s.Writer.View()
	sel, p := selectionOf(&pb.JobsRequest{Ids: r.Ids, AllStates: true})
	if p != nil {
		return nil, problem(p)
	}
	list, by := readAsked(r.Ids)
	if len(by) > 0 {
		bytes := 0
		for j := range attentive(ctx, sel.candidates(v)) {
			if !sel.match(j) {
				continue
			}
			var live []*pb.StepUsage
			size := -1 // not looked up yet
			by.each(j, func(a *asked) {
				if !a.found(j, peer) {
					return
				}
				if size < 0 {
					live, size = s.liveOf(j)
				}
				bytes += size
				a.usage = append(a.usage, live...)
			})
			if bytes > maxUsage {
				return nil, problem(pb.NewProblem(pb.CodeTooLarge, "the answer would have more than %d bytes",
					maxUsage).WithHint("request fewer jobs at a time"))
			}
		}
	}
	if err := gone(ctx); err != nil {
		return nil, err
	}
	reply := &pb.UsageReply{}
	for _, a := range list {
		reply.Outcomes = append(reply.Outcomes, a.answer()...)
		reply.Usage = append(reply.Usage, a.usage...)
	}
	return reply, nil
}

// readAsked parses the ids of a request.
func readAsked(words []string) (list []*asked, by askedBy) {
	by = askedBy{}
	seen := map[string]bool{}
	for _, word := range words {
		if seen[word] {
			continue
		}
		seen[word] = true
		a := &asked{word: word}
		list = append(list, a)
		names := &jobid.Names{}
		id, err := jobid.Parse(word)
		if err == nil {
			err = names.Add(id)
		}
		if err != nil {
			a.known, a.running = true, true // the outcome is complete
			a.outcomes = []*pb.JobOutcome{{Id: word, Problem: pb.NewProblem(pb.CodeInvalidJobID, "%v", err)}}
			continue
		}
		names.Sort()
		a.id, a.tasks = id, names.Tasks(id.Job)
		by[id.Job] = append(by[id.Job], a)
	}
	return list, by
}

// found notes a job that the id names and reports whether the caller may see its usage.
func (a *asked) found(j *pb.JobRecord, peer *Peer) bool {
	a.known = true
	if j.State != pb.JobState_JOB_RUNNING && j.State != pb.JobState_JOB_SUSPENDED {
		return false
	}
	if a.running = true; j.Spec.Uid == peer.UID || peer.Operator {
		return true
	}
	if len(a.outcomes) == 0 {
		a.outcomes = []*pb.JobOutcome{{Id: a.word, Problem: pb.NewProblem(pb.CodeAccessDenied, "job %d belongs to another user", a.id.Job)}}
	}
	return false
}

// answer returns the fault of the id, if any.
func (a *asked) answer() []*pb.JobOutcome {
	switch {
	case !a.known:
		return []*pb.JobOutcome{{Id: a.word, Problem: pb.NewProblem(pb.CodeInvalidJobID, "there is no job %s", a.word)}}
	case !a.running:
		return []*pb.JobOutcome{{Id: a.word, Problem: pb.NewProblem(pb.CodeNotRunning, "job %s is not running", a.word)}}
	}
	return a.outcomes
}

// liveOf returns the usage of a job's steps, and its size in bytes.
func (s *Service) liveOf(j *pb.JobRecord) (list []*pb.StepUsage, size int) {
	if s.Live == nil {
		return nil, 0
	}
	list = s.Live.Of(j)
	for _, u := range list {
		size += proto.Size(u)
	}
	return list, size
}

// usageField is the number of JobRecord's field for usage.
const usageField = 70

// using adds to the record of a running job its use so far, for its owner and operators, as in Usage. Records of ended jobs have it.
func (s *Service) using(ctx context.Context, in *pb.Fields) func(*pb.JobRecord) *pb.JobRecord {
	peer := peerOf(ctx)
	return func(j *pb.JobRecord) *pb.JobRecord {
		if s.Live == nil || !in.Job.Has(usageField) || j.State != pb.JobState_JOB_RUNNING && j.State != pb.JobState_JOB_SUSPENDED ||
			j.Spec.Uid != peer.UID && !peer.Operator {
			return j
		}
		list := s.Live.Of(j)
		if len(list) == 0 {
			return j
		}
		c := state.CloneJob(j)
		c.Usage = list
		return c
	}
}
