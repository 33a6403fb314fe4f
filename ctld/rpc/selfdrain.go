package rpc

import (
	"context"
	"strings"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/time/rate"
)

// Root of a compute host may drain that host, and nothing else: a HealthCheckProgram does that (slurm.conf(5)). The host can cause it in
// other ways too, for instance with an epilog that fails. It may do so drainBurst times at once, and then once in each drainEvery: each
// time is written to the journal.
const (
	drainEvery = 10 * time.Second
	drainBurst = 10
	// drainsFor is the lifetime of a connection on which a host may drain itself: a busy controller may need that long to answer.
	drainsFor = time.Minute
)

// drainer is the state of that for root of a compute host.
type drainer struct {
	drains *rate.Limiter
	warn   func() // logs that another call was refused
}

// drainsOf returns the rate limiter for a host's drains of itself.
func (s *RelayServer) drainsOf(host string) *rate.Limiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drains[host] == nil {
		s.drains[host] = rate.NewLimiter(rate.Every(drainEvery), drainBurst)
	}
	return s.drains[host]
}

// mayDrain refuses the calls of a refused peer, except UpdateNode by root of a compute host, which then checks the request.
func (p *Peer) mayDrain(ctx context.Context, method string) error {
	if p.drains == nil {
		return problem(p.refused)
	}
	if method != "UpdateNode" {
		p.drains.warn()
		return problem(p.refused)
	}
	return commandMeets(ctx)
}

// drainsItself refuses anything but State=DRAIN with a Reason for the peer's own host, given by its name only: lists are not expanded. A
// node that is already drained stays as it is, with a possible reason of an administrator.
func (s *Service) drainsItself(peer *Peer, nodes string, set []*pb.KeyValue) (already bool, err error) {
	drain, reason := false, false
	for _, kv := range set {
		switch strings.ToLower(kv.Key) {
		case "state":
			drain = strings.EqualFold(kv.Value, "DRAIN")
		case "reason":
			reason = kv.Value != ""
		}
	}
	if nodes != peer.Host || len(set) != 2 || !drain || !reason {
		peer.drains.warn()
		return false, problem(pb.NewProblem(pb.CodeAccessDenied,
			"host %s may not change nodes, except to drain itself with State=DRAIN and a Reason", peer.Host).WithHint("%s",
			peer.refused.Hint))
	}
	if n := s.Writer.View().Node(peer.Host); n != nil && n.StateFlags&(pb.NodeDrain|pb.NodePowerDrain) == pb.NodeDrain {
		return true, nil
	}
	if !peer.drains.drains.Allow() {
		return false, problem(pb.NewProblem(pb.CodeRateLimited, "host %s drains itself more often than once in %v",
			peer.Host, drainEvery).WithHint("call less often"))
	}
	return false, nil
}
