package admin

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/sluice-hpc/sluice/conf"
)

func confCommand() *cli.Command {
	return &cli.Command{
		Name:  "conf",
		Usage: "work with configuration files",
		Subcommands: []*cli.Command{{
			Name:      "check",
			Usage:     "say what is wrong with a slurm.conf, and what of it has no effect",
			ArgsUsage: "[FILE]",
			Description: `Reads FILE (default: SLURM_CONF, else ` + conf.DefaultPath + `) and the gres.conf and cgroup.conf beside it. The exit code is 1
when there is a fault; keys without effect and warnings are no faults.`,
			HideHelpCommand: true,
			Action:          runConfCheck,
		}},
		HideHelpCommand: true,
	}
}

func runConfCheck(c *cli.Context) error {
	if c.NArg() > 1 {
		return fmt.Errorf("cannot check more than one file: got %d", c.NArg())
	}
	path := c.Args().First()
	if path == "" {
		path = conf.Path()
	}
	cfg, err := conf.Load(path, conf.Options{})
	var faults conf.Faults
	if errors.As(err, &faults) {
		for _, f := range faults {
			fmt.Fprintln(c.App.Writer, f.Error())
		}
		return fmt.Errorf("%s: %d fault%s", path, len(faults), plural(len(faults)))
	}
	if err != nil {
		return err
	}
	for _, i := range cfg.Ignored {
		fmt.Fprintf(c.App.Writer, "%s:%d: %s\n", i.File, i.Line, i)
	}
	for _, w := range cfg.Warnings {
		fmt.Fprintf(c.App.Writer, "warning: %s\n", w.Error())
	}
	fmt.Fprintf(c.App.Writer, "%s: no faults; cluster %s, %d node%s, %d partition%s\n", path, cfg.ClusterName,
		len(cfg.Nodes), plural(len(cfg.Nodes)), len(cfg.Partitions), plural(len(cfg.Partitions)))
	return nil
}
