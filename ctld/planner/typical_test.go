package planner

import (
	"fmt"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

func gpus(n, mem int64) *record.Request {
	return &record.Request{Tasks: int(n), MemNodeMiB: mem, Gres: []record.GresRequest{{Name: "gpu", Count: n}}}
}

func (t *typicals) feed(from, jobs uint32, request func(i uint32) *record.Request) {
	for i := range jobs {
		t.note(&pb.JobRecord{Id: from + i}, request(i))
	}
}

func TestTypicalRequests(t *testing.T) {
	c := typicals{on: true}
	if c.feed(1, 15, func(uint32) *record.Request { return gpus(1, 5) }); c.current() != nil {
		t.Error("a list is made of fifteen jobs")
	}
	c.feed(16, 85, func(i uint32) *record.Request { return gpus(int64(1+i%2*3), int64(i)) }) // whatever memory they ask for
	c.feed(101, 50, func(uint32) *record.Request { return &record.Request{Tasks: 1} })       // no devices
	c.feed(1, 100, func(uint32) *record.Request { return gpus(8, 0) })                       // seen before
	list := c.current()
	if len(list) != 2 || list[0].Count != 58 || list[0].Request.Tasks != 1 || list[1].Count != 42 || list[1].Request.Tasks != 4 {
		t.Fatalf("%+v", list)
	}
	c.feed(1000, 100, func(i uint32) *record.Request { return gpus(int64(1+i%2*3), 0) })
	if again := c.current(); &again[0] != &list[0] {
		t.Error("the list was replaced, and says the same")
	}
	c.feed(2000, 3000, func(uint32) *record.Request { return gpus(8, 0) })
	if now := c.current(); now[0].Request.Tasks != 8 || now[0].Count < 90 {
		t.Errorf("after many others: %+v", now)
	}
	off := typicals{}
	if off.feed(1, 100, func(uint32) *record.Request { return gpus(1, 0) }); off.current() != nil || off.kinds != nil {
		t.Error("something is counted without FGD")
	}
}

// TestTypicalIsBounded: many kinds, and an array for its tasks.
func TestTypicalIsBounded(t *testing.T) {
	c := typicals{on: true}
	for i := range uint32(3 * maxKinds) {
		c.note(&pb.JobRecord{Id: i + 1}, gpus(int64(i+1), 0))
		if len(c.kinds) > maxKinds || len(c.current()) > maxTypical {
			t.Fatalf("%d kinds, %d listed", len(c.kinds), len(c.list))
		}
	}
	c = typicals{on: true}
	c.feed(1, 10, func(uint32) *record.Request { return gpus(1, 0) })
	c.note(&pb.JobRecord{Id: 100, ArrayJobId: 100, ArrayTasks: "0-89"}, gpus(2, 0))
	c.note(&pb.JobRecord{Id: 101, ArrayJobId: 100, IsArrayTask: true}, gpus(2, 0))
	if list := c.current(); fmt.Sprint(len(list), list[0].Count, list[0].Request.Tasks) != "2 90 2" {
		t.Errorf("%+v", list)
	}
}
