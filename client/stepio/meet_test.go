package stepio

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/noded/sruntest"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// ignoring is told, and does nothing.
type ignoring struct{ aborts chan uint32 }

func (ignoring) Connected(int)               {}
func (ignoring) Started(int)                 {}
func (ignoring) Failed(int, *msg.StepFailed) {}
func (ignoring) Exit(int, *msg.StepExit)     {}
func (i ignoring) Abort(task uint32)         { i.aborts <- task }
func (ignoring) Closed(uint32, bool)         {}
func (ignoring) Say(int, string)             {}
func (ignoring) Ended(int, *msg.StepEnded)   {}
func (ignoring) Lost(int, error)             {}
func (ignoring) Unwritable(error)            {}

// host stands in for a node with its two connections.
type host struct {
	t          *testing.T
	main, meet *tls.Conn
	r          *bufio.Reader
}

func (h *host) dial(address string, config *tls.Config, hello *msg.StepHello) *tls.Conn {
	h.t.Helper()
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { conn.Close() })
	if _, err := conn.Write(stepwire.Append(nil, stepwire.Hello, 0, stepwire.All, hello.AppendTo(nil))); err != nil {
		h.t.Fatal(err)
	}
	return conn
}

// next reads a message from the second connection, all its pieces.
func (h *host) next() (stepwire.Kind, string) {
	h.t.Helper()
	var all []byte
	for {
		head, err := stepwire.ReadHeader(h.r)
		if err != nil {
			h.t.Fatal(err)
		}
		b := make([]byte, head.Len)
		if _, err := io.ReadFull(h.r, b); err != nil {
			h.t.Fatal(err)
		}
		if all = append(all, b...); head.Kind == stepwire.Name || head.Flags&stepwire.Last != 0 {
			return head.Kind, string(all)
		}
	}
}

func (h *host) fence(pairs ...string) {
	h.t.Helper()
	m := &msg.StepFence{}
	for i := 0; i < len(pairs); i += 2 {
		m.Pairs = append(m.Pairs, &msg.StepPair{Key: []byte(pairs[i]), Value: []byte(pairs[i+1])})
	}
	if _, err := h.meet.Write(stepwire.AppendPieces(nil, stepwire.Fence, m.AppendTo(nil))); err != nil {
		h.t.Error(err)
	}
}

// spread is what a fence has brought.
func (h *host) spread() (pairs []string, failed string) {
	h.t.Helper()
	kind, b := h.next()
	m := &msg.StepFence{}
	if err := m.Merge(b); err != nil || kind != stepwire.Fence {
		h.t.Fatalf("kind %d: %v", kind, err)
	}
	for _, p := range m.Pairs {
		pairs = append(pairs, string(p.Key)+"="+string(p.Value))
	}
	slices.Sort(pairs)
	return pairs, m.Error
}

func (h *host) name(q *msg.StepName) *msg.StepName {
	h.t.Helper()
	if _, err := h.meet.Write(stepwire.Append(nil, stepwire.Name, 0, stepwire.All, q.AppendTo(nil))); err != nil {
		h.t.Fatal(err)
	}
	kind, b := h.next()
	m := &msg.StepName{}
	if err := m.Merge(b); err != nil || kind != stepwire.Name {
		h.t.Fatalf("kind %d: %v", kind, err)
	}
	return m
}

