package noded

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-hpc/sluice/internal/failpoint"
	"github.com/sluice-hpc/sluice/noded/link"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// linked handles events of the link. The link counts as up once the controller has sent something; package link logs why there is
// none.
func (n *node) linked(ctx context.Context, ev link.Event) {
	switch {
	case ev.Up != nil:
		n.stream, n.greeted, n.heard = ev.Up, false, false
		n.steps.NewStream()
	case ev.Down != nil:
		n.stream = nil
		if n.heard {
			n.log.Warn("lost the link to the controller; jobs keep running", "err", ev.Down)
		}
	case ev.Orders != nil:
		n.ordered(ctx, ev.Orders)
	}
}

// ordered handles a message from the controller.
func (n *node) ordered(ctx context.Context, m *pb.NodeOrders) {
	if n.stream == nil {
		return
	}
	if c := m.GetConfiguration(); c != nil {
		n.offer(c)
		return
	}
	if s := m.GetSettings(); s != nil {
		if err := n.adopt(s); err != nil {
			n.stream.Refuse(err)
			n.stream = nil
			return
		}
	}
	if m.GetSettings() != nil && n.heard { // scontrol reconfigure: slurm.conf may also name another log file
		n.root.Tell(&nodepb.Request{What: &nodepb.Request_Reopen{Reopen: &nodepb.Reopen{}}})
	}
	first := !n.taken && m.GetSettings() != nil
	n.taken = n.taken || first
	if m.Standing != nil {
		n.standing = m.Standing
	}
	if !n.heard {
		n.heard = true
		n.log.Info("linked to the controller", "controller", n.stream.Controller)
	}
	if first && n.health.timer != nil {
		n.runHealthCheck(ctx)
	}
	n.log.Debug("orders", "steps", len(m.GetSteps()), "full", m.GetFull(), "settings", m.GetSettings() != nil)
	if m.GetShutdown() {
		n.log.Info("stopping on the controller's order")
		n.root.Tell(&nodepb.Request{What: &nodepb.Request_Stop{Stop: &nodepb.Stop{}}})
		return
	}
	if r := m.GetReboot(); r != nil {
		n.reboot(ctx, r)
	}
	if h := m.GetHistory(); h != nil {
		n.steps.Recall(ctx, h)
	}
	n.steps.Order(m)
}

// adopt applies settings. It refuses the controller of another cluster, which would have every job here killed as unknown.
func (n *node) adopt(s *pb.NodeSettings) error {
	if n.clusterID != "" && s.ClusterId != "" && s.ClusterId != n.clusterID {
		return fmt.Errorf(
			"cannot take orders from cluster %s (%s): the spool of node %s belongs to cluster %s (%s); if the controller was set up "+
				"anew, remove the spool (SlurmdSpoolDir) after its jobs have ended",
			s.Cluster, s.ClusterId, n.about.Node, n.settings.GetCluster(), n.clusterID)
	}
	n.root.Tell(&nodepb.Request{What: &nodepb.Request_Settings{Settings: s}})
	n.settings = s
	n.private.Store(namesPrivate(s))
	n.renewal.replaced(s.Authority)
	if n.o.Level != nil {
		n.o.Level.Set(slog.Level(s.GetLogLevel()))
	}
	n.health.plan(s, time.Now())
	if s.ClusterId != "" {
		n.clusterID = s.ClusterId
	}
	return nil
}

// flush reports changes to the controller when the stream has room for a message.
func (n *node) flush() {
	if n.stream == nil || len(n.stream.Out) == cap(n.stream.Out) {
		return
	}
	m := n.message()
	if m == nil {
		return
	}
	failpoint.Hit("noded.report")
	n.stream.Out <- m // has room: nobody else sends
}

// message returns the full hello on a new stream, then the changes since the last message, or nil.
func (n *node) message() *pb.NodeReport {
	if !n.greeted {
		n.greeted = true
		n.confNews = false
		return &pb.NodeReport{Hello: n.hello(), Heartbeat: n.heartbeat(), Configuration: n.conf, Steps: n.steps.Reports()}
	}
	if h := n.steps.History(); h != nil {
		return &pb.NodeReport{History: h}
	}
	if !n.steps.Dirty() && !n.beat && !n.devices && !n.sampled && len(n.usages) == 0 && !n.confNews {
		return nil
	}
	m := &pb.NodeReport{}
	devices := n.addDeviceChanges(m)
	m.Usage, n.usages = n.usages, nil
	if n.confNews {
		m.Configuration, n.confNews = n.conf, false
	}
	if n.beat {
		n.beat = false
		m.Heartbeat = n.heartbeat()
	}
	m.Steps = n.steps.Changes()
	if m.Heartbeat == nil && len(m.Steps) == 0 && !devices && len(m.Usage) == 0 && m.Configuration == nil {
		return nil
	}
	return m
}
