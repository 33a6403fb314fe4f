// sluice-ctld is the controller daemon. It only wires: see package ctld.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/conf/version"
	"github.com/sluice-hpc/sluice/ctld"
	"github.com/urfave/cli/v2"
)

func main() {
	cli.VersionPrinter = func(*cli.Context) { fmt.Print(version.Text()) }
	state := &cli.StringFlag{Name: "state", Usage: "folder of the state `DIR` (default: StateSaveLocation of slurm.conf)"}
	app := &cli.App{
		Name: "sluice-ctld", Usage: "the controller of a Sluice cluster", Version: version.Sluice, HideHelpCommand: true,
		Description: "Runs in the foreground until SIGTERM; running jobs go on without it.\n\nExample:\n   sluice-ctld --conf /etc/slurm/slurm.conf",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "conf", Aliases: []string{"f"}, EnvVars: []string{"SLURM_CONF"}, Value: "/etc/slurm/slurm.conf", Usage: "slurm.conf `FILE`"},
			state,
			&cli.StringFlag{Name: "socket", Usage: "unix socket of the commands `PATH` (default: /run/sluice/<ClusterName>/ctld.sock)"},
			&cli.StringFlag{Name: "listen", Usage: "`ADDR:PORT` for the node daemons (default: all addresses, SlurmctldPort)"},
			&cli.StringFlag{Name: "log", Usage: "append the log to `FILE` (default: standard error)"},
		},
		Action: run,
		Commands: []*cli.Command{
			{Name: "issue", Usage: "write a node's certificate into a folder", Description: "Example:\n   sluice-ctld issue --state /var/spool/sluice --node n1 --out /etc/sluice/tls",
				Flags:  []cli.Flag{state, &cli.StringFlag{Name: "node", Required: true, Usage: "`NAME` of the node"}, &cli.StringFlag{Name: "out", Required: true, Usage: "folder `DIR` to write to"}},
				Action: issue},
			{Name: "restore", Usage: "replace a damaged database by the newest good backup", Description: "The controller must not be running. The damaged database is kept beside.\n\nExample:\n   sluice-ctld --conf /etc/slurm/slurm.conf restore",
				Flags:  []cli.Flag{state, &cli.StringFlag{Name: "from", Usage: "backup `FILE` to use (default: the newest good one)"}},
				Action: restore},
		},
	}
	if err := app.Run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "sluice-ctld:", err)
		os.Exit(1)
	}
}

func run(c *cli.Context) error {
	if c.Args().Present() {
		return fmt.Errorf("unknown argument %q; see sluice-ctld --help", c.Args().First())
	}
	out, err := logWriter(c.String("log"))
	if err != nil {
		return err
	}
	log := slog.New(ctld.NewLogHandler(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err = ctld.Run(ctx, ctld.Options{Conf: c.String("conf"), State: c.String("state"), Socket: c.String("socket"), Listen: c.String("listen"), Log: log})
	if err != nil && c.String("log") != "" {
		log.Error("the controller ends", "err", err)
	}
	return err
}

func logWriter(path string) (io.Writer, error) {
	if path == "" {
		return os.Stderr, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the log: %w", err)
	}
	return f, nil
}

// needState is --state, else what slurm.conf (--conf, SLURM_CONF) says.
func needState(c *cli.Context) (string, error) {
	if s := c.String("state"); s != "" {
		return s, nil
	}
	cfg, err := conf.Load(c.String("conf"), conf.Options{})
	if err != nil {
		return "", fmt.Errorf("%w; or say which state: --state DIR", err)
	}
	return cfg.StateSaveLocation, nil
}

func issue(c *cli.Context) error {
	dir, err := needState(c)
	if err != nil {
		return err
	}
	signed, err := ctld.Issue(dir, c.String("node"), c.String("out"))
	if err == nil && signed {
		fmt.Printf("wrote the certificate of node %s to %s\n", c.String("node"), c.String("out"))
	}
	if err == nil {
		warnUnknown(c, dir)
	}
	return err
}

// warnUnknown says that the slurm.conf of this state, where it can be read, does not have the node: a typing error, or a node yet to come.
func warnUnknown(c *cli.Context, state string) {
	cfg, err := conf.Load(c.String("conf"), conf.Options{})
	if err != nil || filepath.Clean(cfg.StateSaveLocation) != filepath.Clean(state) {
		return
	}
	if _, ok := cfg.Node(c.String("node")); !ok {
		fmt.Fprintf(os.Stderr, "sluice-ctld: warning: %s has no node %s; the controller refuses it until it does\n", c.String("conf"), c.String("node"))
	}
}

func restore(c *cli.Context) error {
	dir, err := needState(c)
	if err != nil {
		return err
	}
	text, err := ctld.Restore(dir, c.String("from"))
	if err == nil {
		fmt.Println(text)
	}
	return err
}
