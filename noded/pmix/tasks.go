package pmix

import (
	"errors"
	"fmt"
	"slices"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// The library's threads call these methods.

func (s *server) connected(rank uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.here[rank]; t != nil {
		t.connected, t.finalized = true, false // a task may execute several programs in turn
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

// aborted handles a task's MPI_Abort.
func (s *server) aborted(rank uint32, status int32, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(text) > maxAbort {
		text = text[:maxAbort]
	}
	line := fmt.Sprintf("task %d aborts the step with status %d", rank, status)
	if text != "" {
		line += ": " + text
	}
	s.stop(rank, line)
}

// ended handles the end of a task, reported by the shim.
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

// missed ends the step when a task ended that never connected, while others have: they wait for it in MPI_Init. The lock is held.
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

// fence is called when this node's tasks that take part are in the fence. errors.ErrUnsupported: such fences are not supported.
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
		return errors.New("another fence is open")
	case len(s.job.Places) == 1:
		go s.lib.answer(c, 0, data)
		return nil
	}
	s.pending = c
	s.out.message(stepwire.Fence, &pb.StepFence{Pairs: []*pb.StepPair{{Value: data}}})
	return nil
}

// spread completes a fence across nodes.
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

// modex asks another node for the values of its task.
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

// answered handles another node's answer.
func (s *server) answered(m *pb.PmixModex) {
	s.mu.Lock()
	c, open := s.asks[m.Id]
	delete(s.asks, m.Id)
	s.mu.Unlock()
	if open {
		s.lib.answer(c, m.Status, m.Data)
	}
}

// question handles another node's question.
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

// maxFetches bounds the open questions of other nodes.
const maxFetches = 1 << 16

// fetched handles the library's answer.
func (s *server) fetched(id uint64, status int32, data []byte) {
	s.mu.Lock()
	m := s.fetches[id]
	delete(s.fetches, id)
	s.mu.Unlock()
	if m != nil {
		s.out.message(stepwire.Modex, &pb.PmixModex{Id: m.Id, Rank: m.Rank, Node: m.Node, Answer: true, Status: status, Data: data})
	}
}
