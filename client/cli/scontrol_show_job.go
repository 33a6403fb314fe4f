package cli

import (
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/format"
	pb "github.com/sluice-hpc/sluice/client/msg"
)

func (s *show) jobs(id string) int {
	needs := format.NeedsOfJobBlock()
	if s.opts.document.wanted {
		needs = format.NeedsOfJobDocument()
	}
	request := needs.AskJobs(&pb.JobsRequest{AllStates: true})
	var want jobSelector
	if id != "" {
		var ok bool
		if want, ok = parseSelector(id, false); !ok || strings.ContainsAny(id, ", ") {
			return s.complain("scontrol_print_job error: Invalid job id specified")
		}
		request.Ids = plainIDs([]jobSelector{want})
	}
	c, code := s.dial("slurm_load_jobs")
	if c == nil {
		return code
	}
	defer func() { _ = c.Close() }()
	fc := s.env.formatContext(0)
	var b []byte
	found := 0
	var doc *document
	if s.opts.document.wanted {
		doc = s.env.newDocument(s.opts.document, "jobs")
		fc.Nodes = nodesByName(s.ctx, c)
	}
	err := eachJob(s.ctx, c, request, fc, func(r *pb.JobRecord) {
		if id != "" && !want.matches(r) {
			return
		}
		if id != "" {
			r = (&squeueOptions{haveJobs: true, jobs: []jobSelector{want}}).askedPart(r)
		}
		if found++; doc != nil {
			doc.begin()
			format.WriteJob(doc.Writer, fc, format.Job{JobRecord: r})
			return
		}
		if b = format.AppendJob(b, fc, r, s.opts.oneLine, s.opts.details); len(b) >= flushBytes {
			code = max(code, s.out(b))
			b = b[:0]
		}
	})
	if p := client.ProblemOf(err); p != nil && p.GetCode() == uint32(pb.CodeInvalidJobID) {
		err = nil
	}
	switch {
	case err != nil && (doc == nil || !doc.Started()):
		return s.failed("slurm_load_jobs", err)
	case doc != nil && (found > 0 || id == ""):
		return doc.finish(err, func() {
			doc.Seconds("last_backfill", 0)
			doc.Seconds("last_update", fc.Now.UnixNano())
		})
	case found == 0 && id == "":
		return s.none("No jobs in the system")
	case found == 0 && want.tasks != nil:
		return s.missing("Job " + format.Escape(id) + " not found")
	case found == 0:
		return s.complain("slurm_load_jobs error: Invalid job id specified")
	}
	return max(code, s.out(b))
}

func (s *show) steps(id string) int {
	var want jobSelector
	request := &pb.JobsRequest{States: []pb.JobState{pb.JobState_JOB_RUNNING, pb.JobState_JOB_SUSPENDED}}
	if id != "" {
		var ok bool
		if want, ok = parseSelector(id, true); !ok {
			return s.complain("scontrol_print_step error: Invalid job id specified")
		}
		request = &pb.JobsRequest{AllStates: true, Ids: plainIDs([]jobSelector{want})}
	}
	format.NeedsOfSteps().AskJobs(request)
	c, code := s.dial("slurm_get_job_steps")
	if c == nil {
		return code
	}
	defer func() { _ = c.Close() }()
	known := false
	var rows []format.Step
	fc := s.env.formatContext(0)
	err := eachJob(s.ctx, c, request, fc, func(r *pb.JobRecord) {
		if id != "" && !want.matches(r) {
			return
		}
		known = true
		for _, step := range format.StepsOf(r) {
			if want.step == "" || want.step == step.Name() {
				rows = append(rows, step)
			}
		}
	})
	if p := client.ProblemOf(err); p != nil && p.GetCode() == uint32(pb.CodeInvalidJobID) {
		err = nil
	}
	switch {
	case err != nil:
		return s.failed("slurm_get_job_steps", err)
	case id != "" && !known:
		return s.complain("slurm_get_job_steps error: Invalid job id specified")
	case s.opts.document.wanted:
		doc := s.env.newDocument(s.opts.document, "steps")
		doc.begin()
		for _, step := range rows {
			format.WriteStep(doc.Writer, fc, step)
		}
		return doc.finish(nil, func() { doc.Seconds("last_update", fc.Now.UnixNano()) })
	case len(rows) == 0 && id != "":
		return s.missing("Job step " + format.Escape(id) + " not found")
	case len(rows) == 0:
		return s.none("No job steps in the system")
	}
	var b []byte
	for _, step := range rows {
		b = format.AppendStep(b, fc, step, s.opts.oneLine)
	}
	return s.out(b)
}
