package rpc

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/internal/version"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// far is a release that understands nothing of this one.
var far = version.Build{Protocol: version.Protocol + 7, Oldest: version.Protocol + 1, Release: "9.0"}

// TestHelloFromAfar: nodes of a release that is too far away and nodes whose clock is wrong are refused in words, which the node shows;
// those that are right, or of a release that predates numbers, are not.
func TestHelloFromAfar(t *testing.T) {
	s := serveNodes(t)
	conf := s.certificate(s.dir, "n1")
	stream := func(b string) nodeStream {
		return s.dialWith(conf, metadata.Pairs(version.Key, b))
	}
	at := func(off time.Duration) *pb.NodeReport {
		m := nodeHello("n1")
		m.Hello.NowNs = time.Now().Add(off).UnixNano()
		return m
	}
	for _, c := range []struct {
		build string
		off   time.Duration
		words []string
		begin reactor.Refusal
	}{
		{far.String(), 0, []string{"sluice-ctld (release " + version.Sluice, "sluice-noded of n1 (release 9.0)", "upgrade sluice-ctld"},
			reactor.RefusedVersion},
		{"", time.Hour, []string{"the clock of n1 shows", "that of the controller"}, reactor.RefusedClock},
		{version.Ours.String(), -time.Hour, []string{"the clock of n1 shows", "that of the controller"}, reactor.RefusedClock},
	} {
		_, err := talk(stream(c.build), at(c.off))
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%v: %v", c.words, err)
			continue
		}
		n := s.loop.View().Node("n1")
		for _, w := range c.words {
			if !strings.Contains(err.Error(), w) || !strings.Contains(n.Reason, w) {
				t.Errorf("without %q: answered %v, and the node has %q", w, err, n.Reason)
			}
		}
		if !strings.HasPrefix(n.Reason, string(c.begin)) || n.LinkUp {
			t.Errorf("the node is linked %v, reason %q", n.LinkUp, n.Reason)
		}
	}
	for _, b := range []string{"", version.Ours.String()} {
		if _, err := talk(stream(b), at(4*time.Minute)); err != nil {
			t.Errorf("%q: %v", b, err)
		}
	}
	if n := s.loop.View().Node("n1"); n.Reason != "" || n.StateFlags != 0 {
		t.Errorf("let in, the node has flags %#x, reason %q", n.StateFlags, n.Reason)
	}
}

// TestFollowedANewerState: a host that has followed a controller with a newer state is refused by one with an older state, which then shows
// the node as one that it cannot use; both generations are named.
func TestFollowedANewerState(t *testing.T) {
	s := serveNodes(t)
	conf := s.certificate(s.dir, "n1")
	for said, old := range map[string]bool{"": false, "cluster-1 4": false, "cluster-1 5": false, "other 9": false, "cluster-1 9": true} {
		m := nodeHello("n1")
		m.Hello.NowNs = time.Now().UnixNano()
		stream := s.dialWith(conf, metadata.Pairs(version.GenerationKey, said))
		_, err := talk(stream, m)
		if (err != nil) != old {
			t.Errorf("%q: %v", said, err)
		}
		ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs(version.GenerationKey, said))
		call := Guard{Generation: ofTests}.welcome(ctx, nodepb.RelayAPI_Call_FullMethodName)
		if (call != nil) != old {
			t.Errorf("%q calls: %v", said, call)
		}
		for _, err := range []error{err, call} {
			if old && (status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "is of generation 5 ") ||
				!strings.Contains(err.Error(), "of generation 9 ")) {
				t.Errorf("refused with %v", err)
			}
		}
		if head, herr := stream.Header(); herr == nil && old && strings.Join(head.Get(version.GenerationKey), "") != ofTests.String() {
			t.Errorf("the controller says %v of itself", head)
		}
	}
}

// TestCallsFromAfar: the same checks for the other calls of hosts. A host that renews its certificate may have a wrong clock.
func TestCallsFromAfar(t *testing.T) {
	now := time.Now()
	call := func(method, build string, off time.Duration) error {
		md := metadata.Pairs(version.Key, build, version.ClockKey, strconv.FormatInt(now.Add(off).UnixNano(), 10))
		return Guard{}.welcome(metadata.NewIncomingContext(context.Background(), md), method)
	}
	relay, renew, sync := nodepb.RelayAPI_Call_FullMethodName, nodepb.EnrolAPI_Renew_FullMethodName, nodepb.NodeAPI_Sync_FullMethodName
	for _, c := range []struct {
		method, build string
		off           time.Duration
		want          codes.Code
	}{
		{relay, "", 0, codes.OK},
		{relay, version.Ours.String(), time.Minute, codes.OK},
		{relay, far.String(), 0, codes.FailedPrecondition},
		{relay, version.Ours.String(), 10 * time.Minute, codes.FailedPrecondition},
		{relay, version.Ours.String(), -10 * time.Minute, codes.FailedPrecondition},
		{renew, version.Ours.String(), 1000 * time.Hour, codes.OK},
		{renew, far.String(), 0, codes.FailedPrecondition},
		{sync, far.String(), 1000 * time.Hour, codes.OK}, // NodeServer looks
	} {
		if err := call(c.method, c.build, c.off); status.Code(err) != c.want {
			t.Errorf("%s of %q, %v off: %v", c.method, c.build, c.off, err)
		}
	}
}

func TestCommandFromAfar(t *testing.T) {
	for said, refused := range map[string]bool{"": false, version.Ours.String(): false, far.String(): true} {
		err := commandMeets(ttrpc.WithMetadata(context.Background(), ttrpc.MD{version.Key: {said}}))
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "this command (release 9.0)") {
			t.Errorf("%q: %v", said, err)
		}
	}
}
