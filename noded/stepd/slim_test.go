package stepd

import "testing"

// TestMemoryIsGivenBackOnce: a shim that has taken another step in time keeps its memory until it is idle, and does not look again.
func TestMemoryIsGivenBackOnce(t *testing.T) {
	tasks, batch := &run{}, &run{}
	s := &shim{cur: tasks, bloated: true}
	s.cur = batch // before the time was over
	s.slim(tasks)
	if !s.bloated {
		t.Error("a shim has given memory back in the middle of a step")
	}
	s.slim(batch)
	if s.bloated {
		t.Error("an idle shim keeps the memory of connections")
	}
}
