package clienttest

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// Steps is the Controller's state of steps. Its nodes execute tasks as processes of the test.
type Steps struct {
	Created []*pb.CreateStepRequest
	Ended   []*pb.EndAllocationRequest
	// Answer, if set, determines the answer to a request; if it returns nil, the step is created.
	Answer func(*pb.CreateStepRequest) (*pb.CreateStepReply, error)
	// Node, if set, simulates a node instead of RunNode.
	Node func(step *pb.StepRecord, index int)
	// Allocation answers WaitAllocation; nil: the job runs.
	Allocation func(*pb.WaitAllocationRequest) *pb.JobRecord
	// First: the start of a job creates its first step.
	First bool
	// Attached, if set, decides whether a client may attach to a step of StepList; its nodes then run AttachedNode.
	Attached func(*pb.AttachStepRequest) error
	// AttachedNode simulates a node of a step with an attached client.
	AttachedNode func(n *NodeConn, index int)
	// Waited answers WaitStep; nil: it never ends.
	Waited func() *pb.StepRecord

	next uint32
	busy sync.WaitGroup
}

// StepKey creates a certificate and its key, as a controller does for each step.
func StepKey() (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0)}
	if certificate, err = x509.CreateCertificate(rand.Reader, template, template, private.Public(), private); err != nil {
		return nil, nil, err
	}
	key, err = x509.MarshalPKCS8PrivateKey(private)
	return certificate, key, err
}

// Job returns the job for a request, running on n1, n2, ….
func Job(id, nodes uint32) *pb.JobRecord {
	job := &pb.JobRecord{Id: id, State: pb.JobState_JOB_RUNNING, Spec: &pb.JobSpec{Name: "test", User: "u"}, NodeList: "n1", NumTasks: 1}
	for i := range nodes {
		job.Alloc = append(job.Alloc, &pb.NodeAlloc{Node: fmt.Sprintf("n%d", i+1), Cpus: 4})
	}
	if nodes > 1 {
		job.NodeList = fmt.Sprintf("n[1-%d]", nodes)
	}
	return job
}

func (c *Controller) CreateStep(_ context.Context, req *pb.CreateStepRequest) (*pb.CreateStepReply, error) {
	c.mu.Lock()
	c.Stepping.Created = append(c.Stepping.Created, req)
	c.mu.Unlock()
	if err := c.refuse(); err != nil {
		return nil, err
	}
	if c.Stepping.Answer != nil {
		if reply, err := c.Stepping.Answer(req); reply != nil || err != nil {
			return reply, err
		}
	}
	return c.makeStep(req)
}

func (c *Controller) makeStep(req *pb.CreateStepRequest) (*pb.CreateStepReply, error) {
	certificate, key, err := StepKey()
	if err != nil {
		return nil, err
	}
	spec := req.GetSpec()
	nodes := max(1, spec.GetMinNodes())
	tasks := max(nodes, spec.GetNumTasks())
	c.mu.Lock()
	step := &pb.StepRecord{JobId: req.GetJobId(), StepId: c.Stepping.next, Spec: spec, State: pb.JobState_JOB_RUNNING, NumTasks: tasks,
		Certificate: certificate, Key: key}
	c.Stepping.next++
	c.mu.Unlock()
	for i := range nodes {
		n := &pb.StepNode{Node: fmt.Sprintf("n%d", i+1)}
		for rank := tasks * i / nodes; rank < tasks*(i+1)/nodes; rank++ {
			n.Tasks = append(n.Tasks, rank)
		}
		step.Nodes = append(step.Nodes, n)
	}
	node := c.Stepping.Node
	if node == nil {
		node = func(step *pb.StepRecord, index int) { _ = RunNode(step, index) }
	}
	for i := range step.Nodes {
		c.Stepping.busy.Go(func() { node(step, i) })
	}
	return &pb.CreateStepReply{Step: step, Job: Job(req.GetJobId(), nodes)}, nil
}

