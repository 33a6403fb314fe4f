package rpc

import (
	"cmp"
	"slices"
	"sync"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// Live is what running steps use now, as their nodes report it: shown by sstat, never stored, and not worth the writer's time.
type Live struct {
	mu    sync.Mutex
	nodes map[string]map[liveKey]*pb.StepUsage
}

type liveKey struct {
	job, attempt, step uint32
}

// NewLive makes an empty one.
func NewLive() *Live { return &Live{nodes: map[string]map[liveKey]*pb.StepUsage{}} }

// maxLive bounds the steps kept of one node, maxLiveBytes each of them.
const (
	maxLive      = 1 << 16
	maxLiveBytes = 64 << 10
)

// Put takes in what a node reports of jobs that are its own; Forget drops it, when the node's stream has ended.
func (l *Live) Put(v *state.View, node string, usage []*pb.StepUsage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	steps := l.nodes[node]
	if steps == nil {
		steps = map[liveKey]*pb.StepUsage{}
		l.nodes[node] = steps
	}
	for _, u := range usage {
		if len(steps) >= maxLive {
			return
		}
		here := slices.ContainsFunc(v.Jobs.Get(u.GetKey().GetJobId()).GetAlloc(), func(a *pb.NodeAlloc) bool { return a.Node == node && !a.Ended })
		if !here || proto.Size(u) > maxLiveBytes {
			continue
		}
		reactor.PlainWords(u)
		u.Node = node
		steps[liveKey{u.GetKey().GetJobId(), u.GetKey().GetAttempt(), u.GetKey().GetStep()}] = u
	}
}

// Ended drops steps that a node reports as ended.
func (l *Live) Ended(node string, steps []*pb.StepReport) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range steps {
		if r.GetPhase() == pb.StepPhase_STEP_ENDED {
			delete(l.nodes[node], liveKey{r.GetKey().GetJobId(), r.GetKey().GetAttempt(), r.GetKey().GetStep()})
		}
	}
}

// Forget drops all of a node.
func (l *Live) Forget(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.nodes, node)
}

// Of is the usage of a job's present attempt, by step and node.
func (l *Live) Of(j *pb.JobRecord) []*pb.StepUsage {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []*pb.StepUsage
	for _, a := range j.GetAlloc() {
		for k, u := range l.nodes[a.GetNode()] {
			if k.job == j.GetId() && k.attempt == j.GetAttempt() && state.Live(j) {
				list = append(list, u)
			}
		}
	}
	slices.SortFunc(list, func(a, b *pb.StepUsage) int {
		return cmp.Or(cmp.Compare(a.GetKey().GetStep(), b.GetKey().GetStep()), cmp.Compare(a.GetNode(), b.GetNode()))
	})
	return list
}
