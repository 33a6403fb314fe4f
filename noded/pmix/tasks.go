package pmix

import (
	"errors"
	"fmt"
	"slices"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// What the library says: its threads call these.

func (s *server) connected(rank uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.here[rank]; t != nil {
		t.connected, t.finalized = true, false // a task may execute one program after the other
		s.missed()
	}
}

func (s *server) finalized(rank uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.here[rank]; t != nil {
		t.finalized = true
	}
}

// aborted: a task has called MPI_Abort.
func (s *server) aborted(rank uint32, status int32, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(text) > maxAbort {
		text = text[:maxAbort]
	}
	line := fmt.Sprintf("task %d asks for the end of the step, with status %d", rank, status)
	if text != "" {
		line += ": " + text
	}
	s.stop(rank, line)
}

// ended: the shim says that a task has.
func (s *server) ended(rank uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.here[rank]
	if t == nil || t.ended {
		return
	}
	t.ended = true
	if t.connected && !t.finalized {
		s.stop(rank, fmt.Sprintf("task %d has ended without MPI_Finalize", rank))
		return
	}
	s.missed()
}

// missed ends the step when a task that was never connected has ended, while others are: MPI_Init waits for it. The lock is held.
func (s *server) missed() {
	for rank, t := range s.here {
		if !t.ended || t.connected {
			continue
		}
		for _, other := range s.here {
			if other.connected && !other.finalized && !other.ended {
				s.stop(rank, fmt.Sprintf("the tasks cannot meet: task %d takes part no more", rank))
				return
			}
		}
	}
}

// fence: the tasks of this node that take part are there. errors.ErrUnsupported: such fences there are not.
func (s *server) fence(ranks []uint32, data []byte, c ticket) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Contains(ranks, allTasks) || len(ranks) == s.size
	switch {
	case !all && !slices.ContainsFunc(ranks, func(r uint32) bool { return s.here[r] == nil }):
		go s.lib.answer(c, 0, data) // not from within its call
		return nil
	case !all:
		return errors.ErrUnsupported
	case s.broken != "":
		s.stop(stepwire.All, "the tasks cannot meet: "+s.broken)
		return errors.New(s.broken)
	case s.pending != nil:
		return errors.New("there is a fence already")
	case len(s.job.Places) == 1:
		go s.lib.answer(c, 0, data)
		return nil
	}
	s.pending = c
	s.out.message(stepwire.Fence, &pb.StepFence{Pairs: []*pb.StepPair{{Value: data}}})
	return nil
}

// spread ends a fence over nodes.
func (s *server) spread(m *pb.StepFence) {
	var data []byte
	for _, p := range m.Pairs {
		data = append(data, p.Value...)
	}
	s.mu.Lock()
	c := s.pending
	s.pending = nil
	status := int32(0)
	if m.Error != "" && s.broken == "" {
		s.broken = m.Error
		if c != nil {
			s.stop(stepwire.All, "the tasks cannot meet: "+m.Error)
		}
	}
	if s.broken != "" {
		status, data = pmixError, nil
	}
	asks := s.asks
	if s.broken != "" {
		s.asks = map[uint32]ticket{}
	}
	s.mu.Unlock()
	if c != nil {
		s.lib.answer(c, status, data)
	}
	if status != 0 {
		for _, c := range asks {
			s.lib.answer(c, status, nil)
		}
	}
}

// modex asks another node for what its task has put.
func (s *server) modex(rank uint32, c ticket) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(rank) >= s.size || s.here[rank] != nil || s.broken != "" {
		return fmt.Errorf("task %d cannot be asked", rank)
	}
	s.asked++
	s.asks[s.asked] = c
	s.out.message(stepwire.Modex, &pb.PmixModex{Id: s.asked, Rank: rank})
	return nil
}

// answered is what another node says.
func (s *server) answered(m *pb.PmixModex) {
	s.mu.Lock()
	c, open := s.asks[m.Id]
	delete(s.asks, m.Id)
	s.mu.Unlock()
	if open {
		s.lib.answer(c, m.Status, m.Data)
	}
}

// question is another node's.
func (s *server) question(m *pb.PmixModex) {
	s.mu.Lock()
	t := s.here[m.Rank]
	if t == nil || t.ended || len(s.fetches) >= maxFetches {
		s.mu.Unlock()
		s.out.message(stepwire.Modex, &pb.PmixModex{Id: m.Id, Rank: m.Rank, Node: m.Node, Answer: true, Status: pmixError})
		return
	}
	s.lastFetch++
	id := s.lastFetch
	s.fetches[id] = m
	s.mu.Unlock()
	if status := s.lib.fetch(m.Rank, id); status != 0 {
		s.fetched(id, status, nil)
	}
}

// maxFetches bounds the questions of other nodes that are open.
const maxFetches = 1 << 16

// fetched is the library's answer.
func (s *server) fetched(id uint64, status int32, data []byte) {
	s.mu.Lock()
	m := s.fetches[id]
	delete(s.fetches, id)
	s.mu.Unlock()
	if m != nil {
		s.out.message(stepwire.Modex, &pb.PmixModex{Id: m.Id, Rank: m.Rank, Node: m.Node, Answer: true, Status: status, Data: data})
	}
}
