package loop

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// fullDisk is a loop whose disk has room for what must be written only, while *full is set.
func fullDisk() (l *Loop, full *bool) {
	full = new(bool)
	return newLoop(journal.NewFailing(journal.NewMemory(), func(_ int, b journal.Batch) journal.Fault {
		if *full && !b.Must {
			return journal.Fault{Err: journal.ErrNoSpace}
		}
		return journal.Fault{}
	})), full
}

// A job can be cancelled on a full disk, alone and among commands that are refused: its end makes room.
func TestCancelOnFullDisk(t *testing.T) {
	for _, before := range [][]reactor.Command{nil, {submission("a"), submission("b")}} {
		l, full := fullDisk()
		j := runningJob(t, l)
		*full = true
		replies := turn(t, l, append(before, reactor.Cancel{Caller: reactor.Caller{UID: j.Spec.Uid}, IDs: []string{"1"}})...)
		if out, ok := replies[len(before)].(reactor.Outcomes); !ok || len(out.List) != 1 || out.List[0].Problem != nil {
			t.Errorf("after %d others: answered with %v", len(before), replies[len(before)])
		}
		if got := l.View().Jobs.Get(j.Id); got.State != pb.JobState_JOB_CANCELLED || got.StopReason != "cancel" {
			t.Errorf("after %d others: the job is %v, %q", len(before), got.State, got.StopReason)
		}
	}
}

// After a refused batch, its commands are tried one at a time, and other senders have turns in between. The sender of a refused command
// pays for rebuilding the index.
func TestRefusedBatchLetsOthersIn(t *testing.T) {
	l, full := fullDisk()
	for _, name := range []string{"x", "y", "z"} {
		turn(t, l, submission(name))
	}
	*full = true
	user := For(context.Background(), Users, 1000)
	for _, name := range []string{"a", "b", "c"} {
		if !l.box.put(senderOf(user), request{cmd: submission(name), reply: make(chan any, 1)}) {
			t.Fatal("no room")
		}
	}
	first, _ := l.box.next()
	rest, err := l.process([]request{first}, l.box.next)
	if err != nil || len(rest) != 2 || len(first.reply) != 1 || len(rest[0].reply)+len(rest[1].reply) != 0 {
		t.Fatalf("%d commands left, error %v; want 2 of 3, and an answer to the first alone", len(rest), err)
	}
	used := l.box.kinds[Users].used
	if rest, err = l.process(rest, l.box.next); err != nil || len(rest) != 1 || len(rest[0].reply) != 0 {
		t.Fatalf("%d commands left, error %v; want 1", len(rest), err)
	}
	one := l.box.kinds[Users].used - used
	*full = false
	used = l.box.kinds[Users].used
	if rest, err = l.process(rest, l.box.next); err != nil || len(rest) != 0 || l.View().Jobs.Len() != 4 {
		t.Fatalf("%d commands left, %d jobs, error %v", len(rest), l.View().Jobs.Len(), err)
	}
	if accepted := l.box.kinds[Users].used - used; one < accepted+3 {
		t.Errorf("a refused submission costs %d, an accepted one %d: want 3 more for 3 jobs", one, accepted)
	}
	if l.alone {
		t.Error("commands are still taken one by one after a commit that succeeded")
	}
}

// inParts submits a job by each slice.
type inParts []string

func (c inParts) Handle(tx *state.Tx) any {
	out := submission(c[0]).Handle(tx)
	if len(c) == 1 {
		return out
	}
	return reactor.More{Next: c[1:]}
}

// A command that is refused after a part of it was committed does not claim that nothing was changed.
func TestRefusedInPart(t *testing.T) {
	for _, parts := range [][]string{{"a"}, {"a", "b"}} {
		disk, n := journal.NewMemory(), 0
		l := newLoop(journal.NewFailing(disk, func(int, journal.Batch) journal.Fault {
			if n++; n == len(parts) {
				return journal.Fault{Err: journal.ErrNoSpace}
			}
			return journal.Fault{}
		}))
		p, ok := turn(t, l, inParts(parts))[0].(*pb.Problem)
		if !ok || l.View().Jobs.Len() != len(parts)-1 {
			t.Fatalf("answered with %v, %d jobs", p, l.View().Jobs.Len())
		}
		if claims := strings.Contains(p.Hint, "changed nothing"); claims != (len(parts) == 1) {
			t.Errorf("after %d jobs: %q", l.View().Jobs.Len(), p.Hint)
		}
	}
}

