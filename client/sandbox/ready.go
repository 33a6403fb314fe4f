package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// wait returns when every node is ready, a daemon has ended, or the time is over.
func (u *upper) wait(ctx context.Context) (remarks []string, err error) {
	limit := u.o.Timeout
	if limit == 0 {
		limit = upTimeout + time.Duration(len(u.plan.nodes()))*nodeTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("timed out after %s", limit))
	defer cancel()
	last := "the controller has not answered yet"
	slowest := 100*time.Millisecond + time.Duration(len(u.plan.nodes()))*100*time.Microsecond // long lists cost the controller time
	var waiting []string
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, slowest) {
		nodes, err := listNodes(ctx, u.dir.socket())
		if err == nil {
			waiting, remarks = u.judge(nodes)
			if len(waiting) == 0 {
				return remarks, nil
			}
			last = msg.Singular(fmt.Sprintf("waiting for %d of %d nodes: ", len(waiting), len(nodes))) + hostlist.Fold(waiting)
		} else if !client.Broken(err) {
			last = client.Text(err)
		}
		u.say("%s", last)
		if err := u.pause(ctx, pause); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, u.logs(last, waiting))
		}
	}
}

// pause waits a little; it returns an error if waiting longer is pointless.
func (u *upper) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return interrupted(ctx)
	case <-t.C:
	}
	for _, c := range u.started {
		select {
		case <-c.exited:
			return failed(c)
		default:
		}
	}
	return nil
}

// logs is added to the error of a failed start: the progress so far, the last log lines of the first node that is missing, and
// where the logs are.
func (u *upper) logs(last string, waiting []string) string {
	for _, c := range u.started {
		if len(waiting) > 0 && c.name == nodeDaemonName(waiting[0]) {
			last += "\n" + c.logEnd()
		}
	}
	return last + "\nlogs: " + u.dir.join("log")
}

// judge returns the nodes that are not ready, and remarks on those that are up but unusable. A node started by this call is ready
// once that very daemon has registered.
func (u *upper) judge(nodes []*msg.NodeRecord) (waiting, remarks []string) {
	mine := map[string]bool{}
	for _, name := range u.startedNodes() {
		mine[name] = true
	}
	for _, n := range nodes {
		c, known := u.plan.conf.Node(n.Name)
		if !known || c.State == "FUTURE" || c.State == "CLOUD" {
			continue
		}
		fresh := !mine[n.Name] || n.NodedStartNs >= u.from.UnixNano()
		down := n.State == msg.NodeState_NODE_DOWN
		switch {
		case !fresh, n.StateFlags&msg.NodeNoRespond != 0, n.State == msg.NodeState_NODE_UNKNOWN:
			waiting = append(waiting, n.Name)
		case down && mine[n.Name] && n.Reason == "" && c.State != "DOWN":
			waiting = append(waiting, n.Name)
		case mine[n.Name] && strings.HasSuffix(n.Reason, msg.GresUnread):
			waiting = append(waiting, n.Name)
		case down, n.StateFlags&(msg.NodeDrain|msg.NodeFail) != 0:
			remarks = append(remarks, unusable(n))
		}
	}
	return waiting, remarks
}

func unusable(n *msg.NodeRecord) string {
	what := "drained"
	if n.State == msg.NodeState_NODE_DOWN {
		what = "down"
	}
	reason := n.Reason
	if reason == "" {
		reason = "no reason given"
	}
	return fmt.Sprintf("node %s is %s: %s; `scontrol update nodename=%s state=resume` returns it to service", n.Name, what, reason, n.Name)
}

const callTimeout = 10 * time.Second

// listNodes asks the controller for its nodes.
func listNodes(ctx context.Context, socket string) ([]*msg.NodeRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := client.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	stream, err := c.Nodes(ctx, &msg.NodesRequest{})
	if err != nil {
		return nil, err
	}
	var nodes []*msg.NodeRecord
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nodes, nil
		}
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, r.Nodes...)
	}
}

// firstLine shortens errors that must fit into a list.
func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
