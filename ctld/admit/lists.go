package admit

import (
	"slices"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// checkLists refuses nodes that are both requested and excluded.
func checkLists(_ *state.View, s *pb.JobSpec) *pb.Problem {
	if s.ReqNodes == "" || s.ExcNodes == "" {
		return nil
	}
	want, _ := hostlist.Expand(s.ReqNodes)
	not, _ := hostlist.Expand(s.ExcNodes)
	excluded := make(map[string]bool, len(not)) // both lists may have the maximum length
	for _, n := range not {
		excluded[n] = true
	}
	for _, n := range want {
		if excluded[n] {
			return pb.NewProblem(pb.CodeInvalidNodeName, "node %s is both requested and excluded", n)
		}
	}
	return nil
}

// checkPreferred refuses features of --prefer that no node has, and features of --batch that are not in --constraint (sbatch(1)).
func checkPreferred(v *state.View, s *pb.JobSpec) *pb.Problem {
	if s.Prefer != "" && checkFeatures(v, &pb.JobSpec{Features: s.Prefer}) != nil {
		return pb.NewProblem(pb.CodeInvalidPrefer, "no node has the features %q", s.Prefer).WithHint("sinfo -o %%f lists them")
	}
	asked := featureNames(s.Features)
	for _, f := range featureNames(s.BatchFeatures) {
		if !slices.Contains(asked, f) {
			return pb.NewProblem(pb.CodeBatchFeature, "%q is not one of --constraint", f)
		}
	}
	return nil
}
