// sluice-sbatch is the sbatch command, installed under that name by a link. It is a binary of its own, and not a link to
// sluice, because it lives for two milliseconds and the libraries of the other commands would double that.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"os"

	"github.com/sluice-hpc/sluice/client/sbatch"
)

func main() { os.Exit(sbatch.Main(sbatch.Process(), os.Args[1:])) }
