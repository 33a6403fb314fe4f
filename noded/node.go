package noded

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-hpc/sluice/internal/clock"
	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/hw"
	"github.com/sluice-hpc/sluice/noded/link"
	"github.com/sluice-hpc/sluice/noded/privsep"
	"github.com/sluice-hpc/sluice/noded/taskenv"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
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
	o       linkOptions
	log     *slog.Logger
	root    *privsep.Client
	about   *nodepb.Welcome // what the root half said of this node
	cert    *certificate
	renewal renewal
	inv     hw.Inventory
	bundler *bundler
	sockets Sockets
	private atomic.Bool // whose jobs there are is not for everybody: so until a controller has said otherwise

	settings  *pb.NodeSettings // nil until a controller has ever spoken
	clusterID string
	desired   *agent.Desired
	jobs      map[agent.Key]*job
	dirty     map[agent.Key]bool        // changed since the controller was told
	changed   bool                      // agent has to look again
	actual    map[agent.Key]agent.State // of reconcile alone: emptied and filled each time

	stream  *link.Stream
	taken   bool            // a controller has known this node since the daemon was started
	greeted bool            // the hello is on its way
	heard   bool            // the controller has spoken on it
	ending  bool            // RebootProgram runs
	beat    bool            // a heartbeat is due
	history *pb.NodeHistory // that is to be told
	have    *pb.DeviceReport
	devices bool // the report of the devices is due
	samples []*pb.DeviceSample
	sampled bool // so is what they are doing

	conf     *pb.ConfigurationState // what is in force here
	confNews bool                   // it is to be reported
	offered  *pb.Configuration      // by the controller, and not in force yet

	health   health
	standing *pb.NodeStanding // as the controller said last

	fault   string // why this node cannot start steps; "" = it can
	faulted bool   // a look for that is under way

	looking bool            // a look at the running steps is under way
	usages  []*pb.StepUsage // what it found, to be reported
	seen    []*pb.StepUsage // what the last one found, for metrics

	events  chan link.Event
	results chan func()   // what workers found out, to be run by loop
	workers chan struct{} // those that may wait for a disk or a program
	signals chan struct{} // those that pass an order on to a step: they must not wait for the others
	wg      sync.WaitGroup
}

// job is one step attempt on this node.
type job struct {
	key     agent.Key
	phase   pb.StepPhase
	applied agent.Applied
	rep     *pb.StepReport // newest of the runner
	spec    *pb.LaunchSpec // without script and environment; nil for a step found at start-up
	brief   *pb.Bundle     // what is known of a step found at start-up
	cpus    uint32         // of this node
	refused bool           // never began here
	// launching is set while the prolog runs and until the runner has the step; cancel ends that.
	launching bool
	begun     int64 // when it was ordered, by CLOCK_BOOTTIME; of one that is to be started
	cancel    context.CancelCauseFunc
	busy      bool // an order is being passed on
	epilog    bool // has been started
	epilogErr string
	asked     bool   // has been asked what is wrong with this node, which could not start it
	asking    bool   // that is under way
	fault     string // what that is
	stuck     bool   // UnkillableStepProgram has been started
}

func (n *node) init() (err error) {
	if n.inv, err = n.o.Prober.Inventory(); err != nil {
		return err
	}
	files := mtls.Files{Authority: n.about.Ca, Certificate: n.about.Certificate, Key: n.about.Key}
	if err := n.renewal.begin(files); err != nil {
		return err
	}
	if n.o.Level != nil {
		n.o.Level.Set(slog.Level(n.about.LogLevel))
	}
	n.desired, n.jobs, n.dirty = agent.NewDesired(), map[agent.Key]*job{}, map[agent.Key]bool{}
	n.actual = map[agent.Key]agent.State{}
	n.events, n.results, n.workers = make(chan link.Event), make(chan func()), make(chan struct{}, maxWorkers)
	n.signals = make(chan struct{}, maxWorkers)
	n.bundler = &bundler{
		daemon:   taskenv.Daemon{Node: n.about.Node, Conf: n.about.Conf, Socket: n.about.Socket},
		hostname: n.inv.Hostname, topology: n.inv.Topology, hard: rootsLimit, log: n.log,
		devices: func() []*pb.Device { return n.have.GetDevices() }, closed: n.about.CloseDevices,
	}
	if n.about.Open != "" {
		n.bundler.open = errors.New(n.about.Open)
	}
	n.private.Store(namesPrivate(n.about.Settings))
	n.have, n.conf = n.about.Devices.GetReport(), n.about.Configuration
	if s := n.about.Settings; s != nil {
		n.settings, n.clusterID = s, s.ClusterId
	}
	return nil
}

