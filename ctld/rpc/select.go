package rpc

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/ctld/turns"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/grpc/status"
)

// selection is a parsed JobsRequest. Testing a record costs the same whatever the length of the request's lists.
type selection struct {
	match func(*pb.JobRecord) bool // every non-empty list must match
	names *jobid.Names             // nil: no jobs are named
}

// lookedAt is the number of records after which a walk checks whether its caller is still connected: a fraction of a millisecond.
const lookedAt = 256

// attentive ends a walk over records soon after its caller has disconnected, and takes turns with other users' calls. Its user calls gone
// after the walk, and does not wait for anything within.
func attentive[T any](ctx context.Context, all iter.Seq[T]) iter.Seq[T] {
	return func(yield func(T) bool) {
		t := turns.Of(ctx)
		if !t.Held() {
			if ctx.Err() != nil || t.Take(ctx) != nil {
				return
			}
			defer t.Give()
		}
		n := 0
		for x := range all {
			if n++; n%lookedAt == 0 && t.Pass(ctx) != nil {
				return
			}
			if !yield(x) {
				return
			}
		}
	}
}

// gone returns an error if the caller of a call has disconnected.
func gone(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	return nil
}

// namesOf parses job ids; an invalid one names no job.
func namesOf(words []string) (*jobid.Names, *pb.Problem) {
	names := &jobid.Names{}
	for _, word := range words {
		id, err := jobid.Parse(word)
		if err != nil {
			continue
		}
		if err := names.Add(id); err != nil {
			return nil, pb.NewProblem(pb.CodeInvalidSpec, "%v", err).WithHint("name fewer at a time")
		}
	}
	names.Sort()
	return names, nil
}

// candidates yields the jobs to test: the named ones, or all. Tasks of arrays have ids of their own, so naming one means testing all jobs.
func (s *selection) candidates(v *state.View) iter.Seq[*pb.JobRecord] {
	if s.names == nil {
		return v.Jobs.All()
	}
	var plain []*pb.JobRecord
	for _, id := range s.names.Arrays() {
		j := v.Jobs.Get(id)
		if j == nil && s.names.Tasks(id) == nil {
			continue
		}
		if j == nil || j.ArrayJobId == j.Id {
			return v.Jobs.All()
		}
		plain = append(plain, j)
	}
	return slices.Values(plain)
}

// selectionOf parses a request.
func selectionOf(r *pb.JobsRequest) (*selection, *pb.Problem) {
	s := &selection{}
	var tests []func(*pb.JobRecord) bool
	add := func(n int, f func(*pb.JobRecord) bool) {
		if n > 0 {
			tests = append(tests, f)
		}
	}
	if r == nil {
		s.match = func(*pb.JobRecord) bool { return true }
		return s, nil
	}
	if len(r.Ids) > 0 {
		names, p := namesOf(r.Ids)
		if p != nil {
			return nil, p
		}
		s.names = names
		add(1, func(j *pb.JobRecord) bool { return state.Named(names, j) })
	}
	uid, name, account, qos, resv := state.OneOf(r.Uids), state.OneOf(r.Names), state.OneOf(r.Accounts), state.OneOf(r.Qos),
		state.OneOf(r.Reservations)
	part := state.OneOf(r.Partitions)
	add(len(r.Uids), func(j *pb.JobRecord) bool { return uid(j.Spec.Uid) })
	add(len(r.Partitions), func(j *pb.JobRecord) bool { return inPartitions(j, part) })
	add(len(r.Names), func(j *pb.JobRecord) bool { return name(j.Spec.Name) })
	add(len(r.Accounts), func(j *pb.JobRecord) bool { return account(j.Spec.Account) })
	add(len(r.Qos), func(j *pb.JobRecord) bool { return qos(j.Spec.Qos) })
	add(len(r.Reservations), func(j *pb.JobRecord) bool { return resv(j.Spec.Reservation) })
	if len(r.Nodes) > 0 {
		nodes, p := nodeSet(r.Nodes)
		if p != nil {
			return nil, p
		}
		add(1, func(j *pb.JobRecord) bool {
			return slices.ContainsFunc(j.Alloc, func(a *pb.NodeAlloc) bool { return nodes[a.Node] })
		})
	}
	add(1, stateTest(r))
	s.match = func(j *pb.JobRecord) bool {
		for _, t := range tests {
			if !t(j) {
				return false
			}
		}
		return true
	}
	return s, nil
}

func stateTest(r *pb.JobsRequest) func(*pb.JobRecord) bool {
	switch {
	case len(r.States) > 0 || r.StateFlags != 0:
		in := state.OneOf(r.States)
		return func(j *pb.JobRecord) bool {
			return in(j.State) && j.StateFlags&pb.JobCompleting == 0 || j.StateFlags&r.StateFlags != 0
		}
	case r.AllStates:
		return func(*pb.JobRecord) bool { return true }
	}
	return state.Active
}

// inPartitions reports whether a job is in one of the requested partitions, or waits for one.
func inPartitions(j *pb.JobRecord, asked func(string) bool) bool {
	if asked(j.Partition) {
		return true
	}
	if j.State == pb.JobState_JOB_PENDING {
		for p := range strings.SplitSeq(j.Spec.Partition, ",") {
			if p != "" && asked(p) {
				return true
			}
		}
	}
	return false
}

// once removes duplicates from the ids of a request.
func once(ids []string) []string {
	seen := make(map[string]struct{}, len(ids))
	list := make([]string, 0, len(ids))
	for _, id := range ids {
		if _, again := seen[id]; !again {
			seen[id] = struct{}{}
			list = append(list, id)
		}
	}
	return list
}

// named returns the caller's active jobs by name, or everyone's for operators. The writer gets their ids, and checks whether they still
// have these names.
func (s *Service) named(ctx context.Context, names []string) ([]reactor.NamedJobs, error) {
	if len(names) == 0 {
		return nil, nil
	}
	peer, at := peerOf(ctx), map[string]int{}
	var list []reactor.NamedJobs
	for _, name := range once(names) {
		at[name] = len(list)
		list = append(list, reactor.NamedJobs{Name: name})
	}
	for j := range attentive(ctx, s.Writer.View().Jobs.All()) {
		if i, asked := at[j.Spec.Name]; asked && state.Active(j) && (peer.Operator || peer.UID == j.Spec.Uid) {
			list[i].Jobs = append(list[i].Jobs, j.Id)
		}
	}
	return list, gone(ctx)
}
