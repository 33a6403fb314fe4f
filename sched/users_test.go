package sched

import (
	"fmt"
	"github.com/sluice-hpc/sluice/sched/placement"
	"github.com/sluice-hpc/sluice/sched/record"
	"slices"
	"strings"
	"testing"
)

// aloneIn: a job takes its nodes for its user alone (sbatch(1), --exclusive=user; slurm.conf(5), ExclusiveUser).
func aloneIn(in *record.Snapshot, partition string, j *record.Job) bool {
	return j.Request.ExclusiveUser ||
		slices.ContainsFunc(in.Partitions, func(p *record.Partition) bool { return p.Name == partition && p.ExclusiveUser })
}

// checkUsers: no node has jobs of two users where one of them is there for its user alone.
func checkUsers(t testingT, in *record.Snapshot, p *record.Plan) {
	t.Helper()
	users, alone := map[string][]string{}, map[string]bool{}
	see := func(j *record.Job, partition string, allocs []record.Alloc) {
		for _, a := range allocs {
			users[a.Node] = append(users[a.Node], j.User)
			alone[a.Node] = alone[a.Node] || aloneIn(in, partition, j)
		}
	}
	for _, r := range in.Running {
		see(r.Job, r.Partition, r.Allocs)
	}
	for i := range p.Start {
		see(p.Start[i].Job, p.Start[i].Partition, p.Start[i].Allocs)
	}
	for node, list := range users {
		if slices.Sort(list); alone[node] && list[0] != list[len(list)-1] {
			t.Fatalf("node %s has jobs of %v, one of them for its user alone\n%s", node, list, showPlan(p))
		}
	}
}

// TestExclusiveUser: a partition with ExclusiveUser has its nodes to one user at a time, against jobs of other partitions as well.
func TestExclusiveUser(t *testing.T) {
	w := newWorld(t, record.Params{}, 2, 4)
	open := &record.Partition{Name: "open", Nodes: w.in.Partitions[0].Nodes}
	w.in.Partitions[0].ExclusiveUser = true
	w.in.Partitions = append(w.in.Partitions, open)
	add := func(id uint32, user, partition string, limit int64) {
		j := w.add(id, limit, record.Request{Tasks: 1, MemSaid: true, MemNodeMiB: 10})
		j.User, j.Partitions = user, []string{partition}
	}
	where := func() map[string][]string {
		got := map[string][]string{}
		for _, r := range w.in.Running {
			for _, a := range r.Allocs {
				got[a.Node] = append(got[a.Node], fmt.Sprint(r.ID))
			}
		}
		for _, list := range got {
			slices.Sort(list)
		}
		return got
	}
	add(1, "ann", "p", 100)
	add(2, "ann", "p", 100)
	add(3, "bob", "p", 100)
	add(4, "eve", "p", 100)    // both nodes are somebody's
	add(5, "eve", "open", 100) // and hers are not among them
	add(6, "bob", "open", 100) // his own jobs of other partitions may run beside
	w.plan()
	w.plan()
	if got, want := fmt.Sprint(where()), "map[n1:[1 2] n2:[3 6]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	w.end(1)
	w.end(2)
	w.plan()
	if got, want := fmt.Sprint(where()), "map[n1:[4 5] n2:[3 6]]"; got != want {
		t.Errorf("when ann's have ended: %s, want %s", got, want)
	}
}

// TestRefusedUsers: no job is placed on a node that refuses its user's jobs, and one that no other node can hold is told so.
func TestRefusedUsers(t *testing.T) {
	w := newWorld(t, record.Params{}, 3, 8)
	w.in.Nodes[0].RefusesRoot, w.in.Nodes[0].RefusesBelow = true, 1000
	w.in.Nodes[1].RefusesRoot = true
	one := record.Request{Tasks: 8, MinNodes: 1, MaxNodes: 1}
	root, system := one, one
	root.LowUID, system.LowUID = 1, 34
	w.add(1, 50, root)
	w.add(2, 50, system)
	w.add(3, 50, root)
	w.add(4, 50, one)
	if got, want := w.plan(), "start 1 n3:8; start 2 n2:8; start 4 n1:8; reserve 3 at 50 on n3; 3: Resources"; got != want {
		t.Errorf("%s\nwant: %s", got, want)
	}
	w.end(1)
	w.in.Nodes = slices.Clone(w.in.Nodes)
	n3 := *w.in.Nodes[2] // its administrator has changed node.conf
	n3.RefusesRoot = true
	w.in.Nodes[2] = &n3
	w.plan()
	const refused = "jobs of root are refused by n[1-3] (AllowRootJobs in node.conf)"
	in := w.in
	x, _ := w.s.Explain(&in, 3)
	if got := x.String(); !strings.HasPrefix(got, "reason: BadConstraints, "+refused+"\n3 nodes: jobs of root refused\n") {
		t.Errorf("explained: %s", got)
	}
	if n, why := placement.NewAdmitter(&record.Params{}, &in).Admit(&record.Job{Request: &root,
		Partitions: []string{"p"}}); n != 0 || why != refused {
		t.Errorf("admitted on %d nodes: %s", n, why)
	}
	named := system
	named.NodeList = []string{"n1"}
	if _, why := placement.NewAdmitter(&record.Params{}, &in).Admit(&record.Job{Request: &named, Partitions: []string{"p"}}); why !=
		"jobs of uid 33 are refused by n1 (MinimumUID in node.conf)" {
		t.Errorf("-w n1: %s", why)
	}
	for node, want := range map[string]string{"n1": "jobs of uid 65534 are refused by n1 (MinimumUID in node.conf)", "n2": ""} {
		named.LowUID, named.NodeList = 65535, []string{node}
		if _, why := placement.NewAdmitter(&record.Params{}, &in).Admit(&record.Job{Request: &named,
			Partitions: []string{"p"}}); why != want {
			t.Errorf("nobody's with -w %s: %s", node, why)
		}
	}
}
