package rpc

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-hpc/sluice/ctld/acct"
	"github.com/sluice-hpc/sluice/ctld/gpuhours"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// maxReport bounds the bytes of one answer to Report, which is a single message.
const maxReport = 3 << 20

// Report returns the efficiency of jobs, from the accounting records and the nodes' reports on running jobs, and the use of GPUs by the
// hour. With PrivateData=usage the rows are of the caller's own jobs; the hours cover all jobs and name no users.
func (s *Service) Report(ctx context.Context, r *pb.ReportRequest) (*pb.ReportReply, error) {
	if s.Acct == nil {
		return nil, status.Error(codes.Unavailable, "accounting is not running")
	}
	if !slices.Contains([]string{"", "user", "account", "partition", "node"}, r.By) {
		return nil, status.Errorf(codes.InvalidArgument, "unknown grouping of the report: %.20q", r.By)
	}
	v, now, private, peer := s.Writer.View(), time.Now().UnixNano(), s.Privacy().Usage, peerOf(ctx)
	reply := &pb.ReportReply{SinceNs: r.SinceNs, UntilNs: now, Warning: s.Acct.Trouble()}
	if r.UntilNs > 0 {
		reply.UntilNs = min(now, r.UntilNs)
	}
	for _, name := range r.Partitions {
		if v.Partition(name) == nil {
			return nil, problem(pb.NewProblem(pb.CodeInvalidPartition, "there is no partition %q", name))
		}
	}
	q := &acct.WorthQuery{Since: reply.SinceNs, Until: reply.UntilNs, By: r.By, UIDs: r.Uids, Accounts: r.Accounts,
		Partitions: r.Partitions, Sees: func(uid uint32) bool { return !private || uid == peer.UID || peer.Operator },
		Live: func(j *pb.JobRecord) []*pb.StepUsage {
			if s.Live == nil {
				return nil
			}
			return s.Live.Of(j)
		}}
	rows, err := s.Acct.Worth(ctx, q, s.Writer.View)
	if err != nil {
		return nil, err
	}
	partition := ""
	if len(r.Partitions) == 1 {
		partition = r.Partitions[0]
	}
	hours, losses, err := s.gpuHours(ctx, reply.SinceNs/1e9, (reply.UntilNs+1e9-1)/1e9, partition)
	if err != nil {
		return nil, err
	}
	reply.Rows, reply.Hours = q.Lose(rows, losses), hours
	if proto.Size(reply) > maxReport {
		return nil, problem(pb.NewProblem(pb.CodeTooLarge, "the answer would have more than %d bytes",
			maxReport).WithHint("request a shorter period, or only some users, accounts or partitions"))
	}
	return reply, nil
}

// gpuHours returns the hours that overlap a window in seconds since 1970, and the users' losses in them. It adds up stored and unstored
// data.
func (s *Service) gpuHours(ctx context.Context, since, until int64, partition string) ([]*pb.ReportHour, []gpuhours.LostHour, error) {
	if s.GPUHours == nil {
		return nil, nil, nil
	}
	since = since / 3600 * 3600
	var hours []gpuhours.Hour
	var losses []gpuhours.LostHour
	newer, fresh, err := s.GPUHours.Read(ctx, since, until, partition, func() (err error) {
		if hours, err = s.Acct.Hours(ctx, since, until, partition); err == nil {
			losses, err = s.Acct.Losses(ctx, since, until)
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	for i := range newer {
		h := &newer[i]
		at := slices.IndexFunc(hours, func(o gpuhours.Hour) bool { return o.Start == h.Start })
		if at < 0 {
			hours = append(hours, *h)
			continue
		}
		hours[at].Covered += h.Covered
		hours[at].Add(&h.Sums, 1)
	}
	slices.SortFunc(hours, func(a, b gpuhours.Hour) int { return int((a.Start - b.Start) / 3600) })
	list := make([]*pb.ReportHour, len(hours))
	for i := range hours {
		h := &hours[i]
		list[i] = &pb.ReportHour{StartNs: h.Start * 1e9, CoveredS: h.Covered, TotalS: h.Total, DownS: h.Down, UsedS: h.Used, IdleS: h.Idle,
			UnknownS: h.Unknown, FreeS: h.Free, AskedS: h.Asked, LostS: h.Lost, WaitingS: h.Waiting}
	}
	return list, append(losses, fresh...), nil
}
