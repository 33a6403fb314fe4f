package root

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/noded/policy"
	"github.com/sluice-hpc/sluice/noded/privsep"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// flood writes requests that make gives until the connection ends, and gives how many there were.
func flood(t *testing.T, conn net.Conn, make func(i uint64) *nodepb.Request) (n uint64) {
	t.Helper()
	for ; ; n++ {
		o := make(n)
		o.Id = n + 1
		raw, err := privsep.Append(nil, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(raw); err != nil {
			return n
		}
		if n > 1<<20 {
			t.Fatal("a million requests were taken")
		}
	}
}

// deaf has no Words read: what is said to it stays in this half.
func deaf(t *testing.T, r *Root) (net.Conn, chan error) {
	t.Helper()
	conn, ended := serve(t, r)
	if err := conn.(*net.UnixConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	return conn, ended
}

// TestAnswersThatNobodyReads: a noded-link that gives requests and reads nothing is cut off before that costs much memory.
func TestAnswersThatNobodyReads(t *testing.T) {
	r := newRoot(t, newNoSteps(), policy.Policy{})
	conn, ended := deaf(t, r)
	ids := strings.Repeat("x", 512<<10) // said again with each answer
	n := flood(t, conn, func(uint64) *nodepb.Request {
		return prepareRequest(&pb.GresDevice{Name: "license", Count: 1, Id: ids})
	})
	if err := <-ended; err == nil || n < 50 {
		t.Errorf("after %d requests it ended with %v", n, err)
	}
	if most := uint64(2*(privsep.MaxUnread+privsep.MostUnderWay)) / uint64(len(ids)); n > most {
		t.Errorf("%d answers of half a MiB were kept", n)
	}
}

// hungSteps is a runner whose disk does not answer, but for requests about steps that run.
type hungSteps struct {
	*noSteps
	answers chan struct{} // closed: it does
	begun   chan bool
}

func (s *hungSteps) Launch(ctx context.Context, b *pb.Bundle, script []byte) error {
	s.begun <- true
	<-s.answers
	return s.noSteps.Launch(ctx, b, script)
}

// largeLaunch is a launch with a script of so many bytes.
func largeLaunch(job uint32, size int) *nodepb.Request {
	k := &pb.StepKey{JobId: job, Attempt: 1, Epoch: 3, Step: pb.BatchStep}
	o := but(func(b *pb.Bundle) { b.Key, b.Cgroup = k, folder.Group(k) })
	o.GetLaunch().Script = make([]byte, size)
	return o
}

func newHung(t *testing.T) *hungSteps {
	s := &hungSteps{noSteps: newNoSteps(), answers: make(chan struct{}), begun: make(chan bool, 4096)}
	return s
}

// TestRequestsPassHungLaunches: while a disk holds up large launches, requests to cancel them and to end steps come through, even behind
// launches that wait for their turn in noded-link.
func TestRequestsPassHungLaunches(t *testing.T) {
	steps := newHung(t)
	r := newRoot(t, steps, policy.Policy{})
	ours, theirs, err := privsep.Pair()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.FileConn(theirs)
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Serve(t.Context(), ours) }()
	c, _, err := privsep.Dial(conn)
	if err != nil {
		t.Fatal(err)
	}
	const launches = 40
	ctx, cancel := context.WithCancel(t.Context())
	answers := make(chan error, launches)
	for i := range launches {
		go func() {
			_, err := c.Call(ctx, largeLaunch(uint32(i+1), 4<<20))
			answers <- err
		}()
	}
	<-steps.begun
	if _, err := c.Call(t.Context(), controlRequest(&pb.StepOrder{Key: key(), Want: pb.StepWant_WANT_KILL})); err != nil {
		t.Errorf("a request to end a step: %v", err)
	}
	if _, err := c.Call(t.Context(), largeLaunch(100, 8<<20)); err == nil {
		t.Error("a launch beyond the bound was given")
	}
	// Those that have not been given yet are not given any more.
	cancel()
	if err := <-answers; err == nil {
		t.Error("a launch that waited was given")
	}
	close(steps.answers)
	for range launches - 1 {
		<-answers
	}
	select {
	case err := <-ended:
		t.Errorf("the connection has ended: %v", err)
	default:
	}
	c.Close()
	for range c.Words() {
	}
	<-ended
	if n := len(steps.begun) + 1; n == launches {
		t.Errorf("all %d launches of 4 MiB were given at once", n)
	}
}

// TestTooManyLargeOrders: a noded-link that gives more than it may loses its connection, and the next one has the node.
func TestTooManyLargeOrders(t *testing.T) {
	steps := newHung(t)
	r := newRoot(t, steps, policy.Policy{})
	r.patience = time.Millisecond // what is held up is not waited for
	conn, ended := deaf(t, r)
	defer close(steps.answers)
	n := flood(t, conn, func(i uint64) *nodepb.Request { return largeLaunch(uint32(i+1), 4<<20) })
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "large ones") || n < 10 {
		t.Errorf("after %d requests it ended with %v", n, err)
	}
	conn, _ = serve(t, r)
	o := controlRequest(&pb.StepOrder{Key: key(), Want: pb.StepWant_WANT_KILL})
	o.Id = 1
	give(t, conn, o)
	if a := hear(t, bufio.NewReader(conn), isAnswer).GetAnswer(); a.Error != "" {
		t.Errorf("the next noded-link is told %s", a.Error)
	}
}

