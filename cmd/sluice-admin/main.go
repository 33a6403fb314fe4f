// sluice-admin is what `sluice up`, `sluice down` and the other verbs that are not Slurm's commands become.
package main

import (
	"os"

	"github.com/sluice-hpc/sluice/client/admin"
	"github.com/sluice-hpc/sluice/client/cli"
)

func main() { os.Exit(admin.Main(os.Args, cli.Names())) }
