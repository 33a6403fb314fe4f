package stepio

import (
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

func (h *host) modex(q *msg.PmixModex) {
	h.t.Helper()
	if _, err := h.meet.Write(stepwire.AppendPieces(nil, stepwire.Modex, q.AppendTo(nil))); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) modexed() *msg.PmixModex {
	h.t.Helper()
	kind, b := h.next()
	m := &msg.PmixModex{}
	if err := m.Merge(b); err != nil || kind != stepwire.Modex {
		h.t.Fatalf("kind %d: %v", kind, err)
	}
	return m
}

// TestModex: questions go to the node of the task, and answers to the node that has asked; who asks cannot pretend to be another.
func TestModex(t *testing.T) {
	hosts, _ := meetings(t, 3)
	hosts[2].modex(&msg.PmixModex{Id: 7, Rank: 1, Node: 99})
	q := hosts[1].modexed()
	if q.Id != 7 || q.Rank != 1 || q.Node != 2 || q.Answer {
		t.Errorf("%v", q)
	}
	long := strings.Repeat("x", 3*stepwire.MaxPayload)
	q.Answer, q.Data = true, []byte(long)
	hosts[1].modex(q)
	if a := hosts[2].modexed(); a.Id != 7 || !a.Answer || a.Status != 0 || string(a.Data) != long {
		t.Errorf("%.200v", a)
	}
	hosts[0].modex(&msg.PmixModex{Id: 1, Rank: 3}) // there is no such task
	if a := hosts[0].modexed(); a.Id != 1 || !a.Answer || a.Status != pmixError {
		t.Errorf("%v", a)
	}
	hosts[0].modex(&msg.PmixModex{Id: 2, Node: 3, Answer: true}) // for no node
	hosts[0].modex(&msg.PmixModex{Id: 3, Rank: 0})
	if q := hosts[0].modexed(); q.Id != 3 || q.Answer {
		t.Errorf("%v", q)
	}
	hosts[1].modex(&msg.PmixModex{Answer: true, Data: make([]byte, stepwire.MaxModex)}) // more than a task may put
	if _, failed := hosts[0].spread(); !strings.Contains(failed, "a task has put more than") {
		t.Errorf("%q", failed)
	}
}
