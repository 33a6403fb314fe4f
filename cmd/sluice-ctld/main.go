// sluice-ctld is the controller daemon. It reads options and runs package ctld.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/conf/slurmargs"
	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/ctld"
	"github.com/sluice-hpc/sluice/ctld/ca"
	"github.com/sluice-hpc/sluice/ctld/jobsubmit"
	"github.com/sluice-hpc/sluice/internal/inherit"
	"github.com/sluice-hpc/sluice/internal/logfile"
	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/internal/passwd"
	"github.com/sluice-hpc/sluice/internal/service"
	"github.com/sluice-hpc/sluice/internal/trusted"
	"github.com/sluice-hpc/sluice/internal/version"
	"github.com/urfave/cli/v2"
)

func main() {
	inherit.Close(0)
	timespec.UseZone()
	if len(os.Args) == 3 && os.Args[1] == ctld.PluginCommand {
		os.Exit(jobsubmit.Worker(os.Args[2]))
	}
	cli.VersionFlag = &cli.BoolFlag{Name: "version", Aliases: []string{"V"}, Usage: "print the version"}
	cli.VersionPrinter = func(*cli.Context) { fmt.Print(version.Text()) }
	state := &cli.StringFlag{Name: "state", Usage: "state directory `DIR` (default: StateSaveLocation of slurm.conf)"}
	app := &cli.App{
		Name: "sluice-ctld", Usage: "the controller of a Sluice cluster", Version: version.Sluice, HideHelpCommand: true,
		Description: "Runs in the foreground until SIGTERM; running jobs continue. SIGHUP rereads slurm.conf,\nlike scontrol " +
			"reconfigure; SIGUSR2 reopens the log file, for logrotate.\n\nExample:\n   sluice-ctld --conf /etc/slurm/slurm.conf",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "conf", Aliases: []string{"f"}, EnvVars: []string{"SLURM_CONF"}, Value: "/etc/slurm/slurm.conf",
				Usage: "slurm.conf `FILE`"},
			state,
			&cli.StringFlag{Name: "socket", Usage: "`PATH` of the Unix socket for commands (default: /run/sluice/<ClusterName>/ctld.sock)"},
			&cli.StringFlag{Name: "listen", Usage: "`ADDR:PORT` for the node daemons (default: all addresses, SlurmctldPort)"},
			&cli.StringFlag{Name: "metrics", Value: ctld.DefaultMetrics,
				Usage: "serve metrics for Prometheus on `ADDR:PORT`, unless slurm.conf has MetricsParameters=listen=; none: do not " +
					"serve them"},
			&cli.StringFlag{Name: "metrics-tokens", Usage: "`FILE` with the tokens for reading metrics, one per line, readable only by " +
				"SlurmUser; unless slurm.conf has MetricsParameters=tokens="},
			&cli.DurationFlag{Name: "certificate-life", Value: ca.HostLife,
				Usage: "validity of the certificates of hosts that join, a `TIME` such as 240h; hosts renew them after two thirds of it"},
			&cli.StringFlag{Name: "log", Aliases: []string{"L"},
				Usage: "append the log to `FILE` (default: SlurmctldLogFile, or standard error)"},
			&cli.StringFlag{Name: "pid-file",
				Usage: "write the process id to `FILE`; none: no file (default: SlurmctldPidFile, if slurm.conf sets it)"},
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Count: &verbose,
				Usage: "log more than SlurmctldDebug sets; -vv logs everything"},
			&cli.IntFlag{Name: "nice", Aliases: []string{"n"}, Usage: "run with this nice `VALUE`, -20 to 19"},
			&cli.BoolFlag{Name: "clear", Aliases: []string{"c"}, Hidden: true},
			&cli.BoolFlag{Name: "D", Usage: "no effect: it always stays in the foreground (also no effect: -d, -i, -r, -R and -s of " +
				"slurmctld(8))"},
			&cli.BoolFlag{Name: "d", Hidden: true}, &cli.BoolFlag{Name: "i", Hidden: true}, &cli.BoolFlag{Name: "r", Hidden: true},
			&cli.BoolFlag{Name: "R", Hidden: true}, &cli.BoolFlag{Name: "s", Hidden: true},
		},
		Action: run,
		Commands: []*cli.Command{
			{Name: "issue", Usage: "write the certificate of a node or login host into a directory",
				Description: "The certificate is signed by the cluster's certificate authority, which is part of the controller's " +
					"state.\n\n" +
					"Example:\n   sluice-ctld --conf /etc/slurm/slurm.conf issue --node n1 --out /etc/sluice/tls\n" +
					"   sluice-ctld --conf /etc/slurm/slurm.conf issue --node login1 --role login --out /etc/sluice/tls",
				Flags: []cli.Flag{state,
					&cli.StringFlag{Name: "node", Required: true, Usage: "`NAME` of the node, as in slurm.conf, or of the login host"},
					&cli.StringFlag{Name: "role", Value: "compute",
						Usage: "`ROLE` of its holder: compute, login (sluice-noded --login; it need not be in slurm.conf), or monitor " +
							"(a program that reads metrics)"},
					&cli.StringFlag{Name: "out", Required: true, Usage: "directory `DIR` to write to"},
					&cli.BoolFlag{Name: "new-authority",
						Usage: "create the cluster's certificate authority if there is none, before the controller's first start"},
					&cli.BoolFlag{Name: "any-node", Usage: "allow a node that is not (yet) in slurm.conf"}},
				Action: issue},
			{Name: "authority", Usage: "show, renew or replace the cluster's certificate authority",
				Description: "Anybody who has its key can pose as any host: replace the authority if the key may have been read. To " +
					"replace it,\nrun --replace and scontrol reconfigure: the new authority signs, hosts trust both and renew their " +
					"certificates. When\nsluice certs shows none of the old authority in use, run --drop-old and scontrol reconfigure " +
					"again.\n\n" +
					"Example:\n   sluice-ctld --conf /etc/slurm/slurm.conf authority --replace",
				Flags: []cli.Flag{state,
					&cli.BoolFlag{Name: "replace", Usage: "start the replacement: create a new authority, which signs from then on"},
					&cli.BoolFlag{Name: "drop-old", Usage: "finish the replacement: the old authority is no longer accepted"},
					&cli.BoolFlag{Name: "extend", Usage: "extend its validity by ten years, with the same key"}},
				Action: authority},
			{Name: "restore", Usage: "replace a damaged database with the newest good backup",
				Description: "The controller must not be running, neither here nor on another host in SlurmctldHost. The replaced " +
					"database is\nkept. Hosts follow the restored controller, and from then on refuse a controller with an earlier " +
					"state.\n\nExample:\n   " +
					"sluice-ctld --conf /etc/slurm/slurm.conf restore",
				Flags: []cli.Flag{state, &cli.StringFlag{Name: "from", Usage: "backup `FILE` to use (default: the newest good one)"},
					&cli.BoolFlag{Name: "others-off", Usage: "do not check that the controllers on other hosts are stopped"}},
				Action: restore},
		},
	}
	if err := app.Run(append(os.Args[:1:1], letters.Split(os.Args[1:])...)); err != nil {
		fmt.Fprintln(os.Stderr, "sluice-ctld:", err)
		os.Exit(1)
	}
}

