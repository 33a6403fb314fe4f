// Package cli holds Slurm's commands and the sluice command: one file per command, one row per command in commands.go.
//
// A command is a function of an Env and its arguments; it writes to the Env's streams and returns the exit code. Nothing in
// here calls os.Exit, so that every command can be run inside a test with a fake controller.
package cli

import (
	"context"
	"io"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	pb "github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/accounts"
)

// Env is everything that a command takes from its process.
type Env struct {
	Name   string // the command's name, as messages begin: "squeue"
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	Args   []string // the whole command line
	// Environ is the environment, NAME=value.
	Environ []string
	Now     func() time.Time
	Sleep   func(time.Duration)
	Getwd   func() (string, error)
	// Dial connects to the controller; tests give a client around a fake.
	Dial func(ctx context.Context) (*client.Client, error)
	// Socket is where Dial connects to.
	Socket func() (string, error)
}

// ProcessEnv is the Env of this process.
func ProcessEnv(name string) *Env {
	c := command.Process(name)
	e := &Env{Name: name, Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr, Args: c.Args, Environ: c.Environ, Now: c.Now, Sleep: c.Sleep, Getwd: c.Getwd}
	e.Socket = func() (string, error) { return client.SocketPath(e.Getenv) }
	e.Dial = func(ctx context.Context) (*client.Client, error) {
		socket, err := e.Socket()
		if err != nil {
			return nil, err
		}
		return client.Dial(ctx, socket)
	}
	return e
}

// command is the part of the Env that all commands share.
func (e *Env) command() *command.Env {
	return &command.Env{Name: e.Name, Stdin: e.Stdin, Stdout: e.Stdout, Stderr: e.Stderr, Args: e.Args, Environ: e.Environ, Now: e.Now, Sleep: e.Sleep, Getwd: e.Getwd}
}

// Getenv returns the value of a variable, "" when it is not set.
func (e *Env) Getenv(name string) string { return e.command().Getenv(name) }

// LookupEnv tells an empty variable from one that is not set.
func (e *Env) LookupEnv(name string) (string, bool) { return e.command().LookupEnv(name) }

// Errorf writes "NAME: error: …" to stderr, as Slurm's commands do.
func (e *Env) Errorf(format string, args ...any) { e.command().Errorf(format, args...) }

// Infof writes "NAME: …" to stderr.
func (e *Env) Infof(format string, args ...any) { e.command().Infof(format, args...) }

func (e *Env) usageError(err error, exit int) int            { return e.command().UsageError(err, exit) }
func (e *Env) refuse(err error) int                          { return e.command().Refuse(err) }
func (e *Env) errorExit() int                                { return e.command().ErrorExit() }
func (e *Env) clusterName() string                           { return e.command().ClusterName() }
func (e *Env) checkClusters(list string) error               { return e.command().CheckClusters(list) }
func (e *Env) lines(lines []string, hint string, fatal bool) { e.command().Lines(lines, hint, fatal) }
func shortHostname() string                                  { return command.ShortHostname() }
func lookupUser(who string) (accounts.Account, bool)         { return accounts.User(who) }
func lookupUID(who string) (uint32, bool)                    { return accounts.UID(who) }
func self() accounts.Account                                 { return accounts.Self() }
func diagnosis(p *pb.Problem) string                         { return command.Diagnosis(p.GetDetail(), p.GetHint()) }

// phrase is Slurm's text for why a call failed, and the diagnosis that goes after it.
func phrase(err error) (text, more string) {
	if p := client.ProblemOf(err); p != nil {
		return p.GetPhrase(), diagnosis(p)
	}
	if text, more = command.Phrase(err); more == "" {
		text = client.Text(err)
	}
	return text, more
}
