package pretend

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/internal/clock"
	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/hw"
	"github.com/sluice-hpc/sluice/noded/privsep"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// machine is a simulated node.
type machine struct {
	o        *Options
	conf     *conf.Node
	number   uint64
	files    mtls.Files
	topology hw.Topology
	boots    int
}

func newMachine(o *Options, n *conf.Node, number uint64, files mtls.Files, s *shapes) *machine {
	return &machine{o: o, conf: n, number: number, files: files, topology: s.of(n)}
}

// life is one boot of a machine: the simulated noded-root with all its steps. It implements hw.Prober.
type life struct {
	m     *machine
	boot  string
	began time.Time
	conn  net.Conn
	out   *privsep.Outbox
	gone  chan struct{}

	rebooting bool // used by serve

	mu    sync.Mutex
	ended bool
	steps map[agent.Key]*step
}

func (m *machine) start(conn net.Conn) *life {
	m.boots++
	now := time.Now()
	// Random enough: a restarted process simulates machines that have lost all jobs.
	boot := fmt.Sprintf("%08x-%04x-4000-8000-%012x", uint32(now.Unix()), uint16(m.boots), m.number<<20|uint64(now.Nanosecond()>>10))
	return &life{m: m, boot: boot, began: now, conn: conn, out: privsep.NewOutbox(), gone: make(chan struct{}),
		steps: map[agent.Key]*step{}}
}

// Inventory implements hw.Prober.
func (l *life) Inventory() (hw.Inventory, error) {
	c := l.m.conf
	return hw.Inventory{Topology: l.m.topology, MemoryMiB: c.RealMemoryMiB, TmpMiB: c.TmpDiskMiB, BootID: l.boot,
		BootNS: l.began.UnixNano(), OS: "Linux (pretended)", Arch: "x86_64", Hostname: c.Hostname}, nil
}

// Load implements hw.Prober: the steps use everything that they were given.
func (l *life) Load() (hw.Load, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := hw.Load{FreeMemMiB: l.m.conf.RealMemoryMiB}
	for _, s := range l.steps {
		if s.running() {
			now.CPU += float64(s.cpus)
			now.FreeMemMiB -= min(s.memoryMiB, now.FreeMemMiB)
		}
	}
	return now, nil
}

// serve simulates noded-root until noded-link closes the connection.
func (l *life) serve() {
	wrote := make(chan struct{})
	l.say(&nodepb.Word{What: &nodepb.Word_Welcome{Welcome: l.welcome()}})
	go func() {
		defer close(wrote)
		if l.out.Run(l.conn, l.gone, nil) != nil {
			_ = l.conn.Close()
		}
	}()
	in := bufio.NewReaderSize(l.conn, 4<<10)
	for {
		b, err := privsep.Read(in, privsep.MaxRequest)
		if err != nil {
			break
		}
		o := &nodepb.Request{}
		if proto.Unmarshal(b, o) != nil || !l.take(o) {
			break
		}
	}
	_ = l.conn.Close()
	close(l.gone)
	<-wrote
}

// end stops all steps: the machine is off.
func (l *life) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for _, s := range l.steps {
		s.timer.Stop()
	}
}

func (l *life) say(w *nodepb.Word) {
	if l.out.Put(w) != nil {
		_ = l.conn.Close()
	}
}

func (l *life) welcome() *nodepb.Welcome {
	return &nodepb.Welcome{Node: l.m.conf.Name, Controllers: l.m.o.Controllers, Conf: l.m.o.Conf, Ca: l.m.files.Authority,
		Certificate: l.m.files.Certificate, Key: l.m.files.Key, CloseDevices: true, Driver: "pretended", StartNs: l.began.UnixNano(),
		Devices: &nodepb.Devices{Report: &pb.DeviceReport{Devices: devices(l.m.conf, l.m.number)}}}
}

