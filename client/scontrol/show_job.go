package scontrol

import (
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/format/doc"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/view"
)

// jobs shows one job, tasks of an array, or all jobs. As in Slurm, number 0 means every job: "0" is all of them, "0_1" the tasks
// with that number in all arrays.
func (s *show) jobs(id string) int {
	needs := format.NeedsOfJobBlock()
	if s.opts.document.Wanted {
		needs = format.NeedsOfJobDocument()
	}
	request := needs.AskJobs(&msg.JobsRequest{AllStates: true})
	want, ok := parseShown(id)
	if !ok {
		return s.complain("scontrol_print_job error: Invalid job id specified")
	}
	if want.Job != 0 {
		request.Ids = view.IDs([]view.Selector{want})
	}
	c, code := s.dial("slurm_load_jobs")
	if c == nil {
		return code
	}
	defer func() { _ = c.Close() }()
	fc := view.Context(s.env, 0)
	var b []byte
	var err error
	records, found := 0, 0
	var out *view.Document
	if s.opts.document.Wanted {
		out = view.NewDocument(s.env, s.opts.document, "jobs")
		fc.Nodes = view.NodesByName(s.ctx, c)
	}
	var made map[uint32][]*msg.StepRecord
	if out == nil && (want.Job != 0 || s.opts.details > 0) {
		if made, err = view.MadeFor(s.ctx, c, request); err != nil {
			return s.failed("slurm_load_jobs", err)
		}
	}
	err = view.EachJob(s.ctx, c, request, fc, func(r *msg.JobRecord) {
		records++
		if !want.Matches(r) {
			return
		}
		r = view.AskedPart([]view.Selector{want}, r)
		if found++; out != nil {
			out.Begin()
			doc.WriteJob(out.Writer, fc, format.Job{JobRecord: r})
			return
		}
		withSteps(r, made[r.GetId()])
		// Do not flush with -v: it prints the number of jobs first, which is known only at the end.
		if b = format.AppendJob(b, fc, r, s.opts.oneLine, s.opts.details); len(b) >= view.FlushBytes && s.opts.verbose == 0 {
			code = max(code, s.out(b))
			b = b[:0]
		}
	})
	p := client.ProblemOf(err)
	unknown := p != nil && p.GetCode() == uint32(msg.CodeInvalidJobID)
	if unknown {
		err = nil
	}
	switch {
	case err != nil && (out == nil || !out.Started()):
		return s.failed("slurm_load_jobs", err)
	case out != nil && (found > 0 || want.Job == 0):
		return out.Finish(err, func() {
			out.Seconds("last_backfill", 0)
			out.Seconds("last_update", fc.Now.UnixNano())
		})
	case unknown, want.Job != 0 && (records == 0 || found == 0 && want.Tasks == nil):
		return s.complain("slurm_load_jobs error: Invalid job id specified")
	}
	s.stamp(fc, records)
	switch {
	case found == 0 && want.Tasks == nil:
		return s.none("No jobs in the system")
	case found == 0:
		return s.missing("Job " + format.Escape(id) + " not found")
	}
	return max(code, s.out(b))
}

// withSteps adds the steps' usage to the job's. If no script has run, or the controller no longer has all steps, the total is
// unknown and not shown, because it would be too low.
func withSteps(r *msg.JobRecord, made []*msg.StepRecord) {
	most, counted := uint32(0), uint32(0)
	for _, s := range made {
		if id := s.GetStepId(); id < msg.CopyStep { // others are not numbered from 0
			most, counted = max(most, id+1), counted+1
		}
	}
	switch {
	case len(made) == 0 && r.GetSpec().GetInteractive(), most > counted:
		r.Usage = nil
	case len(made) > 0:
		r.Usage = acct.Together(r, made)
	}
}

// parseShown reads the id of a job to show; an empty one means all.
func parseShown(id string) (view.Selector, bool) {
	number, task, hasTask := strings.Cut(id, "_")
	if strings.Trim(number, "0") == "" { // no job has this number
		if hasTask {
			n, err := strconv.ParseUint(task, 10, 32)
			return view.Selector{Tasks: map[uint32]bool{uint32(n): true}}, err == nil
		}
		return view.Selector{}, true
	}
	want, ok := view.ParseSelector(id, false)
	known := !hasTask || want.Tasks == nil || task == "" || len(want.Tasks) > 0 // "12_x" names no task
	return want, ok && known && !strings.ContainsAny(id, ", ")
}

func (s *show) steps(id string) int {
	want := view.Selector{}
	request := &msg.JobsRequest{States: []msg.JobState{msg.JobState_JOB_RUNNING, msg.JobState_JOB_SUSPENDED}}
	if strings.Trim(id, "0") != "" {
		var ok bool
		if want, ok = view.ParseSelector(id, true); !ok {
			return s.complain("scontrol_print_step error: Invalid job id specified")
		}
		request = &msg.JobsRequest{AllStates: true, Ids: view.IDs([]view.Selector{want})}
	}
	format.NeedsOfSteps().AskJobs(request)
	c, code := s.dial("slurm_get_job_steps")
	if c == nil {
		return code
	}
	defer func() { _ = c.Close() }()
	known, found := false, 0
	var b []byte
	var out *view.Document
	if s.opts.document.Wanted {
		out = view.NewDocument(s.env, s.opts.document, "steps")
	}
	made, err := view.StepsOf(s.ctx, c, request)
	if err != nil {
		return s.failed("slurm_get_job_steps", err)
	}
	fc := view.Context(s.env, 0)
	// Steps are written as they arrive: a record is valid until the next one.
	err = view.EachJob(s.ctx, c, request, fc, func(r *msg.JobRecord) {
		if !want.Matches(r) {
			return
		}
		known = true
		for _, step := range format.StepsOf(r, made[r.GetId()]) {
			if want.Step != "" && want.Step != step.Number() {
				continue
			}
			if found++; out != nil {
				out.Begin()
				doc.WriteStep(out.Writer, fc, step)
				continue
			}
			b = format.AppendStep(b, fc, step, s.opts.oneLine)
		}
	})
	if p := client.ProblemOf(err); p != nil && p.GetCode() == uint32(msg.CodeInvalidJobID) {
		err = nil
	}
	switch {
	case err != nil && (out == nil || !out.Started()):
		return s.failed("slurm_get_job_steps", err)
	case want.Job != 0 && !known:
		return s.complain("slurm_get_job_steps error: Invalid job id specified")
	case out != nil:
		return out.Finish(err, func() { out.Seconds("last_update", fc.Now.UnixNano()) })
	}
	s.stamp(fc, found)
	switch {
	case found == 0 && want.Job != 0:
		if want.Step == "" {
			id += "."
		}
		return s.missing("Job step " + format.Escape(id) + " not found")
	case found == 0:
		return s.none("No job steps in the system")
	}
	return s.out(b)
}
