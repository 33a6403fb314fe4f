// sluice is every command in one binary: it runs the command named by argv[0], or `sluice COMMAND`.
//
// A command lives for about two milliseconds. Since Go 1.25 the runtime reads /proc/self/mountinfo to count the CPUs of a
// container, which takes a tenth of that, so it is disabled.
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
