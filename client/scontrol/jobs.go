package scontrol

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/conf/timespec"
)

// jobVerb returns the command for a verb of ControlJobs. Each word is a list of jobs, "jobname=NAME", or an option of the verb.
func jobVerb(verb, failure string) func(c *control, args []string) int {
	return func(c *control, args []string) int {
		exit := 0
		req := &msg.ControlJobsRequest{Verb: verb}
		for _, word := range args {
			key, value, given := strings.Cut(word, "=")
			switch {
			case strings.EqualFold(word, "incomplete"):
				req.Incomplete = true
				continue
			case given && strings.EqualFold(key, "state") && strings.EqualFold(value, "SpecialExit"):
				req.State = value
				continue
			case given && (strings.EqualFold(key, "jobname") || strings.EqualFold(key, "name")):
				req.Ids, req.Names = nil, []string{value}
			default:
				req.Names = nil
				var bad string
				if req.Ids, bad = jobIDs(word); bad == "" && slices.ContainsFunc(req.Ids, isStep) && verb != "notify" {
					bad = word
				}
				if bad != "" {
					exit = c.jobFailed(bad, msg.NewProblem(msg.CodeInvalidJobID, ""), failure)
					continue
				}
			}
			if code := c.controlJobs(req, failure); code != 0 {
				exit = code
			}
		}
		return exit
	}
}

func isStep(id string) bool { return strings.Contains(id, ".") }

// jobIDs splits a list of jobs; bad is the first element that is not a job id.
func jobIDs(list string) (ids []string, bad string) {
	parsed, err := jobid.ParseList(list)
	if err != nil || len(parsed) == 0 {
		return nil, list
	}
	for _, id := range parsed {
		if id.Job == 0 {
			return nil, list
		}
		ids = append(ids, id.String())
	}
	return ids, ""
}

// jobFailure returns Slurm's lines about one job.
func jobFailure(id string, p *msg.Problem, failure string) []string {
	lines := []string{p.GetPhrase() + " for job " + id}
	if failure != "" {
		lines = append(lines, failure+": "+p.GetPhrase())
	}
	return lines
}

func (c *control) jobFailed(id string, p *msg.Problem, failure string) int {
	lines := jobFailure(id, p, failure)
	if d := command.Diagnosis(p); d != "" {
		lines = append(lines, d)
	}
	return c.fail(lines...)
}

func (c *control) controlJobs(req *msg.ControlJobsRequest, failure string) int {
	list, err := c.control(req)
	if err != nil {
		return c.callFailed(cmp.Or(failure, "slurm_"+req.GetVerb()+" error"), err)
	}
	return c.outcomes(list, req.GetIds(), failure)
}

func (c *control) control(req *msg.ControlJobsRequest) ([]*msg.JobOutcome, error) {
	conn, err := c.dial()
	if err != nil {
		return nil, err
	}
	reply, err := conn.ControlJobs(context.Background(), req)
	return reply.GetOutcomes(), err
}

// outcomes prints the errors of a call; failure, if set, is printed once more after them, as hold and release do. typed are the ids
// as requested: the controller answers for parts of an array if some of them fail.
func (c *control) outcomes(list []*msg.JobOutcome, typed []string, failure string) int {
	exit := 0
	refused := map[string]bool{} // arrays of which some records failed
	for _, o := range list {
		if array, _, ok := strings.Cut(o.GetId(), "_"); ok && o.GetProblem() != nil {
			refused[array] = true
		}
	}
	var why []string // remedies, after all of Slurm's lines
	explain := func(p *msg.Problem) {
		if d := command.Diagnosis(p); d != "" && !slices.Contains(why, d) {
			why = append(why, d)
		}
	}
	for i, o := range list {
		p := o.GetProblem()
		if array, _, ok := strings.Cut(o.GetId(), "_"); ok {
			if refused[array] && !(p == nil && slices.Contains(typed, o.GetId())) {
				exit = max(exit, c.taskOutcome(o.GetId(), p))
				explain(p)
			}
			continue
		}
		if p == nil {
			continue
		}
		last := i == len(list)-1
		after := ""
		if last {
			after = failure
		}
		exit = c.fail(jobFailure(o.GetId(), p, after)...)
		explain(p)
		if rest := list[i+1:]; failure != "" && !last && !slices.ContainsFunc(rest,
			func(o *msg.JobOutcome) bool { return o.GetProblem() != nil }) {
			c.fail(failure + ": No error") // a real scontrol's message about the last one
		}
	}
	c.fail(why...)
	return exit
}

