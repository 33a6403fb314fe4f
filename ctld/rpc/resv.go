package rpc

import (
	"context"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/reactor/resv"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Reservations returns reservations by name.
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

// UpdateReservation makes, changes or deletes a reservation.
func (s *Service) UpdateReservation(ctx context.Context, r *pb.UpdateReservationRequest) (*pb.UpdateReply, error) {
	peer := peerOf(ctx)
	for _, kv := range append(slices.Clone(r.Set), &pb.KeyValue{Value: r.Name}) {
		if p := badValue(kv); p != nil {
			return nil, problem(p)
		}
	}
	set, groups := make([]*pb.KeyValue, len(r.Set)), map[string]uint32{}
	for i, kv := range r.Set {
		value, p := s.knownNames(kv.Key, kv.Value, groups)
		if p != nil {
			return nil, problem(p)
		}
		set[i] = &pb.KeyValue{Key: kv.Key, Value: value}
	}
	out, err := s.do(ctx, resv.Update{Operator: s.caller(peer).Operator, Name: r.Name, Set: set, Create: r.Create, Delete: r.Delete,
		Groups: groups})
	if err != nil {
		return nil, err
	}
	done := out.(resv.Reserved)
	return &pb.UpdateReply{Seq: done.Seq, Outcomes: []*pb.JobOutcome{{Id: done.Name}}}, nil
}

// maxReservedFor bounds the users or groups that one reservation names.
const maxReservedFor = 1000

// knownNames refuses users and groups that this machine does not know, and replaces numbers by names. It collects the ids of groups.
func (s *Service) knownNames(key, value string, groups map[string]uint32) (string, *pb.Problem) {
	find, code, what := s.Users.Find, pb.CodeUserID, "user"
	switch strings.ToLower(strings.TrimRight(key, "+-")) {
	case "users":
	case "groups":
		code, what = pb.CodeInvalidGroup, "group"
		find = func(which string) (string, bool) {
			name, id, ok := s.Users.FindGroup(which)
			groups[name] = id
			return name, ok
		}
	default:
		return value, nil
	}
	words := strings.Split(value, ",")
	if len(words) > maxReservedFor {
		return "", pb.NewProblem(code, "%d names, at most %d", len(words), maxReservedFor)
	}
	for i, w := range words {
		bare, not := strings.CutPrefix(w, "-")
		if bare == "" {
			continue
		}
		name, ok := find(bare)
		if !ok {
			return "", pb.NewProblem(code, "there is no %s %q", what, bare)
		}
		if words[i] = name; not {
			words[i] = "-" + name
		}
	}
	return strings.Join(words, ","), nil
}

// Licenses returns the total and used number of each license.
func (s *Service) Licenses(_ context.Context, r *pb.LicensesRequest) (*pb.LicensesReply, error) {
	v := s.Writer.View()
	used, reserved := map[string]uint64{}, map[string]uint64{}
	for j := range v.Jobs.All() {
		if j.Spec.Licenses != "" && state.Live(j) {
			admit.CountLicenses(used, j.Spec.Licenses)
		}
	}
	for _, x := range v.Reservations() {
		if inForce(v, x) {
			admit.CountLicenses(reserved, x.Licenses)
		}
	}
	reply := &pb.LicensesReply{}
	for _, l := range v.Settings.Licenses {
		reply.Licenses = append(reply.Licenses, &pb.LicenseRecord{Name: l.Name, Total: uint32(l.Count), Used: uint32(used[l.Name]),
			Reserved: uint32(reserved[l.Name])})
	}
	return reply, nil
}

func inForce(v *state.View, r *pb.ReservationRecord) bool {
	return v.NowNS >= r.StartNs && v.NowNS < r.EndNs
}

// reservedFlags returns the nodes in active reservations, with the flags to display.
func reservedFlags(v *state.View) map[string]uint32 {
	var flags map[string]uint32
	for _, r := range v.Reservations() {
		if !inForce(v, r) || len(r.Parts) > 0 { // for a part, the rest of the node is unaffected
			continue
		}
		if flags == nil {
			flags = map[string]uint32{}
		}
		names, _ := hostlist.Expand(r.Nodes) // cannot fail: the reactor has read it
		for _, n := range names {
			flags[n] |= pb.NodeReserved
			if slices.Contains(r.Flags, "MAINT") {
				flags[n] |= pb.NodeMaint
			}
		}
	}
	return flags
}
