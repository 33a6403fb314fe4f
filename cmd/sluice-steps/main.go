// sluice-steps has the commands that connect to the nodes of a step: srun, sattach and sbcast. They are separate because the other
// commands, which start thousands of times a minute, need no TLS.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"os"
	"path/filepath"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/sattach"
	"github.com/sluice-hpc/sluice/client/sbcast"
	"github.com/sluice-hpc/sluice/client/srun"
)

func main() {
	env := command.Process(filepath.Base(os.Args[0]))
	run := srun.Main
	switch env.Name {
	case "sattach":
		run = sattach.Main
	case "sbcast":
		run = sbcast.Main
	default:
		env.Name = "srun"
	}
	os.Exit(env.Finish(run(env, os.Args[1:])))
}
