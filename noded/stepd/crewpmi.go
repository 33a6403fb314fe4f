package stepd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-hpc/sluice/noded/stepd/pmi"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// pmiFD is the descriptor on which a task of --mpi=pmi2 talks to its shim. Scripts use those below ten, and shells place their
// own at free ones from ten on.
const pmiFD = 10

// maxMapping is the longest PMI value that programs expect.
const maxMapping = 1024

// meeting connects the tasks of an MPI program: package pmi answers those of this node, and exchanges their data with the other
// nodes through srun.
type meeting struct {
	c    *crew
	node *pmi.Node
	wire *wire // to srun; nil: the step has no other node
	tell *teller
	ends []*end
	left sync.Once

	names stepwire.Names // used without wire
	mu    sync.Mutex
	asked uint32 // number of questions so far
	open  map[uint32]chan *pb.StepName
	lost  bool // the connection has ended
}

// end is the shim's end of a task's socket.
type end struct {
	rank uint32
	file *os.File
}

// meets reports whether the tasks exchange data through PMI.
func meets(t *pb.StepTasks) bool {
	mpi := t.GetSpec().GetMpi()
	return mpi == "pmi2" || mpi == "pmix"
}

// nodesOf returns the number of nodes of a step, from its environment.
func nodesOf(env []string) int {
	n, _ := strconv.Atoi(getEnv(env, "SLURM_STEP_NUM_NODES"))
	return n
}

// meet prepares the exchange between tasks.
func (c *crew) meet() error {
	switch c.b.Step.GetSpec().GetMpi() {
	case "pmix":
		return c.meetByPMIx()
	case "pmi2":
		c.meetByPMI()
	}
	return nil
}

func (c *crew) meetByPMI() {
	id := fmt.Sprintf("%d.%d", c.b.Key.GetJobId(), c.b.Key.GetStep())
	size, _ := strconv.ParseUint(getEnv(c.b.Env, "SLURM_STEP_NUM_TASKS"), 10, 32)
	c.pmi = &meeting{c: c, wire: c.wire.pmi, tell: c.tell, open: map[uint32]chan *pb.StepName{}}
	job := pmi.Job{ID: id, Size: uint32(size), Mapping: c.work.PmiMapping}
	if len(job.Mapping) > maxMapping {
		job.Mapping = "" // programs work it out from host names
	}
	c.pmi.node = pmi.New(job, len(c.members), c.pmi)
	for _, m := range c.members {
		m.b.Env = overlay(m.b.Env, []string{fmt.Sprintf("PMI_FD=%d", pmiFD), "PMI_JOBID=" + id, fmt.Sprintf("PMI_RANK=%d", m.rank),
			fmt.Sprintf("PMI_SIZE=%d", size)})
	}
}

// socket creates a task's PMI socket.
func (c *crew) socket(m *member) error {
	if c.pmi == nil {
		return nil
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot make a socket: %w", err)
	}
	_ = unix.SetNonblock(pair[0], true)
	m.pmi = pair[1]
	c.pmi.ends = append(c.pmi.ends, &end{m.rank, os.NewFile(uintptr(pair[0]), "PMI of a task")})
	return nil
}

// closePMI closes the task's end of the socket.
func (m *member) closePMI() {
	if m.pmi >= 0 {
		_ = unix.Close(m.pmi)
		m.pmi = -1
	}
}

// begin starts to answer the tasks.
func (p *meeting) begin() {
	if p == nil {
		return
	}
	for _, e := range p.ends {
		go func() {
			defer e.file.Close()
			p.node.Task(e.rank).Serve(e.file)
		}()
	}
	if p.wire != nil {
		go p.listen()
	}
}

// close ends all waiting.
func (p *meeting) close() {
	if p == nil {
		return
	}
	p.node.Close()
	for _, e := range p.ends {
		_ = e.file.Close()
	}
}

// Fence and the methods below implement pmi.Beyond.
func (p *meeting) Fence(puts []pmi.Pair) {
	if p.wire == nil {
		p.node.Spread(puts)
		return
	}
	m := &pb.StepFence{Pairs: make([]*pb.StepPair, 0, len(puts))}
	for _, kv := range puts {
		m.Pairs = append(m.Pairs, &pb.StepPair{Key: []byte(kv.Key), Value: []byte(kv.Value)})
	}
	p.send(stepwire.Fence, m)
}

