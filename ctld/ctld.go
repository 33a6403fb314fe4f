package ctld

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/ctld/acct"
	"github.com/sluice-hpc/sluice/ctld/dispatch"
	"github.com/sluice-hpc/sluice/ctld/fairshare"
	"github.com/sluice-hpc/sluice/ctld/feasible"
	"github.com/sluice-hpc/sluice/ctld/gpuhours"
	"github.com/sluice-hpc/sluice/ctld/hostconf"
	"github.com/sluice-hpc/sluice/ctld/jobcomp"
	"github.com/sluice-hpc/sluice/ctld/jobsubmit"
	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/live"
	"github.com/sluice-hpc/sluice/ctld/loop"
	"github.com/sluice-hpc/sluice/ctld/mail"
	"github.com/sluice-hpc/sluice/ctld/metrics"
	"github.com/sluice-hpc/sluice/ctld/nodeport"
	"github.com/sluice-hpc/sluice/ctld/planner"
	"github.com/sluice-hpc/sluice/ctld/powersave"
	"github.com/sluice-hpc/sluice/ctld/prolog"
	"github.com/sluice-hpc/sluice/ctld/rpc"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/clock"
	confmetrics "github.com/sluice-hpc/sluice/internal/metrics"
	"github.com/sluice-hpc/sluice/internal/service"
	"github.com/sluice-hpc/sluice/internal/tcp"
	"github.com/sluice-hpc/sluice/internal/version"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

// Options are the options of the command line. Empty fields follow slurm.conf.
type Options struct {
	Conf   string // path of slurm.conf
	State  string // directory of the database; default StateSaveLocation
	Socket string // unix socket of the commands; default DefaultSocket(ClusterName)
	Listen string // address for nodes; default :SlurmctldPort
	// Metrics is the address of the metrics server unless slurm.conf sets it: ADDR:PORT, or none; default DefaultMetrics.
	Metrics string
	// MetricsTokens is the file of tokens unless slurm.conf names one; default none.
	MetricsTokens string
	Log           *slog.Logger
	// Debug is a level that overrides SlurmctldDebug (slurmctld(8), -v); empty: none.
	Debug string
	// LogTo opens the log named by slurm.conf, with its format. nil: the log stays as it is.
	LogTo func(*conf.Config) error
	// LogFile returns the path that LogTo opens; nil if LogTo is.
	LogFile func(configured string) string
	// PidFile is the file for the controller's process id; "none": no file; empty: SlurmctldPidFile, if slurm.conf sets it.
	PidFile string
	// Drop makes a controller that was started as root become SlurmUser: this whole process.
	Drop bool
	// Signals are SIGHUP and SIGUSR2; may be nil.
	Signals <-chan os.Signal
	// Service reports the controller's status to the service manager; may be nil.
	Service *service.Manager
	// CertificateLife is the lifetime of certificates for joining hosts; 0: ca.HostLife.
	CertificateLife time.Duration
}

// DefaultSocket returns the socket on which commands look for the controller of a cluster unless SLUICE_SOCKET is set: for a service, in
// the directory that the service manager has made for it (RuntimeDirectory=, systemd.exec(5)).
func DefaultSocket(cluster string) string {
	dir, _, _ := strings.Cut(os.Getenv("RUNTIME_DIRECTORY"), ":")
	return filepath.Join(cmp.Or(dir, "/run/sluice"), cluster, "ctld.sock")
}

// Limits of the node listener.
const (
	maxMessage     = 8 << 20
	maxStreams     = 64
	maxHeaders     = 16 << 10
	connectTimeout = 2 * time.Minute // of a handshake: all nodes of a large cluster may connect at once to a busy machine
	windowBytes    = 1 << 20         // that a node may send before they are read
	nodeBuffer     = 8 << 10         // for sending; input is read from the buffer of TLS
	// nodePing is the silence after which a node's daemon is pinged. A dead host is detected sooner (package tcp).
	nodePing    = 2 * time.Minute
	backupEvery = time.Hour
	keepBackups = 24
)

// Run runs the controller until ctx ends or a fatal error occurs. Running jobs do not notice its end.
func Run(ctx context.Context, o Options) error {
	d := &daemon{opts: o, log: o.Log, conf: &atomic.Pointer[conf.Config]{}}
	r, err := d.read()
	if err != nil {
		return err
	}
	c := r.Config
	d.hosts = hostconf.NewCurrent(d.sign)
	d.inForce.Store(r)
	d.useConfig(c)
	if d.opts.State == "" {
		d.opts.State = c.StateSaveLocation
	}
	if d.opts.Socket == "" {
		d.opts.Socket = DefaultSocket(c.ClusterName)
	}
	if d.opts.Listen == "" {
		d.opts.Listen = net.JoinHostPort("", strconv.Itoa(c.SlurmctldPort))
	}
	// Before the directory of the socket is made: a mistyped state directory should leave nothing behind.
	if _, err := os.Stat(filepath.Dir(filepath.Clean(d.opts.State))); err != nil {
		return fmt.Errorf("cannot create the state directory %s: %w", d.opts.State, err)
	}
	listen, err := d.listen(c.SlurmUser)
	if err != nil {
		return err
	}
	defer listen.close()
	removePid, err := d.becomeWithPid(c)
	if err != nil {
		return err
	}
	defer removePid()
	if o.LogTo != nil { // a daemon without a place for its log does not start, as with Slurm: the log's file system may be missing
		if err := o.LogTo(c); err != nil {
			return err
		}
	}
	return d.run(ctx, listen)
}

