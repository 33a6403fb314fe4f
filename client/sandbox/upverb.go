package sandbox

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/opt"
)

// UpVerb is `sluice up`; commands are the names of Slurm's commands.
func UpVerb(commands []string) *command.Verb {
	return &command.Verb{
		Name: "up", Line: "start a cluster on this machine",
		Page: command.Page{
			About: `Starts a cluster on this machine: a controller and node daemons. Returns when every node is idle. Run again, it starts
the daemons that are not running; the cluster keeps its state.`,
			Options: []command.Option{
				dirOption(),
				{Name: opt.Name{Long: "nodes", Arg: opt.Required}, Meta: "N", Help: "write a configuration with N nodes (default: 1)",
					Is: command.Whole},
				{Name: opt.Name{Long: "conf", Arg: opt.Required}, Meta: "FILE",
					Help: "slurm.conf of the cluster; state, logs and sockets stay below --dir"},
				{Name: opt.Name{Long: "gpus", Arg: opt.Required}, Meta: "SPEC",
					Help: "simulate these GPUs on each node: a100:8, or titan_xp:1,titan_v:1; none: no GPUs (default: the machine's)"},
				{Name: opt.Name{Long: "pretend", Arg: opt.Required}, Meta: "N",
					Help: "simulate N nodes that execute nothing; all, with --conf: the nodes of the file (see sluice-noded pretend --help)"},
				{Name: opt.Name{Long: "detach"}, Help: "do not wait until the nodes are idle"},
				{Name: opt.Name{Long: "timeout", Arg: opt.Required}, Meta: "TIME",
					Help: "wait at most TIME for the nodes, such as 30s (default: 2m)", Is: command.Span},
			},
			Examples: `  sluice up --nodes 2                    a cluster of two nodes, in the default directory
  sluice up --gpus a100:8                a node with eight simulated GPUs
  sluice up --dir /tmp/c --conf my.conf  the nodes of my.conf, all on this machine
  sluice up --dir /tmp/c --pretend 2000  2,000 simulated nodes: nothing is executed, a script's sleeps are its run time
  sluice up --dir /tmp/c --pretend all --conf my.conf
                                         all nodes of my.conf, simulated
`,
		},
		Run: func(c *command.Call) error { return runUp(c, commands) },
	}
}

func dirOption() command.Option {
	return command.Option{Name: opt.Name{Long: "dir", Arg: opt.Required}, Meta: "DIR",
		Help: "directory of the cluster (default: " + DefaultDir() + ")"}
}

func runUp(c *command.Call, commands []string) error {
	if c.Given("nodes") && c.Int("nodes") < 1 {
		return fmt.Errorf("cannot start %d nodes: at least 1 and at most %d run on one machine", c.Int("nodes"), MaxNodes)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	p := newProgress(c.Stderr)
	s, err := Up(ctx, UpOptions{
		Dir: c.Text("dir"), Nodes: c.Int("nodes"), Conf: c.Text("conf"), GPUs: c.Text("gpus"),
		Pretend: c.Text("pretend"), Detach: c.Given("detach"), Timeout: c.Duration("timeout"),
		Commands: commands, Progress: p.say,
	})
	p.end()
	if err != nil {
		return err
	}
	tellStarted(c, s)
	return nil
}

func tellStarted(c *command.Call, s *Started) {
	state := "up"
	switch {
	case s.Detached:
		state = "starting"
	case len(s.New) == 0:
		state = "up already"
	}
	fmt.Fprintf(c.Stdout, "cluster %s is %s: %s, configuration %s\n", s.Cluster, state, command.Plural(s.Nodes, "node"), s.Conf)
	for _, r := range s.Remarks {
		fmt.Fprintln(c.Stdout, r)
	}
	fmt.Fprintf(c.Stdout, "to use it:   . %s\nto stop it:  sluice down%s\n", word(s.EnvFile), dirArgument(s.Dir))
}

// dirArgument returns the --dir option for the directory, unless it is the default.
func dirArgument(dir string) string {
	if dir == DefaultDir() {
		return ""
	}
	return " --dir " + word(dir)
}