func (p *meeting) Left(rank uint32) {
	if p.wire != nil {
		p.left.Do(func() { p.send(stepwire.Fence, &pb.StepFence{Error: fmt.Sprintf("task %d takes part no more", rank)}) })
	}
}

func (p *meeting) Abort(rank uint32) {
	go func() { _ = p.c.wire.frame(stepwire.Abort, rank, nil) }() // for the other nodes; srun may be slow
	p.c.say(wireEvent{kind: wireStop})
}

func (p *meeting) Publish(name, port string) bool {
	if p.wire == nil {
		return p.names.Publish(name, port)
	}
	_, done := p.ask(&pb.StepName{Publish: true, Name: []byte(name), Port: []byte(port)})
	return done
}

func (p *meeting) Withdraw(name string) {
	if p.wire == nil {
		p.names.Withdraw(name)
		return
	}
	p.ask(&pb.StepName{Withdraw: true, Name: []byte(name)})
}

func (p *meeting) Lookup(name string) (port string, found bool) {
	if p.wire == nil {
		return p.names.Lookup(name)
	}
	return p.ask(&pb.StepName{Name: []byte(name)})
}

func (p *meeting) Say(line string) { p.tell.say(line) }

// send sends srun a message. If that fails, no other node receives it.
func (p *meeting) send(kind stepwire.Kind, m proto.Message) {
	raw, err := proto.Marshal(m)
	if err == nil {
		p.wire.mu.Lock()
		_, err = p.wire.conn.Write(stepwire.AppendPieces(nil, kind, raw))
		p.wire.mu.Unlock()
	}
	if err != nil {
		p.gone()
	}
}

// ask waits for srun's answer about a name.
func (p *meeting) ask(m *pb.StepName) (port string, done bool) {
	answer := make(chan *pb.StepName, 1)
	p.mu.Lock()
	if p.lost {
		p.mu.Unlock()
		return "", false
	}
	p.asked++
	m.Id = p.asked
	p.open[m.Id] = answer
	p.mu.Unlock()
	p.send(stepwire.Name, m)
	select {
	case m := <-answer:
		return string(m.GetPort()), m.GetDone()
	case <-p.c.over:
		return "", false
	}
}

// gone handles the end of the connection to srun.
func (p *meeting) gone() {
	p.node.Fail(errWireDead)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = true
	for id, answer := range p.open {
		answer <- nil
		delete(p.open, id)
	}
}

// listen handles srun's messages.
func (p *meeting) listen() {
	defer p.gone()
	var raw []byte
	for {
		h, err := stepwire.ReadHeader(p.wire.conn)
		if err != nil {
			return
		}
		b, err := p.wire.read(h)
		if err != nil {
			return
		}
		switch h.Kind {
		case stepwire.Fence:
			if len(raw)+len(b) > stepwire.MaxFence {
				return
			}
			if raw = append(raw, b...); h.Flags&stepwire.Last == 0 {
				continue
			}
			m := &pb.StepFence{}
			if proto.Unmarshal(raw, m) != nil {
				return
			}
			raw = nil
			p.spread(m)
		case stepwire.Name:
			m := &pb.StepName{}
			if proto.Unmarshal(b, m) != nil {
				return
			}
			p.mu.Lock()
			if answer := p.open[m.Id]; answer != nil {
				answer <- m
				delete(p.open, m.Id)
			}
			p.mu.Unlock()
		}
	}
}

func (p *meeting) spread(m *pb.StepFence) {
	if m.Error != "" {
		p.node.Fail(errors.New(m.Error))
		return
	}
	pairs := make([]pmi.Pair, 0, len(m.Pairs))
	for _, kv := range m.Pairs {
		pairs = append(pairs, pmi.Pair{Key: string(kv.Key), Value: string(kv.Value)})
	}
	p.node.Spread(pairs)
}

// meetAt makes a node's second connection, to the address at which srun was reached.
func meetAt(ctx context.Context, address string, conf *tls.Config, hello *pb.StepHello) (*wire, error) {
	conn, err := dial(ctx, address, conf)
	if err != nil {
		return nil, err
	}
	w := newWire(conn)
	_ = conn.SetDeadline(time.Now().Add(reachFor))
	err = w.message(stepwire.Hello, &pb.StepHello{NodeIndex: hello.NodeIndex, Pmi: true})
	_ = conn.SetDeadline(time.Time{})
	if err != nil {
		_ = conn.NetConn().Close()
		return nil, err
	}
	return w, nil
}