// spared is the controller's oom_score_adj: when memory runs out, every other process except the node daemon is killed first.
const spared = -999

func run(c *cli.Context) error {
	if c.Args().Present() {
		return fmt.Errorf("unknown argument %q; see sluice-ctld --help", c.Args().First())
	}
	logs, err := logfile.Open(earlyLog(c.String("log")))
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		passwd.Start = inherit.Start
	}
	err = inherit.Spare(spared)
	log := slog.New(ctld.NewLogHandler(logs.Handler(slog.LevelDebug), logs.Syslog()))
	if err != nil {
		log.Info("cannot protect the controller from the kernel's out-of-memory killer", "err", err)
	}
	if err := obey(c, log); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err = ctld.Run(ctx, ctld.Options{Conf: c.String("conf"), State: c.String("state"), Socket: c.String("socket"),
		Listen: c.String("listen"), Metrics: c.String("metrics"), MetricsTokens: c.String("metrics-tokens"), Log: log,
		Debug:           slurmargs.Level(verbose),
		CertificateLife: c.Duration("certificate-life"),
		LogTo: func(cfg *conf.Config) error {
			logs.SetTime(cfg.LogTimeFormat)
			logs.SetSyslog(conf.SyslogLevel(cfg.SlurmctldSyslogDebug))
			return logs.Reopen(cmp.Or(c.String("log"), cfg.SlurmctldLogFile))
		},
		LogFile: func(configured string) string { return cmp.Or(c.String("log"), configured) },
		Drop:    true, PidFile: c.String("pid-file"),
		Signals: logfile.Signals(), Service: service.New(log)})
	if err != nil && logs.Apart() {
		log.Error("the controller stops", "err", err)
	}
	return err
}