type daemon struct {
	opts  Options
	log   *slog.Logger
	conf  *atomic.Pointer[conf.Config]
	uid   uint32 // SlurmUser
	gid   uint32 // its group
	store *journal.Bolt

	loop      *loop.Loop
	planner   *planner.Planner
	advisor   *planner.Advisor
	disp      *dispatch.Dispatcher
	samples   *live.Samples
	holds     *rpc.Holds
	gpuHours  *gpuhours.Recorder
	fairShare *fairshare.Keeper
	acct      *acct.Accounting
	live      *live.Steps
	started   time.Time
	figures   *figures
	metrics   *metrics.Source
	tokens    atomic.Pointer[confmetrics.Tokens]

	certs     certificates
	door      atomic.Pointer[nodeport.Door]
	hosts     *hostconf.Current
	inForce   atomic.Pointer[reading] // for comparison at a reconfigure
	nodeDebug nodeDebug
	plugin    atomic.Pointer[jobsubmit.Plugin] // job_submit.lua; nil until it is needed
}

func (d *daemon) run(ctx context.Context, listen listeners) error {
	c := d.conf.Load()
	d.uid = uint32(os.Geteuid())
	if uid, err := slurmUser(c.SlurmUser); err == nil {
		d.uid = uid
	} else if os.Geteuid() == 0 {
		return err
	}
	if own := uint32(os.Geteuid()); own != 0 && own != d.uid {
		d.log.Warn("the controller does not run as SlurmUser: it starts programs as its own user, who also has SlurmUser's rights",
			"SlurmUser", c.SlurmUser, "uid", own)
	}
	d.gid = primaryGroup(d.uid)
	d.logDoubts(c)
	d.pack(d.inForce.Load())
	cfg := d.stateConfig(d.inForce.Load())
	d.started = time.Now()
	// Only the last directory of the path, as slurmctld does: a path with a mistyped parent is an error, not an empty cluster.
	if err := os.Mkdir(d.opts.State, 0o700); err == nil {
		d.log.Warn("the state directory is new and has no jobs", "dir", d.opts.State)
	} else if !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot create the state directory: %w", err)
	}
	var err error
	d.store, err = journal.Open(d.opts.State, journal.Options{Log: d.log, RestoreCommand: "sluice-ctld restore --state " + d.opts.State})
	if err != nil {
		return err
	}
	defer d.store.Close()
	if err := d.needPlugin(c); err != nil {
		return err
	}
	defer d.closePlugin()
	v, err := state.Load(cfg, d.store, d.store.ClusterID(), max(c.FirstJobID, d.store.IDFloor()+1))
	if err != nil {
		return err
	}
	d.log.Info("state loaded", "jobs", v.Jobs.Len(), "seq", v.Seq, "next", v.NextJobID, "generation",
		d.generation().Number, "took",
		time.Since(d.started).Round(time.Millisecond))
	d.logQOS(c, v.Policy())
	return d.serve(ctx, v, listen)
}

