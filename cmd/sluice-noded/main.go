// sluice-noded is the node daemon. It only wires: see package noded. The hidden subcommand stepd is the shim of one step.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/conf/version"
	"github.com/sluice-hpc/sluice/noded"
	"github.com/sluice-hpc/sluice/noded/stepd"
	"github.com/urfave/cli/v2"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "stepd" {
		os.Exit(stepd.Main(os.Args[2:]))
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // a heap of a few MiB: collecting it less often costs little memory and saves a tenth of the work
	}
	cli.VersionPrinter = func(*cli.Context) { fmt.Print(version.Text()) }
	app := &cli.App{
		Name: "sluice-noded", Usage: "the node daemon of a Sluice cluster", Version: version.Sluice, HideHelpCommand: true,
		Description: "Runs in the foreground until SIGTERM; running jobs go on without it, and the next daemon finds them.\n\nExample:\n   sluice-noded --conf /etc/slurm/slurm.conf --tls /etc/sluice/tls",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "conf", Aliases: []string{"f"}, EnvVars: []string{"SLURM_CONF"}, Value: "/etc/slurm/slurm.conf", Usage: "slurm.conf `FILE`"},
			&cli.StringFlag{Name: "node", Aliases: []string{"N"}, Usage: "`NAME` of this node (default: the NodeName whose NodeHostname is this host)"},
			&cli.StringFlag{Name: "spool", Usage: "folder of this node's jobs `DIR` (default: SlurmdSpoolDir)"},
			&cli.StringFlag{Name: "tls", Value: "/etc/sluice/tls", Usage: "folder `DIR` with ca.crt, node.crt and node.key (sluice-ctld issue writes it)"},
			&cli.StringSliceFlag{Name: "controller", Usage: "`HOST:PORT` of the controller (default: SlurmctldHost, SlurmctldPort)"},
			&cli.StringFlag{Name: "socket", EnvVars: []string{"SLUICE_SOCKET"}, Usage: "the controller's unix socket on this host, passed on to jobs `PATH`"},
			&cli.StringFlag{Name: "gpus", Usage: "pretend the GPUs of `SPEC` instead of looking for real ones: a100:8, titan_xp:1,titan_v:1, h100:4:mig; none: no GPU at all"},
			&cli.BoolFlag{Name: "no-gpu-files", Usage: "do not write the usual files about the GPUs' jobs (/run/gpustat, /run/dcgm-job-map), only those of SlurmdParameters"},
			&cli.StringFlag{Name: "log", Usage: "append the log to `FILE` (default: standard error)"},
		},
		Action: run,
	}
	if err := app.Run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "sluice-noded:", err)
		os.Exit(1)
	}
}

func run(c *cli.Context) error {
	if c.Args().Present() {
		return fmt.Errorf("unknown argument %q; see sluice-noded --help", c.Args().First())
	}
	syscall.Umask(0o022) // whatever it was started under: jobs see their cgroups and scripts, and what is secret says so
	o, err := options(c)
	if err != nil {
		return err
	}
	out, err := logWriter(c.String("log"))
	if err != nil {
		return err
	}
	o.ShimLog = out
	o.Level = &slog.LevelVar{}
	o.Log = slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: o.Level}))
	o.GPUFiles = !c.Bool("no-gpu-files")
	if err := gpus(c.String("gpus"), &o); err != nil {
		return err
	}
	if o.GPUs != nil {
		defer o.GPUs.Close()
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err = noded.Run(ctx, o)
	if err != nil && c.String("log") != "" {
		o.Log.Error("the node daemon ends", "err", err)
	}
	return err
}

// options puts slurm.conf and the command line together.
func options(c *cli.Context) (noded.Options, error) {
	cfg, err := conf.Load(c.String("conf"), conf.Options{})
	if err != nil {
		return noded.Options{}, err
	}
	n, err := thisNode(cfg, c.String("node"))
	if err != nil {
		return noded.Options{}, err
	}
	o := noded.Options{NodeName: n.Name, Spool: c.String("spool"), TLS: c.String("tls"), Controllers: c.StringSlice("controller"), Cluster: cfg.ClusterName,
		Conf: c.String("conf"), Socket: c.String("socket"), Addr: n.Addr, Port: uint32(n.Port), CgroupPlugin: cfg.Cgroup.CgroupPlugin}
	if o.Spool == "" {
		o.Spool = conf.NodePath(cfg.SlurmdSpoolDir, n)
	}
	if len(o.Controllers) == 0 {
		for _, h := range cfg.SlurmctldHosts {
			o.Controllers = append(o.Controllers, net.JoinHostPort(h.Addr, strconv.Itoa(cfg.SlurmctldPort)))
		}
	}
	return o, nil
}

// thisNode finds the configuration of the node that this daemon is.
func thisNode(cfg *conf.Config, name string) (*conf.Node, error) {
	if name != "" {
		n, ok := cfg.Node(name)
		if !ok {
			return nil, fmt.Errorf("%s has no NodeName=%s", cfg.Path, name)
		}
		return n, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("cannot tell this host's name: %w; say --node NAME", err)
	}
	short, _, _ := strings.Cut(host, ".") // as Slurm has it: a node is called without its domain, or with it
	var found []*conf.Node
	for _, n := range cfg.Nodes {
		if n.Name == host || n.Hostname == host || n.Name == short || n.Hostname == short {
			found = append(found, n)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%s has %d nodes whose NodeName or NodeHostname is %s; say --node NAME", cfg.Path, len(found), host)
	}
	return found[0], nil
}

func logWriter(path string) (*os.File, error) {
	if path == "" {
		return os.Stderr, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the log: %w", err)
	}
	return f, nil
}
