// sbatch submits a batch script. It is a binary of its own, and not a link to sluice, because it lives for two milliseconds
// and sluice's libraries would double that.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"os"

	"github.com/sluice-hpc/sluice/client/sbatch"
)

func main() { os.Exit(sbatch.Main(sbatch.Process(), os.Args[1:])) }
