package rpc

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/containerd/ttrpc"

	"github.com/sluice-hpc/sluice/ctld/loop"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/internal/version"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// MaxClockOff is the largest difference between the clocks of a host and the controller at connection: certificates, and times in logs and
// accounting, depend on it. A connected host stays connected whatever its clock does.
const MaxClockOff = 5 * time.Minute

// theController names this side in refusals.
const theController = "sluice-ctld"

// greeted returns what a call tells about its host: the build of its daemon, and its clock, 0 if missing.
func greeted(ctx context.Context) (b version.Build, nowNS int64) {
	first := func(key string) string {
		if v := metadata.ValueFromIncomingContext(ctx, key); len(v) > 0 {
			return v[0]
		}
		return ""
	}
	nowNS, _ = strconv.ParseInt(first(version.ClockKey), 10, 64)
	return version.Parse(first(version.Key)), nowNS
}

// meets refuses a host whose daemon or clock is too far from this controller's. nowNS is the time on the host's clock; 0 skips
// that comparison.
func meets(ours, its version.Build, host string, nowNS int64, now time.Time) (reactor.Refusal, string) {
	if err := ours.Meets(theController, "sluice-noded of "+host, its); err != nil {
		return reactor.RefusedVersion, err.Error()
	}
	off := time.Unix(0, nowNS).Sub(now)
	if nowNS == 0 || off <= MaxClockOff && off >= -MaxClockOff {
		return "", ""
	}
	// To the minute: the host retries every few seconds, and should not log another text each time.
	shown := func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }
	return reactor.RefusedClock, fmt.Sprintf("the clock of %s shows %s, that of the controller %s: they differ by more than %v; "+
		"correct the wrong one", host, shown(time.Unix(0, nowNS)), shown(now), MaxClockOff)
}

// welcome checks each call to the node port except Sync, which makes its own check because it can record the reason in the node's state. A
// host with a wrong clock may renew its certificate.
func (g Guard) welcome(ctx context.Context, method string) error {
	head := metadata.Pairs(version.Key, version.Ours.String())
	if g.Signs != nil {
		head.Set(version.AuthorityKey, g.Signs())
	}
	if g.Generation.Number != 0 {
		head.Set(version.GenerationKey, g.Generation.String())
	}
	_ = grpc.SetHeader(ctx, head) // fails if the call has ended
	if method == nodepb.NodeAPI_Sync_FullMethodName {
		return nil
	}
	host := "this host"
	its, nowNS := greeted(ctx)
	if id, serial, err := shownBy(ctx); err == nil {
		if host = id.Name; g.Met != nil && nowNS != 0 {
			g.Met(serial, its.Release, time.Until(time.Unix(0, nowNS)))
		}
	}
	if method == nodepb.EnrolAPI_Renew_FullMethodName {
		nowNS = 0
	}
	if err := outdated(ctx, g.Generation, host); err != nil {
		return err
	}
	if why, text := meets(version.Ours, its, host, nowNS, time.Now()); why != "" {
		return status.Error(codes.FailedPrecondition, text)
	}
	return nil
}

// outdated refuses a host that has followed a controller with a newer state: this controller's state is old.
func outdated(ctx context.Context, ours version.Generation, host string) error {
	v := metadata.ValueFromIncomingContext(ctx, version.GenerationKey)
	if len(v) == 0 {
		return nil
	}
	if err := ours.Outdated(host, version.ParseGeneration(v[0])); err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return nil
}

// meets makes these checks for a node's stream. A refused node is alive and its jobs continue: the state records why it cannot be used.
func (s *NodeServer) meets(ctx context.Context, h *pb.NodeHello) error {
	if err := outdated(ctx, s.Generation, h.Node); err != nil {
		if due, _ := s.says("generation", h.Node); due {
			s.Log.Error("a node refuses this controller, because its state is outdated", "node", h.Node, "err", err)
		}
		_, _ = s.Writer.Do(loop.ForNode(ctx, h.Node), reactor.NodeRefused{Node: h.Node, Why: reactor.RefusedGeneration,
			Text: status.Convert(err).Message()})
		return err
	}
	its, _ := greeted(ctx)
	why, text := meets(version.Ours, its, h.Node, h.NowNs, time.Now())
	if why == "" {
		return nil
	}
	_, _ = s.Writer.Do(loop.ForNode(ctx, h.Node), reactor.NodeRefused{Node: h.Node, Why: why, Text: text})
	return status.Error(codes.FailedPrecondition, text)
}

// commandMeets refuses a command whose release is too far from the controller's.
func commandMeets(ctx context.Context) error {
	md, _ := ttrpc.GetMetadata(ctx)
	said, _ := md.Get(version.Key)
	if err := version.Ours.Meets(theController, "this command", version.Parse(strings.Join(said, " "))); err != nil {
		return problem(pb.NewProblem(pb.CodeProtocolVersion, "%v", err))
	}
	return nil
}
