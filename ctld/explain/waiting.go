package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/ctld/feasible"
	"github.com/sluice-hpc/sluice/ctld/limit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/explain"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Scheduler returns the scheduler's explanation of why a job waits, and the array that it belongs to; ok is false when it does not wait.
type Scheduler func(v *state.View, j *pb.JobRecord) (x *explain.Explanation, array *record.Array, ok bool)

// Waiting explains why a job waits: the reason, what keeps it off the nodes of its partition, when and where it is expected to start, which
// running jobs must end for that, and what smaller request would start at once.
func Waiting(v *state.View, j *pb.JobRecord, why Scheduler) string {
	x, array, ok := why(v, j)
	if !ok {
		return fmt.Sprintf("job %s does not wait\n", state.JobName(j))
	}
	var b strings.Builder
	b.WriteString(x.Text(func(id uint32) string {
		if r := v.Jobs.Get(id); r != nil {
			return typed(r)
		}
		return fmt.Sprint(id)
	}))
	if j.ReasonDetail != "" {
		fmt.Fprintf(&b, "%s\n", j.ReasonDetail)
	}
	for _, line := range slices.Concat(limit.Notes(v, j), waitNotes(v, j, array, x.Reserved),
		feasible.PartitionNotes(v, j), feasible.DeviceNotes(v, j.Spec, true)) {
		fmt.Fprintln(&b, line)
	}
	for _, id := range endsFirst(x.Ways) {
		if r := v.Jobs.Get(id); r != nil {
			end := "without a time limit"
			if r.EndNs != 0 {
				end = "until " + timespec.FormatUTC(r.EndNs) + " at the latest"
			}
			fmt.Fprintf(&b, "  job %s of %s on %s runs %s\n", state.JobName(r), r.Spec.User, r.NodeList, end)
		}
	}
	if x.Start != 0 && x.Start < record.Forever {
		by := "assuming that running jobs and those ahead of it use their whole time limits"
		if x.Start > v.NowNS/1e9+record.UnlimitedS/2 {
			by = "assuming that jobs without a time limit run for a year"
		}
		fmt.Fprintf(&b, "expected start: %s on %s, %s\n", timespec.FormatUTC(x.Start*1e9), hostlist.FoldSorted(x.Where), by)
	}
	return b.String()
}

// endsFirst returns the running jobs of the ways, as many as get a line of their own.
func endsFirst(ways []explain.Way) (ids []uint32) {
	for _, w := range ways {
		ids = append(ids, w.Runs...)
	}
	return ids[:min(len(ids), maxNamed)]
}

// restoredNotes explain what a job waits for that may have run in the time that a restore has taken back.
func restoredNotes(v *state.View) (out []string) {
	nodes := v.Awaited()
	if len(nodes) == 0 {
		return []string{"it was running when the controller's state was restored from a backup: that run is being ended"}
	}
	out = []string{"the controller's state was restored from a backup, so the job may have run already: it waits until all nodes have " +
		"reported their jobs"}
	var silent, forgot []string
	until := int64(0)
	for _, name := range nodes {
		if ns := v.Node(name).UntoldNs; ns == 0 {
			silent = append(silent, name)
		} else {
			forgot, until = append(forgot, name), max(until, ns)
		}
	}
	if len(silent) > 0 {
		out = append(out, fmt.Sprintf("  %d have not: %s; for nodes that will not return, an administrator runs scontrol update "+
			"NodeName=… State=DOWN Reason=…", len(silent), hostlist.Fold(silent)))
	}
	if len(forgot) > 0 {
		list := hostlist.Fold(forgot)
		out = append(out, fmt.Sprintf("  %d have no record of jobs before %s: %s; an administrator cancels the jobs whose output shows "+
			"that they ran (scancel), and lets the others start: scontrol update NodeName=%s State=RESUME Reason=…", len(forgot),
			timespec.FormatUTC(until), list, list))
	}
	return out
}

