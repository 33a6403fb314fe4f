package reactor

import (
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Reconfigure puts a newly read configuration in force.
type Reconfigure struct{ Config *state.Config }

// Handle refuses a configuration that drops a node on which jobs run.
func (c Reconfigure) Handle(tx *state.Tx) any {
	keep := map[string]bool{}
	for _, n := range c.Config.Nodes {
		keep[n.Name] = true
	}
	for _, n := range tx.Nodes() {
		if !keep[n.Name] && len(n.Jobs) > 0 {
			return pb.NewProblem(pb.CodeNodesBusy, "node %s is no longer in slurm.conf, but %d job(s) are running on it", n.Name,
				len(n.Jobs)).WithHint("drain the node and let them end, or cancel them, then reconfigure")
		}
	}
	tx.Emit(state.Reconfigured{Config: c.Config})
	return nil
}
