package pmix

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"unsafe"

	"google.golang.org/protobuf/proto"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// answer is what a call of the library's has got.
type answer struct {
	call   ticket
	status int32
	data   string
}

// memory is a library without tasks: tests call the server as libpmix would.
type memory struct {
	answers chan answer
	wanted  chan uint64
	broken  error
}

func (m *memory) start(*pb.PmixJob) error { return m.broken }
func (m *memory) env(rank uint32) ([]string, error) {
	return []string{fmt.Sprint("PMIX_RANK=", rank)}, nil
}
func (m *memory) answer(c ticket, st int32, b []byte) { m.answers <- answer{c, st, string(b)} }
func (m *memory) fetch(_ uint32, id uint64) int32     { m.wanted <- id; return 0 }
func call() ticket                                    { return ticket(unsafe.Pointer(new(int64))) }

// side is a server, its library, and the shim's end of the connection.
type side struct {
	*server
	*memory
	t     *testing.T
	conn  net.Conn
	r     *bufio.Reader
	ended chan error
	ready *pb.PmixReady
}

func begin(t *testing.T, job *pb.PmixJob, broken error) *side {
	t.Helper()
	shim, own := net.Pipe()
	s := &side{memory: &memory{make(chan answer, 10), make(chan uint64, 10), broken}, t: t, conn: shim, r: bufio.NewReader(shim),
		ended: make(chan error, 1), ready: &pb.PmixReady{}}
	go func() {
		s.ended <- serve(own, func(srv *server) library {
			s.server = srv
			return s.memory
		})
		own.Close()
	}()
	s.send(stepwire.PmixJob, job)
	s.hears(stepwire.PmixReady, s.ready)
	t.Cleanup(func() {
		shim.Close()
		<-s.ended
	})
	return s
}

func (s *side) send(kind stepwire.Kind, m proto.Message) {
	s.t.Helper()
	raw, err := proto.Marshal(m)
	if err == nil {
		_, err = s.conn.Write(stepwire.AppendPieces(nil, kind, raw))
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *side) end(rank uint32) {
	s.t.Helper()
	if _, err := s.conn.Write(stepwire.Append(nil, stepwire.PmixEnd, stepwire.Last, rank, nil)); err != nil {
		s.t.Fatal(err)
	}
}

// hears expects a message of that kind next; without a message to fill, its bytes are returned.
func (s *side) hears(kind stepwire.Kind, m proto.Message) string {
	s.t.Helper()
	h, raw, err := stepwire.ReadMessage(s.r, stepwire.MaxFence)
	if err == nil && h.Kind != kind {
		err = fmt.Errorf("kind %d with %q, want %d", h.Kind, raw, kind)
	}
	if err == nil && m != nil {
		err = proto.Unmarshal(raw, m)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return string(raw)
}

func twoNodes() *pb.PmixJob {
	return &pb.PmixJob{Nspace: "s", Places: []*pb.StepPlace{{Node: "n1", Tasks: []uint32{0, 2}}, {Node: "n2", Tasks: []uint32{1, 3}}}}
}

func oneNode() *pb.PmixJob {
	return &pb.PmixJob{Nspace: "s", Places: []*pb.StepPlace{{Node: "n1", Tasks: []uint32{0, 1}}}}
}

func TestFence(t *testing.T) {
	s := begin(t, twoNodes(), nil)
	if len(s.ready.Tasks) != 2 {
		t.Errorf("%v", s.ready)
	}
	c := call()
	if err := s.fence([]uint32{allTasks}, []byte("mine"), c); err != nil {
		t.Fatal(err)
	}
	if err := s.fence([]uint32{allTasks}, nil, call()); err == nil {
		t.Error("a second fence beside the first")
	}
	m := &pb.StepFence{}
	s.hears(stepwire.Fence, m)
	if len(m.Pairs) != 1 || string(m.Pairs[0].Value) != "mine" {
		t.Errorf("%v", m)
	}
	s.send(stepwire.Fence, &pb.StepFence{Pairs: []*pb.StepPair{{Value: []byte("mine")}, {Value: []byte("theirs")}}})
	if a := <-s.answers; a != (answer{c, 0, "minetheirs"}) {
		t.Errorf("%v", a)
	}
	// Of some tasks: where all are here there is nobody to ask; others are refused.
	if err := s.fence([]uint32{2, 0}, []byte("x"), c); err != nil {
		t.Error(err)
	}
	if a := <-s.answers; a != (answer{c, 0, "x"}) {
		t.Errorf("%v", a)
	}
	if err := s.fence([]uint32{0, 1}, nil, c); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	// One that fails ends the step, if tasks are at it.
	if err := s.fence([]uint32{3, 2, 1, 0}, nil, c); err != nil {
		t.Error(err)
	}
	s.hears(stepwire.Fence, m)
	s.send(stepwire.Fence, &pb.StepFence{Error: "task 3 takes part no more"})
	if a := <-s.answers; a != (answer{c, pmixError, ""}) {
		t.Errorf("%v", a)
	}
	if said := s.hears(stepwire.Say, nil); said != "mpi/pmix: the tasks cannot meet: task 3 takes part no more" {
		t.Error(said)
	}
	s.hears(stepwire.Abort, nil)
}

// TestFailedFence that nobody is at says nothing, until somebody is.
func TestFailedFence(t *testing.T) {
	s := begin(t, twoNodes(), nil)
	c := call()
	if err := s.modex(1, c); err != nil {
		t.Fatal(err)
	}
	s.hears(stepwire.Modex, nil)
	s.send(stepwire.Fence, &pb.StepFence{Error: "task 3 takes part no more"})
	if a := <-s.answers; a != (answer{c, pmixError, ""}) { // what was asked gets no answer any more
		t.Errorf("%v", a)
	}
	if err := s.fence([]uint32{allTasks}, nil, call()); err == nil {
		t.Error("a fence after one that has failed")
	}
	if said := s.hears(stepwire.Say, nil); !strings.Contains(said, "cannot meet: task 3") {
		t.Error(said)
	}
	s.hears(stepwire.Abort, nil)
}

// TestTasksThatEnd, and what is said of them.
func TestTasksThatEnd(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(s *side)
		said string
	}{
		"without saying goodbye":  {func(s *side) { s.connected(0); s.end(0) }, "task 0 has ended without MPI_Finalize"},
		"before it was connected": {func(s *side) { s.connected(0); s.end(1) }, "the tasks cannot meet: task 1 takes part no more"},
		"before the other was":    {func(s *side) { s.end(1); s.sync(); s.connected(0) }, "cannot meet: task 1"},
		"abort": {func(s *side) { s.aborted(1, 7, strings.Repeat("x", 1000)) },
			"task 1 aborts the step with status 7: " + strings.Repeat("x", maxAbort)},
		"a second program": {func(s *side) { s.connected(0); s.finalized(0); s.connected(0); s.end(0) }, "without MPI_Finalize"},
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t, oneNode(), nil)
			c.do(s)
			if said := s.hears(stepwire.Say, nil); !strings.Contains(said, c.said) || len(said) > 1000 {
				t.Errorf("%q, want %q", said, c.said)
			}
			s.hears(stepwire.Abort, nil)
		})
	}
	for name, do := range map[string]func(s *side){
		"as they should": func(s *side) {
			s.connected(0)
			s.connected(1)
			s.finalized(0)
			s.end(0)
			s.finalized(1)
			s.end(1)
		},
		"no MPI program": func(s *side) { s.end(1); s.end(0); s.end(0); s.end(99) },
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t, oneNode(), nil)
			do(s)
			s.sync() // nothing comes before its answer
		})
	}
}

