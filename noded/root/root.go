// Package root is noded-root, the privileged half of the node daemon. It owns the spool, the shims, the devices and the records
// of prologs and epilogs. It carries out the requests of noded-link, the half that talks to the controller, as far as the node's
// policy allows (noded/policy). It has no network.
//
//	r, err := root.New(ctx, options)   // takes the spool, finds running shims
//	err = r.Serve(ctx, conn)           // one noded-link, until it or ctx ends; then another one
//	err = r.Close()                    // jobs continue
//
//	             noded-link                                        noded-root
//	user         sluice-noded (or uid 64717), no capabilities,     root
//	             no_new_privs, not dumpable
//	network      AF_INET and AF_INET6                              an empty namespace
//	files        reads world-readable files, writes none           all
//	programs     none: no execve                                   shims, the site's programs, getent
//	parses       TLS, gRPC, the controller's messages              requests of bounded size, by the rows of table.go
//
// # What is checked
//
// Each request has a row in table.go: its form, its memory limit, and what the policy checks. A request without a row, or of the
// wrong form, ends the connection. The policy checks users and groups, programs (which only root may be able to change), their
// environment and their arguments. The cgroup's name follows from the step, device rules come from this node's own inventory, and
// limits never exceed the daemon's own. The controller is told which users the node refuses, and places jobs accordingly.
//
// Requests are weighed before they are decoded, because a decoded message can take a hundred times its length in memory (privsep,
// weight.go). Reading continues while requests wait, so that a step can be ended while a hung disk blocks launches. Large
// requests therefore take turns in noded-link.
//
// # When noded-link ends
//
// It may end at any time, even by SIGKILL, since noded-root knows everything: its Welcome brings the next noded-link up to date.
// Requests under way, such as a prolog, are cancelled, as when the whole daemon is killed. The new noded-link resumes where the
// controller's orders and the steps on this node differ (package agent). When noded-root ends, noded-link ends with its
// connection.
//
// # Configuration from the controller
//
// A bundle passes through the unprivileged noded-link and contains programs that root runs. So the controller signs it and
// noded-root checks the signature against the CA; otherwise a compromised noded-link would gain root. It can still replay an old
// bundle: bundles carry no time, because clocks go wrong.
//
// Without root, both halves run as the caller and the policy is not applied: there are no privileges to guard.
package root

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/internal/version"
	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/container"
	"github.com/sluice-hpc/sluice/noded/gpu"
	"github.com/sluice-hpc/sluice/noded/gpufiles"
	"github.com/sluice-hpc/sluice/noded/hook"
	"github.com/sluice-hpc/sluice/noded/hostconf"
	"github.com/sluice-hpc/sluice/noded/hw"
	"github.com/sluice-hpc/sluice/noded/isolate"
	"github.com/sluice-hpc/sluice/noded/policy"
	"github.com/sluice-hpc/sluice/noded/privsep"
	"github.com/sluice-hpc/sluice/noded/step"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	"github.com/sluice-hpc/sluice/noded/taskenv"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Steps runs steps: step.Runner, which documents every method, or a fake.
type Steps interface {
	Recover(context.Context) ([]*pb.StepReport, error)
	Launch(ctx context.Context, b *pb.Bundle, script []byte) error
	Fail(*pb.Bundle, *pb.ExitRecord) error
	Control(context.Context, *pb.StepOrder) error
	Forget(*pb.StepKey) error
	Reports() <-chan *pb.StepReport
	Bundle(*pb.StepKey) (*pb.Bundle, error)
	Ready() string
	Fault(ctx context.Context, all bool) string
	Adopt(ctx context.Context, k *pb.StepKey, pid int) error
	Close() error
}

// Options of a Root.
type Options struct {
	Node     string // name
	Login    bool   // this is a login host: no spool, no steps, no devices
	Cluster  string
	Spool    string
	Step     step.Options // options of the Runner if Steps is nil; Root fills in the rest
	Steps    Steps
	Prober   hw.Prober
	GPUs     gpu.Source
	NoGPUs   string
	GPUFiles bool // write the usual files for GPU metric exporters
	Policy   policy.Policy
	Daemon   taskenv.Daemon
	// HealthCheck runs once before anything else; may be empty.
	HealthCheck string
	// Identity is the identity in this host's certificate; TLS is the directory of the certificate and its key.
	Identity mtls.Identity
	TLS      string
	// Welcome is the part of noded-link's Welcome that Root does not know itself.
	Welcome *nodepb.Welcome
	Log     *slog.Logger
	Level   *slog.LevelVar // of Log; may be nil
	// Reload rereads the configuration files, reopens the log accordingly, and returns the other settings. May be nil.
	Reload func() (Reread, error)
	// Status receives the reason why the controller that answers is not followed, or "" when one is followed. May be nil.
	Status func(refused string)
	// Sessions is the socket for the adoption of sshd sessions; nil: none. Root closes it.
	Sessions *net.UnixListener
	// Conf is the node's configuration.
	Conf   Conf
	Kernel isolate.Kernel // isolate.Linux
}

