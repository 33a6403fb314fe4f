package cli

import (
	"os"
	"path/filepath"
	"syscall"

	"github.com/sluice-hpc/sluice/client/command"
)

// StepsProgram has the commands that connect to nodes (cmd/sluice-steps). It is installed beside this program. Links such as srun
// point to it directly; this way is for `sluice srun` and for older links.
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
		env.Errorf("%v: this program is installed with sluice, in the same directory", err)
		return env.ErrorExit()
	}
}