// earlyLog returns where to log until slurm.conf has been read, which names the log's owner. Before that root does not write to a
// path in which others could have made a link.
func earlyLog(path string) string {
	if abs, err := filepath.Abs(path); path != "" && err == nil && os.Geteuid() == 0 {
		if _, err := trusted.Path(filepath.Dir(abs)); err != nil {
			return ""
		}
	}
	return path
}

// needState returns --state, else the setting of slurm.conf (--conf, SLURM_CONF).
func needState(c *cli.Context) (string, error) {
	if s := c.String("state"); s != "" {
		return s, nil
	}
	cfg, err := conf.Load(c.String("conf"), conf.Options{})
	if err != nil {
		return "", fmt.Errorf("%w; or give the state directory: --state DIR", err)
	}
	return cfg.StateSaveLocation, nil
}

func issue(c *cli.Context) error {
	role, what := mtls.RoleNode, "node"
	switch c.String("role") {
	case "compute":
	case "login":
		role, what = mtls.RoleLogin, "login host"
	case "monitor":
		role, what = mtls.RoleMonitor, "monitoring program"
	default:
		return fmt.Errorf("cannot issue a certificate: unknown role %s; --role takes compute, login or monitor", c.String("role"))
	}
	dir, err := needState(c)
	if err == nil && role == mtls.RoleNode {
		err = checkNode(c, dir)
	}
	if err != nil {
		return err
	}
	signed, err := ctld.Issue(dir, c.String("node"), role, c.String("out"), c.Bool("new-authority"))
	if err == nil && signed {
		fmt.Printf("wrote the certificate of %s %s to %s\n", what, c.String("node"), c.String("out"))
	}
	return err
}

func authority(c *cli.Context) error {
	replace, drop, extend := c.Bool("replace"), c.Bool("drop-old"), c.Bool("extend")
	if replace && (drop || extend) || drop && extend {
		return errors.New("--replace, --drop-old and --extend are mutually exclusive")
	}
	dir, err := needState(c)
	if err != nil {
		return err
	}
	text, err := ctld.Authority(dir, replace, drop, extend)
	fmt.Print(text)
	return err
}

// checkNode rejects a node that the cluster's slurm.conf does not define, probably a typo. A default slurm.conf with another state
// directory is about another cluster.
func checkNode(c *cli.Context, state string) error {
	if c.Bool("any-node") {
		return nil
	}
	cfg, err := conf.Load(c.String("conf"), conf.Options{})
	if named := c.IsSet("conf") && os.Getenv("SLURM_CONF") != c.String("conf"); err != nil && named {
		return err
	} else if err != nil || !named && filepath.Clean(cfg.StateSaveLocation) != filepath.Clean(state) {
		fmt.Fprintf(os.Stderr,
			"sluice-ctld: note: node %s was not checked: found no slurm.conf for this state directory; to check it: sluice-ctld --conf "+
				"FILE issue …\n", c.String("node"))
		return nil
	}
	if _, ok := cfg.Node(c.String("node")); !ok {
		return fmt.Errorf("cannot issue a certificate: %s has no node %s; correct the name, add the node there first, or use --any-node",
			c.String("conf"), c.String("node"))
	}
	return nil
}

func restore(c *cli.Context) error {
	dir, err := needState(c)
	if err != nil {
		return err
	}
	if !c.Bool("others-off") {
		cfg, err := conf.Load(c.String("conf"), conf.Options{})
		if err != nil {
			fmt.Fprintf(os.Stderr, "sluice-ctld: note: make sure that no other controller uses this state; this was not checked: %v\n", err)
		} else if err := ctld.OthersAreOff(cfg); err != nil {
			return err
		}
	}
	text, err := ctld.Restore(dir, c.String("from"))
	if err == nil {
		fmt.Println(text)
	}
	return err
}
