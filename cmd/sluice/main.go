// sluice is every command in one binary: it runs the one that it is called as, or `sluice COMMAND`.
package main

import (
	"os"

	"github.com/sluice-hpc/sluice/client/cli"
)

func main() { os.Exit(cli.Main(os.Args)) }
