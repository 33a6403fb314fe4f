package sbatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/submission"
	"github.com/sluice-hpc/sluice/conf/timespec"
)

// retryS is how long sbatch continues if the controller goes away in the middle; a restart takes less.
const retryS = submission.RetryS

// sender returns the sender for the submission.
func (s *job) sender() *submission.Sender {
	return &submission.Sender{Env: s.env, Once: s.req.TestOnly}
}

// submit sends the job and prints the result.
func (s *job) submit(ctx context.Context) int {
	c, reply, err := s.sender().Submit(ctx, s.request())
	if err != nil {
		return s.failed(err)
	}
	defer c.Close()
	if reply.Warning != "" && !s.req.Quiet {
		for line := range strings.SplitSeq(reply.Warning, "\n") {
			s.env.Infof("%s", line)
		}
	}
	if s.req.TestOnly {
		s.printForecast(reply)
		return 0
	}
	s.printID(reply)
	if s.req.Wait {
		return s.wait(ctx, c, reply.JobId)
	}
	return 0
}

// lead prints the lines before the error; job_submit.lua may give several.
func (s *job) lead(text string) {
	for line := range strings.SplitSeq(text, "\n") {
		s.env.Errorf("%s", line)
	}
}

// failed reports why there is no job.
func (s *job) failed(err error) int {
	text, more := command.Phrase(err)
	var connect *client.ConnectError
	if client.Broken(err) && !client.Away(err) && !errors.As(err, &connect) {
		more = fmt.Sprintf("it is unknown whether the job was accepted: look for it with squeue (request id %s)", s.id)
	}
	switch {
	case s.req.TestOnly && client.ProblemOf(err).GetCode() != uint32(msg.CodeInvalidGres):
		if lead := client.ProblemOf(err).GetLead(); lead != "" {
			s.lead(lead)
		}
		fmt.Fprintf(s.env.Stderr, "allocation failure: %s\n", text)
	default:
		problem := client.ProblemOf(err)
		if lead := problem.GetLead(); lead != "" {
			s.lead(lead)
		} else if problem.GetCode() == uint32(msg.CodeInvalidPartition) && s.req.Spec.Partition != "" {
			s.env.Errorf("invalid partition specified: %s", s.req.Spec.Partition)
		}
		if problem.GetCode() == uint32(msg.CodeInvalidGres) { // Slurm's sbatch detects this itself
			s.env.Errorf("%s", text)
			break
		}
		s.env.Errorf("Batch job submission failed: %s", text)
	}
	switch {
	case more != "" && s.req.TestOnly:
		s.env.Infof("%s", more) // Slurm's answer, not an error of the command
	case more != "":
		s.env.Errorf("%s", more)
	}
	return s.env.ErrorExit()
}

func (s *job) printForecast(r *msg.SubmitReply) {
	at := time.Unix(0, r.StartNs).In(s.req.Now.Location()).Format(timespec.Layout)
	s.env.Infof("Job %d to start at %s using %d processors on nodes %s in partition %s", r.JobId, at, r.Cpus, r.Nodes, r.Partition)
}

func (s *job) printID(r *msg.SubmitReply) {
	id := fmt.Sprint(r.JobId)
	switch cluster := s.req.Clusters; {
	case s.req.Quiet: // even with --parsable
	case s.req.Parsable && cluster != "":
		fmt.Fprintf(s.env.Stdout, "%s;%s\n", id, s.env.ClusterName())
	case s.req.Parsable:
		fmt.Fprintln(s.env.Stdout, id)
	case cluster != "":
		fmt.Fprintf(s.env.Stdout, "Submitted batch job %s on cluster %s\n", id, s.env.ClusterName())
	default:
		fmt.Fprintln(s.env.Stdout, "Submitted batch job "+id)
	}
}

// wait returns when the job has ended, with its exit code; 1 for a signal and for an end that was not the script's own (sbatch(1),
// --wait). While the controller is away, the job runs on and wait keeps waiting.
func (s *job) wait(ctx context.Context, c *client.Client, job uint32) int {
	heard := s.env.Now()
	for pause := 50 * time.Millisecond; ; {
		reply, err := c.WaitJob(ctx, &msg.WaitJobRequest{JobId: job})
		if err == nil {
			return waitCode(reply.GetJob())
		}
		if !client.Away(err) {
			heard = s.env.Now()
		}
		if client.Broken(err) && s.env.Now().Sub(heard) < retryS*time.Second {
			if client.Silent(err) {
				text, _ := command.Phrase(err)
				s.env.Errorf("Currently unable to load job state information, retrying: %s", text)
			}
			_ = c.Close()
			if c = s.sender().Redial(ctx, s.env.Now(), &pause); c != nil {
				continue
			}
		}
		s.env.Errorf("cannot wait for job %d: %v", job, err)
		return s.env.ErrorExit()
	}
}

func waitCode(job *msg.JobRecord) int {
	ws := syscall.WaitStatus(job.GetExitStatus())
	switch {
	case ws.Exited() && ws.ExitStatus() != 0:
		return ws.ExitStatus()
	case ws.Exited() && job.GetState() == msg.JobState_JOB_COMPLETED:
		return 0
	}
	return 1
}

// listGres prints the nodes' generic resources, for --gres=help.
func (s *job) listGres(ctx context.Context) int {
	c, err := s.env.Dial(ctx)
	if err != nil {
		return s.failed(err)
	}
	defer c.Close()
	names, err := gresNames(ctx, c)
	if err != nil {
		return s.failed(err)
	}
	fmt.Fprintln(s.env.Stdout, "Valid gres options are:")
	for _, n := range names {
		fmt.Fprintf(s.env.Stdout, "%s[[:type]:count]\n", n)
	}
	return 0
}

// gresNames are the names of all generic resources, sorted.
func gresNames(ctx context.Context, c *client.Client) ([]string, error) {
	stream, err := c.Nodes(ctx, &msg.NodesRequest{})
	if err != nil {
		return nil, err
	}
	var names []string
	for {
		page, err := stream.Recv()
		if err == io.EOF {
			slices.Sort(names)
			return slices.Compact(names), nil
		}
		if err != nil {
			return nil, err
		}
		for _, n := range page.GetNodes() {
			for _, g := range strings.Split(n.GetGres(), ",") {
				if name, _, _ := strings.Cut(g, ":"); name != "" {
					names = append(names, name)
				}
			}
		}
	}
}
