package srun

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-hpc/sluice/client/msg"
)

// mapped is the node of each rank, from vectors as MPI programs read them.
func mapped(t rapid.TB, text string) (of []int) {
	t.Helper()
	text, ok := strings.CutPrefix(strings.TrimSuffix(text, ")"), "(vector,")
	if !ok {
		t.Fatalf("%q", text)
	}
	for part := range strings.SplitSeq(strings.Trim(text, "()"), "),(") {
		var first, count, each int
		if _, err := fmt.Sscanf(part, "%d,%d,%d", &first, &count, &each); err != nil {
			t.Fatalf("%q: %v", part, err)
		}
		for node := range count {
			for range each {
				of = append(of, first+node)
			}
		}
	}
	return of
}

// layout has ranks on nodes.
func layout(of []int) (nodes []*msg.StepNode) {
	for rank, node := range of {
		for len(nodes) <= node {
			nodes = append(nodes, &msg.StepNode{})
		}
		nodes[node].Tasks = append(nodes[node].Tasks, uint32(rank))
	}
	return nodes
}

// TestMapping: as Slurm 22.05 says it (srun --mpi=pmi2 -N3 -n7 with -m cyclic, plane=2 and block, on nodes with four CPUs at most).
func TestMapping(t *testing.T) {
	for _, recorded := range []string{"(vector,(0,3,1),(0,2,1),(0,1,1),(0,1,1))", "(vector,(0,2,2),(2,1,1),(0,1,2))",
		"(vector,(0,1,4),(1,1,2),(2,1,1))", "(vector,(0,1,3),(1,1,1))", "(vector,(0,2,1),(0,1,1))"} {
		of := mapped(t, recorded)
		if got := mapping(layout(of)); !slices.Equal(mapped(t, got), of) || len(got) > len(recorded) {
			t.Errorf("%s, and Slurm has %s", got, recorded)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		of := rapid.SliceOfN(rapid.IntRange(0, 5), 1, 40).Draw(t, "nodes")
		if got := mapping(layout(of)); !slices.Equal(mapped(t, got), of) {
			t.Errorf("%s for %v", got, of)
		}
	})
}
