package rpc

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/sluice-hpc/sluice/ctld/acct"
	"github.com/sluice-hpc/sluice/ctld/fairshare"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// AccountUsage returns the allocated resources by account and user, from the accounting records; with PrivateData=usage a user sees only
// their own. For nodes that are down now it counts the time since then; earlier down times are not recorded.
func (s *Service) AccountUsage(ctx context.Context, r *pb.AccountUsageRequest) (*pb.AccountUsageReply, error) {
	if s.Acct == nil {
		return nil, status.Error(codes.Unavailable, "accounting is not running")
	}
	v, now, privacy := s.Writer.View(), time.Now().UnixNano(), s.Privacy()
	reply := &pb.AccountUsageReply{NowNs: now, SinceNs: r.SinceNs, UntilNs: now, Warning: s.Acct.Trouble(), Seq: v.Seq}
	if r.UntilNs > 0 {
		reply.UntilNs = min(now, r.UntilNs)
	}
	var rows []*acct.Share
	var err error
	if r.Decayed {
		rows, reply.Qos, err = s.decayed(ctx, v, privacy)
	} else {
		rows, err = s.Acct.Between(ctx, r.SinceNs, reply.UntilNs, s.Writer.View)
	}
	if err != nil {
		return nil, err
	}
	peer := peerOf(ctx)
	for _, row := range rows {
		if privacy.Usage && row.UID != peer.UID && !peer.Operator {
			continue
		}
		reply.Rows = append(reply.Rows, &pb.AccountUsage{Account: row.Account, Uid: row.UID, Used: tresUsage(row.Used),
			Left: tresUsage(row.Left)})
	}
	capacity, down := nodeTime(v, reply.SinceNs, reply.UntilNs)
	reply.Capacity, reply.Down = tresUsage(capacity), tresUsage(down)
	return reply, nil
}

// decayed returns all usage as fair share and budgets count it: by account and user, and by QOS as far as the caller may see it.
func (s *Service) decayed(ctx context.Context, v *state.View, privacy Privacy) ([]*acct.Share, []*pb.QosUsage, error) {
	parts, _, err := s.Acct.Parts(ctx, privacy.Fading, s.Writer.View)
	if err != nil {
		return nil, nil, err
	}
	fairshare.Charge(v.Policy(), parts)
	lasting := parts
	if slices.ContainsFunc(v.Policy().Qoses(), fairshare.Lasts) {
		if lasting, _, err = s.Acct.Parts(ctx, acct.Fading{}, s.Writer.View); err != nil {
			return nil, nil, err
		}
		fairshare.Charge(v.Policy(), lasting)
	}
	peer := peerOf(ctx)
	var list []*pb.QosUsage
	for _, q := range v.Policy().Qoses() {
		of := parts
		if fairshare.Lasts(q) {
			of = lasting
		}
		used, left := acct.Sums{}, acct.Sums{}
		for _, p := range of {
			if privacy.Usage && p.UID != peer.UID && !peer.Operator {
				continue
			}
			v.QOSCounting(p.QOS, p.Partition, func(one *pb.QosRecord) {
				if one == q {
					used.Plus(p.Used)
					left.Plus(p.Left)
				}
			})
		}
		list = append(list, &pb.QosUsage{Name: q.Name, Used: tresUsage(used), Left: tresUsage(left)})
	}
	return acct.Merged(parts), list, nil
}

func tresUsage(sums acct.Sums) []*pb.TresUsage {
	list := make([]*pb.TresUsage, 0, len(sums))
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		if v := sums[name]; v != 0 {
			list = append(list, &pb.TresUsage{Name: name, Seconds: v})
		}
	}
	return list
}

// nodeTime returns the capacity of all nodes in a window, and the part that nodes which are down now have not provided since then.
func nodeTime(v *state.View, since, until int64) (capacity, down acct.Sums) {
	capacity, down = acct.Sums{}, acct.Sums{}
	for _, n := range v.Nodes() {
		if n.State == pb.NodeState_NODE_FUTURE {
			continue
		}
		count := func(into acct.Sums, ns int64) {
			s := float64(max(ns, 0)) / float64(time.Second)
			into["cpu"] += float64(n.Cpus) * s
			into["billing"] += float64(n.Cpus) * s
			into["mem"] += float64(n.RealMemoryMib) * s
			into["node"] += s
			if n.Inv == nil {
				return
			}
			for i := range n.Inv.Kinds {
				into["gres/"+n.Inv.Kinds[i].Name] += float64(n.Inv.Kinds[i].Count) * s
			}
		}
		count(capacity, until-since)
		if n.State == pb.NodeState_NODE_DOWN {
			count(down, until-max(since, n.ReasonNs))
		}
	}
	return capacity, down
}
