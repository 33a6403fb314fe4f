package noded

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/gpu"
	"github.com/sluice-hpc/sluice/noded/gpufiles"
	"github.com/sluice-hpc/sluice/noded/hook"
	"github.com/sluice-hpc/sluice/noded/hw"
	"github.com/sluice-hpc/sluice/noded/isolate"
	"github.com/sluice-hpc/sluice/noded/link"
	"github.com/sluice-hpc/sluice/noded/step"
	"github.com/sluice-hpc/sluice/noded/taskenv"
	"github.com/sluice-hpc/sluice/noded/usage"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// Limits of the daemon.
const (
	maxWorkers       = 256 // goroutines that launch, control, forget, or run a prolog or epilog
	maxReports       = 512 // step reports in one message
	maxTaken         = 128 // events taken in before the next look at what is missing
	defaultHeartbeat = 10 * time.Second
	retryAfter       = time.Second // after an order could not be passed on
)

// node is the daemon's state. Its fields belong to loop, except those that never change after init.
type node struct {
	o       Options
	log     *slog.Logger
	sp      *spool
	steps   Steps
	hooks   *hook.Runner
	inv     hw.Inventory
	cgroup  string
	open    error // why jobs cannot be kept from each other's devices
	gpus    *gpu.Monitor
	startNS int64
	bundler *bundler

	settings  *pb.NodeSettings // nil until a controller has ever spoken
	clusterID string
	desired   *agent.Desired
	jobs      map[agent.Key]*job
	dirty     map[agent.Key]bool        // changed since the controller was told
	changed   bool                      // agent has to look again
	actual    map[agent.Key]agent.State // of reconcile alone: emptied and filled each time

	stream  *link.Stream
	greeted bool // the hello is on its way
	heard   bool // the controller has spoken on it
	ending  bool // RebootProgram runs
	beat    bool // a heartbeat is due
	devices bool // the report of the devices is due
	uses    *gpufiles.Keeper
	// usesChanged: jobs with devices have come or gone, or the devices have.
	usesChanged bool
	sampled     bool // so is what they are doing

	looking  bool                          // a look at the running steps is under way
	usages   []*pb.StepUsage               // what it found, to be reported
	priorUse map[agent.Key][]*pb.DeviceUse // by an earlier daemon, of steps that are not recorded yet

	events  chan link.Event
	results chan func() // what workers found out, to be run by loop
	workers chan struct{}
	wg      sync.WaitGroup
}

// job is one step attempt on this node.
type job struct {
	key     agent.Key
	name    string // step.Name
	phase   pb.StepPhase
	applied agent.Applied
	rep     *pb.StepReport // newest of the runner
	spec    *pb.LaunchSpec // without script and environment; nil for a step found at start-up
	uid     uint32
	devices []*pb.GresDevice // of this node
	refused bool             // never began here
	// launching is set while the prolog runs and until the runner has the step; cancel ends that.
	launching bool
	cancel    context.CancelCauseFunc
	busy      bool // an order is being passed on
	hooked    bool // package hook may have records of it
	epilog    bool // has been started
	epilogErr string
	recording bool            // of the use of its devices
	used      []*pb.DeviceUse // once it has ended
	peak      usage.Peak
}

func (n *node) init() {
	n.desired, n.jobs, n.dirty = agent.NewDesired(), map[agent.Key]*job{}, map[agent.Key]bool{}
	n.actual = map[agent.Key]agent.State{}
	n.events, n.results, n.workers = make(chan link.Event), make(chan func()), make(chan struct{}, maxWorkers)
	n.bundler = &bundler{
		daemon:   taskenv.Daemon{Node: n.o.NodeName, Conf: n.o.Conf, Socket: n.o.Socket},
		hostname: n.inv.Hostname, topology: n.inv.Topology, hard: ownHardLimit, log: n.log, devices: n.ownDevices, kernel: isolate.Linux{}, open: n.open,
	}
	if s := n.sp.loadSettings(); s != nil {
		n.settings, n.clusterID = s, s.ClusterId
	}
	n.watchDevices()
	n.loadUses()
	n.uses, n.usesChanged = gpufiles.NewKeeper(n.log), true
}

// recover takes in what the runner found. What ended while no daemon ran may still need its epilog.
func (n *node) recover(have []*pb.StepReport) {
	for _, rep := range have {
		k := agent.KeyOf(rep.Key)
		j := &job{key: k, name: step.Name(rep.Key), phase: pb.StepPhase_STEP_RUNNING, rep: rep, hooked: true}
		if b, err := n.steps.Bundle(rep.Key); err == nil {
			j.refused, j.uid, j.devices = isRefusal(b), b.Uid, b.Devices
			n.holdDevices(j.name, b)
		}
		n.jobs[k] = j
		n.desired.Present(k)
	}
	for _, name := range n.hooks.Names() {
		if !n.known(name) {
			n.hooks.Forget(name)
		}
	}
	n.log.Info("node daemon started", "steps", len(have), "cpus", len(n.inv.Topology), "memory_mib", n.inv.MemoryMiB, "cgroup", n.cgroup)
}

func (n *node) known(name string) bool {
	for _, j := range n.jobs {
		if j.name == name {
			return true
		}
	}
	return false
}

