package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-hpc/sluice/ctld/dispatch"
	"github.com/sluice-hpc/sluice/ctld/hostconf"
	"github.com/sluice-hpc/sluice/ctld/live"
	"github.com/sluice-hpc/sluice/ctld/loop"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/internal/clock"
	"github.com/sluice-hpc/sluice/internal/failpoint"
	"github.com/sluice-hpc/sluice/internal/logfile"
	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/internal/version"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// NodeServer implements NodeAPI.
type NodeServer struct {
	nodepb.UnimplementedNodeAPIServer
	Writer     Writer
	Dispatcher *dispatch.Dispatcher
	Beats      *Beats
	Samples    *live.Samples // may be nil
	Live       *live.Steps   // may be nil
	ClusterID  string
	Generation version.Generation // of the state
	Log        *slog.Logger
	Conf       *hostconf.Current // for hosts without files; nil: there is none
	// Found returns the node for a host that asks to be one, from its hello; nil: there are only the nodes of slurm.conf.
	Found func(*pb.NodeHello) (*pb.NodeRecord, error)
	// Ending is closed when the controller ends: it ends all streams without a command for each. nil: it never ends.
	Ending <-chan struct{}

	streams atomic.Uint64 // opened so far

	mu     sync.Mutex
	hellos map[string]*rate.Limiter // by node of this cluster
	said   *logfile.Seldom          // limits lines that nodes can cause
}

// says reports whether a line about a node, which the node can cause at any rate, is due.
func (s *NodeServer) says(what, node string) (due bool, left int) {
	s.mu.Lock()
	if s.said == nil {
		s.said = logfile.NewSeldom(time.Minute)
	}
	said := s.said
	s.mu.Unlock()
	return said.Says(what + " " + node)
}

// Rate at which one node may open streams, per second and burst: each is a commit, and lines in the log. Excess ones wait. The messages on
// a stream have no rate: nodes take turns for the writer (loop.ForNode), and a stream is not read while its messages wait (intake).
const helloRate, helloBurst = 2, 10

// nodeName returns the name and serial of the node's certificate, which the TLS layer has verified.
func nodeName(ctx context.Context) (name, serial string, err error) {
	id, serial, err := shownBy(ctx)
	if err != nil {
		return "", "", err
	}
	if id.Role != mtls.RoleNode {
		return "", "", status.Errorf(codes.PermissionDenied, "a %s certificate does not identify a node", id.Role)
	}
	return id.Name, serial, nil
}

