package rpc

import (
	"context"
	"strings"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/time/rate"
)

// Root of a compute host may drain that host, and nothing else: what a HealthCheckProgram does there (slurm.conf(5)). The host can bring
// that about in other ways as well, with an epilog that fails for instance. It has effect drainBurst times at once, and then once in each
// drainEvery: each time is written to the journal.
const (
	drainEvery = 10 * time.Second
	drainBurst = 10
	// drainsFor is how long a connection lives on which a host may drain itself: it may take a busy controller that long to answer.
	drainsFor = time.Minute
)

// drainer is what root of a compute host has for it.
type drainer struct {
	drains *rate.Limiter
	warn   func() // logs that something else was refused
}

// drainsOf is how often a host may drain itself.
func (s *RelayServer) drainsOf(host string) *rate.Limiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drains[host] == nil {
		s.drains[host] = rate.NewLimiter(rate.Every(drainEvery), drainBurst)
	}
	return s.drains[host]
}

// mayDrain refuses the calls of a peer who is refused, but for UpdateNode of root of a compute host, which then looks at what is asked for.
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

// drainsItself refuses what is not State=DRAIN with a Reason for the peer's own host, called by its name alone: a list is not expanded. A
// node that is drained already stays as it is, with the reason that an administrator may have given.
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
