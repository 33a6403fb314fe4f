package scancel

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/view"
)

// choose asks about each job (-i) and applies filters that the controller does not have. It returns the ids to cancel, and an error
// for each named job that does not exist. Named tasks and steps are confirmed and cancelled under the given name, because the
// record of a pending array also has other tasks.
func (c *cancellation) choose(ctx context.Context, conn *client.Client) (chosen []string, missing []*msg.JobOutcome, err error) {
	jobs, err := c.candidates(ctx, conn)
	if err != nil {
		return nil, nil, err
	}
	in := bufio.NewReader(c.env.Stdin)
	ask := func(id string, j *msg.JobRecord) {
		if (c.wckey == "" || j.GetSpec().GetWckey() == c.wckey) && (!c.interactive || c.confirm(in, id, j)) {
			chosen = append(chosen, id)
		}
	}
	if len(c.ids) == 0 {
		for _, j := range jobs {
			ask(recordName(j), j)
		}
		return chosen, nil, nil
	}
	for _, id := range c.ids {
		s, _ := view.ParseSelector(id, true)
		meant := slices.DeleteFunc(slices.Clone(jobs), func(j *msg.JobRecord) bool { return !s.Matches(j) })
		switch {
		case len(meant) == 0:
			missing = append(missing, &msg.JobOutcome{Id: id, Problem: msg.NewProblem(msg.CodeInvalidJobID, "")})
		case s.Tasks != nil || s.Step != "":
			ask(id, meant[0])
		default:
			for _, j := range meant {
				ask(recordName(j), j)
			}
		}
	}
	return chosen, missing, nil
}

// candidates returns the jobs that match the filters, restricted to the named ones, if any.
func (c *cancellation) candidates(ctx context.Context, conn *client.Client) ([]*msg.JobRecord, error) {
	req := *c.filter
	for _, id := range c.ids {
		job, _, _ := strings.Cut(id, ".")
		job, _, _ = strings.Cut(job, "_")
		req.Ids = append(req.Ids, job)
	}
	stream, err := conn.Jobs(ctx, &req)
	if err != nil {
		return nil, err
	}
	var jobs []*msg.JobRecord
	for {
		page, err := stream.Recv()
		if p := client.ProblemOf(err); err == io.EOF || p != nil && p.GetCode() == uint32(msg.CodeInvalidJobID) {
			return jobs, nil
		}
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, page.GetJobs()...)
	}
}

// recordName formats the id of a record for users: "12", "12_3", "12_[4-9]".
func recordName(j *msg.JobRecord) string {
	switch {
	case j.GetArrayTasks() != "":
		return fmt.Sprintf("%d_[%s]", j.GetArrayJobId(), j.GetArrayTasks())
	case j.GetArrayJobId() != 0:
		return fmt.Sprintf("%d_%d", j.GetArrayJobId(), j.GetArrayTaskId())
	}
	return fmt.Sprint(j.GetId())
}

func (c *cancellation) confirm(in *bufio.Reader, id string, j *msg.JobRecord) bool {
	kind := "job_id"
	if strings.Contains(id, ".") {
		kind = "step_id"
	}
	for {
		fmt.Fprintf(c.env.Stdout, "Cancel %s=%s name=%s partition=%s [y/n]? ", kind, id, j.GetSpec().GetName(), j.GetPartition())
		line, err := in.ReadString('\n')
		switch strings.TrimSpace(strings.ToLower(line)) {
		case "y", "yes":
			return true
		case "n", "no":
			return false
		}
		if err != nil {
			return false
		}
	}
}
