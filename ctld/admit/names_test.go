package admit

import (
	"slices"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func TestNamesInRequests(t *testing.T) {
	for expr, want := range map[string][]string{"a": {"a"}, "[a*2&b*1]|(c&d)": {"a", "b", "c", "d"}, "a,b": {"a", "b"}, "": {}} {
		if got := featureNames(expr); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", expr, got, want)
		}
	}
	for list, want := range map[string][]string{
		"gres/gpu:a100:2": {"gpu"}, "gpu:1,shard:2": {"gpu", "shard"}, "cpu=2,gres/gpu=1": {"gpu"}, "license/x:1": nil, "": nil,
		"none": nil,
	} {
		if got := gresNames(list); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", list, got, want)
		}
	}
	if p := unknown(pb.CodeInvalidFeature, "feature", []string{"a", "x"},
		[]string{"a", "b"}); p.GetCode() != uint32(pb.CodeInvalidFeature) || p.Hint != "there are: a, b" {
		t.Error(p)
	}
	if p := unknown(pb.CodeInvalidGres, "generic resource", []string{"gpu", ""}, []string{"gpu"}); p != nil {
		t.Error(p)
	}
}

// TestNodesOfOneUser: node daemons of an ordinary user can run only that user's jobs, so others are refused at once.
func TestNodesOfOneUser(t *testing.T) {
	for _, c := range []struct{ slurmd, uid uint32 }{{0, 0}, {0, 1000}, {1000, 1000}, {1000, 0}, {1000, 1001}} {
		cfg := &state.Config{Settings: &state.Settings{SlurmdUID: c.slurmd}, Default: "p",
			Partitions: []*pb.PartitionRecord{{Name: "p", State: "UP", MaxTimeS: pb.Unlimited, MaxNodes: pb.Unlimited}}}
		_, p := Job(state.New(cfg, "c", 1), &pb.JobSpec{Uid: c.uid, NumTasks: 1}, "")
		if refused := p != nil && pb.Code(p.Code) == pb.CodeUserID; refused != (c.slurmd != 0 && c.slurmd != c.uid) {
			t.Errorf("nodes of uid %d, job of uid %d: %v", c.slurmd, c.uid, p)
		}
	}
}