// sync waits until the server has heard all that was sent to it.
func (s *side) sync() {
	s.t.Helper()
	m := &pb.PmixModex{}
	s.send(stepwire.Modex, &pb.PmixModex{Id: 5, Rank: 99})
	s.hears(stepwire.Modex, m)
	if !m.Answer || m.Id != 5 || m.Status != pmixError {
		s.t.Errorf("%v", m)
	}
}

func TestModex(t *testing.T) {
	s := begin(t, twoNodes(), nil)
	c := call()
	if err := s.modex(3, c); err != nil {
		t.Fatal(err)
	}
	m := &pb.PmixModex{}
	s.hears(stepwire.Modex, m)
	if m.Rank != 3 || m.Answer {
		t.Errorf("%v", m)
	}
	s.send(stepwire.Modex, &pb.PmixModex{Id: m.Id + 1, Answer: true}) // nobody has asked
	s.send(stepwire.Modex, &pb.PmixModex{Id: m.Id, Answer: true, Data: []byte("put")})
	if a := <-s.answers; a != (answer{c, 0, "put"}) {
		t.Errorf("%v", a)
	}
	for _, rank := range []uint32{0, 4, allTasks} {
		if s.modex(rank, c) == nil {
			t.Errorf("task %d can be asked", rank)
		}
	}
	// The other way round.
	s.send(stepwire.Modex, &pb.PmixModex{Id: 8, Rank: 2, Node: 1})
	id := <-s.wanted
	s.fetched(id, 0, []byte("ours"))
	s.fetched(id, 0, []byte("twice"))
	s.hears(stepwire.Modex, m)
	if m.Id != 8 || m.Node != 1 || !m.Answer || string(m.Data) != "ours" {
		t.Errorf("%v", m)
	}
	s.end(0)
	s.send(stepwire.Modex, &pb.PmixModex{Id: 9, Rank: 0, Node: 1}) // which has ended
	s.hears(stepwire.Modex, m)
	if m.Id != 9 || m.Status != pmixError {
		t.Errorf("%v", m)
	}
}

// TestBadSteps: what cannot be is refused.
func TestBadSteps(t *testing.T) {
	for _, job := range []*pb.PmixJob{
		{}, {Nspace: "s"}, {Nspace: "s", NodeIndex: 1, Places: oneNode().Places},
		{Nspace: "s", Places: []*pb.StepPlace{{Node: "n1"}}},
		{Nspace: "s", Places: []*pb.StepPlace{{Node: "n1", Tasks: []uint32{0, 0}}}},
		{Nspace: "s", Places: []*pb.StepPlace{{Node: "n1", Tasks: []uint32{1}}}},
		{Nspace: "s", Places: []*pb.StepPlace{{Node: "n1,n2", Tasks: []uint32{0}}}},
	} {
		if s := begin(t, job, nil); s.ready.Error == "" || len(s.ready.Tasks) > 0 {
			t.Errorf("%v: %v", job, s.ready)
		}
	}
	if s := begin(t, oneNode(), errors.New("no library")); s.ready.Error != "no library" {
		t.Errorf("%v", s.ready)
	}
}
