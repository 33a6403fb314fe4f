package live

import (
	"cmp"
	"slices"
	"sync"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// Steps holds the present resource use of running steps, as their nodes report it: displayed by sstat, never stored, and not worth the
// writer's time.
type Steps struct {
	mu    sync.Mutex
	nodes map[string]*nodeSteps
}

// nodeSteps holds the reports of one node, by job: a query for a job looks at its steps only.
type nodeSteps struct {
	jobs  map[uint32]map[stepKey]*pb.StepUsage
	steps int
}

type stepKey struct {
	job, attempt, step uint32
}

// NewSteps returns an empty one.
func NewSteps() *Steps { return &Steps{nodes: map[string]*nodeSteps{}} }

func (n *nodeSteps) put(u *pb.StepUsage) {
	k := stepKey{u.GetKey().GetJobId(), u.GetKey().GetAttempt(), u.GetKey().GetStep()}
	if n.jobs[k.job] == nil {
		n.jobs[k.job] = map[stepKey]*pb.StepUsage{}
	}
	if _, known := n.jobs[k.job][k]; !known {
		n.steps++
	}
	n.jobs[k.job][k] = u
}

func (n *nodeSteps) drop(k stepKey) {
	if _, known := n.jobs[k.job][k]; !known {
		return
	}
	n.steps--
	if delete(n.jobs[k.job], k); len(n.jobs[k.job]) == 0 {
		delete(n.jobs, k.job)
	}
}

// maxSteps bounds the steps kept of one node, maxStepBytes each of them.
const (
	maxSteps     = 1 << 16
	maxStepBytes = 64 << 10
)

// Put stores a node's reports on its own jobs; Forget drops them when the node's stream has ended.
func (l *Steps) Put(v *state.View, node string, usage []*pb.StepUsage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nodes[node]
	if n == nil {
		n = &nodeSteps{jobs: map[uint32]map[stepKey]*pb.StepUsage{}}
		l.nodes[node] = n
	}
	for _, u := range usage {
		if n.steps >= maxSteps {
			return
		}
		here := slices.ContainsFunc(v.Jobs.Get(u.GetKey().GetJobId()).GetAlloc(),
			func(a *pb.NodeAlloc) bool { return a.Node == node && !a.Ended })
		if !here || proto.Size(u) > maxStepBytes {
			continue
		}
		reactor.PlainWords(u)
		u.Node = node
		n.put(u)
	}
}

// Ended drops steps that a node reports as ended.
func (l *Steps) Ended(node string, steps []*pb.StepReport) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nodes[node]
	if n == nil {
		return
	}
	for _, r := range steps {
		if r.GetPhase() == pb.StepPhase_STEP_ENDED {
			n.drop(stepKey{r.GetKey().GetJobId(), r.GetKey().GetAttempt(), r.GetKey().GetStep()})
		}
	}
}

// Forget drops everything of a node.
func (l *Steps) Forget(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.nodes, node)
}

// Of returns the usage of a job's present attempt, by step and node.
func (l *Steps) Of(j *pb.JobRecord) []*pb.StepUsage {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []*pb.StepUsage
	for _, a := range j.GetAlloc() {
		n := l.nodes[a.GetNode()]
		if n == nil || !state.Live(j) {
			continue
		}
		for k, u := range n.jobs[j.GetId()] {
			if k.attempt == j.GetAttempt() {
				list = append(list, u)
			}
		}
	}
	slices.SortFunc(list, func(a, b *pb.StepUsage) int {
		return cmp.Or(cmp.Compare(a.GetKey().GetStep(), b.GetKey().GetStep()), cmp.Compare(a.GetNode(), b.GetNode()))
	})
	return list
}
