package cli

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/batchscript"
	"github.com/sluice-hpc/sluice/client/opt"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// exitUsage is what sbatch returns for a command line that it cannot read; other commands return 1.
const exitUsage = 255

// usageError prints a *opt.UsageError as getopt and Slurm do, with the nearest option when one is near.
func (e *Env) usageError(err error, exit int) int {
	fmt.Fprintf(e.Stderr, "%s: %s\n", e.Name, err.Error())
	var u *opt.UsageError
	if errors.As(err, &u) && u.Hint != "" {
		fmt.Fprintf(e.Stderr, "%s: %s\n", e.Name, u.Hint)
	}
	fmt.Fprintf(e.Stderr, "Try \"%s --help\" for more information\n", e.Name)
	return exit
}

// refuse prints what is wrong with a command line or a script and returns the exit code that belongs to it.
func (e *Env) refuse(err error) int {
	var value *opt.ValueError
	var fault *batchscript.Fault
	var usage *opt.UsageError
	switch {
	case errors.As(err, &usage):
		return e.usageError(err, exitUsage)
	case errors.As(err, &value):
		for _, l := range value.Plain {
			fmt.Fprintln(e.Stderr, l)
		}
		e.lines(value.Lines, value.Hint, value.Fatal)
		if value.Exit == 0 {
			return e.errorExit()
		}
		return value.Exit
	case errors.As(err, &fault):
		e.lines(fault.Lines, fault.Hint, false)
	default:
		e.Errorf("%v", err)
	}
	return e.errorExit()
}

func (e *Env) lines(lines []string, hint string, fatal bool) {
	word := "error"
	if fatal {
		word = "fatal"
	}
	for _, l := range lines {
		fmt.Fprintf(e.Stderr, "%s: %s: %s\n", e.Name, word, l)
	}
	if hint != "" {
		e.Errorf("%s", hint)
	}
}

// errorExit is the exit code of a failed command: 1, or what SLURM_EXIT_ERROR says (sbatch(1)).
func (e *Env) errorExit() int {
	if n, err := strconv.Atoi(e.Getenv("SLURM_EXIT_ERROR")); err == nil && n > 0 && n < 256 {
		return n
	}
	return 1
}

// diagnosis is what follows Slurm's phrase: detail and hint of a Problem, or "".
func diagnosis(p *pb.Problem) string {
	switch {
	case p.GetDetail() != "" && p.GetHint() != "":
		return p.GetDetail() + " (" + p.GetHint() + ")"
	case p.GetDetail() != "":
		return p.GetDetail()
	}
	return p.GetHint()
}

// phrase is Slurm's text for why a call failed, and the diagnosis that goes after it. A controller that cannot be reached
// gives Slurm's "Unable to contact slurm controller (connect failure)".
func phrase(err error) (text, more string) {
	if p := client.ProblemOf(err); p != nil {
		return p.GetPhrase(), diagnosis(p)
	}
	var ce *client.ConnectError
	if errors.As(err, &ce) {
		return ce.Phrase(), ce.Diagnosis()
	}
	return client.Text(err), ""
}