// taskOutcome prints the outcome for some tasks of an array, as a real scontrol does if any of them failed.
func (c *control) taskOutcome(id string, p *msg.Problem) int {
	if p == nil {
		c.fail(id + ": No error")
		return 0
	}
	return c.fail(id + ": " + p.GetPhrase())
}

// write runs "write batch_script JOB [FILE|-]".
func (c *control) write(args []string) int {
	if len(args[0]) < 5 || !strings.HasPrefix("batch_script", strings.ToLower(args[0])) {
		if strings.EqualFold(args[0], "config") {
			return c.writeConfig(args[1:])
		}
		return c.fail("invalid write argument:" + args[0])
	}
	if len(args) < 2 {
		return c.fail("too few arguments for keyword:write", "expected write batch_script JOB [FILE]; FILE - is standard output")
	}
	exit := 0
	ids, bad := jobIDs(args[1])
	if bad != "" {
		return c.fail("job script retrieval failed: " + msg.NewProblem(msg.CodeInvalidJobID, "").GetPhrase())
	}
	for _, id := range ids {
		file := "slurm-" + id + ".sh"
		if len(args) == 3 {
			file = args[2]
		}
		if code := c.writeScript(id, file); code != 0 {
			exit = code
		}
	}
	return exit
}

func (c *control) writeScript(id, file string) int {
	job, _ := jobid.Parse(id)
	conn, err := c.dial()
	var script []byte
	if err == nil {
		script, err = conn.Script(context.Background(), job.Job)
	}
	if err != nil {
		return c.callFailed("job script retrieval failed", err)
	}
	if file == "-" {
		_, err = c.env.Stdout.Write(script)
	} else {
		err = os.WriteFile(file, script, 0o700)
	}
	if err != nil {
		return c.fail(fmt.Sprintf("failed to open file `%s`: %s", file, command.SystemText(err)))
	}
	if file != "-" && !c.opts.quiet {
		fmt.Fprintf(c.env.Stdout, "batch script for job %s written to %s\n", id, file)
	}
	return 0
}

// waitPause is the polling interval of wait_job.
const waitPause = 500 * time.Millisecond

// waitJob returns when a running job's nodes are ready (exit 0), or at once if the job is not running (exit 1), which as in Slurm
// includes jobs that have not started.
func (c *control) waitJob(args []string) int {
	id, err := strconv.ParseUint(args[0], 10, 32)
	if err != nil || id == 0 {
		return c.fail("Invalid job_id " + args[0])
	}
	for {
		jobs, err := c.listJobs(&msg.JobsRequest{Ids: []string{args[0]}, AllStates: true})
		switch {
		case client.ProblemOf(err).GetCode() == uint32(msg.CodeInvalidJobID), err == nil && len(jobs) == 0:
			return c.fail("scontrol: Problem running job " + args[0])
		case err != nil:
			return c.callFailed("scontrol: wait_job", err)
		case jobs[0].GetState() != msg.JobState_JOB_RUNNING && jobs[0].GetState() != msg.JobState_JOB_SUSPENDED:
			return c.fail(fmt.Sprintf("scontrol: Job %d no longer running", id))
		case jobs[0].GetStateFlags()&msg.JobConfiguring == 0:
			c.warn(fmt.Sprintf("Nodes are ready for job %d", id))
			return 0
		}
		c.env.Sleep(waitPause)
	}
}

func (c *control) listJobs(req *msg.JobsRequest) ([]*msg.JobRecord, error) {
	conn, err := c.dial()
	if err != nil {
		return nil, err
	}
	stream, err := conn.Jobs(context.Background(), req)
	if err != nil {
		return nil, err
	}
	var jobs []*msg.JobRecord
	for {
		page, err := stream.Recv()
		if err == io.EOF {
			return jobs, nil
		}
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, page.GetJobs()...)
	}
}

// completing lists the jobs that are ending, and the nodes where something of them is left.
func (c *control) completing([]string) int {
	jobs, err := c.listJobs(&msg.JobsRequest{StateFlags: msg.JobCompleting})
	if err != nil {
		return c.callFailed("slurm_load_jobs error", err)
	}
	for _, j := range jobs {
		if j.GetStateFlags()&msg.JobCompleting == 0 {
			continue
		}
		end := time.Unix(0, j.GetEndNs())
		fmt.Fprintf(c.env.Stdout, "JobId=%d EndTime=%s CompletingTime=%s Nodes(COMPLETING)=%s\n", j.GetId(),
			end.Format(timespec.Layout), timespec.Clock(int64(c.env.Now().Sub(end).Seconds())), j.GetNodeList())
	}
	return 0
}
