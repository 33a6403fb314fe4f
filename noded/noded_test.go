package noded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/internal/test/leaktest"
	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/hw"
	"github.com/sluice-hpc/sluice/noded/lifecycle"
	"github.com/sluice-hpc/sluice/noded/link"
	"github.com/sluice-hpc/sluice/noded/policy"
	"github.com/sluice-hpc/sluice/noded/stepd"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"go.uber.org/goleak"
)

var quiet = slog.New(slog.DiscardHandler)

// TestMain lets the test binary be the shim too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "stepd" {
		os.Exit(stepd.Main(os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == "noded" {
		os.Exit(daemonMain())
	}
	os.Exit(m.Run())
}

// daemon is one node daemon and what it is started with.
type daemon struct {
	t      testing.TB
	o      Options
	cancel context.CancelFunc
	done   chan error
}

// newDaemon prepares a daemon on fake hardware and, unless steps is nil, fake shims. start starts it.
func newDaemon(t testing.TB, c *controller, steps *fakeSteps) *daemon {
	level := slog.LevelError
	if testing.Verbose() {
		level = slog.LevelInfo
	}
	d := &daemon{t: t, o: Options{
		NodeName: "n1", Spool: t.TempDir(), TLS: c.tlsDir, Controllers: []string{c.addr}, Cluster: "c1",
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
		Prober: &hw.Fake{Inv: hw.Inventory{Topology: hw.Build(2, 2, 2), MemoryMiB: 4000, TmpMiB: 10, BootID: "b1", BootNS: 5,
			OS: "Linux 6", Arch: "x86_64", Hostname: "h"}, Now: hw.Load{CPU: 1.5, FreeMemMiB: 77}},
	}}
	if steps != nil {
		d.o.Steps = steps
	}
	must(t, os.Chmod(d.o.Spool, 0o711))
	return d
}

func (d *daemon) start() *daemon {
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel, d.done = cancel, make(chan error, 1)
	done := d.done
	ended := make(chan struct{})
	go func() { done <- Run(ctx, d.o); close(ended) }()
	d.t.Cleanup(func() { cancel(); <-ended })
	return d
}

func (d *daemon) stop() {
	d.t.Helper()
	d.cancel()
	if err := <-d.done; err != nil {
		d.t.Error(err)
	}
}

func jobSpec(id, attempt uint32) *pb.LaunchSpec {
	k := &pb.StepKey{JobId: id, Attempt: attempt, Epoch: uint64(100*attempt + id), Step: pb.BatchStep}
	return &pb.LaunchSpec{Key: k, Node: "n1", NodeList: "n1", Batch: true, Partition: "debug", Script: []byte("#!/bin/sh\n"),
		Env:   []string{"LD_PRELOAD=/evil.so"},
		Alloc: []*pb.NodeAlloc{{Node: "n1", Cpus: 1, Tasks: 1}}, NumTasks: 1,
		Spec: &pb.JobSpec{Name: "j", User: "u", Uid: 54321, Gid: 54321, WorkDir: "/"}}
}

func TestHelloAndHeartbeats(t *testing.T) {
	defer leaktest.None(t, goleak.IgnoreCurrent())
	c := newController(t)
	d := newDaemon(t, c, newFakeSteps(t)).start()
	c.await("two heartbeats after the hello", func() bool { return c.beats >= 3 })
	h := c.hello(0).Hello
	hardware := &pb.Hardware{Cpus: 8, Sockets: 2, Cores: 2, Threads: 2, RealMemoryMib: 4000, TmpDiskMib: 10, Unread: true,
		NoGpus: "its daemon was told not to look for any (--gpus none)"}
	if h.Node != "n1" || h.BootId != "b1" || h.BootNs != 5 || h.Arch != "x86_64" || h.Version == "" || h.NodedStartNs == 0 ||
		h.Hardware.String() != hardware.String() || h.ClusterId != "" || h.Refusals != nil {
		t.Errorf("%v", h)
	}
	if b := c.hello(0).Heartbeat; b.CpuLoad != 1.5 || b.FreeMemMib != 77 {
		t.Errorf("%v", b)
	}
	d.stop()
	c.server.Stop()
}

// TestHelloTellsPolicy: the controller hears whose jobs this node would not run.
func TestHelloTellsPolicy(t *testing.T) {
	defer leaktest.None(t, goleak.IgnoreCurrent())
	c := newController(t)
	d := newDaemon(t, c, newFakeSteps(t))
	d.o.Policy = policy.Default()
	d.start()
	c.await("a hello", func() bool { return c.beats >= 1 })
	if r := c.hello(0).Hello.Refusals; !r.GetRoot() || r.GetBelow() != 1000 {
		t.Errorf("%v", r)
	}
	d.stop()
	c.server.Stop()
}

func TestIrregularMachineLosesNoProcessor(t *testing.T) {
	top := hw.Build(1, 2, 2)[:3]
	if got := hardware(hw.Inventory{Topology: top}); got.Sockets*got.Cores*got.Threads != 3 || got.Cpus != 3 {
		t.Errorf("%v", got)
	}
}

func TestJobFromOrderToForgotten(t *testing.T) {
	c, steps := newController(t), newFakeSteps(t)
	d := newDaemon(t, c, steps).start()
	k := c.submit(jobSpec(1, 1))
	c.phase(k, pb.StepPhase_STEP_RUNNING)
	steps.exit(k, 3<<8)
	if x := c.end(k); x.Verdict != "exited" || x.WaitStatus != 3<<8 || x.EpilogError != "" {
		t.Errorf("%v", x)
	}
	d.settled(steps)
	d.stop()
}

// settled waits until nothing is left on the node.
func (d *daemon) settled(steps *fakeSteps) {
	d.t.Helper()
	late := false
	timer := time.AfterFunc(patience, func() {
		steps.mu.Lock()
		defer steps.mu.Unlock()
		late = true
		steps.forgot.Broadcast()
	})
	defer timer.Stop()
	steps.mu.Lock()
	defer steps.mu.Unlock()
	for len(steps.steps) > 0 {
		if late {
			d.t.Fatalf("%d steps are still in the spool", len(steps.steps))
		}
		steps.forgot.Wait()
	}
}

func TestStopSignalsAndLimits(t *testing.T) {
	c, steps := newController(t), newFakeSteps(t)
	d := newDaemon(t, c, steps).start()
	k := c.submit(jobSpec(1, 1))
	c.phase(k, pb.StepPhase_STEP_RUNNING)
	c.update(func() { c.wants[k].Signals = []*pb.Signal{{Seq: 4, Signal: 10, Target: pb.SignalBatch}} })
	c.await("the signal", func() bool { return c.has[k].GetSignalsSeen() == 4 })
	steps.mu.Lock()
	steps.failControl = 1
	steps.mu.Unlock()
	c.order(k, pb.StepWant_WANT_STOP)
	if x := c.end(k); x.Verdict != "cancelled" || !x.StoppedOnOrder {
		t.Errorf("%v", x)
	}
	steps.mu.Lock()
	n := 0
	for _, o := range steps.orders {
		if o.Want == pb.StepWant_WANT_STOP {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d orders to stop; one was lost and had to be repeated, none more: %v", n, steps.orders)
	}
	steps.mu.Unlock()
	d.stop()
}

func TestControllerRestartsWhileJobsRunAndEnd(t *testing.T) {
	c, steps := newController(t), newFakeSteps(t)
	d := newDaemon(t, c, steps).start()
	a, b := c.submit(jobSpec(1, 1)), c.submit(jobSpec(2, 1))
	c.phase(a, pb.StepPhase_STEP_RUNNING)
	c.phase(b, pb.StepPhase_STEP_RUNNING)
	c.server.Stop()
	steps.exit(a, 7<<8) // while nobody listens
	c.listen(c.addr)
	if x := c.end(a); x.WaitStatus != 7<<8 {
		t.Errorf("%v", x)
	}
	steps.exit(b, 0)
	c.end(b)
	d.settled(steps)
	for _, k := range []agent.Key{a, b} {
		if _, n := steps.count(k); n != 1 {
			t.Errorf("%v was launched %d times", k, n)
		}
	}
	d.stop()
}

func TestDaemonRestartsWhileJobsRunAndEnd(t *testing.T) {
	c, steps := newController(t), newFakeSteps(t)
	d := newDaemon(t, c, steps).start()
	a, b := c.submit(jobSpec(1, 1)), c.submit(jobSpec(2, 1))
	c.phase(a, pb.StepPhase_STEP_RUNNING)
	c.phase(b, pb.StepPhase_STEP_RUNNING)
	d.stop()
	steps.exit(a, 7<<8)
	was := c.heard()
	d.start()
	if x := c.end(a); x.WaitStatus != 7<<8 {
		t.Errorf("%v", x)
	}
	if h := c.hello(was).Hello; h.ClusterId != "id1" {
		t.Errorf("the node forgot its cluster: %v", h)
	}
	c.order(b, pb.StepWant_WANT_STOP)
	c.end(b)
	d.settled(steps)
	if _, n := steps.count(b); n != 1 {
		t.Errorf("launched %d times", n)
	}
	d.stop()
}

func TestWhatTheControllerDoesNotKnowIsEnded(t *testing.T) {
	c, steps := newController(t), newFakeSteps(t)
	d := newDaemon(t, c, steps).start()
	k := c.submit(jobSpec(1, 1))
	c.phase(k, pb.StepPhase_STEP_RUNNING)
	c.server.Stop()
	c.update(func() { delete(c.wants, k) }) // given up meanwhile
	c.listen(c.addr)
	d.settled(steps)
	steps.mu.Lock()
	if len(steps.orders) != 1 || steps.orders[0].Want != pb.StepWant_WANT_KILL {
		t.Errorf("%v", steps.orders)
	}
	steps.mu.Unlock()
	d.stop()
}

func TestNewAttemptWaitsForTheOldOne(t *testing.T) {
	c, steps := newController(t), newFakeSteps(t)
	d := newDaemon(t, c, steps).start()
	first := c.submit(jobSpec(1, 1))
	c.phase(first, pb.StepPhase_STEP_RUNNING)
	c.update(func() { delete(c.wants, first) })
	second := c.submit(jobSpec(1, 2))
	c.phase(second, pb.StepPhase_STEP_RUNNING)
	steps.mu.Lock()
	if s := steps.steps[first]; s != nil && s.rep.Phase != pb.StepPhase_STEP_ENDED {
		t.Error("both attempts run")
	}
	steps.mu.Unlock()
	steps.exit(second, 0)
	c.end(second)
	d.stop()
}

func TestLaunchThatFailsIsTriedAgainAndThenSaidSo(t *testing.T) {
	c, steps := newController(t), newFakeSteps(t)
	steps.failLaunch = 2
	d := newDaemon(t, c, steps).start()
	k := c.submit(jobSpec(1, 1))
	c.phase(k, pb.StepPhase_STEP_RUNNING)
	steps.exit(k, 0)
	c.end(k)
	const fault = "cannot start processes: out of them"
	steps.mu.Lock()
	steps.failLaunch, steps.fault = 3, fault
	steps.mu.Unlock()
	k = c.submit(jobSpec(2, 1))
	if x := c.end(k); x.Verdict != "node_failed" || !strings.Contains(x.Detail, "no shim") || x.NodeFault != fault {
		t.Errorf("%v", x)
	}
	d.stop()
}

// A root half that was stopped is no healthy node, although this half goes on; when it answers again, that is over.
func TestRootHalfThatDoesNotAnswer(t *testing.T) {
	patience := rootPatience
	defer func() { rootPatience = patience }()
	rootPatience = 100 * time.Millisecond
	c, steps := newController(t), newFakeSteps(t)
	steps.hang = make(chan struct{})
	d := newDaemon(t, c, steps).start()
	c.await("a heartbeat that says so", func() bool { return c.fault == rootSilent })
	close(steps.hang)
	c.await("a heartbeat that says that it is over", func() bool { return c.beats > 0 && c.fault == "" })
	d.stop()
}

func TestManyJobsAtOnce(t *testing.T) {
	c, steps := newController(t), newFakeSteps(t)
	d := newDaemon(t, c, steps).start()
	var keys []agent.Key
	for id := range uint32(2000) {
		keys = append(keys, c.submit(jobSpec(id+1, 1)))
	}
	for _, k := range keys {
		c.phase(k, pb.StepPhase_STEP_RUNNING)
		steps.exit(k, uint32(k.Job%200)<<8)
	}
	for _, k := range keys {
		if x := c.end(k); x.WaitStatus != k.Job%200<<8 {
			t.Fatalf("%v: %v", k, x)
		}
	}
	d.settled(steps)
	d.stop()
}

func script(t testing.TB, text string) string {
	p := filepath.Join(t.TempDir(), "hook")
	must(t, os.WriteFile(p, []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	return p
}

func TestPrologAndEpilog(t *testing.T) {
	c, steps := newController(t), newFakeSteps(t)
	dir := t.TempDir()
	c.settings.Prolog = script(t, "env > "+dir+"/prolog.$SLURM_JOB_ID; env | grep -c LD_PRELOAD; true")
	c.settings.Epilog = script(t, "env > "+dir+"/epilog.$SLURM_JOB_ID; [ $SLURM_JOB_ID != 2 ] || { echo scratch not empty; exit 1; }")
	d := newDaemon(t, c, steps).start()
	k := c.submit(jobSpec(1, 1))
	c.phase(k, pb.StepPhase_STEP_RUNNING)
	steps.exit(k, 5<<8)
	if x := c.end(k); x.EpilogError != "" {
		t.Errorf("%v", x)
	}
	for _, what := range []string{"prolog", "epilog"} {
		env := readFile(t, dir+"/"+what+".1")
		if strings.Contains(env, "LD_PRELOAD") || !strings.Contains(env, "SLURM_JOB_USER=u\n") ||
			!strings.Contains(env, "SLURM_SCRIPT_CONTEXT="+what+"_slurmd") {
			t.Errorf("%s: %s", what, env)
		}
	}
	if !strings.Contains(readFile(t, dir+"/epilog.1"), "SLURM_JOB_EXIT_CODE2=5:0") {
		t.Error("the epilog does not know how the job ended")
	}
	if want := []pb.StepPhase{pb.StepPhase_STEP_COMPLETING, pb.StepPhase_STEP_ENDED}; !slices.Equal(last(c, k, 2), want) {
		t.Errorf("%v: COMPLETING while the epilog runs", last(c, k, 9))
	}
	k = c.submit(jobSpec(2, 1))
	c.phase(k, pb.StepPhase_STEP_RUNNING)
	steps.exit(k, 0)
	if x := c.end(k); x.Verdict != "exited" || !strings.Contains(x.EpilogError, "scratch not empty") {
		t.Errorf("%v", x)
	}
	d.settled(steps)
	d.stop()
	left, err := os.ReadDir(filepath.Join(d.o.Spool, "hooks"))
	if err != nil || len(left) > 2 { // the last job of settled may not be forgotten yet
		t.Errorf("%v, %v", left, err)
	}
}

func last(c *controller, k agent.Key, n int) []pb.StepPhase {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.phases[k][max(0, len(c.phases[k])-n):])
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

func TestFailingProlog(t *testing.T) {
	c, steps := newController(t), newFakeSteps(t)
	out := filepath.Join(t.TempDir(), "out")
	c.settings.Prolog, c.settings.Epilog = script(t, "echo no GPU here >&2; exit 4"), script(t, "echo epilog >> "+out)
	d := newDaemon(t, c, steps).start()
	k := c.submit(jobSpec(1, 1))
	x := c.end(k)
	if x.Verdict != "prolog_failed" || !strings.Contains(x.Detail, "exit status 4: no GPU here") || x.StoppedOnOrder {
		t.Errorf("%v", x)
	}
	if _, n := steps.count(k); n != 0 {
		t.Error("the job was started all the same")
	}
	if readFile(t, out) != "epilog\n" {
		t.Error("what the prolog had set up is not cleaned away")
	}
	d.stop()
}

// blocking is a hook that says on a FIFO that it runs, and then waits for the other one.
func blocking(t *testing.T) (path string, runs, release func()) {
	dir := t.TempDir()
	for _, f := range []string{"runs", "release"} {
		must(t, syscall.Mkfifo(filepath.Join(dir, f), 0o600))
	}
	path = script(t, fmt.Sprintf("echo >> %s/count; echo > %s/runs; read x < %s/release", dir, dir, dir))
	return path, func() { readFile(t, dir+"/runs") }, func() { must(t, os.WriteFile(dir+"/release", []byte("\n"), 0)) }
}

func TestStopDuringTheProlog(t *testing.T) {
	c, steps := newController(t), newFakeSteps(t)
	var runs func()
	c.settings.Prolog, runs, _ = blocking(t)
	d := newDaemon(t, c, steps).start()
	k := c.submit(jobSpec(1, 1))
	runs()
	c.phase(k, pb.StepPhase_STEP_PREPARING)
	c.order(k, pb.StepWant_WANT_STOP)
	if x := c.end(k); x.Verdict != "cancelled" || !x.StoppedOnOrder {
		t.Errorf("%v", x)
	}
	if _, n := steps.count(k); n != 0 {
		t.Error("started")
	}
	d.stop()
}

func TestDaemonRestartsDuringProlog(t *testing.T) {
	c, steps := newController(t), newFakeSteps(t)
	var runs, release func()
	c.settings.Prolog, runs, release = blocking(t)
	d := newDaemon(t, c, steps).start()
	k := c.submit(jobSpec(1, 1))
	runs()
	d.stop()
	if n, _ := steps.count(k); n != 0 {
		t.Error("something was left of a job that had not begun")
	}
	d.start()
	runs() // from its beginning
	release()
	c.phase(k, pb.StepPhase_STEP_RUNNING)
	steps.exit(k, 0)
	c.end(k)
	d.stop()
}

func TestDaemonRestartsDuringEpilogWithoutController(t *testing.T) {
	c, steps := newController(t), newFakeSteps(t)
	var runs, release func()
	c.settings.Epilog, runs, release = blocking(t)
	d := newDaemon(t, c, steps).start()
	k := c.submit(jobSpec(1, 1))
	c.phase(k, pb.StepPhase_STEP_RUNNING)
	steps.exit(k, 9<<8)
	runs()
	d.stop()
	c.server.Stop()
	d.start()
	runs() // the settings were kept
	release()
	c.listen(c.addr)
	if x := c.end(k); x.WaitStatus != 9<<8 || x.EpilogError != "" {
		t.Errorf("%v", x)
	}
	d.stop()
}

func TestOrderForWhatNeverRan(t *testing.T) {
	c, steps := newController(t), newFakeSteps(t)
	c.settings.Epilog = script(t, "exit 1") // must not run
	l := jobSpec(1, 1)
	k := agent.KeyOf(l.Key)
	c.wants[k] = &pb.StepOrder{Key: l.Key, Want: pb.StepWant_WANT_STOP}
	d := newDaemon(t, c, steps).start()
	if x := c.end(k); x.Verdict != "cancelled" || !x.StoppedOnOrder || x.EpilogError != "" {
		t.Errorf("%v", x)
	}
	d.stop()
}

func TestControllerOfAnotherClusterIsNotObeyed(t *testing.T) {
	c, steps := newController(t), newFakeSteps(t)
	d := newDaemon(t, c, steps).start()
	k := c.submit(jobSpec(1, 1))
	c.phase(k, pb.StepPhase_STEP_RUNNING)
	c.server.Stop()
	c.update(func() { c.settings = &pb.NodeSettings{Cluster: "other", ClusterId: "id2"}; delete(c.wants, k) })
	was := c.heard()
	c.listen(c.addr)
	c.hello(was + 1) // two more attempts
	steps.mu.Lock()
	if len(steps.orders) != 0 || steps.steps[k].rep.Phase != pb.StepPhase_STEP_RUNNING {
		t.Errorf("a stranger ended a job: %v", steps.orders)
	}
	steps.mu.Unlock()
	d.stop()
}

func TestSecondDaemonOnTheSpoolIsRefused(t *testing.T) {
	c := newController(t)
	d := newDaemon(t, c, newFakeSteps(t)).start()
	c.hello(0)
	second := *d
	second.o.Steps = newFakeSteps(t)
	err := Run(context.Background(), second.o)
	if err == nil || !strings.Contains(err.Error(), d.o.Spool) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("%v", err)
	}
	d.stop()
}

func TestOptionsFaultsAreNamedTogether(t *testing.T) {
	err := Run(context.Background(), Options{})
	for _, want := range []string{"name", "spool", "controller's address", "ca.crt"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: no word of the %s", err, want)
		}
	}
	err = Run(context.Background(), Options{NodeName: "n1", Spool: t.TempDir(), Controllers: []string{"x:1"}, TLS: t.TempDir(), Log: quiet})
	if err == nil || !strings.Contains(err.Error(), "ca.crt") {
		t.Errorf("%v", err)
	}
}

// TestLinkIsSaidOnceHeard: a controller that turns the node away is no link, however often it is tried.
func TestLinkIsSaidOnceHeard(t *testing.T) {
	var said bytes.Buffer
	n := &node{log: slog.New(slog.NewTextHandler(&said, nil)), steps: lifecycle.New(nil, quiet, "", "", nil, nil)}
	up, down := link.Event{Up: &link.Stream{Controller: "ctl:1"}}, link.Event{Down: errors.New("the certificate is for node n2, not n1")}
	for range 3 {
		n.linked(t.Context(), up)
		n.linked(t.Context(), down)
	}
	if said.Len() > 0 {
		t.Errorf("turned away: %s", &said)
	}
	for _, ev := range []link.Event{up, {Orders: &pb.NodeOrders{}}, {Orders: &pb.NodeOrders{}}, down} {
		n.linked(t.Context(), ev)
	}
	if got := said.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "linked to the controller") ||
		!strings.Contains(got, "lost the link") {
		t.Errorf("heard: %s", got)
	}
}
