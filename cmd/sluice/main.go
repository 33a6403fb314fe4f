// sluice is every command in one binary: it runs the one that it is called as, or `sluice COMMAND`.
//
// A command lives for about two milliseconds. Since Go 1.25 the runtime reads /proc/self/mountinfo to count the CPUs of
// a container, which is a tenth of that, so it is told not to.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"os"

	"github.com/sluice-hpc/sluice/client/cli"
)

func main() {
	os.Exit(cli.Main(os.Args, simVerb()))
}