// recover takes in what the root half has. What ended while there was no daemon may still need its epilog.
func (n *node) recover(have []*nodepb.Known) {
	for _, k := range n.about.Ended {
		n.desired.Past(agent.KeyOf(k))
	}
	for _, h := range have {
		k := agent.KeyOf(h.Report.GetKey())
		n.jobs[k] = &job{key: k, phase: pb.StepPhase_STEP_RUNNING, rep: h.Report, brief: h.Bundle, spec: h.Launch, cpus: h.Bundle.GetCpus(),
			refused: isRefusal(h.Bundle)}
		n.desired.Present(k)
	}
}

// run starts the link and the loop, and puts everything away when ctx ends, or the root half goes.
func (n *node) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	linked := make(chan struct{})
	go func() {
		defer close(linked)
		link.Run(ctx, link.Options{Controllers: n.about.Controllers, TLS: n.cert.Config(), Followed: n.cert.followed,
			Log: n.log, Dial: n.o.Dial}, n.events)
	}()
	served := n.serveMetrics(ctx)
	n.loop(ctx)
	cancel()
	<-served
	n.root.Close()
	for range n.events { // until the link has ended
	}
	for range n.root.Words() { // until nothing waits for somebody to listen
	}
	<-linked
	n.wg.Wait()
	return nil
}

// loop owns the node's state until ctx ends.
func (n *node) loop(ctx context.Context) {
	beats := time.NewTicker(defaultHeartbeat)
	defer beats.Stop()
	defer n.health.stop()
	defer n.renewal.stop()
	every := defaultHeartbeat
	n.lookForFault(ctx)
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
			return
		case <-beats.C:
			n.beat = true
			n.lookForFault(ctx)
			n.lookAtSteps(ctx)
			n.offerAgain()
		case <-n.renewal.timer.C:
			n.renewCertificate(ctx)
		case <-n.health.C():
			n.checkHealth(ctx)
		case ev, ok := <-n.events:
			if !ok { // the link ends only with ctx
				return
			}
			n.linked(ctx, ev)
		case w, ok := <-n.root.Words():
			if !ok { // the root half has gone: so do we
				return
			}
			n.told(ctx, w)
		case f := <-n.results:
			f()
		}
		n.drain(ctx)
		if n.changed {
			n.changed = false
			n.reconcile(ctx)
		}
		n.flush()
	}
}

// drain takes in what has come meanwhile, so that a burst costs one look at what is missing and one message.
func (n *node) drain(ctx context.Context) {
	for range maxTaken {
		select {
		case w, ok := <-n.root.Words():
			if !ok {
				return
			}
			n.told(ctx, w)
		case f := <-n.results:
			f()
		default:
			return
		}
	}
}

// work runs f in a goroutine; what f returns is run by loop afterwards, unless the daemon ends before.
func (n *node) work(ctx context.Context, f func() func()) { n.within(ctx, n.workers, f) }

