package sched

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/sched/explain"
	"github.com/sluice-hpc/sluice/sched/record"
	"pgregory.net/rapid"
)

// TestExplainIsTrue: in random clusters, a job changed as its explanation says starts, and a job changed by less does not.
func TestExplainIsTrue(t *testing.T) {
	ways, smaller := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := randomWorld(t)
		for _, r := range w.in.Reservations { // in minutes: users take seconds to type
			r.Start, r.End = inMinutes(r.Start), inMinutes(r.End)
			for i, span := range r.Again {
				r.Again[i] = record.Span{Start: inMinutes(span.Start), End: inMinutes(span.End)}
			}
		}
		id := uint32(0)
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			for range rapid.IntRange(1, 6).Draw(t, "submit") {
				id++
				j := w.randomJob(t, id)
				j.LimitS, j.PredictedS, j.Array = 60*j.LimitS, 60*j.PredictedS, nil
			}
			w.plan()
			w.in.Now += 60 * rapid.Int64Range(0, 2).Draw(t, "pass")
			w.endSome(t)
		}
		w.plan()
		for _, j := range w.in.Pending[:min(3, len(w.in.Pending))] {
			in := w.in
			x, ok := New(w.s.params).Explain(&in, j.ID)
			if !ok {
				t.Fatalf("job %d is not explained", j.ID)
			}
			e := &explained{t, w, j, x}
			e.checkWays()
			e.checkSmaller()
			ways, smaller = ways+len(x.Ways), smaller+len(x.Smaller)
		}
	})
	if ways < 10 || smaller < 10 {
		t.Errorf("%d ways and %d smaller requests were tried: too few", ways, smaller)
	}
}

func inMinutes(at int64) int64 { return 1000 + 60*(at-1000) }

// explained is the explanation of a job of a world.
type explained struct {
	t *rapid.T
	w *world
	j *record.Job
	x *explain.Explanation
}

// without reports whether the job starts when some jobs have ended or been cancelled.
func (e *explained) without(runs, waiting []uint32) bool {
	in := e.w.in
	in.Running = slices.DeleteFunc(slices.Clone(in.Running), func(r *record.Run) bool { return slices.Contains(runs, r.ID) })
	in.Pending = slices.DeleteFunc(slices.Clone(in.Pending), func(j *record.Job) bool { return slices.Contains(waiting, j.ID) })
	return slices.ContainsFunc(New(e.w.s.params).Plan(&in).Start, func(st record.Start) bool { return st.Job == e.j })
}

func (e *explained) checkWays() {
	for _, way := range e.x.Ways {
		if e.without(nil, nil) {
			e.t.Fatalf("job %d starts anyway:\n%s", e.j.ID, e.x)
		}
		if way.Any {
			for _, id := range way.Runs {
				if !e.without([]uint32{id}, nil) {
					e.t.Fatalf("job %d does not start when job %d has ended:\n%s", e.j.ID, id, e.x)
				}
			}
			for _, id := range way.Waiting {
				if !e.without(nil, []uint32{id}) {
					e.t.Fatalf("job %d does not start when job %d is cancelled:\n%s", e.j.ID, id, e.x)
				}
			}
			continue
		}
		if !e.without(way.Runs, way.Waiting) {
			e.t.Fatalf("job %d does not start without %+v:\n%s", e.j.ID, way, e.x)
		}
		for i, id := range way.Runs {
			if e.without(slices.Delete(slices.Clone(way.Runs), i, i+1), way.Waiting) {
				e.t.Fatalf("job %d need not end for job %d:\n%s", id, e.j.ID, e.x)
			}
		}
		for i, id := range way.Waiting {
			if e.without(way.Runs, slices.Delete(slices.Clone(way.Waiting), i, i+1)) {
				e.t.Fatalf("job %d need not be cancelled for job %d:\n%s", id, e.j.ID, e.x)
			}
		}
	}
}

// submitted reports whether a job with changed options starts if it is submitted afterS seconds from now.
func (e *explained) submitted(options []string, instead bool, afterS int64) bool {
	in, rec, req := e.w.in, *e.j, *e.j.Request
	in.Now += afterS
	rec.ID, rec.Submit, rec.Eligible, rec.Begin, rec.Priority, rec.Promised, rec.Request = 999, in.Now, 0, 0, 0, false, &req
	for _, option := range options {
		setOption(e.t, &rec, &req, option)
	}
	in.Pending = append(slices.Clone(in.Pending), &rec)
	if instead {
		in.Pending = slices.DeleteFunc(in.Pending, func(j *record.Job) bool { return j == e.j })
	}
	return slices.ContainsFunc(New(e.w.s.params).Plan(&in).Start, func(st record.Start) bool { return st.Job == &rec })
}

