package planner

import (
	"testing"

	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/test/fieldtest"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// TestComparisonsHaveEveryField: a record of the mirror is replaced when anything that it says has changed.
func TestComparisonsHaveEveryField(t *testing.T) {
	request, array, job := &record.Request{}, &record.Array{}, &record.Job{}
	makeJob := func() *record.Job {
		j := fieldtest.Filled[record.Job]()
		j.Request, j.Array = request, array
		return j
	}
	t.Run("job", func(t *testing.T) {
		fieldtest.Compares(t, makeJob, sameJob, nil)
	})
	t.Run("run", func(t *testing.T) {
		fieldtest.Compares(t, func() *record.Run {
			r := fieldtest.Filled[record.Run]()
			r.Job = job
			return r
		}, sameRun, nil)
	})
}

// TestNodeFactsAreEnough: every node field that the scheduler's record depends on is among the facts whose change renews it.
func TestNodeFactsAreEnough(t *testing.T) {
	inv := &state.Inventory{}
	made := func() *state.Node {
		n := &state.Node{NodeRecord: fieldtest.Filled[pb.NodeRecord](), LinkUp: true, Inv: inv}
		n.State, n.StateFlags, n.Strays = pb.NodeState_NODE_IDLE, 0, nil
		return n
	}
	configured := "slurm.conf alone changes it, and a reconfigure makes all records anew"
	fieldtest.Follows(t, made, func(n *state.Node) any { return convert.Node(n, false) }, func(n *state.Node) any { return factsOf(n) },
		fieldtest.LeftOut{"Name": "a node keeps its name", "Sockets": configured, "Cores": configured, "Threads": configured,
			"TmpDiskMib": configured,
			"MemSpecMib": configured, "Switches": configured})
}
