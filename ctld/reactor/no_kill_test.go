package reactor

import (
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// down is scontrol update NodeName=NODE State=DOWN.
func (b *bench) down(node string) {
	b.do(UpdateNode{Caller: root, Nodes: []string{node}, Set: []*pb.KeyValue{{Key: "State", Value: "DOWN"}, {Key: "Reason", Value: "x"}}})
}

// TestNoKill: a job with --no-kill goes on with the nodes that are left, and only while its batch script is on one of them.
func TestNoKill(t *testing.T) {
	b := newBench(t, nil)
	id := b.both(&pb.JobSpec{NoKill: true})
	goes, stops := b.step(id, &pb.StepSpec{NumTasks: 8, Overlap: true, NoKill: true}), b.step(id, &pb.StepSpec{NumTasks: 8, Overlap: true})
	b.down("n2")
	j := b.view.Jobs.Get(id)
	if b.state(id) != "RUNNING None" || j.NodeList != "n1" || j.NumNodes != 1 || j.NumCpus != j.Alloc[0].Cpus ||
		!strings.Contains(j.AllocTres, "node=1") || state.AllocOn(j, "n2") != nil || j.FailedNode != "n2" {
		t.Error(b.state(id), j)
	}
	if n := b.view.Node("n2"); len(n.Jobs) != 0 || n.HeldCPUs != 0 || len(n.Strays) != 3 {
		t.Error(n)
	}
	get := func(s *pb.StepRecord) *pb.StepRecord { return b.view.Steps(id).Get(s.StepId) }
	if s := get(goes); s.StopReason != "" || !s.Nodes[1].Ended || !s.Nodes[1].Lost || s.Nodes[0].Ended {
		t.Error(s)
	}
	if s := get(stops); s.StopReason != "nodefail" || s.StopState != pb.JobState_JOB_NODE_FAIL || !strings.Contains(s.Reason, "n2") {
		t.Error(s)
	}
	reply := b.do(CreateStep{Caller: alice, Job: id, Spec: &pb.StepSpec{MinNodes: 2}})
	if p, ok := reply.(*pb.Problem); !ok || p.Code != uint32(pb.CodeNodeConfig) {
		t.Error("a step on two nodes:", reply)
	}
	if s := b.step(id, &pb.StepSpec{NumTasks: 1, Overlap: true}); len(s.Nodes) != 1 || s.Nodes[0].Node != "n1" {
		t.Error(s)
	}
	b.down("n1")
	if s := b.state(id); !strings.HasPrefix(s, "NODE_FAIL") && !strings.HasPrefix(s, "PENDING") {
		t.Error(s)
	}
}
