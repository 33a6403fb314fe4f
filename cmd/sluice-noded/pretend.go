package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/ca"
	"github.com/sluice-hpc/sluice/internal/logfile"
	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/noded/pretend"
	"github.com/urfave/cli/v2"
)

func pretendCommand() *cli.Command {
	return &cli.Command{
		Name: "pretend", Usage: "simulate many nodes, to try a configuration at scale (sluice up --pretend)",
		Description: "Runs in the foreground until SIGTERM, on the controller's host: it signs the nodes' certificates with the key of " +
			"the\ncluster's certificate authority. Nothing is executed. The sleep commands of a script determine its run time, its " +
			"exit\ncommand its exit status; time limits, signals and scancel work. All jobs are lost when it ends.\n\nExample:\n   " +
			"sluice-noded pretend --conf slurm.conf --state " +
			"/var/spool/slurmctld --nodes 'n[1-2000]'",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "conf", Aliases: []string{"f"}, EnvVars: []string{"SLURM_CONF"}, Value: "/etc/slurm/slurm.conf",
				Usage: "slurm.conf `FILE`, which describes the hardware of the nodes"},
			&cli.StringFlag{Name: "nodes",
				Usage: "`NODELIST` to simulate (default: all nodes of slurm.conf that are not FUTURE or CLOUD)"},
			&cli.StringFlag{Name: "state",
				Usage: "directory `DIR` of the controller's state, with the authority's key (default: StateSaveLocation)"},
			&cli.StringSliceFlag{Name: "controller", Usage: "`HOST:PORT` of the controller (default: SlurmctldHost, SlurmctldPort)"},
			&cli.BoolFlag{Name: "one-address", Usage: "connect all nodes from one address; otherwise, with a controller on 127.0.0.1, " +
				"each has its own in 127.0.0.0/8"},
			&cli.StringFlag{Name: "log", Usage: "append the log to `FILE` (default: standard error)"},
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "log what each node does"},
		},
		Action: pretendNodes,
	}
}

func pretendNodes(c *cli.Context) error {
	if c.Args().Present() {
		return fmt.Errorf("unknown argument %q; see sluice-noded pretend --help", c.Args().First())
	}
	cfg, err := conf.Load(c.String("conf"), conf.Options{})
	if err != nil {
		return err
	}
	logs, err := logfile.Open(c.String("log"))
	if err != nil {
		return err
	}
	level := slog.LevelError
	if c.Bool("verbose") {
		level = slog.LevelDebug
	}
	o := pretend.Options{Controllers: c.StringSlice("controller"), Conf: c.String("conf"),
		Log: slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: level}))}
	if o.Nodes, err = chosen(cfg, c.String("nodes")); err != nil {
		return err
	}
	if len(o.Controllers) == 0 {
		for _, h := range cfg.SlurmctldHosts {
			o.Controllers = append(o.Controllers, net.JoinHostPort(h.Addr, strconv.Itoa(cfg.SlurmctldPort)))
		}
	}
	if !c.Bool("one-address") && slices.ContainsFunc(o.Controllers, onLoopback) {
		o.Dial = pretend.Apart(o.Nodes)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	dir := filepath.Join(cmp.Or(c.String("state"), cfg.StateSaveLocation), "tls")
	authority, err := awaitAuthority(ctx, dir)
	if err != nil {
		return err
	}
	o.Certificate = func(node string) (mtls.Files, error) {
		crt, key, err := ca.Issue(dir, node, mtls.RoleNode, nil)
		return mtls.Files{Authority: authority, Certificate: crt, Key: key}, err
	}
	return pretend.Run(ctx, o)
}

func onLoopback(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	ip := net.ParseIP(host).To4()
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// chosen returns the nodes to simulate.
func chosen(cfg *conf.Config, list string) (nodes []*conf.Node, err error) {
	if list == "" {
		return slices.DeleteFunc(slices.Clone(cfg.Nodes), func(n *conf.Node) bool { return n.State == "FUTURE" || n.State == "CLOUD" }), nil
	}
	names, err := hostlist.Expand(list)
	if err != nil {
		return nil, fmt.Errorf("--nodes: %w", err)
	}
	for _, name := range names {
		n, ok := cfg.Node(name)
		if !ok {
			return nil, fmt.Errorf("%s has no NodeName=%s", cfg.Path, name)
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// authorityWait is how long to wait for a controller that was started at the same time to create the cluster's authority.
const authorityWait = time.Minute

func awaitAuthority(ctx context.Context, dir string) ([]byte, error) {
	for deadline := time.Now().Add(authorityWait); ; {
		err := ca.Check(dir)
		if err == nil {
			return os.ReadFile(filepath.Join(dir, "ca.crt"))
		}
		if !errors.Is(err, fs.ErrNotExist) || time.Now().After(deadline) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}
