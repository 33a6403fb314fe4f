// Package admin holds the verbs of `sluice` that are not Slurm's commands: up, down, conf, ….
package admin

import (
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/sluice-hpc/sluice/conf/version"
)

// Extra are verbs that the program adds: those that need packages which the commands must not know, such as the scheduler.
var Extra []*cli.Command

// App is the command line of those verbs; commands are the names of Slurm's commands.
func App(commands []string, stdout, stderr io.Writer) *cli.App {
	cli.VersionPrinter = func(c *cli.Context) { fmt.Fprint(c.App.Writer, version.Text()) }
	return &cli.App{
		Name:                 "sluice",
		Usage:                "a batch scheduler for GPU clusters that speaks Slurm",
		Version:              version.Sluice,
		Writer:               stdout,
		ErrWriter:            stderr,
		HideHelpCommand:      true,
		EnableBashCompletion: true,
		// Errors are printed and turned into an exit code by Main alone.
		ExitErrHandler: func(*cli.Context, error) {},
		Commands:       append([]*cli.Command{up(commands), down(), confCommand()}, Extra...),
	}
}

// Main runs the verb of argv and returns its exit code.
func Main(argv, commands []string) int {
	app := App(commands, os.Stdout, os.Stderr)
	if len(argv) > 1 && argv[1] != "" && argv[1][0] != '-' && !slices.ContainsFunc(app.Commands, func(c *cli.Command) bool { return c.HasName(argv[1]) }) {
		fmt.Fprintf(os.Stderr, "sluice: unknown command %q; `sluice help` lists them\n", argv[1])
		return 1
	}
	if err := app.Run(argv); err != nil {
		if text := err.Error(); text != "" {
			fmt.Fprintln(os.Stderr, "sluice: error:", text)
		}
		return 1
	}
	return 0
}

// noArguments refuses what flags do not explain.
func noArguments(c *cli.Context) error {
	if c.Args().Present() {
		return fmt.Errorf("unknown argument %q; see `sluice %s --help`", c.Args().First(), c.Command.Name)
	}
	return nil
}
