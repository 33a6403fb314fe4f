package sim

import (
	"flag"
	"math/rand"
	"slices"
	"testing"

	"github.com/sluice-hpc/sluice/sched/record"
)

var seeds = flag.Int("seeds", 2, "seeds of the placement experiment")

// TestPlacementOrder: the order in which nodes are listed does not matter.
func TestPlacementOrder(t *testing.T) {
	nodes, pods, err := ReadOpenb(needTrace(t, "openb_node_list_gpu_node.csv.gz"), needTrace(t, "openb_pod_list_multigpu50.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	other := slices.Clone(nodes)
	rand.New(rand.NewSource(7)).Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
	for _, rule := range []record.Placement{record.FGD, record.BestFit, record.Pack} {
		if a, b := Placement(nodes, pods, rule, 0), Placement(other, pods, rule, 0); a != b {
			t.Errorf("rule %d: %.6f and, with the nodes in another order, %.6f", rule, a, b)
		}
	}
}

// TestPlacement: GPU allocation at 130 % of demand.
func TestPlacement(t *testing.T) {
	for _, c := range []struct {
		list         string
		fgd, bestFit float64
	}{{"default", 95.3, 93.1}, {"multigpu50", 97.1, 95.7}, {"gpuspec33", 94.5, 93.1}} {
		nodes, pods, err := ReadOpenb(needTrace(t, "openb_node_list_gpu_node.csv.gz"), needTrace(t, "openb_pod_list_"+c.list+".csv.gz"))
		if err != nil {
			t.Fatal(err)
		}
		var fgd, best mean
		for seed := range int64(*seeds) {
			fgd.add(100 * Placement(nodes, pods, record.FGD, seed))
			best.add(100 * Placement(nodes, pods, record.BestFit, seed))
		}
		t.Logf("%s: FGD %.2f %% (aim %.1f), best fit %.2f (%.1f)", c.list, fgd.value(), c.fgd, best.value(), c.bestFit)
		if fgd.value() < c.fgd {
			t.Errorf("%s: FGD allocates %.2f %%, want at least %.1f", c.list, fgd.value(), c.fgd)
		}
	}
}