// always reports whether it starts whenever it is submitted within a minute.
func (e *explained) always(options []string, instead bool) bool {
	return e.submitted(options, instead, 0) && e.submitted(options, instead, 60)
}

func (e *explained) checkSmaller() {
	for _, text := range e.x.Smaller {
		what, where, _ := strings.Cut(text, ", ")
		verb, list, _ := strings.Cut(what, " ")
		options, instead := strings.Fields(list), where == "in place of this job"
		if verb == "without" {
			options = []string{strings.Replace(list, "--", "--no-", 1)}
		}
		if !e.always(options, instead) {
			e.t.Fatalf("job %d does not start %s:\n%s", e.j.ID, text, e.x)
		}
		if e.always(nil, instead) {
			e.t.Fatalf("job %d need not be changed:\n%s", e.j.ID, e.x)
		}
		for i, option := range options {
			if i > 0 && strings.HasPrefix(options[i-1], "--nodes=") {
				continue // tasks go with nodes
			}
			if more := raised(e.t, e.j, option); more != "" {
				if less := slices.Replace(slices.Clone(options), i, i+1, more); e.always(less, instead) {
					e.t.Fatalf("job %d starts with %s as well:\n%s", e.j.ID, less, e.x)
				}
			}
		}
	}
}

// setOption does to a job what an option of sbatch would.
func setOption(t *rapid.T, j *record.Job, r *record.Request, option string) {
	name, value, _ := strings.Cut(strings.TrimPrefix(option, "--"), "=")
	n, _ := strconv.Atoi(strings.TrimSuffix(value, "M"))
	switch name {
	case "time":
		j.LimitS, j.TimeMinS = seconds(t, value), 0
	case "nodes":
		r.NodeCounts, r.MinNodes, r.MaxNodes = nil, n, n
	case "ntasks":
		r.Tasks = n
	case "ntasks-per-node":
		r.TasksPerNode = n
	case "cpus-per-task":
		r.CPUsPerTask = n
	case "mem":
		r.MemNodeMiB = int64(n)
	case "gres", "gpus", "gpus-per-task":
		r.Gres = slices.Clone(r.Gres)
		r.Gres[0].Count = int64(numberOf(t, value))
	case "no-exclusive":
		r.Exclusive = false
	case "no-switches":
		r.Switches = 0
	case "no-constraint":
		r.Features = ""
	case "no-nodelist":
		r.NodeList = nil
	case "no-exclude":
		r.Exclude = nil
	case "no-licenses":
		r.Licenses = nil
	default:
		t.Fatalf("not an option: %s", option)
	}
}

func seconds(t *rapid.T, value string) int64 {
	d, err := timespec.ParseSeconds(value)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return d
}

// numberOf is the number at the end of an option: 3 of "gpu:a100:3".
func numberOf(t *rapid.T, value string) int {
	n, err := strconv.Atoi(value[strings.LastIndex(value, ":")+1:])
	if err != nil {
		t.Fatalf("%v", err)
	}
	return n
}

// raised is an option that asks for one more, "" where that would be what the job asks for anyway.
func raised(t *rapid.T, j *record.Job, option string) string {
	name, value, _ := strings.Cut(option, "=")
	switch name {
	case "--time":
		if s := seconds(t, value) + 60; s < j.LimitS {
			return name + "=" + timespec.Clock(s)
		}
	case "--ntasks", "--cpus-per-task", "--ntasks-per-node":
		n := numberOf(t, value) + 1
		have := map[string]int{"--ntasks": j.Request.Tasks, "--cpus-per-task": j.Request.CPUsPerTask,
			"--ntasks-per-node": j.Request.TasksPerNode}[name]
		if n < have {
			return fmt.Sprintf("%s=%d", name, n)
		}
	case "--gres", "--gpus", "--gpus-per-task":
		if n := numberOf(t, value) + 1; int64(n) < j.Request.Gres[0].Count {
			return fmt.Sprintf("%s=%s%d", name, value[:strings.LastIndex(value, ":")+1], n)
		}
	}
	return ""
}
