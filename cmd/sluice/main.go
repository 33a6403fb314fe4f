// sluice is every command in one binary: it runs the one that it is called as, or `sluice COMMAND`.
//
// A command lives for about two milliseconds, and reading /proc/self/mountinfo to count the CPUs of a container, as the
// runtime does since Go 1.25, is a tenth of that; it also wants no collector tuned to them.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"os"

	"github.com/sluice-hpc/sluice/client/admin"
	"github.com/sluice-hpc/sluice/client/cli"
)

func main() {
	admin.Extra = append(admin.Extra, simCommand())
	os.Exit(cli.Main(os.Args))
}
