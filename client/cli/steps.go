package cli

import (
	"os"
	"path/filepath"
	"syscall"

	"github.com/sluice-hpc/sluice/client/command"
)

// StepsProgram is the program of the commands that talk with nodes (cmd/sluice-steps). It lies beside this one; its links lead there
// directly, and this way is for `sluice srun`, and for links that were made before.
const StepsProgram = "sluice-steps"

func stepCommand(name string) func(*command.Env, []string) int {
	return func(env *command.Env, args []string) int {
		own, err := os.Executable()
		if err == nil {
			own, err = filepath.EvalSymlinks(own)
		}
		if err == nil {
			path := filepath.Join(filepath.Dir(own), StepsProgram)
			err = &os.PathError{Op: "execute", Path: path, Err: syscall.Exec(path, append([]string{name}, args...), env.Environ)}
		}
		env.Errorf("%v: it comes with sluice, and belongs beside it", err)
		return env.ErrorExit()
	}
}
