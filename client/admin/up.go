package admin

import (
	"context"
	"flag"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/client/cluster"
)

func up(commands []string) *Verb {
	return &Verb{
		Name:  "up",
		Usage: "start a cluster on this machine: a controller and node daemons",
		Description: `Returns when every node is idle. Run again, it starts the daemons that are not running; the cluster keeps its state.

Examples:
   sluice up --nodes 2                   a cluster of two nodes, in the default directory
   sluice up --gpus a100:8               a node with eight simulated GPUs
   sluice up --dir /tmp/c --conf my.conf the nodes of my.conf, all on this machine
   sluice up --dir /tmp/c --pretend 2000 2,000 simulated nodes: nothing is executed, a script's sleeps are its run time
   sluice up --dir /tmp/c --pretend all --conf my.conf
                                         all nodes of my.conf, simulated`,
		Flags: func(f *flag.FlagSet) {
			dirFlag(f)
			f.Int("nodes", 0, "write a configuration with `N` nodes (default: 1)")
			f.String("conf", "", "slurm.conf `FILE` of the cluster; state, logs and sockets stay below --dir")
			f.String("gpus", "",
				"simulate the GPUs of `SPEC` on each node: a100:8, or titan_xp:1,titan_v:1; none: no GPUs (default: the machine's)")
			f.String("pretend", "", "simulate `N` nodes that execute nothing; all, with --conf: the nodes of the file (see sluice-noded pretend --help)")
			f.Bool("detach", false, "do not wait until the nodes are idle")
			f.Duration("timeout", 0, "wait at most `TIME` for the nodes, such as 30s (default: 2m)")
		},
		Run: func(c *Call) error { return runUp(c, commands) },
	}
}

func dirFlag(f *flag.FlagSet) {
	f.String("dir", "", "directory `DIR` of the cluster (default: "+cluster.DefaultDir()+")")
}

func runUp(c *Call, commands []string) error {
	if c.IsSet("nodes") && c.Int("nodes") < 1 {
		return fmt.Errorf("cannot start %d nodes: at least 1 and at most %d run on one machine", c.Int("nodes"), cluster.MaxNodes)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	p := newProgress(c.Stderr)
	s, err := cluster.Up(ctx, cluster.UpOptions{
		Dir: c.String("dir"), Nodes: c.Int("nodes"), Conf: c.String("conf"), GPUs: c.String("gpus"),
		Pretend: c.String("pretend"), Detach: c.Bool("detach"),
		Timeout:  value[time.Duration](c, "timeout"),
		Commands: commands, Progress: p.say,
	})
	p.end()
	if err != nil {
		return err
	}
	tellStarted(c, s)
	return nil
}

func tellStarted(c *Call, s *cluster.Started) {
	out := c.Stdout
	state := "up"
	switch {
	case s.Detached:
		state = "starting"
	case len(s.New) == 0:
		state = "up already"
	}
	fmt.Fprintf(out, "cluster %s is %s: %d node%s, configuration %s\n", s.Cluster, state, s.Nodes, plural(s.Nodes), s.Conf)
	for _, r := range s.Remarks {
		fmt.Fprintln(out, r)
	}
	fmt.Fprintf(out, "to use it:   . %s\nto stop it:  sluice down%s\n", word(s.EnvFile), dirArgument(s.Dir))
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

// dirArgument is the --dir that leads back to the folder, when it is not the usual one.
func dirArgument(dir string) string {
	if dir == cluster.DefaultDir() {
		return ""
	}
	return " --dir " + word(dir)
}