// serve starts all parts on a loaded state, and ends all when one ends.
func (d *daemon) serve(ctx context.Context, v *state.View, listen listeners) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := rpc.NewWatch()
	after := d.assemble(v, watch)

	annex := nodeport.NewAnnex(listen.nodes.Addr())
	nodes, err := d.nodeServer(annex)
	if err != nil {
		return err
	}
	beats := rpc.NewBeats()
	door := d.nodeServices(ctx, nodes, listen, v.ClusterID, beats)
	service := d.service(watch, func() { cancel(nil) })
	service.Enrol = d.enrolment(door, portOf(listen.nodes))
	localServer := rpc.NewLocal(service, d.operator, d.log)
	relays := d.relayServer(localServer)

	var wg sync.WaitGroup
	part := func(name string, f func() error) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := f(); err != nil {
				cancel(fmt.Errorf("%s: %w", name, err))
			}
		}()
	}
	loopCtx, stopLoop := context.WithCancel(context.Background()) // the writer ends last: other parts wait for its answers
	defer stopLoop()
	var loopDone sync.WaitGroup
	loopDone.Add(1)
	go func() {
		defer loopDone.Done()
		if err := d.loop.Run(loopCtx); err != nil {
			cancel(err)
		}
	}()
	part("commands", func() error { return localServer.Serve(ctx, listen.local) })
	part("nodes", func() error { return nodes.Serve(door) })
	part("relays", func() error { return relays.Serve(annex) })
	part("heartbeats", func() error { beats.Run(ctx, d.loop); return nil })
	d.background(ctx, part)
	part("metrics", func() error { d.serveMetrics(ctx, listen.metrics, service); return nil })
	part("idle GPU time", func() error { d.watchGPUs(ctx); return nil })
	after.run(ctx, part)
	d.log.Info("controller started", "cluster", v.Settings.Cluster, "socket", d.opts.Socket, "nodes", listen.nodes.Addr().String(), "pid",
		os.Getpid())
	d.opts.Service.Ready(d.status())
	<-ctx.Done()
	d.opts.Service.Stopping()
	relays.Stop()
	nodes.Stop()
	wg.Wait()
	stopLoop()
	loopDone.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	d.log.Info("controller is shutting down; running jobs continue")
	return nil
}

// follow holds the parts that act on commits.
type follow struct {
	mail        *mail.Post
	programs    *prolog.Runner
	power       *powersave.Runner
	completions *jobcomp.Log
}

func (f follow) run(ctx context.Context, part func(string, func() error)) {
	part("prologs", func() error { return f.programs.Run(ctx) })
	part("power saving", func() error { return f.power.Run(ctx) })
	part("job completion log", func() error { f.completions.Run(ctx); return nil })
	part("mail", func() error { f.mail.Run(ctx); return nil })
}

// assemble makes the writer and the observers of its commits. Nothing runs yet.
func (d *daemon) assemble(v *state.View, watch *rpc.Watch) follow {
	d.samples, d.holds = live.NewSamples(), rpc.NewHolds()
	params := schedParams(d.conf.Load())
	d.loop = loop.New(d.store, v, time.Now, d.log)
	d.loop.KeepTime(clock.BootID(), clock.Both)
	d.hand(d.inForce.Load())
	d.planner = planner.New(d.loop, params, time.Now, d.log)
	d.planner.Owners = newOwners(d.log).find
	d.advisor = planner.NewAdvisor(params)
	d.disp = dispatch.New(d.loop.View, d.script, d.nodeSettings, d.log)
	d.disp.Configuration = d.configuration
	d.loop.Observe(watch.Changed)
	d.loop.Observe(d.disp.Changed)
	d.loop.Observe(d.planner.Changed)
	d.figures = newFigures(time.Now())
	d.loop.Observe(d.figures.Changed)
	d.metrics = d.metricsSource()
	d.loop.Observe(d.metrics.Watch().Changed)
	d.loop.Committed = d.metrics.Watch().Committed
	post := mail.New(d.mailSettings, d.loop.View, d.log)
	d.loop.Observe(post.Changed)
	programs := prolog.New(filepath.Join(d.opts.State, "programs"), d.prologSettings, d.loop.View, d.loop.Do, d.log)
	d.loop.Observe(programs.Changed)
	power := powersave.New(filepath.Join(d.opts.State, "power"), d.powersaveSettings, d.loop.View, d.loop.Do, d.log)
	d.loop.Observe(power.Changed)
	completions := jobcomp.New(d.opts.State, d.jobcompSettings, d.loop.View, d.log)
	d.loop.Observe(completions.Changed)
	d.acct, d.live = d.newAccounting(v), live.NewSteps()
	d.gpuHours, d.fairShare = d.newGPUHours(), d.newFairShare()
	return follow{post, programs, power, completions}
}

// nodeServices registers the services for hosts on their server. Their connections come through the door.
func (d *daemon) nodeServices(ctx context.Context, nodes *grpc.Server, listen listeners, clusterID string,
	beats *rpc.Beats) *nodeport.Door {
	nodepb.RegisterNodeAPIServer(nodes, &rpc.NodeServer{Writer: d.loop, Ending: ctx.Done(), Dispatcher: d.disp, Beats: beats, Live: d.live,
		Samples: d.samples, ClusterID: clusterID, Generation: d.generation(), Log: d.log, Conf: d.hosts, Found: d.foundNode})
	door := nodeport.NewDoor(listen.nodes, d.log)
	d.door.Store(door)
	door.Accepts = d.accepts
	door.Nodes = func() int { return len(d.loop.View().Nodes()) }
	nodepb.RegisterEnrolAPIServer(nodes, &rpc.EnrolServer{Writer: d.loop, Authority: &d.certs, Log: d.log,
		Cluster: func() string { return d.loop.View().Settings.Cluster }})
	return door
}

