// Package cli selects the command to run by the name of the process: one of Slurm's commands, each a package with a row in
// commands.go, or a verb of sluice.
//
// Its tests run whole command lines against a fake controller and compare the output with recorded answers of a real Slurm.
package cli

import (
	"path/filepath"
	"runtime/debug"

	"github.com/sluice-hpc/sluice/client/command"
)

// Main runs the command that argv[0] names, or `sluice VERB …`, and returns its exit code. more are verbs whose packages the
// commands must not import, such as the scheduler.
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

// A view of a large queue lives for milliseconds. Garbage collection would cost more than it frees, so it is delayed until the
// memory limit. Other commands stay below the heap size of the first collection; for them this setup would cost more than it saves.
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