func (c *Controller) WaitAllocation(_ context.Context, req *pb.WaitAllocationRequest) (*pb.WaitAllocationReply, error) {
	if c.Stepping.Allocation != nil {
		return &pb.WaitAllocationReply{Job: c.Stepping.Allocation(req)}, nil
	}
	var first *pb.FirstStep
	c.mu.Lock()
	for _, s := range c.Submitted {
		first = s.GetFirstStep()
	}
	c.mu.Unlock()
	if !c.Stepping.First || first == nil || first.GetRequestId() != req.GetFirstStep() {
		return &pb.WaitAllocationReply{Job: Job(req.GetJobId(), 1)}, nil
	}
	made, err := c.makeStep(&pb.CreateStepRequest{JobId: req.GetJobId(), Spec: first.GetSpec()})
	return &pb.WaitAllocationReply{Job: made.GetJob(), Step: made.GetStep()}, err
}

func (c *Controller) EndAllocation(_ context.Context, req *pb.EndAllocationRequest) (*pb.UpdateReply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Stepping.Ended = append(c.Stepping.Ended, req)
	return &pb.UpdateReply{}, nil
}

func (c *Controller) WaitStep(ctx context.Context, _ *pb.WaitStepRequest) (*pb.WaitStepReply, error) {
	if c.Stepping.Waited == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &pb.WaitStepReply{Step: c.Stepping.Waited()}, nil
}

// AttachStep makes the nodes of a running step connect.
func (c *Controller) AttachStep(_ context.Context, req *pb.AttachStepRequest) (*pb.AttachStepReply, error) {
	if c.Stepping.Attached != nil {
		if err := c.Stepping.Attached(req); err != nil {
			return nil, err
		}
	}
	of := c.steps([]string{fmt.Sprintf("%d.%d", req.GetJobId(), req.GetStepId())})
	if len(of) == 0 {
		return nil, errors.New("no such step")
	}
	step := proto.Clone(of[0]).(*pb.StepRecord)
	var err error
	if step.Certificate, step.Key, err = StepKey(); err != nil {
		return nil, err
	}
	for i, n := range step.GetNodes() {
		if n.GetEnded() || c.Stepping.AttachedNode == nil {
			continue
		}
		c.Stepping.busy.Go(func() {
			conn, err := connect(step, req.GetAddresses(), &pb.StepHello{NodeIndex: uint32(i), Tasks: n.GetTasks(), Watcher: true})
			if err == nil {
				c.Stepping.AttachedNode(conn, i)
				_ = conn.Close()
			}
		})
	}
	return &pb.AttachStepReply{Step: step}, nil
}

// NodeConn is a node's side of a connection.
type NodeConn struct {
	*tls.Conn
	R     *bufio.Reader
	Work  *pb.StepWork
	write sync.Mutex
}

// GreetStep connects a node with srun.
func GreetStep(step *pb.StepRecord, index int) (*NodeConn, error) {
	return connect(step, step.GetSpec().GetAddresses(), &pb.StepHello{NodeIndex: uint32(index), Tasks: step.GetNodes()[index].GetTasks()})
}

func connect(step *pb.StepRecord, addresses []string, hello *pb.StepHello) (*NodeConn, error) {
	config, err := stepwire.Config(step.GetCertificate(), step.GetKey())
	if err != nil {
		return nil, err
	}
	if len(addresses) == 0 {
		return nil, errors.New("no address")
	}
	conn, err := tls.Dial("tcp", addresses[len(addresses)-1], config)
	if err != nil {
		return nil, err
	}
	n := &NodeConn{Conn: conn, R: bufio.NewReader(conn)}
	n.Send(stepwire.Hello, stepwire.All, hello)
	return n, nil
}

// DialStep connects a node with srun and reads its work.
func DialStep(step *pb.StepRecord, index int) (*NodeConn, error) {
	n, err := GreetStep(step, index)
	if err != nil {
		return nil, err
	}
	var data []byte
	for {
		h, payload, err := n.Next()
		if err != nil {
			return nil, err
		}
		if data = append(data, payload...); h.Flags&stepwire.Last != 0 {
			break
		}
	}
	n.Work = &pb.StepWork{}
	return n, proto.Unmarshal(data, n.Work)
}

