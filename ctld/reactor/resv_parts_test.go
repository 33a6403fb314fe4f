package reactor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func (b *bench) parts(name string) string {
	r := b.view.Reservation(name)
	if r == nil {
		return "none"
	}
	var out []string
	for _, p := range r.Parts {
		s := p.Node + ":" + p.CpuIds
		for _, d := range p.Devices {
			s += fmt.Sprintf("/%s%d", d.Name, d.Index)
		}
		out = append(out, s)
	}
	return fmt.Sprintf("%s n=%d c=%d tres=%s f=%s", strings.Join(out, " "), r.NodeCount, r.CoreCount, r.Tres, strings.Join(r.Flags, ","))
}

const (
	busyNodes = "2016 Requested nodes are busy"
	noSupport = "2036 Requested operation not supported on this system"
	wrongCore = "2111 Core count for reservation node list is not consistent!"
	overlaps  = "2058 Requested reservation overlaps with another reservation"
)

// TestReservationsOfCores: the bench has n1 and n2 with four cores each.
func TestReservationsOfCores(t *testing.T) {
	b := resvBench(t)
	for _, c := range [][3]string{
		{"create a StartTime=now Duration=60 Users=u1000 Nodes=n1 CoreCnt=2", "a", "n1:0-1 n=1 c=2 tres=cpu=2 f=SPEC_NODES"},
		{"create b StartTime=now Duration=60 Users=u1000 Nodes=n[1-2] CoreCnt=1,3", "b", "n1:2 n2:0-2 n=2 c=4 tres=cpu=4 f=SPEC_NODES"},
		{"create c StartTime=now Duration=60 Users=u1000 NodeCnt=2 CoreCnt=2", "c", "n1:3 n2:3 n=2 c=2 tres=cpu=2 f="},
		{"create x StartTime=now Duration=60 Users=u1000 CoreCnt=1", busyNodes, ""},
		{"create x StartTime=now Duration=60 Users=u1000 Nodes=n1", overlaps, ""},
		{"create later StartTime=now+61minutes Duration=60 Users=u1000 CoreCnt=6", "later", "n1:0-3 n2:0-1 n=2 c=6 tres=cpu=6 f="},
		{"create tres StartTime=now+200minutes Duration=60 Users=u1000 TRES=node=2,cpu=4,license/matlab=2", "tres",
			"n1:0-1 n2:0-1 n=2 c=4 tres=cpu=4 f="},
		{"create first StartTime=now+300minutes Duration=60 Users=u1000 NodeCnt=2 CoreCnt=1,2 Flags=FIRST_CORES", "first",
			"n1:0 n2:0-1 n=2 c=3 tres=cpu=3 f=FIRST_CORES"},
		{"create x StartTime=now+400minutes Duration=60 Users=u1000 Nodes=n[1-2] CoreCnt=4", wrongCore, ""},
		{"create x StartTime=now+400minutes Duration=60 Users=u1000 NodeCnt=2 CoreCnt=4 Flags=FIRST_CORES", wrongCore, ""},
		{"create x StartTime=now+400minutes Duration=60 Users=u1000 Nodes=n1 CoreCnt=0", wrongCore, ""},
		{"create x StartTime=now+400minutes Duration=60 Users=u1000 Nodes=n1 CoreCnt=5", busyNodes, ""},
		{"create x StartTime=now+400minutes Duration=60 Users=u1000 CoreCnt=4000000000", wrongCore, ""},
		{"create x StartTime=now+400minutes Duration=60 Users=u1000 CoreCnt=2 Flags=FLEX", noSupport, ""},
		{"create x StartTime=now+400minutes Duration=60 Users=u1000 TRES=bb/cray=4", noSupport, ""},
		{"create x StartTime=now+400minutes Duration=60 Users=u1000 TRES=gres/gpu=1", busyNodes, ""},
		{"update a CoreCnt=3", "2109 Core-based reservation can not be updated", ""},
		{"update a Nodes=n2", "2109 Core-based reservation can not be updated", ""},
		{"update a Duration=30", "a", "n1:0-1 n=1 c=2 tres=cpu=2 f=SPEC_NODES"},
		{"update later StartTime=now+10minutes", overlaps, ""},
	} {
		if got := b.resv(root, c[0]); got != c[1] {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		} else if c[2] != "" && b.parts(got) != c[2] {
			t.Errorf("%s is %s, want %s", got, b.parts(got), c[2])
		}
	}
	if got := b.view.Reservation("tres").Licenses; got != "matlab:2" {
		t.Errorf("licenses of TRES=: %q", got)
	}
}

