// Package command is the environment in which every command runs: its streams and arguments (Env), its connection to the
// controller, its error messages, and its description (Page), from which --help, completions and manual pages are made.
//
// A command is a function of an Env and its arguments. It writes to the Env's streams and returns the exit status.
// Nothing in a command calls os.Exit, so each can run inside a test with a fake controller.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/batchscript"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/client/wire"
	"github.com/sluice-hpc/sluice/conf/timespec"
)

// ExitUsage is sbatch's exit code for an invalid command line; other commands exit with 1.
const ExitUsage = 255

// Env is everything that a command uses of its process.
type Env struct {
	Name    string // as in messages: "sbatch"
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	Args    []string // the whole command line
	Environ []string // NAME=value
	Now     func() time.Time
	Sleep   func(time.Duration)
	Getwd   func() (string, error)
	// Dial connects to the controller; tests return a client of a fake one.
	Dial func(ctx context.Context) (*client.Client, error)
	// Socket returns the address for Dial.
	Socket func() (string, error)

	misread    string      // probable intention (opt.Misread), until it is printed
	complained atomic.Bool // an error has been printed
}

// Process returns the Env of this process.
func Process(name string) *Env {
	timespec.UseZone()
	e := &Env{Name: name, Stdin: os.Stdin, Stdout: &output{File: os.Stdout, name: name}, Stderr: os.Stderr, Args: os.Args,
		Environ: os.Environ(),
		Now:     time.Now, Sleep: time.Sleep, Getwd: WorkingDir}
	e.Socket = func() (string, error) { return client.SocketPath(e.Getenv) }
	e.Dial = func(ctx context.Context) (*client.Client, error) {
		socket, err := e.Socket()
		if err != nil {
			return nil, err
		}
		c, err := client.Dial(ctx, socket)
		if err == nil {
			c.Waiting(func(p *msg.Problem) { e.Infof("%s: waiting", p) })
		}
		return c, err
	}
	return e
}

// WorkingDir is getcwd(2): the actual directory, not the path that the shell used to get there.
func WorkingDir() (string, error) {
	var buf [syscall.PathMax]byte
	n, err := syscall.Getcwd(buf[:])
	if err != nil {
		return "", err
	}
	return string(buf[:n-1]), nil
}

// Getenv returns the value of a variable, "" if it is not set.
func (e *Env) Getenv(name string) string {
	v, _ := e.LookupEnv(name)
	return v
}

// LookupEnv distinguishes an empty variable from one that is not set.
func (e *Env) LookupEnv(name string) (string, bool) {
	for i := len(e.Environ) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(e.Environ[i], name); ok && strings.HasPrefix(v, "=") {
			return v[1:], true
		}
	}
	return "", false
}

// Scan calls opt.Scan and remembers options that look misread, to explain a later failure of the command.
func (e *Env) Scan(names []opt.Name, argv []string, permute bool) (hits []opt.Hit, rest []string, err error) {
	hits, rest, err = opt.Scan(names, argv, permute)
	words := rest
	if !permute {
		words = rest[:min(1, len(rest))] // the rest are the script's
	}
	e.Misread(opt.Misread(names, hits, words))
	return hits, rest, err
}

// Misread records the probable intention behind ambiguous input; the first one wins.
func (e *Env) Misread(hint string) {
	if e.misread == "" {
		e.misread = hint
	}
}

// Finish is called with the exit code of a command. It prints a recorded misreading if the command failed and has not printed it,
// and always on a terminal. It does not disturb a program that reads both streams of a successful command.
func (e *Env) Finish(exit int) int {
	if e.misread != "" && (exit != 0 || e.complained.Load() || IsTerminal(e.Stderr)) {
		e.Infof("%s", e.misread)
	}
	return exit
}

// instead returns the hint for an error: a recorded misreading, which explains the error better, or hint. A misreading is printed
// once.
func (e *Env) instead(hint string) string {
	if e.misread != "" {
		hint, e.misread = e.misread, ""
	}
	return hint
}

// Errorf writes "NAME: error: …" to stderr, as Slurm's commands do.
func (e *Env) Errorf(format string, args ...any) {
	e.complained.Store(true)
	fmt.Fprintf(e.Stderr, e.Name+": error: "+format+"\n", args...)
}

// Infof writes "NAME: …" to stderr.
func (e *Env) Infof(format string, args ...any) {
	fmt.Fprintf(e.Stderr, e.Name+": "+format+"\n", args...)
}

// UsageError prints a *opt.UsageError as getopt and Slurm do, with the nearest option if one is close.
func (e *Env) UsageError(err error, exit int) int {
	fmt.Fprintf(e.Stderr, "%s: %s\n", e.Name, err.Error())
	var u *opt.UsageError
	fmt.Fprintf(e.Stderr, "Try \"%s --help\" for more information\n", e.Name)
	if errors.As(err, &u) {
		if hint := e.instead(u.Hint); hint != "" {
			e.Infof("%s", hint)
		}
	}
	return exit
}

