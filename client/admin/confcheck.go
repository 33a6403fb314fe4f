package admin

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/conf"
)

func confVerb() *Verb {
	return &Verb{
		Name:  "conf",
		Usage: "check a slurm.conf (conf check FILE)",
		Verbs: []*Verb{{
			Name:  "check",
			Usage: "report faults in a slurm.conf, and keys that have no effect",
			Args:  "[FILE]",
			Description: `Reads FILE (default: SLURM_CONF, else ` + conf.DefaultPath + `,
else what the node daemon of this host has fetched) and the gres.conf,
cgroup.conf and topology.conf beside it, and looks on this machine for the
programs and groups that they name. It prints keys and words without effect,
warnings, advice, and faults. The exit code is 1 when there is a fault.`,
			Run: runConfCheck,
		}},
	}
}

func runConfCheck(c *Call) error {
	path := ""
	switch len(c.Args) {
	case 0:
		path = client.ConfPath(os.Getenv)
	case 1:
		path = c.Args[0]
	default:
		return fmt.Errorf("cannot check more than one file: got %d", len(c.Args))
	}
	cfg, err := conf.Load(path, conf.Options{})
	var faults conf.Faults
	if err != nil && !errors.As(err, &faults) {
		return err
	}
	for _, i := range cfg.Ignored {
		fmt.Fprintf(c.Stdout, "%s:%d: %s\n", i.File, i.Line, i)
	}
	for _, w := range slices.Concat(cfg.Warnings, cfg.OnThisMachine()) {
		fmt.Fprintf(c.Stdout, "warning: %s\n", w.Error())
	}
	for _, a := range cfg.Advice {
		fmt.Fprintf(c.Stdout, "advice: %s\n", a.Error())
	}
	if len(faults) > 0 {
		for _, f := range faults {
			fmt.Fprintln(c.Stdout, f.Error())
		}
		return fmt.Errorf("%s: %d fault%s", path, len(faults), plural(len(faults)))
	}
	fmt.Fprintf(c.Stdout, "%s: no faults; cluster %s, %d node%s, %d partition%s\n", path, cfg.ClusterName,
		len(cfg.Nodes), plural(len(cfg.Nodes)), len(cfg.Partitions), plural(len(cfg.Partitions)))
	return nil
}
