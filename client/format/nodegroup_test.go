package format

import (
	"fmt"
	"testing"

	"github.com/sluice-hpc/sluice/client/msg"
)

// folded are the rows of letters: names and how many nodes, idle and in all.
func folded(t *testing.T, letters string, parts []*msg.PartitionRecord, nodes []*msg.NodeRecord) (rows []string) {
	t.Helper()
	layout, unknown := Nodes().ParseLetters(letters)
	if unknown != nil {
		t.Fatal(unknown)
	}
	for _, g := range FoldNodes(&Context{}, layout, parts, PartitionNodes(parts, nodes), FoldOptions{}) {
		rows = append(rows, fmt.Sprintf("%s %s %d/%d cpus %d", g.Partition.GetName(), g.names(), g.Idle, len(g.Nodes), g.CpusTotal))
	}
	return rows
}

// TestNodesAreFoldedOnce: a row counts a node once, however many of the row's partitions have it, and however often the node names one.
func TestNodesAreFoldedOnce(t *testing.T) {
	parts := []*msg.PartitionRecord{{Name: "a", TotalNodes: 2}, {Name: "b", TotalNodes: 3}, {Name: "c", TotalNodes: 1}, {Name: "d"}}
	node := func(name string, in ...string) *msg.NodeRecord {
		return &msg.NodeRecord{Name: name, Cpus: 4, State: msg.NodeState_NODE_IDLE, Partitions: in}
	}
	nodes := []*msg.NodeRecord{node("n1", "a", "b"), node("n2", "a", "a", "b", "a"), node("n3", "b", "c", "c"), node("n4", "none")}
	for letters, want := range map[string][]string{
		"%t %D":    {"a n[1-3] 3/3 cpus 12"},
		"%P %t %D": {"a n[1-2] 2/2 cpus 8", "b n[1-3] 3/3 cpus 12", "c n3 1/1 cpus 4"},
	} {
		if got := folded(t, letters, parts, nodes); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %q, want %q", letters, got, want)
		}
	}
}

// BenchmarkFold is what sinfo does with ten thousand nodes of two partitions.
func BenchmarkFold(b *testing.B) {
	parts := []*msg.PartitionRecord{{Name: "a", TotalNodes: 10000}, {Name: "b", TotalNodes: 10000}}
	var nodes []*msg.NodeRecord
	for i := range 10000 {
		nodes = append(nodes, &msg.NodeRecord{Name: fmt.Sprintf("n%d", i), Cpus: 4, State: msg.NodeState_NODE_IDLE,
			Partitions: []string{"a", "b"}})
	}
	layout, _ := Nodes().ParseLetters("%9P %.5a %.10l %.6D %.6t %N")
	b.ReportAllocs()
	for b.Loop() {
		if rows := FoldNodes(&Context{}, layout, parts, PartitionNodes(parts, nodes), FoldOptions{}); len(rows) != 2 {
			b.Fatal(len(rows))
		}
	}
}
