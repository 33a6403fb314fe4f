// sluice-pmix is the PMIx server of a step on a node. The shim starts it for srun --mpi=pmix. It is a separate program because it
// links libpmix and runs as the job's user.
package main

import (
	"os"

	"github.com/sluice-hpc/sluice/noded/pmix"
)

func main() { os.Exit(pmix.Main(os.Args[1:])) }
