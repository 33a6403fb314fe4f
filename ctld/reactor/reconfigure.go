package reactor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Reconfigure applies a newly read configuration.
type Reconfigure struct {
	Config *state.Config
	DryRun bool // only report whether it would be refused
	Force  bool // apply it even if it breaks running jobs
}

// Handle refuses a configuration that breaks running jobs, and names them. Slurm 22.05 exits when a node is removed, ends the jobs of a
// removed partition, refuses a change of CPUs, and silently accepts less memory or fewer GPUs.
func (c Reconfigure) Handle(tx *state.Tx) any {
	broken, never := c.breaks(tx)
	if len(never) > 0 {
		return pb.NewProblem(pb.CodeNodesBusy, "running jobs hold resources that would be "+
			"removed:\n%s", strings.Join(few(never), "\n")).WithHint(
			"wait for their end or cancel them, then reconfigure")
	}
	if len(broken) > 0 && !c.Force {
		return pb.NewProblem(pb.CodeNodesBusy, "running jobs could not continue unchanged:\n%s", strings.Join(few(broken), "\n")).WithHint(
			"wait for their end or cancel them, then reconfigure; scontrol reconfigure --force does it now")
	}
	if c.DryRun {
		return nil
	}
	stays := map[string]bool{}
	for _, n := range c.Config.Nodes {
		stays[n.Name] = true
	}
	for _, n := range slices.Clone(tx.Nodes()) {
		if stays[n.Name] || n.Dynamic() {
			continue
		}
		for _, id := range slices.Clone(n.Jobs) {
			if j := tx.Job(id); state.AllocOn(j, n.Name) != nil {
				lose(tx, j, n.Name, fmt.Sprintf("node %s was removed from slurm.conf", n.Name))
			}
		}
	}
	tx.Emit(state.Reconfigured{Config: c.Config})
	return nil
}

// maxBroken is the largest number of lines in a refusal.
const maxBroken = 50

func few(lines []string) []string {
	if left := len(lines) - maxBroken; left > 0 {
		lines = append(lines[:maxBroken:maxBroken], fmt.Sprintf("… and %d more", left))
	}
	return lines
}

// breaks describes what running jobs would lose, a line each. never lists changes that cannot be forced: cores that a job has must exist,
// as in Slurm.
func (c Reconfigure) breaks(tx *state.Tx) (lines, never []string) {
	now := make(map[string]*pb.NodeRecord, len(c.Config.Nodes))
	for _, n := range c.Config.Nodes {
		now[n.Name] = n
	}
	dynamic := 0
	for _, n := range tx.Nodes() {
		if n.Dynamic() && now[n.Name] == nil {
			dynamic++
			continue
		}
		if len(n.Jobs) == 0 {
			continue
		}
		if why := lacksCores(n, now[n.Name]); why != "" {
			never = append(never, why+": "+jobNames(tx, n.Jobs))
		}
		for _, why := range c.lacks(tx, n, now[n.Name]) {
			lines = append(lines, why+": "+jobNames(tx, n.Jobs))
		}
	}
	if most := int(c.Config.Settings.MaxNodeCount); dynamic > 0 && len(now)+dynamic > most && tx.Settings().MaxNodeCount > 0 {
		lines = append(lines, fmt.Sprintf("MaxNodeCount would be %d, with %d nodes in slurm.conf and %d dynamic ones", most, len(now),
			dynamic))
	}
	parts := map[string]bool{}
	for _, p := range c.Config.Partitions {
		parts[p.Name] = true
	}
	in := map[string][]uint32{}
	for j := range tx.Jobs().All() {
		if p := tx.Partition(j.Partition); state.Live(j) && !parts[j.Partition] && p != nil && !p.Made {
			in[j.Partition] = append(in[j.Partition], j.Id)
		}
	}
	for _, p := range tx.Partitions() {
		if len(in[p.Name]) > 0 {
			lines = append(lines, fmt.Sprintf("partition %s would be removed: %s", p.Name, jobNames(tx, in[p.Name])))
		}
	}
	return lines, never
}

// lacksCores describes the cores that a node with jobs would lose, "" for none.
func lacksCores(n *state.Node, to *pb.NodeRecord) string {
	switch {
	case to == nil:
	case to.Cpus < n.AllocCpus:
		return fmt.Sprintf("node %s would have %d CPUs, of which %d are allocated", n.Name, to.Cpus, n.AllocCpus)
	case n.Held.InUse().Count() > 0 && (to.Sockets != n.Sockets || to.Cores != n.Cores || to.Threads != n.Threads):
		return fmt.Sprintf("node %s would have other cores (Sockets:Cores:Threads %d:%d:%d, now %d:%d:%d), of which some are allocated",
			n.Name, to.Sockets, to.Cores, to.Threads, n.Sockets, n.Cores, n.Threads)
	}
	return ""
}

// lacks describes what a node with jobs would lose; to is its new configuration.
func (c Reconfigure) lacks(tx *state.Tx, n *state.Node, to *pb.NodeRecord) (out []string) {
	if to == nil {
		return []string{fmt.Sprintf("node %s would be removed", n.Name)}
	}
	if have := to.RealMemoryMib - min(to.MemSpecMib, to.RealMemoryMib); c.Config.Settings.CountMemory && tx.Settings().CountMemory &&
		have < n.AllocMemMib {
		out = append(out, fmt.Sprintf("node %s would have %d MiB of memory for jobs, of which %d are allocated", n.Name, have,
			n.AllocMemMib))
	}
	then := change(n)
	then.Gres, then.GresConf = to.Gres, c.Config.Gres[n.Name]
	then.Sockets, then.Cores, then.Threads, then.Cpus = to.Sockets, to.Cores, to.Threads, to.Cpus
	then.Recount()
	held := map[string]uint64{}
	var names []string
	for _, id := range n.Jobs {
		a := state.AllocOn(tx.Job(id), n.Name)
		for _, d := range a.GetDevices() {
			if d.Count > 0 { // a part of a device
				continue
			}
			if held[d.Name]++; held[d.Name] == 1 {
				names = append(names, d.Name)
			}
		}
	}
	for _, name := range names {
		if have := countOf(then, name); have < held[name] && have < countOf(n, name) {
			out = append(out, fmt.Sprintf("node %s would have %d of gres/%s, of which %d are allocated", n.Name, have, name, held[name]))
		}
	}
	return out
}

// countOf returns the number of a generic resource.
func countOf(n *state.Node, name string) (count uint64) {
	if n.Inv == nil {
		return 0
	}
	for _, k := range n.Inv.Kinds {
		if k.Name == name {
			count += k.Count
		}
	}
	return count
}

// maxNamed is the number of jobs that are listed by name.
const maxNamed = 20

// jobNames names jobs as squeue does.
func jobNames(tx *state.Tx, ids []uint32) string {
	var names []string
	for _, id := range ids[:min(len(ids), maxNamed)] {
		names = append(names, state.JobName(tx.Job(id)))
	}
	word := "job "
	if len(ids) > 1 {
		word = "jobs "
	}
	out := word + strings.Join(names, ", ")
	if left := len(ids) - len(names); left > 0 {
		out += fmt.Sprintf(" and %d more", left)
	}
	return out
}
