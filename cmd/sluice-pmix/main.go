// sluice-pmix is the PMIx server of a step on a node, which the node daemon starts for srun --mpi=pmix. It is apart from the daemon because
// it is linked with libpmix, and because it runs as the job's user.
package main

import (
	"os"

	"github.com/sluice-hpc/sluice/noded/pmix"
)

func main() { os.Exit(pmix.Main(os.Args[1:])) }
