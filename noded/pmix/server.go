package pmix

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// FD is the descriptor of the socket to the shim.
const FD = 10

// maxData bounds the values of the tasks of one node, so that the result fits into a message.
const (
	maxData   = stepwire.MaxModex - 4096
	maxTasks  = 1 << 20
	maxQueue  = 64 << 20 // bytes that the shim has not read: beyond it the program exits
	maxAbort  = 512      // bytes of a task's text when it aborts
	allTasks  = 0xfffffffe
	pmixError = -1
)

// ticket is a call of the library that waits for its answer.
type ticket unsafe.Pointer

// library is libpmix.
type library interface {
	// start starts a server for the tasks of a node.
	start(job *pb.PmixJob) error
	// env returns the variables with which a task finds the server.
	env(rank uint32) ([]string, error)
	// answer completes a call.
	answer(c ticket, status int32, data []byte)
	// fetch requests the values of a task of this node; server.fetched follows unless the status is an error.
	fetch(rank uint32, id uint64) int32
}

// server connects the library, whose threads call it, and the shim.
type server struct {
	lib  library
	out  *queue
	job  *pb.PmixJob
	size int

	mu        sync.Mutex
	here      map[uint32]*task
	pending   ticket // a fence across nodes that the shim knows of
	broken    string // why no fence can succeed any more
	over      bool   // the end of the step was requested
	asked     uint32
	asks      map[uint32]ticket // open questions to other nodes
	fetches   map[uint64]*pb.PmixModex
	lastFetch uint64
}

// task is a task of this node.
type task struct{ connected, finalized, ended bool }

// Main is the program sluice-pmix. The shim starts it.
func Main(args []string) int {
	conn := os.NewFile(FD, "shim")
	if len(args) == 1 && args[0] == "--version" {
		fmt.Printf("sluice-pmix: with libpmix: %v\n", Built)
		return 0
	}
	if _, err := conn.Stat(); err != nil || len(args) > 0 {
		fmt.Fprintln(os.Stderr, "sluice-pmix: the PMIx server of a step, which the node daemon starts for srun --mpi=pmix; not by hand")
		return 2
	}
	// Signals to all processes of a step are meant for the tasks.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGPIPE,
		unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGXCPU, unix.SIGWINCH)
	if err := serve(conn, open); err != nil {
		fmt.Fprintln(os.Stderr, "sluice-pmix:", err)
		return 1
	}
	return 0
}

// serve returns when the shim has closed the connection.
func serve(conn io.ReadWriter, open func(*server) library) error {
	r := bufio.NewReader(conn)
	h, raw, err := stepwire.ReadMessage(r, stepwire.MaxFence)
	if err != nil {
		return err
	}
	s := &server{out: newQueue(conn), here: map[uint32]*task{}, asks: map[uint32]ticket{}, fetches: map[uint64]*pb.PmixModex{},
		job: &pb.PmixJob{}}
	s.lib = open(s)
	if h.Kind != stepwire.PmixJob || proto.Unmarshal(raw, s.job) != nil {
		return fmt.Errorf("a frame of kind %d where the step was expected", h.Kind)
	}
	ready := s.begin()
	s.out.message(stepwire.PmixReady, ready)
	if ready.Error != "" {
		return s.out.drain()
	}
	for {
		h, raw, err := stepwire.ReadMessage(r, stepwire.MaxFence)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = s.heard(h, raw)
		}
		if err != nil {
			return err
		}
	}
}

// begin starts the library.
func (s *server) begin() *pb.PmixReady {
	ready := &pb.PmixReady{}
	err := s.check()
	if err == nil {
		err = s.lib.start(s.job)
	}
	if err == nil {
		for rank := range s.here {
			env, eerr := s.lib.env(rank)
			if eerr != nil {
				err = eerr
				break
			}
			ready.Tasks = append(ready.Tasks, &pb.PmixTask{Rank: rank, Env: env})
		}
	}
	if err != nil {
		ready.Error = err.Error()
	}
	return ready
}

// check checks that each rank is in exactly one place.
func (s *server) check() error {
	j := s.job
	if j.Nspace == "" || int(j.NodeIndex) >= len(j.Places) || len(j.Places[j.NodeIndex].Tasks) == 0 {
		return errors.New("srun did not send the places of the step's tasks")
	}
	for _, p := range j.Places {
		s.size += len(p.Tasks)
		if p.Node == "" || strings.ContainsAny(p.Node, ",;\x00") {
			return fmt.Errorf("%q is not a node name", p.Node)
		}
	}
	if s.size > maxTasks {
		return fmt.Errorf("the step has %d tasks; %d at most with --mpi=pmix", s.size, maxTasks)
	}
	seen := make([]bool, s.size)
	for _, p := range j.Places {
		for _, rank := range p.Tasks {
			if int(rank) >= s.size || seen[rank] {
				return fmt.Errorf("srun places task %d twice, or too few tasks", rank)
			}
			seen[rank] = true
		}
	}
	for _, rank := range j.Places[j.NodeIndex].Tasks {
		s.here[rank] = &task{}
	}
	return nil
}

// heard handles a message from the shim.
func (s *server) heard(h stepwire.Header, raw []byte) error {
	switch h.Kind {
	case stepwire.Fence:
		m := &pb.StepFence{}
		if err := proto.Unmarshal(raw, m); err != nil {
			return err
		}
		s.spread(m)
	case stepwire.Modex:
		m := &pb.PmixModex{}
		if err := proto.Unmarshal(raw, m); err != nil {
			return err
		}
		if m.Answer {
			s.answered(m)
		} else {
			s.question(m)
		}
	case stepwire.PmixEnd:
		s.ended(h.Task)
	default:
		return fmt.Errorf("a frame of kind %d from the shim", h.Kind)
	}
	return nil
}

// stop requests the end of the step, once. The lock is held.
func (s *server) stop(rank uint32, line string) {
	if s.over {
		return
	}
	s.over = true
	if line != "" {
		s.out.frame(stepwire.Say, stepwire.All, []byte("mpi/pmix: "+line))
	}
	s.out.frame(stepwire.Abort, rank, nil)
}