// TestCoresBesideJobs: cores of jobs that may run beyond the start are not set aside, unless they do not matter.
func TestCoresBesideJobs(t *testing.T) {
	b := resvBench(t)
	id := b.submit(&pb.JobSpec{TimeLimitS: 600})
	b.do(ApplyPlan{Starts: []PlannedStart{{ID: id, Spec: b.job(id).Spec, Partition: "debug", NodeList: "n1", LimitS: 600,
		Alloc: []*pb.NodeAlloc{{Node: "n1", Cpus: 2, CpuIds: "1-2", MemMib: 100}}}}})
	held, _ := state.ParseCores(b.job(id).Alloc[0].CpuIds)
	if held.Count() != 2 {
		t.Fatal("the job does not run; the test needs it to")
	}
	n := 4 - held.Count()
	for _, c := range [][2]string{
		{fmt.Sprintf("create x StartTime=now Duration=60 Users=u1000 Nodes=n1 CoreCnt=%d", n+1), busyNodes},
		{fmt.Sprintf("create x StartTime=now Duration=60 Users=u1000 Nodes=n1 CoreCnt=%d Flags=IGNORE_JOBS", n+1), "x"},
		{"delete x", "x"},
		{fmt.Sprintf("create x StartTime=now+11minutes Duration=60 Users=u1000 Nodes=n1 CoreCnt=%d", n+1), "x"},
		{"delete x", "x"},
		{fmt.Sprintf("create x StartTime=now Duration=60 Users=u1000 Nodes=n1 CoreCnt=%d", n), "x"},
	} {
		if got := b.resv(root, c[0]); got != c[1] {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		}
	}
	mine, _ := state.ParseCores(b.view.Reservation("x").Parts[0].CpuIds)
	if mine.Overlaps(held) {
		t.Errorf("reserved %s, the job has %s", mine, held)
	}
}

func TestReservationWho(t *testing.T) {
	b := resvBench(t)
	const both = "2129 Reservations can't have users and groups specified, only one or the other"
	for _, c := range [][3]string{
		{"create a StartTime=now+1hour Duration=60 Users-=alice,bob Nodes=n1", "a", "-alice,-bob"},
		{"update a Users-=carol", "a", "-alice,-bob,-carol"},
		{"update a Users+=bob", "a", "-alice,-carol"},
		{"update a Users=alice,bob", "a", "alice,bob"},
		{"update a Users+=bob,carol", "a", "alice,bob,carol"},
		{"update a Users-=alice", "a", "bob,carol"},
		{"update a Groups=staff", both, "bob,carol"},
		{"update a Groups=staff Users=", "a", ""},
		{"create x StartTime=now+5hour Duration=60 Groups=-staff Nodes=n1", "2113 Invalid group id", ""},
	} {
		if got := b.resv(root, c[0]); got != c[1] {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		} else if got := b.view.Reservation("a").Users; got != c[2] {
			t.Errorf("%s: users %q, want %q", c[0], got, c[2])
		}
	}
}

func TestReservationFlags(t *testing.T) {
	b := resvBench(t)
	for _, c := range [][2]string{
		{"create x StartTime=now+1hour Duration=60 Users=root Nodes=n1 Flags=DAILY,WEEKLY", noSupport},
		{"create x StartTime=now+1hour Duration=60 Users=root Nodes=n1 Flags=DAILY,TIME_FLOAT", noSupport},
		{"create x StartTime=now Duration=60 Users=root Nodes=n1 Flags=TIME_FLOAT", noSupport},
		{"create x StartTime=now+1hour Duration=60 Users=root Nodes=n1 Flags=REPLACE", "2018 Invalid node name specified"},
		{"create x StartTime=now+1hour Duration=60 Users=root NodeCnt=1 Flags=REPLACE,STATIC_ALLOC", noSupport},
		{"create x StartTime=now+1hour Duration=60 Users=root Nodes=n1 Flags=PURGE_COMP=x", "2054 Invalid time specified"},
		{"create x StartTime=now+1hour Duration=60 Users=root Nodes=n1 Flags=MAINT=3", noSupport},
		{"create a StartTime=now+1hour Duration=60 Users=root Nodes=n1 Flags=OVERLAP,PURGE_COMP=10,MAGNETIC", "a"},
		{"update a Flags-=OVERLAP", noSupport},
		{"update a Flags-=MAGNETIC,PURGE_COMP", "a"},
		{"update a Flags+=TIME_FLOAT", "2054 Invalid time specified"},
		{"update a Skip=", "2128 Reservation given is not skipable, try deleting instead"},
		{"update a Nodes=", "a"},
	} {
		if got := b.resv(root, c[0]); got != c[1] {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		}
	}
	if got := b.parts("a"); !strings.HasSuffix(got, "n=1 c=4 tres=cpu=4 f=OVERLAP") {
		t.Errorf("with nodes refilled: %s", got)
	}
}