// Next reads a frame.
func (n *NodeConn) Next() (stepwire.Header, []byte, error) {
	h, err := stepwire.ReadHeader(n.R)
	if err != nil {
		return h, nil, err
	}
	payload := make([]byte, h.Len)
	_, err = io.ReadFull(n.R, payload)
	return h, payload, err
}

// Send writes a message.
func (n *NodeConn) Send(kind stepwire.Kind, task uint32, m proto.Message) {
	b, _ := proto.Marshal(m)
	n.Bytes(kind, task, b)
}

// Bytes writes a frame.
func (n *NodeConn) Bytes(kind stepwire.Kind, task uint32, b []byte) {
	n.write.Lock()
	defer n.write.Unlock()
	_, _ = n.Write(stepwire.Append(nil, kind, 0, task, b))
}

// RunNode executes the tasks of a node.
func RunNode(step *pb.StepRecord, index int) error {
	n, err := DialStep(step, index)
	if err != nil {
		return err
	}
	defer n.Close()
	var tasks []*exec.Cmd
	var inputs []io.WriteCloser
	var all sync.WaitGroup
	ranks := step.GetNodes()[index].GetTasks()
	for local, rank := range ranks {
		argv := n.Work.GetPrograms()[0].GetArgv()
		for _, p := range n.Work.GetPrograms() {
			if slices.Contains(p.GetTasks(), rank) {
				argv = p.GetArgv()
			}
		}
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(n.Work.GetEnv(), fmt.Sprintf("SLURM_PROCID=%d", rank), fmt.Sprintf("SLURM_LOCALID=%d", local))
		cmd.Dir = n.Work.GetDir()
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		errs, _ := cmd.StderrPipe()
		if err := cmd.Start(); err != nil {
			n.Send(stepwire.Failed, stepwire.All, &pb.StepFailed{Verdict: "launch_failed", Detail: err.Error(), Task: rank})
			n.Send(stepwire.Ended, stepwire.All, &pb.StepEnded{Verdict: "launch_failed"})
			return nil
		}
		tasks, inputs = append(tasks, cmd), append(inputs, in)
		all.Go(func() {
			var pipes sync.WaitGroup
			pipes.Go(func() { n.copy(stepwire.Out, rank, out) })
			pipes.Go(func() { n.copy(stepwire.Err, rank, errs) })
			pipes.Wait()
			_ = cmd.Wait()
			status := uint32(cmd.ProcessState.Sys().(syscall.WaitStatus))
			n.Send(stepwire.Exit, stepwire.All, &pb.StepExit{Tasks: []uint32{rank}, WaitStatus: status})
		})
	}
	n.Send(stepwire.Started, stepwire.All, &pb.StepStarted{})
	go n.listen(ranks, tasks, inputs)
	all.Wait()
	n.Send(stepwire.Ended, stepwire.All, &pb.StepEnded{Verdict: "exited"})
	return nil
}

func (n *NodeConn) copy(kind stepwire.Kind, rank uint32, r io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		count, err := r.Read(buf)
		if count > 0 {
			n.Bytes(kind, rank, buf[:count])
		}
		if err != nil {
			n.Bytes(kind, rank, nil)
			return
		}
	}
}

// listen obeys srun's frames.
func (n *NodeConn) listen(ranks []uint32, tasks []*exec.Cmd, inputs []io.WriteCloser) {
	all := func(s syscall.Signal) {
		for _, t := range tasks {
			_ = t.Process.Signal(s)
		}
	}
	for {
		h, payload, err := n.Next()
		if err != nil {
			all(syscall.SIGKILL)
			return
		}
		switch h.Kind {
		case stepwire.In:
			for i, rank := range ranks {
				if h.Task != stepwire.All && h.Task != rank {
					continue
				}
				if len(payload) == 0 {
					_ = inputs[i].Close()
				} else {
					_, _ = inputs[i].Write(payload)
				}
			}
		case stepwire.Signal:
			s := &pb.StepSignal{}
			_ = proto.Unmarshal(payload, s)
			all(syscall.Signal(s.GetSignal()))
		case stepwire.Stop:
			all(syscall.SIGTERM)
		}
	}
}
