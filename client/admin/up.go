package admin

import (
	"fmt"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/sluice-hpc/sluice/client/cluster"
)

func up(commands []string) *cli.Command {
	return &cli.Command{
		Name:      "up",
		Usage:     "start a cluster on this machine: a controller and node daemons",
		ArgsUsage: " ",
		Description: `Returns when every node is idle. Typed again, it starts whatever of the cluster does not run, with its state.

Examples:
   sluice up --nodes 2                   a cluster of two nodes, in the usual folder
   sluice up --dir /tmp/c --conf my.conf the nodes of my.conf, which all are this machine`,
		Flags: []cli.Flag{
			dirFlag(),
			&cli.IntFlag{Name: "nodes", Usage: "write a configuration with `N` nodes", DefaultText: "1"},
			&cli.StringFlag{Name: "conf", Usage: "use this slurm.conf `FILE`; state, logs and sockets are below --dir all the same"},
			&cli.BoolFlag{Name: "detach", Usage: "do not wait until the nodes are idle", DisableDefaultText: true},
			&cli.DurationFlag{Name: "timeout", Usage: "wait at most this `TIME` for the nodes, such as 30s", DefaultText: "2m"},
		},
		Action: func(c *cli.Context) error { return runUp(c, commands) },
	}
}

func dirFlag() cli.Flag {
	return &cli.StringFlag{Name: "dir", Usage: "folder `DIR` of the cluster", DefaultText: cluster.DefaultDir()}
}

func runUp(c *cli.Context, commands []string) error {
	if err := noArguments(c); err != nil {
		return err
	}
	if c.IsSet("nodes") && c.Int("nodes") < 1 {
		return fmt.Errorf("cannot start %d nodes: at least 1 and at most %d run on one machine", c.Int("nodes"), cluster.MaxNodes)
	}
	ctx, stop := signal.NotifyContext(c.Context, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	p := newProgress(c.App.ErrWriter)
	s, err := cluster.Up(ctx, cluster.UpOptions{
		Dir: c.String("dir"), Nodes: c.Int("nodes"), Conf: c.String("conf"), Detach: c.Bool("detach"), Timeout: c.Duration("timeout"),
		Commands: commands, Progress: p.say,
	})
	p.end()
	if err != nil {
		return err
	}
	tellStarted(c, s)
	return nil
}

func tellStarted(c *cli.Context, s *cluster.Started) {
	out := c.App.Writer
	state := "up"
	switch {
	case s.Detached:
		state = "starting"
	case len(s.New) == 0:
		state = "up already"
	}
	fmt.Fprintf(out, "cluster %s is %s: %d node%s, configured by %s\n", s.Cluster, state, s.Nodes, plural(s.Nodes), s.Conf)
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