// emits is a command that makes this happen.
type emits []state.Event

func (c emits) Handle(tx *state.Tx) any {
	for _, e := range c {
		tx.Emit(e)
	}
	return nil
}

// TestClockSetOnFullDisk: the clock is set while the disk is full. The times that depend on it move in memory, a node's report that writes
// nothing is not refused, and the rows are written with the next commit that succeeds.
func TestClockSetOnFullDisk(t *testing.T) {
	m, full := &machine{up: 5000e9, ahead: 1e18}, false
	disk := journal.NewMemory()
	store := journal.NewFailing(disk, func(_ int, b journal.Batch) journal.Fault {
		if full && !b.Must {
			return journal.Fault{Err: journal.ErrNoSpace}
		}
		return journal.Fault{}
	})
	var stored []uint32
	start := func() (l *Loop) {
		t.Helper()
		v, err := state.Load(config(), disk, "c", 1)
		if err != nil {
			t.Fatal(err)
		}
		l = New(store, v, m.wall, slog.New(slog.DiscardHandler), func(c state.Change) { stored = c.Stored })
		l.KeepTime("boot 1", m.both)
		return l
	}
	noted := m.wall().UnixNano()
	next := noted + 200e9
	l := start()
	node := *l.View().Node("n1")
	node.NodeRecord = state.CloneNode(node.NodeRecord)
	node.PowerNs, node.RebootNs = noted, noted
	job := submission("").Job
	job.Id, job.Spec.Cron, job.Spec.BeginNs, job.EligibleNs = 1, "*/5 * * * *", next, next
	turn(t, l, emits{state.NodeChanged{Node: &node, Durable: true}, state.JobSubmitted{Job: job},
		state.TokenChanged{Token: &pb.TokenRecord{Id: "t", CreatedNs: noted}},
		state.ReservationChanged{Reservation: &pb.ReservationRecord{Name: "r", Partition: "debug", IdleNs: noted}}})
	check := func(what string, v *state.View, by int64) {
		t.Helper()
		n, token, resv := v.Node("n1"), v.Token("t"), v.Reservation("r")
		if n.PowerNs != noted+by || n.RebootNs != noted+by || token.CreatedNs != noted+by || resv.IdleNs != noted+by {
			t.Errorf("%s: moved by %d, %d, %d and %d, want %d", what, n.PowerNs-noted, n.RebootNs-noted, token.CreatedNs-noted,
				resv.IdleNs-noted, by)
		}
		if begin := v.Jobs.Get(1).Spec.BeginNs; (begin != next) != (by != 0) || begin > noted+by+301e9 {
			t.Errorf("%s: the next run of the crontab is %d s after its first one", what, (begin-next)/1e9)
		}
	}
	onDisk := func(what string, by int64) {
		t.Helper()
		v, err := state.Load(config(), disk, "c", 1)
		if err != nil {
			t.Fatal(err)
		}
		check(what, v, by)
	}
	report := reactor.StepReports{Node: "n1"}
	full = true
	for i, by := range []int64{-7200e9, -7300e9, -7400e9} {
		if i == 2 { // killed before any of it was written
			onDisk("before the controller starts again", 0)
			l = start()
		}
		m.ahead = 1e18 + by
		if r := turn(t, l, report)[0]; r != nil {
			t.Errorf("a report with nothing in it was answered with %v", r)
		}
		check("in memory", l.View(), by)
	}
	onDisk("while the disk is full", 0)
	if _, refused := turn(t, l, submission("a"))[0].(*pb.Problem); !refused {
		t.Error("a submission was not refused")
	}
	must := *l.View().Node("n1")
	if r := turn(t, l, emits{state.NodeChanged{Node: &must, Durable: true}})[0]; r != nil {
		t.Errorf("what must be written was answered with %v", r)
	}
	onDisk("written", -7400e9)
	if !slices.Contains(stored, 1) {
		t.Errorf("stored, by what is said of the commit: %v, want job 1 as well", stored)
	}
	if full = false; l.View().Check() != nil {
		t.Error(l.View().Check())
	}
	commits := l.Stats().Commits.Load()
	if turn(t, l, report); l.Stats().Commits.Load() != commits {
		t.Error("the rows were written twice")
	}
}
