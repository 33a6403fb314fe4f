package logfile

import (
	"fmt"
	"testing"
	"time"
)

// A line comes once in a while, with the number of those that were left out, whoever else is being logged; and however many causes there
// are, what is remembered is bounded.
func TestSeldom(t *testing.T) {
	now := time.Unix(1000, 0)
	s := NewSeldom(time.Minute)
	s.now = func() time.Time { return now }
	lines := 0
	for range 1000 {
		if due, _ := s.Says("a"); due {
			lines++
		}
	}
	if due, left := s.Says("b"); lines != 1 || !due || left != 0 {
		t.Errorf("%d lines of 1000, the first of another cause is due: %v, %d", lines, due, left)
	}
	now = now.Add(time.Minute)
	if due, left := s.Says("a"); !due || left != 999 {
		t.Errorf("after a minute: %v, %d left out, want 999", due, left)
	}
	lines = 0
	for i := range 3 * maxLines {
		if due, _ := s.Says(fmt.Sprint(i)); due {
			lines++
		}
	}
	if len(s.said) > maxLines+1 || lines > maxLines+1 {
		t.Errorf("%d causes are remembered, %d lines were written", len(s.said), lines)
	}
}