// Sync serves one node: hello, then reports in one direction and orders in the other.
func (s *NodeServer) Sync(stream grpc.BidiStreamingServer[pb.NodeReport, pb.NodeOrders]) error {
	name, serial, err := nodeName(stream.Context())
	if err != nil {
		return err
	}
	first, err := firstOf(stream.Context(), stream.Recv)
	if err != nil {
		return err
	}
	h := first.GetHello()
	switch {
	case h == nil:
		return status.Error(codes.InvalidArgument, "the first message of a node must be Hello")
	case h.Node != name:
		return status.Errorf(codes.PermissionDenied, "the certificate is for node %s, not %s", name, h.Node)
	case h.ClusterId != "" && h.ClusterId != s.ClusterID:
		return status.Errorf(codes.FailedPrecondition,
			"node %s belongs to another cluster (id %s, not %s); to move it to this cluster, clear its spool directory", name, h.ClusterId,
			s.ClusterID)
	}
	ctx, cancel := context.WithCancel(loop.ForNode(stream.Context(), name))
	defer cancel()
	if err := s.inTurn(ctx, name); err != nil {
		return status.FromContextError(err).Err()
	}
	if err := s.meets(ctx, h); err != nil {
		return err
	}
	number := s.streams.Add(1)
	defer s.gone(name, number)
	hello := reactor.NodeHello{Hello: h, Steps: first.Steps, Stream: number, Serial: serial,
		OffNS: s.clockOff(name, h.NowNs), Conf: first.Configuration}
	if hello.Join, err = s.found(stream.Context(), h); err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	if _, err := s.Writer.Do(ctx, hello); err != nil {
		if len(first.Steps) > 0 && s.Writer.View().Node(name) == nil {
			// The node was removed from slurm.conf while jobs ran. They have been given up, and no other order would end them.
			_ = stream.Send(&pb.NodeOrders{Full: true})
		}
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	if first.Heartbeat != nil {
		s.Beats.Put(name, first.Heartbeat, s.clockOff(name, h.NowNs))
	}
	s.judgeConf(name, first.Configuration)
	link := s.Dispatcher.Open(name, first.Steps)
	link.Has(first.Configuration)
	s.Log.Info("node connected", "node", name, "steps", len(first.Steps), "version", h.Version)
	defer func() {
		if s.Dispatcher.Close(link) {
			if s.Live != nil {
				s.Live.Forget(name)
			}
			s.Log.Info("node disconnected", "node", name)
		}
	}()
	return s.converse(ctx, cancel, stream, link, name)
}

// maxNodeConf bounds the length of --conf.
const maxNodeConf = 4096

// found returns the node record of a host that asks to be a node, nil for any other.
func (s *NodeServer) found(ctx context.Context, h *pb.NodeHello) (*pb.NodeRecord, error) {
	if h.Dynamic == nil || s.Found == nil {
		return nil, nil
	}
	if len(h.Dynamic.Conf) > maxNodeConf {
		return nil, fmt.Errorf("node %s cannot join: its --conf has %d bytes, at most %d", h.Node, len(h.Dynamic.Conf), maxNodeConf)
	}
	rec, err := s.Found(h)
	if err != nil {
		return nil, fmt.Errorf("node %s cannot join: %w", h.Node, err)
	}
	if p, ok := peer.FromContext(ctx); ok {
		if host, _, err := net.SplitHostPort(p.Addr.String()); err == nil {
			rec.Addr = host
		}
	}
	return rec, nil
}

// inTurn waits until a node may open another stream. Nodes that are not in the configuration share one rate.
func (s *NodeServer) inTurn(ctx context.Context, node string) error {
	if s.Writer.View().Node(node) == nil {
		node = ""
	}
	s.mu.Lock()
	l := s.hellos[node]
	if l == nil {
		if s.hellos == nil {
			s.hellos = map[string]*rate.Limiter{}
		}
		l = rate.NewLimiter(helloRate, helloBurst)
		s.hellos[node] = l
	}
	s.mu.Unlock()
	return l.Wait(ctx)
}

// gone reports the end of a stream to the writer, also when the hello was refused or was handled too late, and when there is a newer
// stream, which the writer recognises by its number. It must get through: a node that seems to be linked is never found to be down.
func (s *NodeServer) gone(name string, stream uint64) {
	for {
		select {
		case <-s.Ending:
			return
		default:
		}
		_, err := s.Writer.Do(loop.ForNode(context.Background(), name), reactor.NodeGone{Node: name, Stream: stream})
		if !errors.Is(err, loop.ErrBusy) {
			return
		}
		time.Sleep(busyRetry)
	}
}

// busyRetry is the pause before another try when the mailbox or the disk is full.
const busyRetry = 100 * time.Millisecond

func (s *NodeServer) converse(ctx context.Context, cancel context.CancelFunc,
	stream grpc.BidiStreamingServer[pb.NodeReport, pb.NodeOrders], link *dispatch.Link, name string) error {
	in := &intake{s: s, ctx: ctx, link: link, name: name}
	recvErr := make(chan error, 1)
	defer in.end()
	defer cancel()
	go func() { // ends with the stream, which ends when Sync returns
		recvErr <- s.receive(ctx, stream, in, link, name)
		cancel()
	}()
	for {
		select {
		case <-link.Closed():
			if s.Writer.View().Node(name) == nil {
				return status.Errorf(codes.FailedPrecondition, "node %s is no longer a node of this cluster", name)
			}
			return status.Error(codes.Aborted, "the node has opened a new stream")
		case <-ctx.Done():
			select {
			case err := <-recvErr:
				return err
			default:
				return status.FromContextError(ctx.Err()).Err()
			}
		case <-link.Woken():
			if err := s.sendAll(stream, link, name); err != nil {
				return err
			}
		}
	}
}

func (s *NodeServer) sendAll(stream grpc.BidiStreamingServer[pb.NodeReport, pb.NodeOrders], link *dispatch.Link, name string) error {
	for {
		msg, more := link.Next()
		if failed := link.Failed(); len(failed) > 0 {
			s.recordFailed(stream.Context(), link, name, failed)
		}
		if msg != nil {
			failpoint.Hit("send.before")
			if err := stream.Send(msg); err != nil {
				return err
			}
			failpoint.Hit("send.after")
		}
		if !more {
			return nil
		}
	}
}

// recordFailed ends steps that cannot be launched; if the writer is busy, the link tries again.
func (s *NodeServer) recordFailed(ctx context.Context, link *dispatch.Link, name string, failed []*pb.StepReport) {
	if _, err := s.Writer.Do(ctx, reactor.StepReports{Node: name, Steps: failed}); err != nil {
		time.AfterFunc(busyRetry, link.Wake)
	}
}

func (s *NodeServer) receive(ctx context.Context, stream grpc.BidiStreamingServer[pb.NodeReport, pb.NodeOrders],
	in *intake, link *dispatch.Link, name string) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if r.Heartbeat != nil {
			s.Beats.Put(name, r.Heartbeat, s.clockOff(name, r.Heartbeat.NowNs))
		}
		if s.Samples != nil {
			s.Samples.Put(name, r.Samples, clock.Boot())
		}
		if s.Live != nil {
			s.Live.Put(s.Writer.View(), name, r.Usage)
			s.Live.Ended(name, r.Steps)
		}
		if r.History != nil {
			s.must(ctx, "history", reactor.NodeHistory{Node: name, History: r.History}, name)
		}
		if r.Devices != nil {
			s.must(ctx, "devices", reactor.DeviceReport{Node: name, Report: r.Devices}, name)
		}
		if r.Configuration != nil {
			link.Has(r.Configuration)
			s.judgeConf(name, r.Configuration)
			s.must(ctx, "configuration", reactor.NodeConf{Node: name, Conf: r.Configuration}, name)
		}
		if len(r.Steps) == 0 {
			continue
		}
		if err := in.put(r.Steps); err != nil {
			return err
		}
	}
}