// within is work with one of these places.
func (n *node) within(ctx context.Context, places chan struct{}, f func() func()) {
	n.wg.Add(1)
	go func() {
		defer n.wg.Done()
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		then := f()
		<-places
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

// told takes in what the root half says.
func (n *node) told(ctx context.Context, w *nodepb.Word) {
	switch {
	case w.GetReport() != nil:
		n.reported(ctx, w.GetReport())
	case w.GetDevices() != nil:
		n.have, n.devices = w.GetDevices().Report, true
	case w.GetSamples() != nil:
		n.samples, n.sampled = w.GetSamples().Samples, true
	case w.GetConfiguration() != nil:
		n.configured(w.GetConfiguration())
	case w.GetReread() != nil:
		n.reread(w.GetReread())
	}
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
	if phase == pb.StepPhase_STEP_ENDED && n.askFault(ctx, j) {
		return
	}
	if phase == pb.StepPhase_STEP_ENDED && n.stepsLeft(j.key) {
		phase = pb.StepPhase_STEP_COMPLETING // its end is told when theirs are
	}
	if phase == pb.StepPhase_STEP_ENDED && !j.refused && j.key.Holder() && n.settings.GetEpilog() != "" {
		phase = pb.StepPhase_STEP_COMPLETING
		n.startEpilog(ctx, j)
	}
	if phase == pb.StepPhase_STEP_ENDED && j.phase != phase {
		n.tellFailure(j)
	}
	j.phase = phase
	n.unkillable(ctx, j)
	n.mark(j)
	if phase == pb.StepPhase_STEP_ENDED && !j.key.Holder() {
		n.advanceHolder(ctx, j.key)
	}
}

// tellFailure logs why a job could not be launched: whoever looks after this node looks here.
func (n *node) tellFailure(j *job) {
	switch x := j.rep.GetExit(); x.GetVerdict() {
	case pb.VerdictNodeFailed, pb.VerdictLaunchFailed, pb.VerdictOutputFailed, pb.VerdictPrologFailed:
		n.log.Warn("a job could not be launched", "job", j.key.Job, "attempt", j.key.Attempt, "verdict", x.GetVerdict(), "why",
			x.GetDetail())
	}
}

// of is what this node knows of the job that a step is of.
func (j *job) of() *pb.StepJob {
	if l := j.spec; l != nil {
		return jobOf(l)
	}
	return j.brief.GetJob()
}

// jobOf is what is kept of the job of a launch for a controller that has forgotten it.
func jobOf(l *pb.LaunchSpec) *pb.StepJob {
	spec := l.GetSpec()
	o := &pb.StepJob{Uid: spec.GetUid(), Gid: spec.GetGid(), User: spec.GetUser(), Name: spec.GetName(), Interactive: spec.GetInteractive(),
		Account: l.Account, Partition: l.Partition, Qos: l.Qos, NodeList: l.NodeList, Restarts: l.Restarts, ArrayJobId: l.ArrayJobId,
		ArrayTaskId: l.ArrayTaskId}
	for _, a := range l.Alloc {
		o.NumCpus += a.Cpus
	}
	return o
}

// report is what the controller is told of a step in this boot.
func (j *job) report(boot string) *pb.StepReport {
	out := &pb.StepReport{Key: j.key.Proto(), Phase: j.phase, SignalsSeen: j.rep.GetSignalsSeen(), Pid: j.rep.GetPid(),
		StartNs: j.rep.GetStartNs()}
	if j.phase != pb.StepPhase_STEP_ENDED {
		if unkillable(j.rep) {
			out.Exit = j.rep.Exit
		}
		return out
	}
	out.Exit = j.rep.GetExit()
	if j.key.Holder() {
		out.Job = j.of()
	}
	if x := out.Exit; x.GetEndBootNs() > 0 && x.GetBootId() == boot {
		out.EndedAgoNs = max(1, clock.Boot()-x.GetEndBootNs())
	}
	if j.epilogErr != "" || j.fault != "" {
		out.Exit = proto.Clone(out.Exit).(*pb.ExitRecord)
		out.Exit.EpilogError, out.Exit.NodeFault = j.epilogErr, j.fault
	}
	return out
}
