// Package cli finds the command to run from the name of the process: a command of Slurm, each a package of its own with
// a row in commands.go, or a verb of sluice.
//
// Its tests run whole command lines against a fake controller and compare the output with recorded answers of a real
// Slurm.
package cli

import (
	"path/filepath"
	"runtime/debug"

	"github.com/sluice-hpc/sluice/client/command"
)

// Main runs the command that argv[0] names, or `sluice VERB …`, and returns its exit code. more are verbs that need packages which the
// commands must not know, such as the scheduler.
func Main(argv []string, more ...*command.Verb) int {
	name, args := "sluice", argv
	if len(argv) > 0 {
		name, args = filepath.Base(argv[0]), argv[1:]
	}
	if name == "sluice" {
		return sluice(command.Process(name), args, more)
	}
	return dispatch(name, args, more)
}

// A view of a big queue lives for milliseconds: collecting garbage costs more than it frees, so it is left until the limit.
// The other commands stay below the size at which the collector first runs, and setting it up would cost them more.
func collectLate() {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memoryLimitBytes)
}

const memoryLimitBytes = 512 << 20

func dispatch(name string, args []string, more []*command.Verb) int {
	for _, c := range commands() {
		if c.name == name {
			if c.big {
				collectLate()
			}
			env := command.Process(name)
			return env.Finish(c.run(env, args))
		}
	}
	return sluice(command.Process("sluice"), append([]string{name}, args...), more)
}