// must passes a node's report to the writer, and waits until the writer has it: a fault of a device must not be lost, and later reports may
// build on it.
func (s *NodeServer) must(ctx context.Context, what string, c reactor.Command, name string) {
	for {
		_, err := s.Writer.Do(ctx, c)
		if err == nil || ctx.Err() != nil {
			return
		}
		s.Log.Warn("cannot process a node's messages yet", "of", what, "node", name, "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(busyRetry):
		}
	}
}

// clockOff returns by how much the clock of a node, as it reports it, is ahead of this one. A new difference is logged.
func (s *NodeServer) clockOff(node string, shownNS int64) int64 {
	off := shownNS - time.Now().UnixNano()
	known := int64(0)
	if n := s.Writer.View().Node(node); n != nil {
		known = n.ClockOffNs
	}
	if news := off - known; (off > reactor.ClockDiffersNS || off < -reactor.ClockDiffersNS) &&
		(news > reactor.ClockDiffersNS || news < -reactor.ClockDiffersNS) {
		if due, left := s.says("clock", node); due {
			s.Log.Warn("the clock of a node differs from the controller's; jobs do not depend on it, but files and certificates do",
				"node", node, "ahead", time.Duration(off).Round(time.Second), "left_out", left)
		}
	}
	return off
}

// Beats collects heartbeats and passes them to the writer once a second, so that thousands of nodes cost one command.
type Beats struct {
	mu   sync.Mutex
	last reactor.NodeBeats
}

// NewBeats returns an empty collection.
func NewBeats() *Beats { return &Beats{last: noBeats()} }

func noBeats() reactor.NodeBeats {
	return reactor.NodeBeats{Beats: map[string]*pb.Heartbeat{}, OffNS: map[string]int64{}}
}

// Put notes a node's newest heartbeat, and by how much its clock was ahead then.
func (b *Beats) Put(node string, h *pb.Heartbeat, offNS int64) {
	b.mu.Lock()
	b.last.Beats[node], b.last.OffNS[node] = h, offNS
	b.mu.Unlock()
}

// Run passes them on until ctx ends.
func (b *Beats) Run(ctx context.Context, w Writer) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		b.mu.Lock()
		beats := b.last
		b.last = noBeats()
		b.mu.Unlock()
		if len(beats.Beats) > 0 {
			_, _ = w.Do(loop.ForNode(ctx, ""), beats)
		}
	}
}
