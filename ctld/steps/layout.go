package steps

import (
	"strconv"
	"strings"
)

// Distribution of tasks over nodes (srun(1), --distribution, its first part).
const (
	block  = "block"
	cyclic = "cyclic"
	plane  = "plane"
)

// method parses --distribution. By default, tasks go to the nodes in blocks when there are more of them than nodes.
func method(text string, nodes, tasks int) (how string, size int) {
	first, _, _ := strings.Cut(strings.ToLower(text), ":")
	first, _, _ = strings.Cut(first, ",")
	if n, ok := strings.CutPrefix(first, plane+"="); ok {
		if size, err := strconv.Atoi(n); err == nil && size > 0 {
			return plane, size
		}
	}
	switch {
	case first == block || first == cyclic:
		return first, 1
	case tasks > nodes:
		return block, 1
	}
	return cyclic, 1
}

// spread returns the number of tasks for each node; together they have room for all of them.
func spread(distribution string, nodes []*node, tasks int) []int {
	counts := make([]int, len(nodes))
	_, size := method(distribution, len(nodes), tasks)
	for left := tasks; left > 0; { // blocks also have equal lengths, as far as there is room
		for i, n := range nodes {
			k := min(left, size, n.fits-counts[i])
			counts[i] += k
			left -= k
		}
	}
	return fill(counts)
}

// fill moves tasks to nodes that planes have not reached, so that no node is unused.
func fill(counts []int) []int {
	for i, k := range counts {
		if k > 0 {
			continue
		}
		for from := len(counts) - 1; from >= 0; from-- {
			if counts[from] > 1 {
				counts[from]--
				counts[i]++
				break
			}
		}
	}
	return counts
}

// rank numbers the tasks.
func (r *request) rank(p *Placement) {
	for i, s := range p.Nodes {
		s.Tasks = make([]uint32, 0, r.counts[i])
	}
	give := func(i int, rank uint32) { p.Nodes[i].Tasks = append(p.Nodes[i].Tasks, rank) }
	if len(r.hosts) > 0 {
		at := map[string]int{}
		for i, s := range p.Nodes {
			at[s.Node] = i
		}
		for rank, h := range r.hosts {
			give(at[h], uint32(rank))
		}
		return
	}
	how, size := method(r.spec.Distribution, len(p.Nodes), int(p.Tasks))
	if how == block {
		rank := uint32(0)
		for i, k := range r.counts {
			for range k {
				give(i, rank)
				rank++
			}
		}
		return
	}
	for rank := uint32(0); rank < p.Tasks; {
		for i := range p.Nodes {
			for k := 0; k < size && len(p.Nodes[i].Tasks) < r.counts[i]; k++ {
				give(i, rank)
				rank++
			}
		}
	}
}