// run starts the link and the loop, and puts everything away when ctx ends.
func (n *node) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	linked := make(chan struct{})
	go func() {
		defer close(linked)
		link.Run(ctx, link.Options{Controllers: n.o.Controllers, TLS: n.o.TLSConfig, Log: n.log}, n.events)
	}()
	n.runDevices(ctx)
	n.runUses(ctx)
	err := n.loop(ctx)
	cancel()
	for range n.events { // until the link has ended
	}
	<-linked
	n.wg.Wait()
	if cerr := n.steps.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("cannot let go of the shims: %w", cerr)
	}
	n.log.Info("node daemon ends; jobs go on", "steps", len(n.jobs))
	return err
}

// loop owns the node's state until ctx ends.
func (n *node) loop(ctx context.Context) error {
	beats := time.NewTicker(defaultHeartbeat)
	defer beats.Stop()
	every := defaultHeartbeat
	for _, j := range n.jobs {
		n.advance(ctx, j)
	}
	for {
		if s := n.settings.GetHeartbeatS(); s > 0 && time.Duration(s)*time.Second != every {
			every = time.Duration(s) * time.Second
			beats.Reset(every)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-beats.C:
			n.beat = true
			n.lookAtSteps(ctx)
		case <-n.gpus.Changed():
			n.devices, n.usesChanged = true, true
		case <-n.gpus.Sampled():
			n.sampled = true
		case ev, ok := <-n.events:
			if !ok { // the link ends only with ctx
				return nil
			}
			n.linked(ctx, ev)
		case rep, ok := <-n.steps.Reports():
			if !ok {
				return fmt.Errorf("cannot go on: the steps of this node are not watched any more")
			}
			n.reported(ctx, rep)
		case f := <-n.results:
			f()
		}
		n.drain(ctx)
		if n.changed {
			n.changed = false
			n.reconcile(ctx)
		}
		if n.usesChanged {
			n.showUses()
		}
		n.flush()
	}
}

// drain takes in what has come meanwhile, so that a burst costs one look at what is missing and one message.
func (n *node) drain(ctx context.Context) {
	for range maxTaken {
		select {
		case rep, ok := <-n.steps.Reports():
			if !ok {
				return
			}
			n.reported(ctx, rep)
		case f := <-n.results:
			f()
		default:
			return
		}
	}
}

// work runs f in a goroutine; what f returns is run by loop afterwards, unless the daemon ends before.
func (n *node) work(ctx context.Context, f func() func()) {
	n.wg.Add(1)
	go func() {
		defer n.wg.Done()
		select {
		case n.workers <- struct{}{}:
		case <-ctx.Done():
			return
		}
		then := f()
		<-n.workers
		select {
		case n.results <- then:
		case <-ctx.Done():
		}
	}()
}

// mark notes that the controller has to be told of a step, and the agent to look.
func (n *node) mark(j *job) {
	n.dirty[j.key] = true
	n.changed = true
	n.usesChanged = n.usesChanged || len(j.devices) > 0
	if j.phase == pb.StepPhase_STEP_ENDED {
		n.gpus.Release(j.name)
	}
}

// reconcile carries out what is missing.
func (n *node) reconcile(ctx context.Context) {
	actual := n.actual
	clear(actual)
	for k, j := range n.jobs {
		actual[k] = agent.State{Phase: j.phase, Applied: j.applied}
	}
	for _, a := range agent.Reconcile(n.desired, actual) {
		switch a.Kind {
		case agent.Start:
			n.start(ctx, a)
		case agent.Control:
			n.control(ctx, n.jobs[a.Key], a)
		case agent.Forget:
			n.forget(ctx, n.jobs[a.Key])
		case agent.Refuse:
			n.refuse(ctx, a)
		}
	}
	n.desired.Tidy(actual)
}

// reported takes in what the runner says of a step.
func (n *node) reported(ctx context.Context, rep *pb.StepReport) {
	j := n.jobs[agent.KeyOf(rep.Key)]
	if j == nil || j.phase == pb.StepPhase_STEP_ENDED {
		return
	}
	j.rep = rep
	n.advance(ctx, j)
}

// advance moves a step to the phase that it has reached. It has ended for the controller only when its epilog has run.
func (n *node) advance(ctx context.Context, j *job) {
	phase := j.rep.GetPhase()
	if phase == pb.StepPhase_STEP_ENDED && !j.refused && n.settings.GetEpilog() != "" {
		phase = pb.StepPhase_STEP_COMPLETING
		n.startEpilog(ctx, j)
	}
	j.phase = phase
	n.beginUse(j)
	n.endUse(j)
	n.mark(j)
}

// report is what the controller is told of a step.
func (j *job) report() *pb.StepReport {
	out := &pb.StepReport{Key: j.key.Proto(), Phase: j.phase, SignalsSeen: j.rep.GetSignalsSeen(), Pid: j.rep.GetPid(), StartNs: j.rep.GetStartNs()}
	if j.phase != pb.StepPhase_STEP_ENDED {
		return out
	}
	out.Exit = j.withDevices(j.rep.GetExit())
	if j.epilogErr != "" {
		out.Exit = proto.Clone(out.Exit).(*pb.ExitRecord)
		out.Exit.EpilogError = j.epilogErr
	}
	return out
}
