package cli

import "github.com/sluice-hpc/sluice/client/sbatch"

// sbatchCommand is sbatch.
func sbatchCommand(env *Env, args []string) int {
	return sbatch.Main(&sbatch.Env{Env: env.command(), Dial: env.Dial}, args)
}
