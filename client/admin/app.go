// Package admin holds the verbs of `sluice` that are not Slurm's commands: up, down, conf, ….
package admin

import (
	"fmt"
	"io"
	"os"

	"github.com/sluice-hpc/sluice/internal/version"
)

// Extra are verbs that the program adds: those that need packages which the commands must not know, such as the scheduler.
var Extra []*Verb

// Verbs are all verbs; commands are the names of Slurm's commands.
func Verbs(commands []string) []*Verb {
	return append([]*Verb{up(commands), down(), confVerb(), adopt()}, Extra...)
}

// Main runs the verb of args and returns its exit code.
func Main(args, commands []string) int {
	if err := Run(args, commands, os.Stdout, os.Stderr); err != nil {
		if text := err.Error(); text != "" {
			fmt.Fprintln(os.Stderr, "sluice: error:", text)
		}
		return 1
	}
	return 0
}

// Run runs the verb of args.
func Run(args, commands []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && (args[0] == "--version" || args[0] == "-v" || args[0] == "-V") {
		fmt.Fprint(stdout, version.Text())
		return nil
	}
	return run(Verbs(commands), "", args, stdout, stderr)
}
