package noded

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/sluice-hpc/sluice/internal/failpoint"
	"github.com/sluice-hpc/sluice/noded/link"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// linked takes in what happened on the way to the controller. There is a link once it has spoken: why there is none is said by package
// link.
func (n *node) linked(ctx context.Context, ev link.Event) {
	switch {
	case ev.Up != nil:
		n.stream, n.greeted, n.heard, n.history = ev.Up, false, false, nil
	case ev.Down != nil:
		n.stream = nil
		if n.heard {
			n.log.Warn("lost the link to the controller; jobs go on", "err", ev.Down)
		}
	case ev.Orders != nil:
		n.ordered(ctx, ev.Orders)
	}
}

// ordered takes in a message of the controller.
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
	if m.GetSettings() != nil && n.heard { // scontrol reconfigure: slurm.conf may name another log here, too
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
		n.log.Info("ending, as the controller says")
		n.root.Tell(&nodepb.Request{What: &nodepb.Request_Stop{Stop: &nodepb.Stop{}}})
		return
	}
	if r := m.GetReboot(); r != nil {
		n.reboot(ctx, r)
	}
	if h := m.GetHistory(); h != nil {
		n.recall(ctx, h)
	}
	n.desired.Apply(m)
	n.changed = true
}

// recall answers a HistoryOrder. A stream that ends before the answer is sent brings the order again.
func (n *node) recall(ctx context.Context, o *pb.HistoryOrder) {
	to := n.stream
	n.work(ctx, func() func() {
		a, err := n.root.Call(ctx, &nodepb.Request{What: &nodepb.Request_History{History: &nodepb.History{Above: o.Above}}})
		return func() {
			if err == nil && n.stream == to {
				n.history = &pb.NodeHistory{Restored: o.Restored, Ended: a.Ended, LostUpTo: a.LostUpTo, LostUntilNs: a.LostUntilNs}
			}
		}
	})
}

// adopt takes over settings. A controller of another cluster is none of ours: it would have every job here killed as unknown.
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

// flush tells the controller what it does not know yet, when there is room for a message.
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

// message is the hello with everything, or what has changed since, or nil.
func (n *node) message() *pb.NodeReport {
	if !n.greeted {
		n.greeted = true
		clear(n.dirty)
		m := &pb.NodeReport{Hello: n.hello(), Heartbeat: n.heartbeat(), Configuration: n.conf}
		n.confNews = false
		m.Steps = n.reports()
		return m
	}
	if h := n.history; h != nil && len(h.Ended) > maxReports { // the writer is not to have all at once
		part := &pb.NodeHistory{Restored: h.Restored, Ended: h.Ended[:maxReports], More: true}
		h.Ended = h.Ended[maxReports:]
		return &pb.NodeReport{History: part}
	} else if h != nil {
		n.history = nil
		return &pb.NodeReport{History: h}
	}
	if len(n.dirty) == 0 && !n.beat && !n.devices && !n.sampled && len(n.usages) == 0 && !n.confNews {
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
	n.addReports(m, false) // before those of their allocations
	n.addReports(m, true)
	if m.Heartbeat == nil && len(m.Steps) == 0 && !devices && len(m.Usage) == 0 && m.Configuration == nil {
		return nil
	}
	return m
}

// reports are those of all steps, each before that of its allocation, with which the controller ends what is left of the job here.
func (n *node) reports() (all []*pb.StepReport) {
	for _, j := range n.jobs {
		r := j.report(n.inv.BootID)
		if j.key.Holder() {
			r.Job = j.of()
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *pb.StepReport) int {
		return cmp.Or(cmp.Compare(a.Key.JobId, b.Key.JobId), cmp.Compare(a.Key.Step, b.Key.Step)) // those of holders are the highest
	})
	return all
}

// addReports adds what has changed, of holders of allocations or of steps in them, as far as there is room.
func (n *node) addReports(m *pb.NodeReport, holders bool) {
	for k := range n.dirty {
		if len(m.Steps) == maxReports {
			break
		}
		if k.Holder() != holders {
			continue
		}
		delete(n.dirty, k)
		if j := n.jobs[k]; j != nil {
			m.Steps = append(m.Steps, j.report(n.inv.BootID))
		}
	}
}

// orderWord is a want as logs name it.
func orderWord(o *pb.StepOrder) string {
	switch o.GetWant() {
	case pb.StepWant_WANT_STOP:
		return "stop"
	case pb.StepWant_WANT_KILL:
		return "kill"
	}
	return "run on"
}
