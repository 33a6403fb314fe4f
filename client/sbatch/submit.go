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
	"github.com/sluice-hpc/sluice/conf/timespec"
)

const (
	// retryS is how long sbatch goes on when the controller goes away in the middle: a restart takes less.
	retryS = 60
	// busyTries is how often it asks again when the controller cannot take the job now, as Slurm's sbatch does.
	busyTries = 15
)

// submit sends the job and prints what became of it.
func (s *submission) submit(ctx context.Context) int {
	c, reply, err := s.send(ctx)
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

// send calls the controller until it has an answer. A connection that breaks leaves open whether the job was taken, so the
// same request, with its id, is sent again: the controller takes it once.
func (s *submission) send(ctx context.Context) (*client.Client, *msg.SubmitReply, error) {
	c, err := s.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	busy, asked := 0, false // asked: a controller may have the request
	for started, pause := s.env.Now(), 50*time.Millisecond; ; {
		reply, err := c.SubmitJob(ctx, s.request())
		if err == nil {
			return c, reply, nil
		}
		problem := client.ProblemOf(err)
		switch code := msg.Code(problem.GetCode()); {
		case code == msg.CodeQueueFull && busy < busyTries && !s.req.TestOnly:
			busy++
			s.env.Errorf("%s", problem.GetPhrase())
			s.env.Sleep(time.Duration(busy) * time.Second)
		case code == msg.CodeRateLimited && busy < busyTries:
			busy++
			s.env.Sleep(time.Duration(busy) * 100 * time.Millisecond)
		case client.Away(err) && !asked && s.env.Now().Sub(started) < s.patience(): // as while nobody listens: dial
			s.env.Sleep(pause)
			pause = min(2*pause, time.Second)
		case client.Away(err) && !asked:
			_ = c.Close()
			return nil, nil, err
		case client.Broken(err) && s.env.Now().Sub(started) < retryS*time.Second:
			asked = asked || !client.Away(err)
			_ = c.Close()
			if c = s.redial(ctx, started, &pause); c == nil {
				return nil, nil, err
			}
		default:
			_ = c.Close()
			return nil, nil, err
		}
	}
}

// patience is how long sbatch looks for a controller that is not there.
func (s *submission) patience() time.Duration {
	if s.req.TestOnly {
		return 0
	}
	return time.Duration(client.MessageTimeoutS(s.env.Getenv)) * time.Second
}

// dial connects. Where a controller has been, and is not at the moment, it may be restarting: as Slurm does, sbatch tries for
// MessageTimeout (slurm.conf(5)) before it gives up. Commands that only look do not: they are asked again soon enough.
func (s *submission) dial(ctx context.Context) (*client.Client, error) {
	c, err := s.env.Dial(ctx)
	if err == nil || s.req.TestOnly || !client.MayReturn(err) {
		return c, err
	}
	patience := s.patience()
	for started, pause := s.env.Now(), 50*time.Millisecond; s.env.Now().Sub(started) < patience; pause = min(2*pause, time.Second) {
		s.env.Sleep(pause)
		if c, err = s.env.Dial(ctx); err == nil || !client.MayReturn(err) {
			return c, err
		}
	}
	return nil, err
}

// redial connects again, waiting a little longer each time; nil when the time is over.
func (s *submission) redial(ctx context.Context, started time.Time, pause *time.Duration) *client.Client {
	for s.env.Now().Sub(started) < retryS*time.Second {
		s.env.Sleep(*pause)
		*pause = min(2**pause, time.Second)
		if c, err := s.env.Dial(ctx); err == nil {
			return c
		}
	}
	return nil
}

// lead prints what comes before the failure, line by line: job_submit.lua may say several.
func (s *submission) lead(text string) {
	for line := range strings.SplitSeq(text, "\n") {
		s.env.Errorf("%s", line)
	}
}

// failed prints why there is no job.
func (s *submission) failed(err error) int {
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
		if problem.GetCode() == uint32(msg.CodeInvalidGres) { // Slurm's sbatch finds this out by itself
			s.env.Errorf("%s", text)
			break
		}
		s.env.Errorf("Batch job submission failed: %s", text)
	}
	if more != "" {
		s.env.Errorf("%s", more)
	}
	return s.env.ErrorExit()
}

func (s *submission) printForecast(r *msg.SubmitReply) {
	at := time.Unix(0, r.StartNs).In(s.req.Now.Location()).Format(timespec.Layout)
	s.env.Infof("Job %d to start at %s using %d processors on nodes %s in partition %s", r.JobId, at, r.Cpus, r.Nodes, r.Partition)
}

func (s *submission) printID(r *msg.SubmitReply) {
	id := fmt.Sprint(r.JobId)
	switch cluster := s.req.Clusters; {
	case s.req.Quiet: // also with --parsable
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

// wait returns when the job has ended, with its exit code; 1 for a signal and for an end that was not the script's own
// (sbatch(1), --wait). The job goes on without the controller, and so does the waiting.
func (s *submission) wait(ctx context.Context, c *client.Client, job uint32) int {
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
			if c = s.redial(ctx, s.env.Now(), &pause); c != nil {
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

// listGres prints the generic resources that nodes have, for --gres=help.
func (s *submission) listGres(ctx context.Context) int {
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
