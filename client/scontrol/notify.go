package scontrol

import (
	"strings"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
)

// notify is scontrol notify JOB[.STEP] MESSAGE: the words, separated by blanks, are written to standard error of the job's script.
func (c *control) notify(args []string) int {
	const failure = "job notify failure"
	if len(args) < 2 {
		return c.fail("too few arguments for keyword:notify")
	}
	job, _, _ := strings.Cut(args[0], ".")
	ids, bad := jobIDs(job)
	if bad != "" {
		return c.fail("Invalid job_id "+format.Escape(args[0]), failure+": "+msg.NewProblem(msg.CodeInvalidJobID, "").GetPhrase())
	}
	list, err := c.control(&msg.ControlJobsRequest{Verb: "notify", Ids: ids, Text: strings.Join(args[1:], " ")})
	if err != nil {
		return c.callFailed(failure, err)
	}
	exit := 0
	for _, o := range list {
		if p := o.GetProblem(); p != nil {
			exit = c.fail(withDiagnosis(failure+": "+p.GetPhrase(), p)...)
		}
	}
	return exit
}

func withDiagnosis(line string, p *msg.Problem) []string {
	if d := command.Diagnosis(p); d != "" {
		return []string{line, d}
	}
	return []string{line}
}
