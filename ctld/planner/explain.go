package planner

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/feasible"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched"
	"github.com/sluice-hpc/sluice/sched/priority"
)

// Explain says in words why a job waits: the reason, what keeps it off the nodes of its partition, when and where it is expected to
// start, which running jobs must end for that, and what smaller request would start at once.
func (g *Judge) Explain(v *state.View, j *pb.JobRecord) string {
	g.mu.Lock()
	params := g.params
	g.mu.Unlock()
	var m mirror
	m.rebuild(v)
	x, ok := sched.New(params).Explain(m.snapshot(v, v.NowNS/1e9, sched.Cursor{}), j.Id)
	if !ok {
		return fmt.Sprintf("job %d does not wait\n", j.Id)
	}
	var b strings.Builder
	b.WriteString(x.String())
	if j.ReasonDetail != "" {
		fmt.Fprintf(&b, "%s\n", j.ReasonDetail)
	}
	for _, line := range slices.Concat(waitNotes(v, j, x.Reserved), feasible.PartitionNotes(v, j), feasible.DeviceNotes(v, j.Spec, true)) {
		fmt.Fprintln(&b, line)
	}
	for _, id := range x.After[:min(len(x.After), maxNamed)] {
		if r := v.Jobs.Get(id); r != nil {
			end := "without a time limit"
			if r.EndNs != 0 {
				end = "until " + clock(r.EndNs) + " at the latest"
			}
			fmt.Fprintf(&b, "  job %d of %s on %s runs %s\n", id, r.Spec.User, r.NodeList, end)
		}
	}
	if x.Start != 0 && x.Start < sched.Forever {
		by := "assuming that running jobs and those ahead of it use their whole time limits"
		if x.Start > v.NowNS/1e9+sched.UnlimitedS/2 {
			by = "assuming that jobs without a time limit run for a year"
		}
		fmt.Fprintf(&b, "expected start: %s on %s, %s\n", clock(x.Start*1e9), hostlist.FoldSorted(x.Where), by)
	}
	return b.String()
}

// waitNotes say until when a job waits that waits for a moment, and what would help one that waits for somebody to do something.
func waitNotes(v *state.View, j *pb.JobRecord, reserved []string) (out []string) {
	switch {
	case j.Priority == 0 && j.HoldAdmin:
		out = append(out, fmt.Sprintf("held; scontrol release %sreleases it, and only an administrator may do that", typed(j)))
	case j.Priority == 0:
		out = append(out, fmt.Sprintf("held; scontrol release %s releases it", typed(j)))
	}
	if j.Spec.BeginNs > v.NowNS {
		out = append(out, "begins no earlier than "+clock(j.Spec.BeginNs))
	}
	if j.Dependency != "" {
		out = append(out, "waits for "+j.DependencyShown)
	}
	if j.DependencyNever {
		out = append(out, fmt.Sprintf("that can no longer happen: scancel %[1]s, or scontrol update JobId=%[1]s Dependency=", typed(j)))
	}
	if r := v.Reservation(j.Spec.Reservation); r != nil && r.StartNs > v.NowNS {
		out = append(out, fmt.Sprintf("its reservation %s begins at %s", r.Name, clock(r.StartNs)))
	}
	for _, name := range reserved {
		if r := v.Reservation(name); r != nil {
			out = append(out, fmt.Sprintf("  reservation %s is from %s to %s", r.Name, clock(r.StartNs), clock(r.EndNs)))
		}
	}
	return out
}

// typed is how a job is named to scancel and scontrol: 12, 12_3, 12_[4-9].
func typed(j *pb.JobRecord) string {
	switch tasks := state.ArraySet(j).String(); {
	case j.ArrayTasks != "" && strings.ContainsAny(tasks, ",-"):
		return fmt.Sprintf("%d_[%s]", j.ArrayJobId, tasks)
	case j.ArrayTasks != "":
		return fmt.Sprintf("%d_%s", j.ArrayJobId, tasks)
	case j.IsArrayTask:
		return fmt.Sprintf("%d_%d", j.ArrayJobId, j.ArrayTaskId)
	}
	return fmt.Sprint(j.Id)
}

func clock(ns int64) string { return time.Unix(0, ns).Format("2006-01-02T15:04:05") }

// maxNamed bounds how many running jobs an explanation names.
const maxNamed = 10

// Priorities are the terms of the priorities of waiting jobs, each in the partition of the same index (sprio).
func (g *Judge) Priorities(v *state.View, jobs []*pb.JobRecord, partitions []string) (parts []priority.Parts, weights sched.Weights) {
	g.mu.Lock()
	params := g.params
	g.mu.Unlock()
	var m mirror
	m.rebuildNodes(v)
	list := make([]*sched.Job, len(jobs))
	for i, j := range jobs {
		list[i] = pendingJob(v, j, nil)
		list[i].Partitions = partitions[i : i+1]
	}
	return sched.Priorities(&params, m.snapshot(v, v.NowNS/1e9, sched.Cursor{}), list), params.Weights
}
