package cli

import (
	"context"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/sbatch"
	"github.com/sluice-hpc/sluice/client/wire"
)

// sbatchCommand is `sluice sbatch`; the sbatch that users call is a binary of its own.
func sbatchCommand(env *Env, args []string) int {
	return sbatch.Main(&sbatch.Env{Env: env.command(), Dial: func() (*wire.Conn, error) {
		if env.Socket == nil {
			return nil, &client.ConnectError{Err: context.Canceled}
		}
		socket, err := env.Socket()
		if err != nil {
			return nil, err
		}
		return wire.Dial(socket)
	}}, args)
}