// Refuse prints an error of a command line or a script and returns the exit code for it.
func (e *Env) Refuse(err error) int {
	var value *opt.ValueError
	var fault *batchscript.Fault
	var usage *opt.UsageError
	switch {
	case errors.As(err, &usage):
		return e.UsageError(err, ExitUsage)
	case errors.As(err, &value):
		for _, l := range value.Plain {
			fmt.Fprintln(e.Stderr, l)
		}
		e.Lines(value.Lines, value.Hint, value.Fatal)
		if value.Exit == 0 {
			return e.ErrorExit()
		}
		return value.Exit
	case errors.As(err, &fault):
		e.Lines(fault.Lines, fault.Hint, false)
	default:
		e.Errorf("%v", err)
	}
	return e.ErrorExit()
}

// Advise prints a remedy after an error in Slurm's words.
func (e *Env) Advise(format string, args ...any) {
	e.Infof("%s", e.instead(fmt.Sprintf(format, args...)))
}

// Lines writes each line as "NAME: error: …", or fatal, and then the hint as an error.
func (e *Env) Lines(lines []string, hint string, fatal bool) {
	word := "error"
	if fatal {
		word = "fatal"
	}
	for _, l := range lines {
		fmt.Fprintf(e.Stderr, "%s: %s: %s\n", e.Name, word, l)
	}
	if hint = e.instead(hint); hint != "" {
		e.Errorf("%s", hint)
	}
}

// ErrorExit is the exit code of a failed command: 1, or SLURM_EXIT_ERROR (sbatch(1)).
func (e *Env) ErrorExit() int {
	if n, err := strconv.Atoi(e.Getenv("SLURM_EXIT_ERROR")); err == nil && n > 0 && n < 256 {
		return n
	}
	return 1
}

// ClusterName returns the name in slurm.conf, or "" if there is none.
func (e *Env) ClusterName() string {
	name, err := wire.ClusterName(e.Getenv)
	if err != nil {
		return ""
	}
	return name
}

// CheckClusters accepts the values of -M that name the one cluster: its name, or "all". As in Slurm, further names are ignored.
func (e *Env) CheckClusters(list string) error {
	if list == "" {
		return nil
	}
	own := e.ClusterName()
	if slices.ContainsFunc(strings.Split(list, ","), func(name string) bool {
		return strings.EqualFold(name, own) ||
			strings.EqualFold(name, "all")
	}) {
		return nil
	}
	name, _, _ := strings.Cut(list, ",")
	source := "--cluster"
	if list == e.Getenv("SLURM_CLUSTERS") && e.Name != "sbatch" { // as Slurm's commands do
		source = "SLURM_CLUSTERS"
	}
	return &opt.ValueError{Lines: []string{fmt.Sprintf("No cluster '%s' known by database.", name),
		fmt.Sprintf(
			"'%s' can't be reached now, or it is an invalid entry for %s.  Use 'sacctmgr list clusters' to see available clusters.", name,
			source)},
		Exit: 1, Hint: fmt.Sprintf("this cluster is %q", own)}
}

// ShortHostname is the node name of uname(2) up to the first dot.
func ShortHostname() string {
	var u syscall.Utsname
	if syscall.Uname(&u) != nil {
		return ""
	}
	name := make([]byte, 0, len(u.Nodename))
	for _, c := range u.Nodename {
		if c == 0 || c == '.' {
			break
		}
		name = append(name, byte(c))
	}
	return string(name)
}

// Phrase returns Slurm's message for a failed call, and the diagnosis to print after it. An unreachable controller gives Slurm's
// "Unable to contact slurm controller (connect failure)", a silent one "Socket timed out on send/recv operation".
func Phrase(err error) (text, more string) {
	var r *wire.Refusal
	if errors.As(err, &r) && r.Problem != nil {
		return r.Problem.Phrase, Diagnosis(r.Problem)
	}
	var ce *wire.ConnectError
	if errors.As(err, &ce) {
		return ce.Phrase(), ce.Diagnosis()
	}
	var te *wire.TimeoutError
	if errors.As(err, &te) {
		return te.Phrase(), te.Diagnosis()
	}
	return err.Error(), ""
}

// SystemText spells an error of the kernel as the C library does: "No such file or directory".
func SystemText(err error) string {
	var number syscall.Errno
	if errors.As(err, &number) {
		text := number.Error()
		return strings.ToUpper(text[:1]) + text[1:]
	}
	return err.Error()
}

// Diagnosis joins detail and hint of a problem.
func Diagnosis(p *msg.Problem) string {
	detail, hint := p.GetDetail(), p.GetHint()
	switch {
	case detail != "" && hint != "":
		return detail + " (" + hint + ")"
	case detail != "":
		return detail
	}
	return hint
}
