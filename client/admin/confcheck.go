package admin

import (
	"errors"
	"fmt"

	"github.com/sluice-hpc/sluice/conf"
)

func confVerb() *Verb {
	return &Verb{
		Name:  "conf",
		Usage: "check a slurm.conf (conf check FILE)",
		Verbs: []*Verb{{
			Name:  "check",
			Usage: "say what is wrong with a slurm.conf, and what of it has no effect",
			Args:  "[FILE]",
			Description: `Reads FILE (default: SLURM_CONF, else ` + conf.DefaultPath + `) and the gres.conf, cgroup.conf and topology.conf beside it. The exit code is 1
when there is a fault; keys without effect and warnings are no faults.`,
			Run: runConfCheck,
		}},
	}
}

func runConfCheck(c *Call) error {
	path := ""
	switch len(c.Args) {
	case 0:
		path = conf.Path()
	case 1:
		path = c.Args[0]
	default:
		return fmt.Errorf("cannot check more than one file: got %d", len(c.Args))
	}
	cfg, err := conf.Load(path, conf.Options{})
	var faults conf.Faults
	if errors.As(err, &faults) {
		for _, f := range faults {
			fmt.Fprintln(c.Stdout, f.Error())
		}
		return fmt.Errorf("%s: %d fault%s", path, len(faults), plural(len(faults)))
	}
	if err != nil {
		return err
	}
	for _, i := range cfg.Ignored {
		fmt.Fprintf(c.Stdout, "%s:%d: %s\n", i.File, i.Line, i)
	}
	for _, w := range cfg.Warnings {
		fmt.Fprintf(c.Stdout, "warning: %s\n", w.Error())
	}
	fmt.Fprintf(c.Stdout, "%s: no faults; cluster %s, %d node%s, %d partition%s\n", path, cfg.ClusterName,
		len(cfg.Nodes), plural(len(cfg.Nodes)), len(cfg.Partitions), plural(len(cfg.Partitions)))
	return nil
}
