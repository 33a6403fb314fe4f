package rpc

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/ctld/limit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Budgets returns the remaining budgets of associations and QOS; with PrivateData=usage a user sees those that apply to their own jobs, and
// those of accounts that they coordinate.
func (s *Service) Budgets(ctx context.Context, r *pb.BudgetsRequest) (*pb.BudgetsReply, error) {
	v, nowNS, peer := s.Writer.View(), time.Now().UnixNano(), peerOf(ctx)
	p := v.Policy()
	if bad := unknownNames(p, r.Names); bad != nil {
		return nil, problem(bad)
	}
	sees := func(*pb.AssocRecord) bool { return true }
	seesQOS := func(*pb.QosRecord) bool { return true }
	if s.Privacy().Usage && !peer.Operator {
		sees, seesQOS = seenBy(p, s.Users.Name(peer.UID))
	}
	wanted, wantedQOS := named(v, r.Names)
	reply := &pb.BudgetsReply{Enforced: v.Settings.EnforceLimits, NowNs: nowNS}
	add := func(list []limit.Budget, of *pb.Budget) {
		for _, b := range list {
			reply.Budgets = append(reply.Budgets, &pb.Budget{Account: of.Account, User: of.User, Partition: of.Partition, Qos: of.Qos,
				Tres: b.TRES, Limit: b.Most, Known: b.Known, Used: max(0, b.Used), Running: b.Running, Held: b.Held})
		}
	}
	for _, a := range p.TimedAssocs() {
		if sees(a) && wanted(a) {
			add(limit.AssocBudgets(v, a, nowNS/1e9), &pb.Budget{Account: a.Account, User: a.User, Partition: a.Partition})
		}
	}
	for _, q := range p.TimedQOS() {
		if seesQOS(q) && wantedQOS(q) {
			add(limit.QOSBudgets(v, q, nowNS/1e9), &pb.Budget{Qos: q.Name})
		}
	}
	return reply, nil
}

func unknownNames(p *state.Policy, names []string) *pb.Problem {
	for _, name := range names {
		lower := strings.ToLower(name)
		if p.Account(lower) == nil && p.QOS(lower) == nil && len(p.UserAssocs(name)) == 0 {
			return pb.NewProblem(pb.CodeInvalidAccount, "there is no account, user or QOS %.40q", name)
		}
	}
	return nil
}

// named returns the associations and QOS for names: an account and its users, those that apply to the jobs of a user, a QOS. Without names
// it is all.
func named(v *state.View, names []string) (func(*pb.AssocRecord) bool, func(*pb.QosRecord) bool) {
	p := v.Policy()
	any := len(names) == 0
	assocs, qoses := map[uint32]bool{}, map[string]bool{}
	for _, name := range names {
		qoses[strings.ToLower(name)] = true
		of, qosOf := holding(p, name)
		for id := range of {
			assocs[id] = true
		}
		for q := range qosOf {
			qoses[q] = true
		}
		for _, part := range v.Partitions() {
			if q := v.PartitionQOS(part.Name); q != nil && len(of) > 0 {
				qoses[q.Name] = true
			}
		}
	}
	return func(a *pb.AssocRecord) bool {
		return any || assocs[a.Id] || slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, a.Account) })
	}, func(q *pb.QosRecord) bool { return any || qoses[q.Name] }
}

// holding returns the associations and QOS whose limits apply to a user's jobs.
func holding(p *state.Policy, user string) (assocs map[uint32]bool, qoses map[string]bool) {
	assocs, qoses = map[uint32]bool{}, map[string]bool{}
	for _, a := range p.UserAssocs(user) {
		if user == "" {
			break
		}
		for up := range p.Chain(a) {
			assocs[up.Id] = true
		}
		for _, q := range p.QOSOf(a) {
			qoses[q] = true
		}
	}
	return assocs, qoses
}

// seenBy returns filters for what a user sees where usage is private.
func seenBy(p *state.Policy, user string) (func(*pb.AssocRecord) bool, func(*pb.QosRecord) bool) {
	assocs, qoses := holding(p, user)
	return func(a *pb.AssocRecord) bool {
		if assocs[a.Id] {
			return true
		}
		for up := range p.Chain(a) {
			if slices.Contains(p.Account(up.Account).GetCoordinators(), user) {
				return true
			}
		}
		return false
	}, func(q *pb.QosRecord) bool { return qoses[q.Name] }
}
