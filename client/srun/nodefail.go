package srun

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/submission"
)

// Intervals of polling the controller for the failure of a disconnected node.
const (
	firstLook = 200 * time.Millisecond
	lastLook  = 15 * time.Second
)

// find polls until the controller knows the fate of a node whose connection has ended.
func (t *tasks) find(ctx context.Context, node int) {
	for wait := firstLook; ; wait = min(2*wait, lastLook) {
		step, err := submission.Patiently(ctx, t.r.sender, func() (*msg.StepRecord, error) { return t.record(ctx) })
		if err != nil || step == nil || len(step.GetNodes()) != len(t.nodes) {
			return // the end of the step is reported elsewhere
		}
		if of := step.GetNodes()[node]; of.GetEnded() {
			if of.GetLost() {
				t.nodeFailed(node)
			}
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// record returns the controller's record of the step, nil if it is gone.
func (t *tasks) record(ctx context.Context) (*msg.StepRecord, error) {
	stream, err := t.r.client.Steps(ctx, &msg.StepsRequest{Ids: []string{t.id()}, Ended: true})
	if err != nil {
		return nil, err
	}
	var found *msg.StepRecord
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		for _, s := range r.Steps {
			found = s
		}
	}
}

// nodeFailed ends the tasks of a failed node. With --no-kill the other nodes continue; otherwise the controller ends them.
func (t *tasks) nodeFailed(node int) {
	t.mu.Lock()
	again := t.nodes[node].failed || t.nodes[node].ended
	t.nodes[node].failed = true
	t.mu.Unlock()
	if again {
		return
	}
	t.r.env.Errorf("Node failure on %s", t.node(node).GetNode())
	t.mu.Lock()
	var ranks []uint32
	for _, rank := range t.node(node).GetTasks() {
		if t.state[rank] != exited {
			ranks = append(ranks, rank)
		}
	}
	t.mu.Unlock()
	killed := uint32(syscall.SIGKILL)
	if len(ranks) > 0 {
		t.note(node, ranks, &msg.StepExit{WaitStatus: killed})
	}
	t.endNode(node, killed)
}