// meetings begins a step of MPI programs on n nodes. What follows is called once the first of them has connected.
func meetings(t *testing.T, n int, then ...func(first *host)) ([]*host, ignoring) {
	t.Helper()
	cert, key := sruntest.Certificate(t)
	step := &msg.StepRecord{JobId: 1, NumTasks: uint32(n), Certificate: cert, Key: key, Spec: &msg.StepSpec{Mpi: "pmi2"}}
	for i := range n {
		step.Nodes = append(step.Nodes, &msg.StepNode{Node: fmt.Sprintf("n%d", i), Tasks: []uint32{uint32(i)}})
	}
	l, err := Listen("")
	if err != nil {
		t.Fatal(err)
	}
	watch := ignoring{make(chan uint32, 1)}
	sink := NewSink(io.Discard, uint32(n), -1, false, false)
	s, err := New(l, step, &msg.StepWork{PmiMapping: "(vector,(0,1,1))"}, NewOutput(sink, sink), watch)
	if err != nil {
		t.Fatal(err)
	}
	s.Accept()
	t.Cleanup(func() {
		s.Close()
		s.all.Wait()
	})
	config, err := stepwire.Config(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	addresses := l.Addresses()
	address := addresses[len(addresses)-1]
	if _, _, err := net.SplitHostPort(address); err != nil {
		t.Fatal(err)
	}
	var hosts []*host
	for i := range n {
		h := &host{t: t}
		h.main = h.dial(address, config, &msg.StepHello{NodeIndex: uint32(i), Tasks: []uint32{uint32(i)}})
		if s.Begun() {
			t.Error("tasks begin although a node cannot meet the others")
		}
		h.meet = h.dial(address, config, &msg.StepHello{NodeIndex: uint32(i), Pmi: true})
		h.r = bufio.NewReader(h.meet)
		hosts = append(hosts, h)
		if i == 0 {
			for _, f := range then {
				f(h)
			}
		}
	}
	for _, h := range hosts {
		if head, err := stepwire.ReadHeader(h.main); err != nil || head.Kind != stepwire.Work {
			t.Fatalf("kind %d: %v", head.Kind, err)
		}
	}
	return hosts, watch
}

// TestMeeting: what the tasks of each node put all nodes have after a fence, also when it is much, and fences come one after the other.
func TestMeeting(t *testing.T) {
	hosts, watch := meetings(t, 3)
	long := strings.Repeat("x", 3*stepwire.MaxPayload)
	for round := range 3 {
		var want []string
		var all sync.WaitGroup
		for i, h := range hosts {
			key := fmt.Sprintf("r%d-%d", round, i)
			want = append(want, key+"="+long)
			all.Go(func() { h.fence(key, long) })
		}
		all.Wait()
		for i, h := range hosts {
			if got, failed := h.spread(); !slices.Equal(got, want) || failed != "" {
				t.Errorf("round %d, node %d: %.100q %q", round, i, got, failed)
			}
		}
	}
	publish := hosts[0].name(&msg.StepName{Id: 1, Publish: true, Name: []byte("a"), Port: []byte("p")})
	again := hosts[1].name(&msg.StepName{Id: 2, Publish: true, Name: []byte("a"), Port: []byte("q")})
	found := hosts[2].name(&msg.StepName{Id: 3, Name: []byte("a")})
	gone := hosts[1].name(&msg.StepName{Id: 4, Withdraw: true, Name: []byte("a")})
	missing := hosts[0].name(&msg.StepName{Id: 5, Name: []byte("a")})
	if !publish.Done || again.Done || found.Id != 3 || string(found.Port) != "p" || !gone.Done || missing.Done {
		t.Errorf("%v %v %v %v %v", publish, again, found, gone, missing)
	}
	if _, err := hosts[1].main.Write(stepwire.Append(nil, stepwire.Abort, 0, 1, nil)); err != nil || <-watch.aborts != 1 {
		t.Errorf("an abort is not told: %v", err)
	}
}

// TestMeetingWithoutAll: a node that leaves, or whose task does, keeps nobody waiting.
func TestMeetingWithoutAll(t *testing.T) {
	hosts, _ := meetings(t, 3)
	hosts[0].fence("a", "b")
	hosts[1].meet.Close()
	for _, h := range []*host{hosts[0], hosts[2]} {
		if _, failed := h.spread(); !strings.Contains(failed, "node n1 no longer takes part in the step") {
			t.Errorf("%q", failed)
		}
	}
	hosts, _ = meetings(t, 2)
	hosts[0].fence()
	left := &msg.StepFence{Error: "task 1 takes part no more"}
	if _, err := hosts[1].meet.Write(stepwire.AppendPieces(nil, stepwire.Fence, left.AppendTo(nil))); err != nil {
		t.Fatal(err)
	}
	if _, failed := hosts[0].spread(); failed != left.Error {
		t.Errorf("%q", failed)
	}
}

// TestMeetingInOrder: a node hears that a fence has succeeded before it hears that there will be no other, as when a task of another node
// ends after the last one.
func TestMeetingInOrder(t *testing.T) {
	m, s := newMeeting(2), &Session{} // nobody is connected, so that all waits
	m.arrive(s, m.nodes[0], nil)
	m.arrive(s, m.nodes[1], nil)
	m.fail(s, "task 1 takes part no more")
	s.all.Wait()
	for i, g := range m.nodes {
		var heard []string
		for _, frames := range g.fences {
			f := &msg.StepFence{}
			if err := f.Merge(string(frames[stepwire.HeaderLen:])); err != nil {
				t.Fatal(err)
			}
			heard = append(heard, f.Error)
		}
		if want := []string{"", "task 1 takes part no more"}; !slices.Equal(heard, want) {
			t.Errorf("node %d hears %q, not %q", i, heard, want)
		}
	}
}

// TestMeetingTooLate: a node that connects after another has given up is told.
func TestMeetingTooLate(t *testing.T) {
	left := &msg.StepFence{Error: "node n0 has no sluice-pmix"}
	hosts, _ := meetings(t, 2, func(first *host) {
		if _, err := first.meet.Write(stepwire.AppendPieces(nil, stepwire.Fence, left.AppendTo(nil))); err != nil {
			t.Fatal(err)
		}
		if _, failed := first.spread(); failed != left.Error {
			t.Fatalf("%q", failed)
		}
	})
	if _, failed := hosts[1].spread(); failed != left.Error {
		t.Errorf("%q", failed)
	}
}

// TestMeetingTooLarge: srun does not keep more than there may be.
func TestMeetingTooLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("32 MB are put; leave out -short to try it")
	}
	hosts, _ := meetings(t, 2)
	value := strings.Repeat("x", stepwire.MaxFence/2+1)
	go hosts[0].fence("a", value)
	hosts[1].fence("b", value)
	for _, h := range hosts {
		if _, failed := h.spread(); !strings.Contains(failed, "more than") {
			t.Errorf("%q", failed)
		}
	}
}
