package noded

import (
	"context"

	"github.com/sluice-hpc/sluice/noded/agent"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// lookAtSteps samples the processes of the running steps beside the loop, one scan at a time.
func (n *node) lookAtSteps(ctx context.Context) {
	if n.looking || n.stream == nil || !n.running() {
		return
	}
	n.looking = true
	n.work(ctx, func() func() {
		a, err := n.root.Call(ctx, &nodepb.Request{What: &nodepb.Request_Look{Look: &nodepb.Look{}}})
		return func() {
			n.looking, n.usages, n.seen = false, nil, nil
			if err != nil {
				return
			}
			for _, u := range a.Usage { // steps may have ended meanwhile
				if n.steps.Running(agent.KeyOf(u.Key)) {
					n.usages = append(n.usages, u)
				}
			}
			n.seen = n.usages
		}
	})
}

func (n *node) running() bool {
	for j := range n.steps.All() {
		if j.Pid() > 0 && j.Phase() == pb.StepPhase_STEP_RUNNING {
			return true
		}
	}
	return false
}