// take carries out a request; false: the daemon ends with it.
func (l *life) take(o *nodepb.Request) bool {
	a := &nodepb.Answer{Id: o.Id}
	switch w := o.What.(type) {
	case *nodepb.Request_Settings, *nodepb.Request_Reopen, *nodepb.Request_Cancel:
		return true
	case *nodepb.Request_Stop:
		return false
	case *nodepb.Request_Hook: // report the administrator's programs as run
		if w.Hook.Kind == nodepb.HookKind_HOOK_REBOOT {
			l.rebooting = true
			return false
		}
	case *nodepb.Request_Launch:
		l.launch(w.Launch)
	case *nodepb.Request_Fail:
		l.fail(w.Fail)
	case *nodepb.Request_Control:
		l.control(w.Control)
	case *nodepb.Request_Forget:
		l.forget(agent.KeyOf(w.Forget.Key))
	case *nodepb.Request_Look:
		a.Usage = l.look()
	case *nodepb.Request_Prepare:
		a.Devices = w.Prepare.Devices
	}
	l.say(&nodepb.Word{What: &nodepb.Word_Answer{Answer: a}})
	return true
}

func (l *life) launch(o *nodepb.Launch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := agent.KeyOf(o.Bundle.GetKey())
	if l.steps[k] != nil || l.ended {
		return
	}
	s := newStep(l, k, o)
	l.steps[k] = s
	l.report(s)
	s.plan()
}

// fail records the end of a step that never began.
func (l *life) fail(f *nodepb.Fail) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := agent.KeyOf(f.Bundle.GetKey())
	if l.steps[k] != nil {
		return
	}
	s := newStep(l, k, &nodepb.Launch{Bundle: f.Bundle})
	s.timer.Stop()
	s.exit = f.Exit
	l.steps[k] = s
	l.report(s)
}

func (l *life) control(o *pb.StepOrder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.steps[agent.KeyOf(o.Key)]; s != nil && s.running() && !l.ended {
		s.order(o)
	}
}

func (l *life) forget(k agent.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.steps[k]; s != nil && !s.running() {
		delete(l.steps, k)
	}
}

func (l *life) look() (all []*pb.StepUsage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range slices.SortedFunc(maps.Keys(l.steps), func(a, b agent.Key) int { return int(a.Job) - int(b.Job) }) {
		if s := l.steps[k]; s.running() && !s.hold {
			all = append(all, s.usage())
		}
	}
	return all
}

// report sends the state of a step to noded-link. Call it with the lock.
func (l *life) report(s *step) {
	rep := &pb.StepReport{Key: s.key.Proto(), Phase: pb.StepPhase_STEP_RUNNING, SignalsSeen: s.seen, StartNs: s.startNS, Exit: s.exit}
	switch {
	case s.exit != nil:
		rep.Phase = pb.StepPhase_STEP_ENDED
	case !s.hold:
		rep.Pid = int64(1000 + s.key.Job%30000)
	}
	l.say(&nodepb.Word{What: &nodepb.Word_Report{Report: rep}})
}

// devices returns the GPUs in a node's Gres line. A resource that is only counted needs none.
func devices(n *conf.Node, number uint64) (all []*pb.Device) {
	for _, g := range n.Gres {
		if g.Name != "gpu" {
			continue
		}
		for range g.Count {
			i := len(all)
			all = append(all, &pb.Device{Name: "gpu", Type: g.Type, Index: uint32(i),
				Id:    fmt.Sprintf("GPU-%08x-0000-4000-8000-%012x", number, i),
				Files: []string{fmt.Sprintf("/dev/nvidia%d", i)}, Minor: int32(i), Pci: fmt.Sprintf("00000000:%02X:00.0", 1+i),
				Model: "pretended " + g.Type, MemoryMib: 81920, Numa: -1, Ecc: "n/a", Declared: "nvml"})
		}
	}
	return all
}

// now is CLOCK_BOOTTIME.
func now() time.Duration { return time.Duration(clock.Boot()) }
