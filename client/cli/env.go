// Package cli holds Slurm's commands and the sluice command: one file per command, one row per command in commands.go.
//
// A command is a function of an Env and its arguments; it writes to the Env's streams and returns the exit code. Nothing in
// here calls os.Exit, so that every command can be run inside a test with a fake controller.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/client"
)

// Env is everything that a command takes from its process.
type Env struct {
	Name   string // the command's name, as messages begin: "sbatch"
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	Args   []string // the whole command line, for the submit line
	// Environ is the environment, NAME=value.
	Environ []string
	Now     func() time.Time
	Sleep   func(time.Duration)
	Getwd   func() (string, error)
	// Dial connects to the controller; tests give a client around a fake.
	Dial func(ctx context.Context) (*client.Client, error)
}

// Getenv returns the value of a variable, "" when it is not set.
func (e *Env) Getenv(name string) string {
	v, _ := e.LookupEnv(name)
	return v
}

// LookupEnv tells an empty variable from one that is not set.
func (e *Env) LookupEnv(name string) (string, bool) {
	for i := len(e.Environ) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(e.Environ[i], name); ok && strings.HasPrefix(v, "=") {
			return v[1:], true
		}
	}
	return "", false
}

// Errorf writes "NAME: error: …" to stderr, as Slurm's commands do.
func (e *Env) Errorf(format string, args ...any) {
	fmt.Fprintf(e.Stderr, e.Name+": error: "+format+"\n", args...)
}

// Infof writes "NAME: …" to stderr.
func (e *Env) Infof(format string, args ...any) {
	fmt.Fprintf(e.Stderr, e.Name+": "+format+"\n", args...)
}

// workingDir is getcwd(2): where the process is, not the name under which the shell got there.
func workingDir() (string, error) {
	var buf [syscall.PathMax]byte
	n, err := syscall.Getcwd(buf[:])
	if err != nil {
		return "", err
	}
	return string(buf[:n-1]), nil
}

// ProcessEnv is the Env of this process.
func ProcessEnv(name string) *Env {
	e := &Env{Name: name, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Args: os.Args, Environ: os.Environ(), Now: time.Now, Sleep: time.Sleep, Getwd: workingDir}
	e.Dial = func(ctx context.Context) (*client.Client, error) {
		socket, err := client.SocketPath(e.Getenv)
		if err != nil {
			return nil, err
		}
		return client.DialShort(ctx, socket)
	}
	return e
}
