package submission

import (
	"context"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/msg"
)

const (
	// RetryS is how long a command goes on when the controller goes away in the middle: a restart takes less.
	RetryS = 60
	// BusyTries is how often it asks again when the controller cannot take the job now, as Slurm's commands do.
	BusyTries = 15
)

// Sender calls the controller until there is an answer.
type Sender struct {
	Env  *command.Env
	Once bool // of a test: nobody waits for a controller that is away
}

// Submit calls the controller until it has an answer. A connection that breaks leaves open whether the job was taken, so the
// same request, with its id, is sent again: the controller takes it once.
func (s *Sender) Submit(ctx context.Context, req *msg.SubmitRequest) (*client.Client, *msg.SubmitReply, error) {
	c, err := s.Dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	busy, asked := 0, false // asked: a controller may have the request
	for started, pause := s.Env.Now(), 50*time.Millisecond; ; {
		reply, err := c.SubmitJob(ctx, req)
		if err == nil {
			return c, reply, nil
		}
		problem := client.ProblemOf(err)
		switch code := msg.Code(problem.GetCode()); {
		case code == msg.CodeQueueFull && busy < BusyTries && !req.TestOnly:
			if busy++; busy == 1 {
				s.Env.Errorf("%v", problem)
			} else {
				s.Env.Errorf("%s", problem.GetPhrase())
			}
			s.Env.Sleep(time.Duration(busy) * time.Second)
		case client.Away(err) && !asked && s.Env.Now().Sub(started) < s.patience(): // as while nobody listens: Dial
			s.Env.Sleep(pause)
			pause = min(2*pause, time.Second)
		case client.Away(err) && !asked:
			_ = c.Close()
			return nil, nil, err
		case client.Broken(err) && s.Env.Now().Sub(started) < RetryS*time.Second:
			asked = asked || !client.Away(err)
			_ = c.Close()
			if c = s.Redial(ctx, started, &pause); c == nil {
				return nil, nil, err
			}
		default:
			_ = c.Close()
			return nil, nil, err
		}
	}
}

// patience is how long a command looks for a controller that is not there.
func (s *Sender) patience() time.Duration {
	if s.Once {
		return 0
	}
	return time.Duration(client.MessageTimeoutS(s.Env.Getenv)) * time.Second
}

// Dial connects. Where a controller has been, and is not at the moment, it may be restarting: as Slurm does, a command tries for
// MessageTimeout (slurm.conf(5)) before it gives up. Commands that only look do not: they are asked again soon enough.
func (s *Sender) Dial(ctx context.Context) (*client.Client, error) {
	c, err := s.Env.Dial(ctx)
	if err == nil || s.Once || !client.MayReturn(err) {
		return c, err
	}
	patience := s.patience()
	if command.IsTerminal(s.Env.Stderr) {
		s.Env.Infof("the controller does not answer; trying again for %v", patience)
	}
	for started, pause := s.Env.Now(), 50*time.Millisecond; s.Env.Now().Sub(started) < patience; pause = min(2*pause, time.Second) {
		s.Env.Sleep(pause)
		if c, err = s.Env.Dial(ctx); err == nil || !client.MayReturn(err) {
			return c, err
		}
	}
	return nil, err
}

// Redial connects again, waiting a little longer each time; nil when the time is over.
func (s *Sender) Redial(ctx context.Context, started time.Time, pause *time.Duration) *client.Client {
	for s.Env.Now().Sub(started) < RetryS*time.Second {
		s.Env.Sleep(*pause)
		*pause = min(2**pause, time.Second)
		if c, err := s.Env.Dial(ctx); err == nil {
			return c
		}
	}
	return nil
}

// Patiently makes a call that may be repeated, through a controller that restarts. That it is busy every call waits for (client).
func Patiently[R any](ctx context.Context, s *Sender, call func() (R, error)) (R, error) {
	for broken := 0; ; {
		r, err := call()
		switch {
		case err == nil || ctx.Err() != nil:
			return r, err
		case (client.Broken(err) || client.Away(err)) && broken < RetryS: // the client connects again with the next call
			broken++
			s.Env.Sleep(min(time.Duration(broken)*50*time.Millisecond, time.Second))
		default:
			return r, err
		}
	}
}