// background starts the controller's own activities.
func (d *daemon) background(ctx context.Context, part func(string, func() error)) {
	part("planner", func() error { return d.planner.Run(ctx) })
	part("certificates", func() error { d.takeIn(ctx); return nil })
	part("fair share", func() error { d.fairShare.Run(ctx); return nil })
	keepAccounts(ctx, part, d.gpuHours.Run, d.acct.Run)
	part("signals", func() error { d.signals(ctx, d.opts.Signals); return nil })
	part("backups", func() error {
		b := &journal.Backuper{Store: d.store, Every: backupEvery, Keep: keepBackups, Log: d.log}
		b.Run(ctx)
		return nil
	})
	part("idle GPUs", func() error {
		w := &idleWatch{view: d.loop.View, samples: d.samples, rules: func() *conf.GPU { return &d.conf.Load().GPU }, do: d.loop.Do,
			log: d.log}
		w.Run(ctx)
		return nil
	})
	part("allocations", func() error {
		w := &leaseWatch{view: d.loop.View, holds: d.holds, do: d.loop.Do, log: d.log,
			limit: func() time.Duration { return time.Duration(d.conf.Load().InactiveLimitSec) * time.Second }}
		w.Run(ctx)
		return nil
	})
	part("counters", func() error { d.midnights(ctx); return nil })
	part("memory", func() error { giveBack(ctx); return nil })
	part("signs of life", func() error { d.opts.Service.Watch(ctx, d.writes(), d.status); return nil })
}

// operator reports whether a uid may do everything: root, SlurmUser, and the user that this controller runs as, who owns its socket and
// database.
func (d *daemon) operator(uid uint32) bool {
	return uid == 0 || uid == d.uid || uid == uint32(os.Geteuid())
}

// generation returns the generation of the state.
func (d *daemon) generation() version.Generation {
	n, _ := d.store.Generation()
	return version.Generation{Cluster: d.store.ClusterID(), Number: n}
}

// script reads a job's script and environment.
func (d *daemon) script(j *pb.JobRecord) ([]byte, []string, error) {
	return state.ReadTexts(d.store.Get, j)
}

// nodeServer makes the gRPC server for hosts: TLS 1.3, with certificates of this cluster's CA on both sides. Hosts without one may join.
func (d *daemon) nodeServer(relays *nodeport.Annex) (*grpc.Server, error) {
	if err := d.loadTrust(); err != nil {
		return nil, err
	}
	return grpc.NewServer(append(rpc.Guard{Accepts: d.accepts, Signs: d.certs.signs, Met: d.met, Generation: d.generation()}.Options(),
		grpc.Creds(nodeport.Credentials(credentials.NewTLS(d.certs.config()), relays)), grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(maxMessage), grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams), grpc.ConnectionTimeout(connectTimeout),
		// With fixed windows gRPC does not measure the connection, which takes a ping for each received message.
		grpc.InitialWindowSize(windowBytes), grpc.InitialConnWindowSize(windowBytes),
		grpc.ReadBufferSize(0), grpc.WriteBufferSize(nodeBuffer),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: nodePing, Timeout: tcp.Gone, MaxConnectionIdle: time.Minute}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}))...), nil
}

// names returns the names under which nodes reach this controller.
func (d *daemon) names() []string {
	var names []string
	for _, h := range d.conf.Load().SlurmctldHosts {
		names = append(names, h.Name, h.Addr)
	}
	if host, err := os.Hostname(); err == nil {
		names = append(names, host)
	}
	return append(names, "localhost", "127.0.0.1", "::1")
}

// backup makes a backup and deletes excess ones.
func (d *daemon) backup() (string, error) {
	path, err := d.store.BackupNow()
	if err != nil {
		return "", err
	}
	return path, d.store.RotateBackups(keepBackups)
}

func (d *daemon) service(w *rpc.Watch, stop func()) *rpc.Service {
	host, _ := os.Hostname()
	s := &rpc.Service{Writer: d.loop, Watch: w, Log: d.log, Host: host, Name: d.controllerName, PID: os.Getpid(), Started: d.started,
		Users:    rpc.NewUsers(),
		Forecast: d.advisor.Forecast, Why: d.advisor.Why, Terms: d.advisor.Priorities, Script: d.script, Reload: d.reload, Stop: stop,
		StopNodes: d.disp.Shutdown, NewNodes: d.newNodes,
		MakeBackup: d.makeBackup,
		Shown:      d.shown, Acct: d.acct, Privacy: d.privacy, Live: d.live, Holds: d.holds, GPUHours: d.gpuHours,
		Samples: d.samples, Withheld: feasible.Withheld,
		Figures: d.counters, Debug: d.setDebug, SubmitScript: d.submitScript, ModifyScript: d.modifyScript}
	return s
}
