package submission

import (
	"context"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/msg"
)

const (
	// RetryS is how long a command continues if the controller goes away in the middle; a restart takes less.
	RetryS = 60
	// BusyTries is how often a command retries if the controller cannot take the job now, as in Slurm.
	BusyTries = 15
)

// Sender calls the controller until it gets an answer.
type Sender struct {
	Env  *command.Env
	Once bool // for tests: do not wait for an absent controller
}

// Submit calls the controller until it gets an answer. After a broken connection it is unknown whether the job was accepted, so the
// same request, with its id, is sent again: the controller accepts it only once.
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
		case client.Away(err) && !asked && s.Env.Now().Sub(started) < s.patience(): // as if nobody listens: see Dial
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

// patience is how long a command tries to reach an absent controller.
func (s *Sender) patience() time.Duration {
	if s.Once {
		return 0
	}
	return time.Duration(client.MessageTimeoutS(s.Env.Getenv)) * time.Second
}

// Dial connects. If a controller has been there but is absent, it may be restarting: as in Slurm, a command tries for
// MessageTimeout (slurm.conf(5)) before it gives up. Commands that only show something do not: the user can repeat them.
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

// Redial reconnects with increasing pauses; nil if the time is over.
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

// Patiently makes a repeatable call, even through a restart of the controller. (Every call waits for a busy one: package client.)
func Patiently[R any](ctx context.Context, s *Sender, call func() (R, error)) (R, error) {
	for broken := 0; ; {
		r, err := call()
		switch {
		case err == nil || ctx.Err() != nil:
			return r, err
		case (client.Broken(err) || client.Away(err)) && broken < RetryS: // the client reconnects with the next call
			broken++
			s.Env.Sleep(min(time.Duration(broken)*50*time.Millisecond, time.Second))
		default:
			return r, err
		}
	}
}