// Root is the privileged half of one node daemon.
type Root struct {
	o     Options
	log   *slog.Logger
	sp    *spool
	steps Steps
	hooks *hook.Runner
	gpus  *gpu.Monitor
	uses  *gpufiles.Keeper
	judge policy.Judge
	inv   hw.Inventory
	open  error // why jobs cannot be kept off each other's devices; nil: they can
	fixed []string

	ctx  context.Context // ends the background goroutines
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	conf   *pb.ConfigurationState
	bundle *hostconf.Bundle // nil: the host has files of its own
	known  map[agent.Key]*known
	// knownBytes is the memory for steps that noded-link has named.
	knownBytes int
	settings   *pb.NodeSettings
	said       map[string]bool
	patience   time.Duration // linkPatience
	privacy    *pb.Privacy   // the privacy in force: the part of wanted that this machine supports
	wanted     *pb.Privacy
	shared     []string // why jobs share what should be private
	conn       *session // nil: no noded-link is connected
	looking    bool
	// rebooting: RebootProgram runs.
	rebooting bool
	followed  version.Generation
	past      past
	nextKey   []byte // a key without a certificate yet
}

// ErrStopped is returned by Serve when the controller orders the node daemon to stop.
var ErrStopped = errors.New("the controller ordered this node daemon to stop")

// New locks the spool and finds what an earlier daemon left.
func New(ctx context.Context, o Options) (*Root, error) {
	if o.Kernel == nil {
		o.Kernel = isolate.Linux{}
	}
	if o.Login {
		return newLogin(ctx, o)
	}
	sp, err := openSpool(o.Spool, o.Log)
	if err != nil {
		return nil, err
	}
	r := &Root{o: o, log: o.Log, sp: sp, steps: o.Steps, known: map[agent.Key]*known{}, said: map[string]bool{},
		patience: linkPatience}
	r.judge.Policy = o.Policy
	r.beginConf()
	r.judge.Spool = sp.dir
	r.o.Spool = sp.dir
	r.fixed = taskenv.Check("", o.Daemon)
	if err = r.loadFollowed(); err == nil {
		err = r.begin(ctx)
	}
	if err != nil {
		sp.close()
		return nil, err
	}
	return r, nil
}

func (r *Root) begin(ctx context.Context) (err error) {
	if r.inv, err = r.o.Prober.Inventory(); err != nil {
		return err
	}
	if err = r.past.open(filepath.Join(r.sp.dir, "ended")); err != nil {
		return err
	}
	if r.hooks, err = hook.Open(r.sp.dir, r.log); err != nil {
		return err
	}
	r.hooks.Allow = r.judge.Program
	layout := ""
	if r.steps == nil {
		so := r.o.Step
		so.Spool, so.Group, so.Log = r.sp.dir, folder.Group, r.log
		so.CgroupRoot = r.cgroup()
		run, err := step.New(so)
		if err != nil {
			return err
		}
		r.steps, layout, r.open = run, run.Layout().String(), run.Devices()
	}
	have, err := r.steps.Recover(ctx)
	if err != nil {
		_ = r.steps.Close()
		return fmt.Errorf("cannot find the steps that run on this node: %w", err)
	}
	r.settings = r.sp.loadSettings()
	r.hooks.Serial(r.settings.GetSerialHooks())
	r.setPrivacy(r.settings.GetPrivacy())
	r.sweepPrivate(have)
	r.sweepContainers(have)
	r.gpus = gpu.NewMonitor(gpu.Options{Source: r.o.GPUs, NoDriver: r.o.NoGPUs, Topology: r.inv.Topology, Log: r.log,
		Gres: r.settings.GetGres(), Policy: r.settings.GetGpu(), Unsettled: r.settings == nil,
		State: filepath.Join(r.sp.dir, "devices.json"), BootID: r.inv.BootID,
		Processes: gpu.Proc{Cgroup: r.cgroup(), Spool: r.sp.dir}})
	r.uses = gpufiles.NewKeeper(r.log)
	r.recover(have)
	if w := r.o.Welcome; w != nil {
		w.StartNs, w.Driver, w.NoGpus = time.Now().UnixNano(), r.gpus.Driver(), r.gpus.NoDriver()
		w.CloseDevices = r.judge.ClosesDevices()
		if r.open != nil {
			w.Open = r.open.Error()
		}
	}
	r.log.Info("node daemon started", "steps", len(have), "cpus", len(r.inv.Topology), "memory_mib", r.inv.MemoryMiB, "cgroup", layout)
	r.run(ctx)
	return nil
}

