package rpc

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/ctld/nodeport"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/internal/version"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// renewalIsLate is the fraction (one sixth) of a certificate's life below which it should have been renewed: hosts renew after two thirds.
const renewalIsLate = 6

// Hosts lists the controller, the nodes, and all other holders of valid certificates, each with its faults. A host that was shut out no
// longer belongs to the cluster, unless it is a node.
func (s *Service) Hosts(ctx context.Context, _ *pb.HostsRequest) (*pb.HostsReply, error) {
	certs, err := s.Certificates(ctx, &pb.CertificatesRequest{})
	if err != nil {
		return nil, err
	}
	shown := map[string]nodeport.Shown{}
	for _, c := range s.Enrol.Shown() {
		shown[c.Serial] = c
	}
	now, v := time.Now(), s.Writer.View()
	type key struct{ role, name string }
	best := map[key]*pb.CertificateInfo{}
	for _, c := range certs.Certificates[1:] {
		k := key{c.Role, c.Name}
		if old := best[k]; c.State != "revoked" && (old == nil || inUse(c, old)) {
			best[k] = c
		}
	}
	out := &pb.HostsReply{}
	add := func(h *pb.HostInfo, c *pb.CertificateInfo) {
		if c != nil {
			h.ExpiresNs = c.ExpiresNs
			by(h, shown[c.Serial])
			expiry(h, c, now)
		}
		out.Hosts = append(out.Hosts, h)
	}
	own := certs.Certificates[0]
	add(&pb.HostInfo{Name: own.Name, Role: mtls.RoleController, Version: version.Sluice, Configuration: "current"}, own)
	for _, n := range v.Nodes() {
		k := key{roleShown(mtls.RoleNode), n.Name}
		add(nodeInfo(v, n), best[k])
		delete(best, k)
	}
	for k, c := range best {
		if k.role == roleShown(mtls.RoleNode) || c.State != "valid" && !c.Connected { // certificate of a node that is gone
			continue
		}
		h := &pb.HostInfo{Name: c.Name, Role: c.Role}
		if !c.Connected {
			h.Problems = append(h.Problems, "it is not connected")
		}
		add(h, c)
	}
	for _, h := range out.Hosts {
		judgeHost(h)
	}
	slices.SortFunc(out.Hosts[1:], func(a, b *pb.HostInfo) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// inUse reports whether a host more likely uses certificate a than b.
func inUse(a, b *pb.CertificateInfo) bool {
	if a.Connected != b.Connected {
		return a.Connected
	}
	return a.ExpiresNs > b.ExpiresNs
}

// nodeInfo returns the state's information about a compute host.
func nodeInfo(v *state.View, n *state.Node) *pb.HostInfo {
	h := &pb.HostInfo{Name: n.Name, Role: roleShown(mtls.RoleNode), State: baseState(n), StateFlags: n.StateFlags, Version: n.Version,
		ClockOffNs: n.ClockOffNs, Address: n.Addr}
	conf := &pb.ConfigurationState{Hash: n.ConfHash, Fetched: n.ConfFetched, Error: n.ConfError}
	note := confNote(v, conf)
	switch {
	case note != "" && conf.Fetched:
		h.Configuration = "behind"
	case note != "":
		h.Configuration = "different"
	case conf.Hash != "":
		h.Configuration = "current"
	}
	if note != "" {
		h.Problems = append(h.Problems, note)
	}
	if n.LinkUp {
		h.SinceNs = n.LinkNS
	}
	for _, why := range []reactor.Refusal{reactor.RefusedVersion, reactor.RefusedClock} {
		if n.StateFlags&pb.NodeInvalidReg != 0 && strings.HasPrefix(n.Reason, string(why)) {
			h.Problems = append(h.Problems, strings.TrimPrefix(n.Reason, string(why)))
		}
	}
	if n.UntoldNs != 0 {
		h.Problems = append(h.Problems, fmt.Sprintf("the state was restored from a backup, and the node has no record of jobs before "+
			"%s: older jobs wait for scontrol update NodeName=%s State=RESUME Reason=…", timespec.FormatUTC(n.UntoldNs), n.Name))
	}
	const away = state.PowerFlags | pb.NodeRebootIssued
	if !n.LinkUp && n.State != pb.NodeState_NODE_FUTURE && n.StateFlags&away == 0 && len(h.Problems) == 0 {
		h.Problems = append(h.Problems, "it is not connected")
	}
	return h
}

// by adds information from the connection that presented a certificate. A node's own report on its stream takes precedence.
func by(h *pb.HostInfo, s nodeport.Shown) {
	if s.Serial == "" {
		return
	}
	if s.From.IsValid() {
		h.Address = s.From.String()
	}
	if h.Role != roleShown(mtls.RoleNode) {
		if s.Open > 0 {
			h.SinceNs = s.Since.UnixNano()
		}
		if h.ClockOffNs = int64(s.Ahead); s.Ahead <= reactor.ClockDiffersNS && s.Ahead >= -reactor.ClockDiffersNS {
			h.ClockOffNs = 0
		}
		if h.Version == "" {
			h.Version = s.Release
		}
	}
}

// expiry reports a certificate that ends soon, although it should have been renewed.
func expiry(h *pb.HostInfo, c *pb.CertificateInfo, now time.Time) {
	left := c.ExpiresNs - now.UnixNano()
	switch {
	case left <= 0:
		h.Problems = append(h.Problems, "its certificate has expired")
	case c.IssuedNs != 0 && left < (c.ExpiresNs-c.IssuedNs)/renewalIsLate:
		h.Problems = append(h.Problems, fmt.Sprintf("its certificate expires in %v and has not been renewed",
			time.Duration(left).Round(time.Hour)))
	}
}

// judgeHost adds differences from this controller.
func judgeHost(h *pb.HostInfo) {
	if h.Version != "" && h.Version != version.Sluice {
		h.Problems = append(h.Problems, fmt.Sprintf("its release is %s, the controller's %s", h.Version, version.Sluice))
	}
	if h.ClockOffNs != 0 {
		h.Problems = append(h.Problems, clockNote(h.ClockOffNs))
	}
}
