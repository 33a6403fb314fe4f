package stepio

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// meeting connects the tasks of an MPI program on different nodes. At a fence each node sends the data that its tasks have put;
// when all have, each node gets the data of all. Every node has a separate connection for this.
type meeting struct {
	names stepwire.Names

	mu      sync.Mutex
	nodes   []*guest
	put     []byte // data of the current fence so far: StepFence
	arrived int
	broken  string // why fences fail from now on
}

// guest is the connection of a node.
type guest struct {
	node    int
	conn    *tls.Conn
	arrived bool
	fences  [][]byte // frames to send, in order: while one fence is being sent, the end of a task may end further fences
	writing sync.Mutex
}

func newMeeting(nodes int) *meeting {
	m := &meeting{nodes: make([]*guest, nodes)}
	for i := range m.nodes {
		m.nodes[i] = &guest{node: i}
	}
	return m
}

// enter adds a node's second connection, unless it already has one.
func (m *meeting) enter(node int, conn *tls.Conn) (*guest, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.nodes[node]
	if g.conn != nil {
		return nil, errTwice
	}
	g.conn = conn
	return g, nil
}

// close ends all connections.
func (m *meeting) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, g := range m.nodes {
		if g.conn != nil {
			_ = g.conn.NetConn().Close()
		}
	}
}

// meet reads a node's second connection to its end. After that no fence can complete.
func (s *Session) meet(g *guest, r *bufio.Reader) {
	err := s.meeting.serve(s, g, r)
	text := fmt.Sprintf("node %s no longer takes part in the step", s.step.GetNodes()[g.node].GetNode())
	if !s.nodes[g.node].ended.Load() {
		text += ": " + err.Error()
	}
	s.meeting.fail(s, text)
}

// serve returns the reason of its end.
func (m *meeting) serve(s *Session, g *guest, r *bufio.Reader) error {
	var fence, modex []byte
	for {
		h, err := stepwire.ReadHeader(r)
		if err != nil {
			return err
		}
		payload := make([]byte, h.Len)
		if _, err := io.ReadFull(r, payload); err != nil {
			return err
		}
		switch h.Kind {
		case stepwire.Fence:
			if len(fence)+len(payload) > stepwire.MaxFence {
				return fmt.Errorf("its tasks have put more than %d bytes", stepwire.MaxFence)
			}
			if fence = append(fence, payload...); h.Flags&stepwire.Last == 0 {
				continue
			}
			of := &msg.StepFence{}
			if err := of.Merge(string(fence)); err != nil {
				return err
			}
			if of.Error != "" {
				m.fail(s, of.Error)
			} else {
				m.arrive(s, g, fence)
			}
			fence = nil
		case stepwire.Name:
			q := &msg.StepName{}
			if err := q.Merge(string(payload)); err != nil {
				return err
			}
			m.tell(g, stepwire.Append(nil, stepwire.Name, 0, stepwire.All, m.name(q).AppendTo(nil)))
		case stepwire.Modex:
			if len(modex)+len(payload) > stepwire.MaxModex {
				return fmt.Errorf("a task has put more than %d bytes", stepwire.MaxModex)
			}
			if modex = append(modex, payload...); h.Flags&stepwire.Last == 0 {
				continue
			}
			q := &msg.PmixModex{}
			if err := q.Merge(string(modex)); err != nil {
				return err
			}
			modex = nil
			m.route(s, g, q)
		default:
			return fmt.Errorf("a frame of kind %d, which is for the other connection", h.Kind)
		}
	}
}

// arrive records that the tasks of a node have reached the fence; the last node completes it.
func (m *meeting) arrive(s *Session, g *guest, fence []byte) {
	m.mu.Lock()
	if g.arrived || m.broken != "" {
		m.mu.Unlock()
		return // it has been told, or sends too much
	}
	if len(m.put)+len(fence) > stepwire.MaxFence {
		m.mu.Unlock()
		m.fail(s, fmt.Sprintf("the tasks have put more than %d bytes", stepwire.MaxFence))
		return
	}
	m.put = append(m.put, fence...) // concatenated messages merge to one with all pairs
	g.arrived = true
	if m.arrived++; m.arrived < len(m.nodes) {
		m.mu.Unlock()
		return
	}
	frames := stepwire.AppendPieces(nil, stepwire.Fence, m.put)
	m.put, m.arrived = nil, 0
	for _, g := range m.nodes {
		g.arrived = false
	}
	m.spread(s, frames)
	m.mu.Unlock()
}

// fail makes all nodes give up fences, once.
func (m *meeting) fail(s *Session, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken == "" {
		m.broken, m.put = why, nil
		m.spread(s, stepwire.AppendPieces(nil, stepwire.Fence, (&msg.StepFence{Error: why}).AppendTo(nil)))
	}
}

// spread sends frames to all nodes; none waits for another. The lock is held.
func (m *meeting) spread(s *Session, frames []byte) {
	for _, g := range m.nodes {
		g.fences = append(g.fences, frames)
		s.all.Go(func() { m.flush(g) })
	}
}

// flush sends the results of fences to a node, once it is connected.
func (m *meeting) flush(g *guest) {
	g.writing.Lock()
	defer g.writing.Unlock()
	m.mu.Lock()
	conn := g.conn
	var frames []byte
	if conn != nil {
		frames, g.fences = slices.Concat(g.fences...), nil
	}
	m.mu.Unlock()
	if len(frames) == 0 {
		return
	}
	if _, err := conn.Write(frames); err != nil {
		_ = conn.NetConn().Close() // its reader will notice
	}
}

func (m *meeting) tell(g *guest, frames []byte) {
	m.mu.Lock()
	conn := g.conn
	m.mu.Unlock()
	if conn == nil {
		return
	}
	g.writing.Lock()
	defer g.writing.Unlock()
	if _, err := conn.Write(frames); err != nil {
		_ = conn.NetConn().Close() // its reader will notice
	}
}

// pmixError is PMIX_ERROR of libpmix.
const pmixError = -1

// route forwards a request for a task's data to the task's node, and an answer to the node that asked.
func (m *meeting) route(s *Session, g *guest, q *msg.PmixModex) {
	to := int(q.Node)
	if !q.Answer {
		q.Node = uint32(g.node)
		to = slices.IndexFunc(s.step.GetNodes(), func(n *msg.StepNode) bool { return slices.Contains(n.GetTasks(), q.Rank) })
		if to < 0 {
			q.Answer, q.Status, to = true, pmixError, g.node
		}
	}
	if to < len(m.nodes) {
		m.tell(m.nodes[to], stepwire.AppendPieces(nil, stepwire.Modex, q.AppendTo(nil)))
	}
}

// name answers a request about a name.
func (m *meeting) name(q *msg.StepName) *msg.StepName {
	answer := &msg.StepName{Id: q.Id}
	switch name := string(q.Name); {
	case q.Publish:
		answer.Done = m.names.Publish(name, string(q.Port))
	case q.Withdraw:
		answer.Done = m.names.Withdraw(name)
	default:
		port, found := m.names.Lookup(name)
		answer.Port, answer.Done = []byte(port), found
	}
	return answer
}
