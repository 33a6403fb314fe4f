package srun

import (
	"fmt"
	"strings"

	"github.com/sluice-hpc/sluice/client/msg"
)

// mapping says which ranks share a node, in the format that MPI programs read (PMI_process_mapping): vectors of first node, number
// of nodes, and consecutive ranks per node. It is never empty.
func mapping(nodes []*msg.StepNode) string {
	var of []int // the node of each rank
	for i, n := range nodes {
		for _, rank := range n.GetTasks() {
			for len(of) <= int(rank) {
				of = append(of, 0)
			}
			of[rank] = i
		}
	}
	run := func(at int) (n int) {
		for at+n < len(of) && of[at+n] == of[at] {
			n++
		}
		return n
	}
	var b strings.Builder
	b.WriteString("(vector")
	for at := 0; at < len(of); {
		first, each, count := of[at], run(at), 0
		for at < len(of) && of[at] == first+count && run(at) == each {
			at += each
			count++
		}
		fmt.Fprintf(&b, ",(%d,%d,%d)", first, count, each)
	}
	b.WriteByte(')')
	return b.String()
}