// TestOrdersThatGrow: a few bytes of a message may stand for many times their size in memory.
func TestOrdersThatGrow(t *testing.T) {
	bombs := map[string]*nodepb.Request{
		"rlimits": but(func(b *pb.Bundle) { b.Rlimits = filled(1<<20, &pb.Rlimit{}) }),
		"devices": prepareRequest(&pb.GresDevice{}),
		"a control": controlRequest(&pb.StepOrder{Key: key(),
			Signals: filled(1<<16, &pb.Signal{})}),
		"gres": {What: &nodepb.Request_Settings{Settings: &pb.NodeSettings{Gres: filled(1<<20, &pb.GresConf{})}}},
	}
	bombs["devices"].GetPrepare().Devices = filled(1<<16, &pb.GresDevice{})
	for what, o := range bombs {
		t.Run(what, func(t *testing.T) {
			r := newRoot(t, newNoSteps(), policy.Policy{})
			conn, ended := serve(t, r)
			o.Id = 1
			give(t, conn, o)
			if err := <-ended; err == nil || !strings.Contains(err.Error(), "bytes of memory") {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

func filled[T any](n int, v T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = v
	}
	return all
}

// TestWeight: no message takes more than it weighs, and one as they are does not weigh many times its size.
func TestWeight(t *testing.T) {
	script := largeLaunch(1, 4<<20)
	script.GetLaunch().Bundle.Env = filled(4000, strings.Repeat("x", 250))
	groups := but(func(b *pb.Bundle) { b.Groups = filled(100_000, uint32(1)) })
	devices := prepareRequest(&pb.GresDevice{})
	devices.GetPrepare().Devices = filled(100_000, &pb.GresDevice{})
	for what, c := range map[string]struct {
		request *nodepb.Request
		ratio   int64
	}{
		"a large job":    {script, 2},
		"empty strings":  {but(func(b *pb.Bundle) { b.Argv = make([]string, 200_000) }), 100},
		"packed numbers": {groups, 100},
		"empty messages": {devices, 1000},
		"rlimits":        {but(func(b *pb.Bundle) { b.Rlimits = filled(100_000, &pb.Rlimit{}) }), 1000},
	} {
		t.Run(what, func(t *testing.T) {
			raw, err := privsep.Append(nil, c.request)
			if err != nil {
				t.Fatal(err)
			}
			raw = raw[4:]
			weight, err := privsep.Weight(c.request.ProtoReflect().Descriptor(), raw)
			if err != nil {
				t.Fatal(err)
			}
			before := heap()
			o, _, _ := decode(raw)
			if took := heap() - before; took > weight {
				t.Errorf("it takes %d bytes and weighs %d", took, weight)
			}
			runtime.KeepAlive(o)
			runtime.KeepAlive(raw)
			if weight > c.ratio*int64(len(raw)) {
				t.Errorf("%d bytes weigh %d", len(raw), weight)
			}
		})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestStepsAreCounted: a noded-link that names steps without end gets no further than a bound.
func TestStepsAreCounted(t *testing.T) {
	steps := newNoSteps()
	r := newRoot(t, steps, policy.Policy{})
	give := func(job uint32, words int) error {
		k := &pb.StepKey{JobId: job, Attempt: 1}
		o := failRequest("", k)
		o.GetFail().Bundle.Key, o.GetFail().Bundle.JobName = k, strings.Repeat("x", words)
		_, err := r.fail(t.Context(), o)
		return err
	}
	for i := range 16 {
		if err := give(uint32(i+1), maxKnownBytes/16-1000); err != nil {
			t.Fatal(err)
		}
	}
	if give(100, maxKnownBytes/16) == nil {
		t.Error("what is remembered of steps has no bound in bytes")
	}
	if _, err := r.forget(t.Context(), &nodepb.Request{What: &nodepb.Request_Forget{Forget: &nodepb.Forget{
		Key: &pb.StepKey{JobId: 1, Attempt: 1}}}}); err != nil {
		t.Fatal(err)
	}
	if err := give(100, 1000); err != nil {
		t.Errorf("there is room again: %v", err)
	}
	n := 0
	for ; n <= maxKnown && give(uint32(1000+n), 0) == nil; n++ {
	}
	if n >= maxKnown {
		t.Errorf("%d steps are known", n)
	}
}

// TestRebootDoesNotHoldTheNextLink: a RebootProgram that waits for a noded-link that has gone.
func TestRebootDoesNotHoldTheNextLink(t *testing.T) {
	r := newRoot(t, newNoSteps(), policy.Policy{})
	dir := t.TempDir()
	program, fifo := filepath.Join(dir, "reboot"), filepath.Join(dir, "go")
	text := fmt.Sprintf("#!/bin/sh\necho >%s/runs\nwhile [ ! -e %s ]; do sleep 0.05; done\necho >%s/ended\n", dir, fifo, dir)
	if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	await := func(name string) {
		for _, err := os.Stat(filepath.Join(dir, name)); err != nil; _, err = os.Stat(filepath.Join(dir, name)) {
			time.Sleep(time.Millisecond)
		}
	}
	r.patience = time.Hour
	conn, ended := serve(t, r)
	o := hookRequest(&nodepb.Hook{Kind: nodepb.HookKind_HOOK_REBOOT, Program: program})
	o.Id = 1
	give(t, conn, o)
	await("runs")
	conn.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(fifo, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	await("ended")
}
