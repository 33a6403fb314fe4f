// sluice-noded is the node daemon. It reads options and runs package noded. Its hidden subcommand stepd is the shim of
// one step.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/conf/slurmargs"
	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/internal/inherit"
	"github.com/sluice-hpc/sluice/internal/logfile"
	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/internal/passwd"
	"github.com/sluice-hpc/sluice/internal/service"
	"github.com/sluice-hpc/sluice/internal/version"
	"github.com/sluice-hpc/sluice/noded"
	"github.com/sluice-hpc/sluice/noded/confine"
	"github.com/sluice-hpc/sluice/noded/gpu/nvml"
	"github.com/sluice-hpc/sluice/noded/hw"
	"github.com/sluice-hpc/sluice/noded/policy"
	"github.com/sluice-hpc/sluice/noded/root"
	"github.com/sluice-hpc/sluice/noded/stepd"
	"github.com/urfave/cli/v2"
)

// oom_score_adj of the two halves. Killing one does not stop jobs, but restarting takes a while. noded-link, which parses network
// input, must not be the last process left.
const (
	rootSpared = -999
	linkSpared = -500
)

func main() {
	timespec.UseZone()
	if len(os.Args) > 1 && os.Args[1] == "stepd" {
		os.Exit(stepd.Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "link" {
		linkMain(os.Args[2:])
	}
	if len(os.Args) > 1 && os.Args[1] == "ask" {
		askMain(os.Args[2:])
	}
	confine.KeepNet()
	inherit.Close(0)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // with a heap of a few MiB, rarer collections cost little memory and save a tenth of the CPU time
	}
	cli.VersionFlag = &cli.BoolFlag{Name: "version", Aliases: []string{"V"}, Usage: "print the version"}
	cli.VersionPrinter = func(*cli.Context) { fmt.Print(version.Text() + nvml.Missing) }
	app := &cli.App{
		Name: "sluice-noded", Usage: "the node daemon of a Sluice cluster", Version: version.Sluice, HideHelpCommand: true,
		Description: "Runs in the foreground until SIGTERM; running jobs continue, and the next daemon takes them over. SIGHUP " +
			"rereads\nslurm.conf and registers again; SIGUSR2 reopens the log file, for logrotate. Commands on this host reach the " +
			"controller\nthrough it, by the socket of --relay. With --login it only relays commands, on hosts where users work and no " +
			"jobs run.\n\nExamples:\n   sluice-noded --conf /etc/slurm/slurm.conf --tls /etc/sluice/tls\n" +
			"   sluice-noded --conf-server head:6817         # slurm.conf is on head alone\n" +
			"   sluice-noded -Z --conf 'Feature=fast Weight=5' --conf-server head   # not in slurm.conf\n" +
			"   sluice-noded --login --conf /etc/slurm/slurm.conf --tls /etc/sluice/tls\n" +
			"   sluice-noded --login --conf-server head:6817 # the same for a login host\n" +
			"   sluice-noded --join sluice-join-1.… --join-only",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "conf", Aliases: []string{"f"}, EnvVars: []string{"SLURM_CONF"}, Value: "/etc/slurm/slurm.conf",
				Usage: "slurm.conf `FILE`"},
			&cli.StringFlag{Name: "conf-server",
				Usage: "fetch slurm.conf and its companion files from the controller at `HOST[:PORT],…`, even if this host has its " +
					"own; if it has none, --controller or the file controllers beside node.key is enough"},
			&cli.StringFlag{Name: "publish", Value: defaultPublish,
				Usage: "write the fetched slurm.conf to `DIR`, for commands on this host"},
			&cli.StringFlag{Name: "node", Aliases: []string{"N"},
				Usage: "`NAME` of this node (default: the NodeName whose NodeHostname is this host)"},
			&cli.BoolFlag{Name: "dynamic", Aliases: []string{"Z"}, Usage: "join as a dynamic node, which slurm.conf does not define: " +
				"named as in its certificate, with the hardware of this host; requires MaxNodeCount in slurm.conf"},
			&cli.StringFlag{Name: "node-conf", Usage: "with -Z: `KEY=VALUE …` of a NodeName line, which add to the detected hardware " +
				"or override it, such as Feature=, Gres=, Weight=; with -Z, --conf KEY=VALUE has the same effect, as in slurmd(8)"},
			&cli.BoolFlag{Name: "login", Usage: "this is a login host: serve the commands of its users, run no jobs; " +
				"requires a certificate of role login (sluice-ctld issue --role login)"},
			&cli.StringFlag{Name: "relay", Usage: "`PATH` of the Unix socket for commands on this host; none: no socket (default: " +
				"/run/sluice/<ClusterName>/relay.sock; none with --socket, which means that the controller is on this host)"},
			&cli.StringFlag{Name: "sessions", Usage: "`PATH` of the Unix socket for sluice adopt, which makes ssh sessions part of " +
				"jobs; none: no socket (default: /run/sluice/<ClusterName>/NAME.sessions; none with --socket, which means that the " +
				"controller is on this host)"},
			&cli.StringFlag{Name: "metrics", Value: noded.DefaultMetrics,
				Usage: "serve metrics for Prometheus on `ADDR:PORT`; remote clients need TLS and a token or a certificate of role " +
					"monitor; none: do not serve them"},
			&cli.StringFlag{Name: "metrics-tokens", Usage: "`FILE` with the tokens for reading metrics, one per line, readable only by " +
				"root"},
			&cli.StringFlag{Name: "spool", Usage: "spool directory `DIR` of this node (default: SlurmdSpoolDir), or directory for the " +
				"configuration of a login host (default: /var/lib/sluice/NAME)"},
			&cli.StringFlag{Name: "tls", Value: "/etc/sluice/tls",
				Usage: "directory `DIR` with ca.crt, node.crt and node.key, or login.crt and login.key (--join, or sluice-ctld issue)"},
			&cli.StringFlag{Name: "join",
				Usage: "first join the cluster with `TOKEN` (from sluice token create); - reads it from standard input, @FILE from a file"},
			&cli.BoolFlag{Name: "join-only", Usage: "exit when this host has joined"},
			&cli.StringSliceFlag{Name: "controller", Usage: "`HOST:PORT` of the controller (default: SlurmctldHost, SlurmctldPort)"},
			&cli.StringFlag{Name: "socket", EnvVars: []string{"SLUICE_SOCKET"},
				Usage: "`PATH` of the controller's Unix socket on this host, passed to jobs"},
			&cli.StringFlag{Name: "gpus",
				Usage: "simulate the GPUs of `SPEC` instead of detecting real ones: a100:8, titan_xp:1,titan_v:1, h100:4:mig; none: no " +
					"GPU at all"},
			&cli.BoolFlag{Name: "no-gpu-files",
				Usage: "do not write the default files that map GPUs to jobs (/run/gpustat, /run/dcgm-job-map), only those set in " +
					"SlurmdParameters"},
			&cli.BoolFlag{Name: "allow-root-jobs",
				Usage: "run jobs of root, system users and users without an account on this node (as sluice up does); to set it " +
					"permanently, use node.conf beside node.key"},
			&cli.StringFlag{Name: "log", Aliases: []string{"L"},
				Usage: "append the log to `FILE` (default: SlurmdLogFile, or standard error)"},
			&cli.StringFlag{Name: "pid-file",
				Usage: "write the process id to `FILE`; none: no file (default: SlurmdPidFile, if slurm.conf sets it)"},
			&cli.BoolFlag{Name: "hardware", Aliases: []string{"C"}, Usage: "print this host as a NodeName line of slurm.conf, and exit"},
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Count: &verbose,
				Usage: "log more than SlurmdDebug sets; -vv logs everything"},
			&cli.IntFlag{Name: "nice", Aliases: []string{"n"}, Usage: "run with this nice `VALUE`, -20 to 19, which jobs inherit"},
			&cli.BoolFlag{Name: "lock-memory", Aliases: []string{"M"}, Usage: "keep the daemon in memory (mlockall(2))"},
			&cli.BoolFlag{Name: "D", Usage: "no effect: it always stays in the foreground (also no effect: -b, -c, -d FILE and -s of " +
				"slurmd(8))"},
			&cli.BoolFlag{Name: "b", Hidden: true}, &cli.BoolFlag{Name: "c", Hidden: true}, &cli.StringFlag{Name: "d", Hidden: true},
			&cli.BoolFlag{Name: "s", Hidden: true},
		},
		Action: run,
		// `sluice up --gpus` calls check-gpus before it creates anything.
		Commands: []*cli.Command{pretendCommand(),
			{Name: "check-gpus", Hidden: true, Usage: "check a SPEC of --gpus", Action: checkGPUs}},
	}
	if err := app.Run(nodeConf(append(os.Args[:1:1], letters.Split(os.Args[1:])...))); err != nil {
		fmt.Fprintln(os.Stderr, "sluice-noded:", err)
		os.Exit(1)
	}
}

