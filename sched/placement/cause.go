package placement

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/sched/index"
	"github.com/sluice-hpc/sluice/sched/node"
	"github.com/sluice-hpc/sluice/sched/record"
)

// cause names what keeps a request out of a partition, apart from its size: missing nodes (-w), excluded nodes (-x), or a generic resource
// that only other partitions have; "" otherwise.
func (a *Admitter) cause(req *record.Request, part *index.Partition, sh *Shape, where string) string {
	pool := sh.pool()
	if names := a.among(req.NodeList, pool, false); len(names) > 0 {
		others := a.others("them", func(p *index.Partition) bool { return len(a.among(names, p.Nodes, false)) == 0 })
		return fmt.Sprintf("-w names %s, not in %s%s", hostlist.Fold(names), where, others)
	}
	for i := range req.Gres {
		g := &req.Gres[i]
		if a.has(pool, g) {
			continue
		}
		if others := a.others("it", func(p *index.Partition) bool { return a.has(p.Nodes, g) }); others != "" {
			return fmt.Sprintf("no node of %s has %s%s", where, gresName(g.Name, g.Type), others)
		}
	}
	out := a.among(req.Exclude, pool, true)
	if len(out) == 0 {
		return ""
	}
	if len(out) == len(pool) {
		return "-x excludes every node of " + where
	}
	all := *req
	all.Exclude = nil
	if n, _ := a.inPartition(&all, part); n == 0 {
		return ""
	}
	return fmt.Sprintf("the job needs %s of %s, which -x excludes", hostlist.Fold(out), where)
}

// among returns those of the names that are in a list of nodes (are), or that are not.
func (a *Admitter) among(names []string, nodes []int32, are bool) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return (len(index.Intersect(a.ix.NodeList([]string{name}), nodes)) > 0) != are
	})
}

// others names the partitions that have the requested thing, at most five: "; partition gpu has it".
func (a *Admitter) others(what string, have func(*index.Partition) bool) string {
	var names []string
	for _, p := range a.ix.Parts {
		if have(p) {
			names = append(names, p.Rec.Name)
		}
	}
	switch n := len(names); {
	case n == 0:
		return ""
	case n == 1:
		return fmt.Sprintf("; partition %s has %s", names[0], what)
	case n > 5:
		names = append(names[:5], fmt.Sprintf("%d more", n-5))
	}
	return fmt.Sprintf("; partitions %s have %s", strings.Join(names, ", "), what)
}

// has reports whether some node has a generic resource, whole, in shares or as instances that can be cut.
func (a *Admitter) has(nodes []int32, want *record.GresRequest) bool {
	return slices.ContainsFunc(nodes, func(i int32) bool {
		return slices.ContainsFunc(a.ix.Nodes.Vals[i].Config.Groups, func(g node.Group) bool {
			if g.Name != want.Name && g.Shared != want.Name {
				return false
			}
			return node.IsType(g.Type, want.Type) || slices.ContainsFunc(g.Profiles,
				func(p record.MigProfile) bool { return node.IsType(g.CutType(&p), want.Type) })
		})
	})
}