// waitNotes tell until when a job waits for a time, and what would help a job that waits for an action. array is the scheduler's record of
// the array that j belongs to; nil when it is none.
func waitNotes(v *state.View, j *pb.JobRecord, array *record.Array, reserved []string) (out []string) {
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	name := typed(j)
	switch {
	case j.Priority == 0 && j.HoldAdmin:
		say("held; an administrator can release it: scontrol release %s", name)
	case j.Priority == 0:
		say("held; to release it: scontrol release %s", name)
	}
	if v.Uncertain(j) {
		out = append(out, restoredNotes(v)...)
	}
	if j.Spec.BeginNs > v.NowNS {
		say("begins no earlier than %s", timespec.FormatUTC(j.Spec.BeginNs))
	}
	if array != nil && array.Limit > 0 && array.Active >= array.Limit {
		say("%d tasks of array %d run, of at most %d at a time; scontrol update JobId=%d ArrayTaskThrottle=N sets another limit",
			array.Active, j.ArrayJobId, array.Limit, j.ArrayJobId)
	}
	if j.Dependency != "" {
		say("waits for %s", firstConditions(j.DependencyShown))
		out = append(out, dependencyNotes(v, j)...)
	}
	if j.DependencyNever {
		say("that can no longer happen: scancel %[1]s, or scontrol update JobId=%[1]s Dependency=", name)
	}
	if r := v.Reservation(j.Spec.Reservation); r != nil && r.StartNs > v.NowNS {
		say("its reservation %s begins at %s", r.Name, timespec.FormatUTC(r.StartNs))
	}
	for _, name := range reserved {
		if r := v.Reservation(name); r != nil {
			say("  reservation %s is from %s to %s", r.Name, timespec.FormatUTC(r.StartNs), timespec.FormatUTC(r.EndNs))
		}
	}
	return out
}

// typed returns a job's name for scancel and scontrol, which accept no throttle: 12, 12_3, 12_[4-9].
func typed(j *pb.JobRecord) string {
	if set := state.ArraySet(j); set != nil {
		return fmt.Sprintf("%d_[%s]", j.ArrayJobId, set)
	}
	return state.JobName(j)
}

// firstConditions returns a dependency as squeue shows it, cut to maxNamed conditions: there may be thousands.
func firstConditions(shown string) string {
	end, separators := 0, 0
	for i, c := range shown {
		if c != ',' && c != '?' {
			continue
		}
		if separators++; separators == maxNamed {
			end = i
		}
	}
	if separators < maxNamed {
		return shown
	}
	return fmt.Sprintf("%s and %d more; scontrol show job shows all", shown[:end], separators+1-maxNamed)
}

// dependencyNotes tell how far the jobs are that j waits for: for an array, how many of its tasks have not ended.
func dependencyNotes(v *state.View, j *pb.JobRecord) (out []string) {
	d, err := jobid.ParseDependency(j.Dependency)
	if err != nil {
		return nil // cannot fail: the controller wrote it
	}
	for _, c := range d.Conditions[:min(len(d.Conditions), maxNamed)] {
		if c.Kind == jobid.Singleton {
			out = append(out, fmt.Sprintf("  it starts when no other job of %s named %s is left", j.Spec.User, j.Spec.Name))
			continue
		}
		id := jobid.Job(c.Job)
		if c.HasTask {
			id = jobid.Task(c.Job, c.Task)
		}
		names := &jobid.Names{}
		if names.Add(id) != nil {
			continue
		}
		names.Sort()
		tally, whole, single := state.Tally{}, uint64(0), ""
		for o := range v.Jobs.All() {
			if !state.Named(names, o) {
				continue
			}
			tally.Add(o)
			if all, err := jobid.ParseArray(o.ArraySpec); err == nil && !c.HasTask {
				whole = all.Total()
			} else {
				single = state.StateName(o)
			}
		}
		switch left := tally.Left(); {
		case left > 0 && whole > 0:
			out = append(out, fmt.Sprintf("  array %d: %d of %d tasks have not ended (%s)", c.Job, left, whole, tally))
		case single != "":
			out = append(out, fmt.Sprintf("  job %s is %s", id, single))
		}
	}
	return out
}

// maxNamed bounds the running jobs and conditions named in an explanation.
const maxNamed = 10