func run(c *cli.Context) error {
	if c.Args().Present() {
		return fmt.Errorf("unknown argument %q; see sluice-noded --help", c.Args().First())
	}
	if c.Bool("hardware") {
		return printHardware(os.Stdout, hw.Linux{}, time.Now)
	}
	var netless, sparing error
	if os.Geteuid() == 0 {
		inherit.Net, netless = confine.NoNetwork()
		passwd.Start = inherit.Start
		sparing = inherit.Spare(rootSpared)
	}
	syscall.Umask(0o022) // whatever the parent's umask: jobs read their cgroups and scripts, and secret files set their mode explicitly
	if c.Bool("dynamic") && c.Bool("login") {
		return errors.New("-Z and --login are mutually exclusive: a login host is not a node")
	}
	if c.Bool("join-only") && c.String("join") == "" {
		return errors.New("--join-only requires --join TOKEN")
	}
	if c.String("join") != "" {
		if err := join(c, slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil || c.Bool("join-only") {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	src, err := findSource(c)
	if err != nil {
		return err
	}
	if err := src.fetch(ctx, c); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	read := func(c *cli.Context) (noded.Options, logging, error) {
		if c.Bool("login") {
			return loginOptions(c, src)
		}
		return options(c, src)
	}
	o, own, err := read(c)
	if err != nil {
		return err
	}
	logs, err := logfile.Open(cmp.Or(c.String("log"), own.log))
	if err != nil {
		return err
	}
	own.writes(logs)
	if c.String("log") == "" && own.log != "" { // for users who started it in a terminal
		fmt.Fprintf(os.Stderr, "sluice-noded: the log goes to %s (SlurmdLogFile)\n", own.log)
	}
	o.ShimLog, o.ShimEnv = logs.File(), logs.Environment
	o.Level = &slog.LevelVar{}
	o.Level.Set(own.level)
	o.Log = slog.New(slog.NewMultiHandler(logs.Handler(o.Level), logs.Syslog()))
	if verbose > 0 { // -v fixes the level
		o.Level.Set(conf.SlogLevel(slurmargs.Level(verbose)))
		o.Level = nil
	}
	if err := obey(c, o.Log); err != nil {
		return err
	}
	o.Signals, o.Service = logfile.Signals(), service.New(o.Log)
	o.Reload = func() (root.Reread, error) {
		o, own, err := read(c)
		if err != nil { // the log may have been rotated even if the configuration is faulty
			return root.Reread{}, errors.Join(err, logs.Reopen(logs.Path()))
		}
		own.writes(logs)
		return root.Reread{Level: own.level, Own: o.Policy.Own, Sum: o.Files.Sum}, logs.Reopen(cmp.Or(c.String("log"), own.log))
	}
	if netless != nil {
		o.Log.Warn("cannot take network access from noded-root, the part of this daemon that runs as root", "err", netless)
	}
	if sparing != nil {
		o.Log.Info("cannot protect this daemon from the kernel's out-of-memory killer", "err", sparing)
	}
	o.GPUFiles = !c.Bool("no-gpu-files")
	if o.Apart, err = apart(o.NodeName, logs); err != nil {
		return err
	}
	if o.Login {
		o.GPUFiles = false
	} else if err := gpus(c.String("gpus"), &o); err != nil {
		return err
	}
	if o.GPUs != nil {
		defer o.GPUs.Close()
	}
	defer writePid(cmp.Or(c.String("pid-file"), own.pid), o.Log)()
	err = noded.Run(ctx, o)
	if err != nil && logs.Apart() {
		o.Log.Error("the node daemon stops", "err", err)
	}
	return err
}

// logging has the settings of slurm.conf for this node's log and pid file.
type logging struct {
	log   string // SlurmdLogFile; "" for none
	pid   string // SlurmdPidFile; "" for none
	level slog.Level
	// SlurmdSyslogDebug and LogTimeFormat
	syslog slog.Level
	time   string
}

// newLogging reads the settings that apply to any host.
func newLogging(cfg *conf.Config) logging {
	return logging{level: conf.SlogLevel(cfg.SlurmdDebug), syslog: conf.SyslogLevel(cfg.SlurmdSyslogDebug), time: cfg.LogTimeFormat}
}

// writes applies the settings to a log.
func (l logging) writes(logs *logfile.Log) {
	logs.SetTime(l.time)
	logs.SetSyslog(l.syslog)
}

// options combines slurm.conf and the command line.
func options(c *cli.Context, src *source) (noded.Options, logging, error) {
	cfg, err := src.load()
	if err != nil {
		return noded.Options{}, logging{}, err
	}
	n, err := thisNode(c, cfg, src.node)
	if err != nil {
		return noded.Options{}, logging{}, err
	}
	o := noded.Options{NodeName: n.Name, Spool: c.String("spool"), TLS: c.String("tls"), Controllers: c.StringSlice("controller"),
		Cluster: cfg.ClusterName,
		Conf:    src.shown(), Socket: c.String("socket"), CgroupPlugin: cfg.Cgroup.CgroupPlugin}
	if cfg.HealthCheckIntervalSec > 0 {
		o.HealthCheck = cfg.HealthCheckProgram
	}
	if os.Geteuid() == 0 { // otherwise there are no privileges to restrict
		if o.Policy, err = policy.Load(o.TLS); err != nil {
			return noded.Options{}, logging{}, err
		}
		if c.Bool("allow-root-jobs") {
			o.Policy.RootJobs, o.Policy.MinUID, o.Policy.NeedAccount = true, 1, false
		}
	}
	o.Policy.Own = policy.Own{RebootProgram: cfg.RebootProgram, ConstrainDevices: cfg.Cgroup.ConstrainDevices, JobMapDir: cfg.GPU.JobMap,
		StatDir: cfg.GPU.Stat}
	if err := dynamic(c, &o); err != nil {
		return noded.Options{}, logging{}, err
	}
	o.Relay = relayPath(c, cfg.ClusterName)
	o.Sessions = sessionsPath(c, cfg.ClusterName, n.Name)
	o.Metrics, o.MetricsTokens = c.String("metrics"), c.String("metrics-tokens")
	if o.Metrics == "none" {
		o.Metrics = ""
	}
	if o.Spool == "" {
		o.Spool = conf.NodePath(cfg.SlurmdSpoolDir, n)
	}
	if os.Geteuid() == 0 { // others cannot create namespaces
		if err := cfg.InSight(n, o.Spool); err != nil {
			return noded.Options{}, logging{}, fmt.Errorf("cannot use the spool directory %s: %w", o.Spool, err)
		}
	}
	o.Files = root.Conf{Sum: cfg.Sum, Store: src.store, Bundle: src.bundle, Publish: src.publish}
	if src.store != nil {
		src.adjust(&o)
	}
	if len(o.Controllers) == 0 || src.store != nil {
		for _, addr := range controllers(cfg) {
			if !slices.Contains(o.Controllers, addr) {
				o.Controllers = append(o.Controllers, addr)
			}
		}
	}
	own := newLogging(cfg)
	own.log, own.pid = conf.NodePath(cfg.SlurmdLogFile, n), conf.NodePath(cfg.SlurmdPidFile, n)
	return o, own, nil
}

// nodeConf renames --conf KEY=VALUE, which slurmd(8) has with -Z, to --node-conf: here --conf FILE is slurm.conf, with and without
// -Z.
func nodeConf(args []string) []string {
	out := slices.Clone(args)
	if !slices.ContainsFunc(args, func(a string) bool { return slices.Contains([]string{"-Z", "--Z", "-dynamic", "--dynamic"}, a) }) {
		return out
	}
	for i, a := range out {
		flag, value, joined := strings.Cut(a, "=")
		switch {
		case flag != "--conf" && flag != "-conf":
		case joined && strings.Contains(value, "="):
			out[i] = "--node-conf=" + value
		case !joined && i+1 < len(out) && strings.Contains(out[i+1], "="):
			out[i] = "--node-conf"
		}
	}
	return out
}

// dynamic sets the options of a node that slurm.conf does not name.
func dynamic(c *cli.Context, o *noded.Options) error {
	own := c.String("node-conf")
	switch {
	case !c.Bool("dynamic") && own != "":
		return errors.New("--node-conf requires -Z: other nodes are defined in slurm.conf")
	case !c.Bool("dynamic"):
		return nil
	}
	if _, err := conf.NodePairs(own); err != nil {
		return err
	}
	o.Dynamic = &own
	return nil
}

// thisNode finds this daemon's node in the configuration. If slurm.conf does not name it and allows dynamic nodes, the controller
// has its configuration.
func thisNode(c *cli.Context, cfg *conf.Config, name string) (*conf.Node, error) {
	if name == "" && c.Bool("dynamic") {
		var err error
		if name, err = mtls.NameIn(c.String("tls"), mtls.RoleNode); err != nil {
			return nil, err
		}
	}
	if name != "" {
		if _, ok := cfg.Node(name); !ok && cfg.MaxNodeCount == 0 && !c.Bool("dynamic") {
			return nil, fmt.Errorf("%s has no NodeName=%s", cfg.Path, name)
		}
		return cfg.Apart(name), nil
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("cannot find out this host's name: %w; use --node NAME", err)
	}
	short, _, _ := strings.Cut(host, ".") // as in Slurm: a node's name may omit the domain
	var found []*conf.Node
	for _, n := range cfg.Nodes {
		if n.Name == host || n.Hostname == host || n.Name == short || n.Hostname == short {
			found = append(found, n)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%s has %d nodes whose NodeName or NodeHostname is %s; use --node NAME", cfg.Path, len(found), host)
	}
	return found[0], nil
}
