package sbatch

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/submitwire"
	"github.com/sluice-hpc/sluice/client/wire"
	"github.com/sluice-hpc/sluice/conf/timespec"
)

const (
	// retryS is how long sbatch goes on when the controller goes away in the middle: a restart takes less.
	retryS = 60
	// busyTries is how often it asks again when the controller cannot take the job now, as Slurm's sbatch does.
	busyTries = 15
	// onePieceBytes is the size up to which a request travels as one message.
	onePieceBytes = 2 << 20
	// pieceBytes is the size of the pieces of a longer one.
	pieceBytes = 1 << 20
)

// Codes of problems that sbatch treats in a way of its own (a test holds them against the messages').
const (
	codeInvalidPartition = 2000
	codeQueueFull        = 9101
	codeRateLimited      = 9105
)

const stateCompleted = 3 // of JobState

// submit sends the job and prints what became of it.
func (s *submission) submit(ctx context.Context) int {
	c, reply, err := s.send(ctx)
	if err != nil {
		return s.failed(err)
	}
	defer c.Close()
	if reply.Warning != "" && !s.req.Quiet {
		s.env.Infof("%s", reply.Warning)
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
func (s *submission) send(ctx context.Context) (*wire.Conn, *submitwire.SubmitReply, error) {
	request := submitwire.AppendRequest(make([]byte, 0, 4096+len(s.script)+envBytes(s.environ)), s.request())
	c, err := s.env.Dial()
	if err != nil {
		return nil, nil, err
	}
	busy := 0
	for started, pause := s.env.Now(), 50*time.Millisecond; ; {
		reply, err := call(ctx, c, request)
		if err == nil {
			return c, reply, nil
		}
		switch code := problem(err).Code; {
		case code == codeQueueFull && busy < busyTries && !s.req.TestOnly:
			busy++
			s.env.Errorf("%s", problem(err).Phrase)
			s.env.Sleep(time.Duration(busy) * time.Second)
		case code == codeRateLimited && busy < busyTries:
			busy++
			s.env.Sleep(time.Duration(busy) * 100 * time.Millisecond)
		case wire.Broken(err) && s.env.Now().Sub(started) < retryS*time.Second:
			_ = c.Close()
			if c = s.redial(started, &pause); c == nil {
				return nil, nil, err
			}
		default:
			_ = c.Close()
			return nil, nil, err
		}
	}
}

func envBytes(vars []string) int {
	n := 0
	for _, v := range vars {
		n += len(v) + 4
	}
	return n
}

// call submits an encoded request, in pieces when it is too long for one message.
func call(ctx context.Context, c *wire.Conn, request []byte) (*submitwire.SubmitReply, error) {
	var answer []byte
	var err error
	if len(request) <= onePieceBytes {
		answer, err = c.Call(ctx, "Submit", request)
	} else {
		answer, err = c.Upload(ctx, "SubmitLarge", func(send func([]byte) error) error {
			for rest := request; len(rest) > 0; {
				n := min(len(rest), pieceBytes)
				if err := send(submitwire.AppendChunk(nil, rest[:n])); err != nil {
					return err
				}
				rest = rest[n:]
			}
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	return submitwire.Reply(answer)
}

// problem is what the controller refused a call with; the zero Problem when the error is something else.
func problem(err error) *submitwire.Problem {
	var r *wire.Refusal
	if errors.As(err, &r) && r.Problem != nil {
		return r.Problem
	}
	return &submitwire.Problem{}
}

// redial connects again, waiting a little longer each time; nil when the time is over.
func (s *submission) redial(started time.Time, pause *time.Duration) *wire.Conn {
	for s.env.Now().Sub(started) < retryS*time.Second {
		s.env.Sleep(*pause)
		*pause = min(2**pause, time.Second)
		if c, err := s.env.Dial(); err == nil {
			return c
		}
	}
	return nil
}

// failed prints why there is no job.
func (s *submission) failed(err error) int {
	text, more := command.Phrase(err)
	var connect *wire.ConnectError
	if wire.Broken(err) && !errors.As(err, &connect) {
		more = fmt.Sprintf("nobody knows whether the job was taken: look for it with squeue (request id %s)", s.id)
	}
	switch {
	case s.req.TestOnly:
		fmt.Fprintf(s.env.Stderr, "allocation failure: %s\n", text)
	default:
		if problem(err).Code == codeInvalidPartition && s.req.Spec.Partition != "" {
			s.env.Errorf("invalid partition specified: %s", s.req.Spec.Partition)
		}
		s.env.Errorf("Batch job submission failed: %s", text)
	}
	if more != "" {
		s.env.Errorf("%s", more)
	}
	return s.env.ErrorExit()
}

func (s *submission) printForecast(r *submitwire.SubmitReply) {
	at := time.Unix(0, r.StartNs).In(s.req.Now.Location()).Format(timespec.Layout)
	s.env.Infof("Job %d to start at %s using %d processors on nodes %s in partition %s", r.JobId, at, r.Cpus, r.Nodes, r.Partition)
}

func (s *submission) printID(r *submitwire.SubmitReply) {
	id := fmt.Sprint(r.JobId)
	switch cluster := s.req.Clusters; {
	case s.req.Parsable && cluster != "":
		fmt.Fprintf(s.env.Stdout, "%s;%s\n", id, s.env.ClusterName())
	case s.req.Parsable:
		fmt.Fprintln(s.env.Stdout, id)
	case s.req.Quiet:
	case cluster != "":
		fmt.Fprintf(s.env.Stdout, "Submitted batch job %s on cluster %s\n", id, s.env.ClusterName())
	default:
		fmt.Fprintln(s.env.Stdout, "Submitted batch job "+id)
	}
}

// wait returns when the job has ended, with its exit code; 1 for a signal and for an end that was not the script's own
// (sbatch(1), --wait). The job goes on without the controller, and so does the waiting.
func (s *submission) wait(ctx context.Context, c *wire.Conn, job uint32) int {
	for pause := 50 * time.Millisecond; ; {
		answer, err := c.Call(ctx, "WaitJob", submitwire.AppendWaitJob(nil, job))
		if err == nil {
			state, status, err := submitwire.JobEnd(answer)
			if err != nil {
				s.env.Errorf("cannot wait for job %d: %v", job, err)
				return s.env.ErrorExit()
			}
			return waitCode(state, status)
		}
		if !wire.Broken(err) {
			s.env.Errorf("cannot wait for job %d: %v", job, err)
			return s.env.ErrorExit()
		}
		_ = c.Close()
		next := s.redial(s.env.Now(), &pause)
		if next == nil {
			s.env.Errorf("cannot wait for job %d: %v", job, err)
			return s.env.ErrorExit()
		}
		c = next
	}
}

func waitCode(state int32, status uint32) int {
	ws := syscall.WaitStatus(status)
	switch {
	case ws.Exited() && ws.ExitStatus() != 0:
		return ws.ExitStatus()
	case ws.Exited() && state == stateCompleted:
		return 0
	}
	return 1
}

// listGres prints the generic resources that nodes have, for --gres=help.
func (s *submission) listGres(ctx context.Context) int {
	c, err := s.env.Dial()
	if err != nil {
		return s.failed(err)
	}
	defer c.Close()
	names := map[string]bool{}
	err = c.Download(ctx, "Nodes", nil, func(page []byte) error {
		return submitwire.NodeGres(page, func(list string) {
			for _, g := range strings.Split(list, ",") {
				if name, _, _ := strings.Cut(g, ":"); name != "" {
					names[name] = true
				}
			}
		})
	})
	if err != nil {
		return s.failed(err)
	}
	fmt.Fprintln(s.env.Stdout, "Valid gres options are:")
	sorted := make([]string, 0, len(names))
	for n := range names {
		sorted = append(sorted, n)
	}
	sort.Strings(sorted)
	for _, n := range sorted {
		fmt.Fprintf(s.env.Stdout, "%s[[:type]:count]\n", n)
	}
	return 0
}