func TestReservationUpkeep(t *testing.T) {
	b := resvBench(t)
	b.now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano()
	for _, line := range []string{
		"create purge StartTime=now Duration=600 Users=u1000 Nodes=n1 Flags=PURGE_COMP=10",
		"create float StartTime=now+10hour Duration=60 Users=u1000 Nodes=n1 Flags=TIME_FLOAT",
		"create daily StartTime=now+5hour Duration=60 Users=u1000 Nodes=n2 Flags=DAILY,OVERLAP",
	} {
		if got := b.resv(root, line); strings.Contains(got, " ") {
			t.Fatalf("%s: %s", line, got)
		}
	}
	id := b.submit(&pb.JobSpec{Reservation: "purge"})
	tick := func(minutes int64) { b.now += minutes * 60e9; b.do(Tick{}) }
	tick(0)
	tick(20)
	if b.view.Reservation("purge") == nil {
		t.Error("purged while a job waits for it")
	}
	if got := b.shownResv("float"); !strings.HasPrefix(got, "+600..+660") {
		t.Errorf("the floating one after 20 minutes: %s", got)
	}
	b.do(Cancel{Caller: root, IDs: []string{fmt.Sprint(id)}})
	tick(0)
	tick(9)
	if b.view.Reservation("purge") == nil {
		t.Error("purged too early")
	}
	tick(1)
	if b.view.Reservation("purge") != nil {
		t.Error("not purged after ten idle minutes")
	}
	before := b.view.Reservation("daily").StartNs
	if got := b.resv(root, "update daily Skip="); got != "daily" || b.view.Reservation("daily").StartNs != before+24*3600e9 {
		t.Errorf("skipped: %s, %s", got, b.shownResv("daily"))
	}
}

// TestReplaceNodes: a node that is down is replaced, unless that was declined; one in use where that was asked for.
func TestReplaceNodes(t *testing.T) {
	for _, c := range []struct{ flags, down, busy string }{{"", "n2", "n1"}, {"STATIC_ALLOC", "n1", "n1"}, {"REPLACE_DOWN", "n2", "n1"},
		{"REPLACE", "n2", "n2"}} {
		b := resvBench(t)
		b.resv(root, "create r StartTime=now Duration=600 Users=u1000 NodeCnt=1 Flags="+c.flags)
		if got := b.view.Reservation("r").GetNodes(); got != "n1" {
			t.Fatalf("%s: has %s", c.flags, got)
		}
		id := b.submit(&pb.JobSpec{Reservation: "r"})
		b.start(id, "n1")
		b.do(Tick{})
		if got := b.view.Reservation("r").Nodes; got != c.busy {
			t.Errorf("%s with a job on n1: %s, want %s", c.flags, got, c.busy)
		}
		b.do(UpdateNode{Caller: root, UserName: "root", Nodes: []string{"n1"},
			Set: []*pb.KeyValue{{Key: "State", Value: "DOWN"}, {Key: "Reason", Value: "x"}}})
		b.do(Tick{})
		if got := b.view.Reservation("r").Nodes; got != c.down {
			t.Errorf("%s with n1 down: %s, want %s", c.flags, got, c.down)
		}
	}
}

// TestReplacementIsNobodys: no node of another reservation replaces one that is down, not even one of a reservation for maintenance.
func TestReplacementIsNobodys(t *testing.T) {
	for _, flags := range []string{"", "REPLACE", "REPLACE_DOWN", "DAILY"} {
		for _, other := range []string{"MAINT", "OVERLAP"} {
			b := resvBench(t)
			b.resv(root, "create r StartTime=now+1hour Duration=60 Users=u1000 NodeCnt=1 Flags="+flags)
			b.resv(root, "create o StartTime=now+1hour Duration=60 Users=root Nodes=n2 Flags="+other)
			b.do(UpdateNode{Caller: root, UserName: "root", Nodes: []string{"n1"},
				Set: []*pb.KeyValue{{Key: "State", Value: "DOWN"}, {Key: "Reason", Value: "x"}}})
			b.do(Tick{})
			if got := b.view.Reservation("r").Nodes; got != "n1" {
				t.Errorf("Flags=%s beside %s: %s, want n1", flags, other, got)
			}
		}
	}
}