func (r *Root) cgroup() string { return path.Join("sluice", r.o.Cluster, r.o.Node) }

// run starts the background goroutines.
func (r *Root) run(ctx context.Context) {
	if r.o.HealthCheck != "" {
		r.check(ctx, healthRecord, r.local(r.o.HealthCheck), taskenv.Check(r.o.Cluster, r.o.Daemon), healthTimeout)
	}
	r.ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	r.wg.Go(func() { r.gpus.Run(r.ctx) })
	r.wg.Go(func() { r.uses.Run(r.ctx) })
	r.wg.Go(r.watch)
	if l := r.o.Sessions; l != nil {
		r.wg.Go(func() { r.serveAdopt(l) })
	}
	base := r.privacy.GetBase() // before the settings change
	r.wg.Go(func() { r.purgePrivate(base) })
	if os.Geteuid() == 0 {
		r.wg.Go(func() { r.purgePrivate(filepath.Join(r.sp.dir, container.Folder)) })
	}
	r.showUses()
}

// watch handles events of the runner and the GPU monitor.
func (r *Root) watch() {
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-r.gpus.Changed():
			r.showUses()
			r.tell(func(s *session) { s.devices = true })
		case <-r.gpus.Sampled():
			r.tell(func(s *session) { s.samples = true })
		case rep, ok := <-r.steps.Reports():
			if !ok {
				return
			}
			if rep.Phase == pb.StepPhase_STEP_ENDED {
				r.ended(rep)
			} else {
				r.reported(rep)
			}
		}
	}
}

// tell changes what is pending for noded-link, if one is connected.
func (r *Root) tell(f func(*session)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil {
		f(r.conn)
		r.conn.out.Wake()
	}
}

// Signal handles SIGHUP (register) and SIGUSR2: it reopens the log and tells noded-link.
func (r *Root) Signal(register bool) {
	level, err := r.reload()
	r.tell(func(s *session) {
		_ = s.out.Put(&nodepb.Word{What: &nodepb.Word_Reread{Reread: &nodepb.Reread{LogLevel: int32(level), KeepLevel: err != nil,
			Register: register}}})
	})
	if err == nil && r.o.Level != nil {
		r.o.Level.Set(level)
		r.log.Info("log reopened", "level", level.String())
	}
}

// reload rereads the node's own files.
func (r *Root) reload() (slog.Level, error) {
	if r.o.Reload == nil {
		return 0, errors.New("nothing to read")
	}
	now, err := r.o.Reload()
	if err != nil {
		r.log.Error("cannot reload: keeping the log and its level", "err", err)
		return now.Level, err
	}
	r.judge.SetOwn(now.Own)
	r.ownFiles(now.Sum)
	return now.Level, nil
}

// Alive returns true as soon as the lock that all requests need is free.
func (r *Root) Alive() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return true
}

// Close releases everything. Jobs keep running.
func (r *Root) Close() error {
	r.stop()
	if r.o.Sessions != nil {
		_ = r.o.Sessions.Close()
	}
	r.wg.Wait()
	if r.o.Login {
		r.log.Info("login host's daemon stopped")
		return nil
	}
	err := r.steps.Close()
	if err != nil {
		err = fmt.Errorf("cannot release the shims: %w", err)
	}
	r.log.Info("node daemon stopped; jobs keep running", "steps", len(r.known))
	r.past.close()
	r.sp.close()
	return err
}

// once logs a warning that would recur with each job a single time.
func (r *Root) once(what string, err error) {
	text := fmt.Sprintf("%.500s", err)
	r.mu.Lock()
	told := r.said[text] || len(r.said) >= 1000
	if !told {
		r.said[text] = true
	}
	r.mu.Unlock()
	if !told {
		r.log.Warn(what, "err", text)
	}
}

// linkPatience is how long the next noded-link waits for requests of the last one. All of them are cancelled. One that a hung
// disk blocks ends later, and finds its step known.
const linkPatience = 15 * time.Second

// Serve carries out the requests of one noded-link until the connection or ctx ends. It returns when none is under way, except
// those that a disk blocks.
func (r *Root) Serve(ctx context.Context, conn net.Conn) error {
	s := &session{r: r, conn: conn, out: privsep.NewOutbox(), dirty: map[agent.Key]bool{}, calls: map[uint64]context.CancelCauseFunc{}}
	return s.serve(ctx)
}
