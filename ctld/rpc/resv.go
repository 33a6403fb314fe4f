package rpc

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Reservations answers reservations by name.
func (s *Service) Reservations(_ context.Context, r *pb.ReservationsRequest) (*pb.ReservationsReply, error) {
	v := s.Writer.View()
	reply := &pb.ReservationsReply{Seq: v.Seq, NowNs: v.NowNS}
	for _, x := range v.Reservations() {
		if len(r.Names) == 0 || slices.Contains(r.Names, x.Name) {
			reply.Reservations = append(reply.Reservations, x)
		}
	}
	return reply, nil
}

// UpdateReservation makes, changes or deletes one.
func (s *Service) UpdateReservation(ctx context.Context, r *pb.UpdateReservationRequest) (*pb.UpdateReply, error) {
	peer := peerOf(ctx)
	for _, kv := range append(slices.Clone(r.Set), &pb.KeyValue{Value: r.Name}) {
		if p := badValue(kv); p != nil {
			return nil, problem(p)
		}
	}
	out, err := s.do(ctx, reactor.UpdateReservation{Caller: caller(peer), UserName: s.Users.Name(peer.UID), Name: r.Name, Set: r.Set, Create: r.Create, Delete: r.Delete})
	if err != nil {
		return nil, err
	}
	done := out.(reactor.Reserved)
	return &pb.UpdateReply{Seq: done.Seq, Outcomes: []*pb.JobOutcome{{Id: done.Name}}}, nil
}

// Licenses answers how many of each license there are and are in use.
func (s *Service) Licenses(_ context.Context, r *pb.LicensesRequest) (*pb.LicensesReply, error) {
	v := s.Writer.View()
	used := map[string]uint32{}
	for j := range v.Jobs.All() {
		if j.Spec.Licenses != "" && state.Live(j) {
			countLicenses(used, j.Spec.Licenses)
		}
	}
	reply := &pb.LicensesReply{}
	for _, l := range v.Settings.Licenses {
		if len(r.Names) == 0 || slices.Contains(r.Names, l.Name) {
			reply.Licenses = append(reply.Licenses, &pb.LicenseRecord{Name: l.Name, Total: uint32(l.Count), Used: used[l.Name]})
		}
	}
	return reply, nil
}

func countLicenses(used map[string]uint32, text string) {
	for _, part := range strings.Split(text, ",") {
		name, count, counted := strings.Cut(part, ":")
		n, err := strconv.ParseUint(count, 10, 32)
		if !counted || err != nil {
			n = 1
		}
		used[name] += uint32(n)
	}
}

// inReservation says whether a node is in a reservation that is in force, and whether that is for maintenance.
func inReservation(v *state.View, node string) (reserved, maint bool) {
	for _, r := range v.Reservations() {
		if v.NowNS < r.StartNs || v.NowNS >= r.EndNs {
			continue
		}
		if names, err := hostlist.Expand(r.Nodes); err == nil && slices.Contains(names, node) {
			reserved = true
			maint = maint || slices.Contains(r.Flags, "MAINT")
		}
	}
	return reserved, maint
}
