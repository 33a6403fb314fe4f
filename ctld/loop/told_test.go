package loop

import (
	"bytes"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// slow is a log that stands still until it is let go.
type slow struct {
	go_  chan struct{}
	once sync.Once
	in   chan struct{} // closed when the first line is on its way
	text bytes.Buffer
}

func (s *slow) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.in) })
	<-s.go_
	return s.text.Write(p)
}

// TestToldApart: a blocked log does not stop the writer. Dropped lines are counted; the rest come in order.
func TestToldApart(t *testing.T) {
	s := &slow{go_: make(chan struct{}), in: make(chan struct{})}
	told := newTold(slog.New(slog.NewTextHandler(s, nil)))
	stop := told.start()
	started := func(id uint32) []state.Event {
		return []state.Event{state.JobStarted{Job: &pb.JobRecord{Id: id, Spec: &pb.JobSpec{User: "ada"}}}}
	}
	told.tell(started(1), 1)
	<-s.in                                      // the goroutine waits for the log
	pair := make([]state.Event, 0, 2*batchSize) // of which the one half is never said
	for range batchSize {
		pair = append(pair, started(2)[0], state.JobSubmitted{Job: &pb.JobRecord{Id: 2, Spec: &pb.JobSpec{}}})
	}
	const fit = (maxTold - 1) / batchSize // the first is still being logged
	for i := range fit + 10 {
		told.tell(pair, uint64(i+2))
		told.tell([]state.Event{state.NodeChanged{Node: &state.Node{NodeRecord: &pb.NodeRecord{Name: "n1"}}}}, 0) // a heartbeat
	}
	if n := told.queued.Load(); n != 1+fit*batchSize || len(told.batches) != fit {
		t.Errorf("%d events wait in %d batches", n, len(told.batches))
	}
	close(s.go_)
	stop(time.Hour)
	if n := told.queued.Load(); n != 0 {
		t.Errorf("%d events wait at the end", n)
	}
	lines := strings.Split(strings.TrimSpace(s.text.String()), "\n")
	if len(lines) != 1+1+fit*batchSize || !strings.Contains(lines[0], "job=1 ") || !strings.Contains(lines[len(lines)-1], "seq="+
		strconv.Itoa(fit+1)) {
		t.Errorf("%d lines, from %s to %s", len(lines), lines[0], lines[len(lines)-1])
	}
	if !strings.Contains(s.text.String(), "events="+strconv.Itoa(10*batchSize)) {
		t.Error("nothing says that events were left out")
	}
}

// TestStandingLogAtTheEnd: a writer whose commit failed is known to have ended although its log stands still, and ends soon.
func TestStandingLogAtTheEnd(t *testing.T) {
	s := &slow{go_: make(chan struct{}), in: make(chan struct{})}
	defer close(s.go_)
	l := New(journal.NewMemory(), state.New(&state.Config{Settings: &state.Settings{}}, "c", 1), time.Now,
		slog.New(slog.NewTextHandler(s, nil)))
	l.told.tell([]state.Event{state.JobStarted{Job: &pb.JobRecord{Id: 1, Spec: &pb.JobSpec{}}}}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = l.Run(ctx) }()
	<-s.in
	cancel()
	<-l.done
	<-ended
}

// TestJobLines: a job has one line at info for its start and one for its end; a fault is a warning.
func TestJobLines(t *testing.T) {
	var out bytes.Buffer
	told := newTold(slog.New(slog.NewTextHandler(&out, nil)))
	job := &pb.JobRecord{Id: 7, Attempt: 1, Partition: "all", NodeList: "n[1-2]", NumCpus: 4, StartNs: 1e9, EndNs: 3e9,
		State: pb.JobState_JOB_FAILED, ExitStatus: 3 << 8, Reason: "NonZeroExitCode",
		Spec: &pb.JobSpec{User: "ada", Uid: 1234, Account: "lab"},
		Alloc: []*pb.NodeAlloc{{Devices: []*pb.GresDevice{{Name: "gpu"}, {Name: "gpu"}}},
			{Devices: []*pb.GresDevice{{Name: "gpu", Count: 4}, {Name: "gpu", Share: 2}}}}}
	killed := state.CloneJob(job)
	killed.State, killed.ExitStatus, killed.Reason, killed.ReasonDetail = pb.JobState_JOB_NODE_FAIL, 9, "NodeDown", "n1 is gone"
	stop := told.start()
	told.tell([]state.Event{state.JobSubmitted{Job: job}, state.JobStarted{Job: job}, state.JobChanged{Job: job, What: "configured"},
		state.JobLeftNode{Job: job, Node: "n1"}, state.JobEnded{Job: job}, state.JobEnded{Job: killed},
		state.NodeChanged{Node: &state.Node{NodeRecord: &pb.NodeRecord{Name: "n1", Reason: "bad disk"}}, What: "drained"}}, 1)
	stop(time.Hour)
	who := "job=7 attempt=1 user=ada uid=1234 account=lab partition=all nodes=n[1-2] cpus=4 gpus=6"
	want := []string{
		"level=INFO msg=JobStarted " + who + " seq=1",
		"level=INFO msg=JobEnded " + who + " state=FAILED exit=3:0 reason=NonZeroExitCode elapsed=2s seq=1",
		"level=WARN msg=JobEnded " + who + ` state=NODE_FAIL exit=0:9 reason=NodeDown elapsed=2s detail="n1 is gone" seq=1`,
		`level=WARN msg=NodeChanged node=n1 what=drained reason="bad disk" seq=1`}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines:\n%s", len(lines), out.String())
	}
	for i, line := range lines {
		if _, rest, _ := strings.Cut(line, " "); rest != want[i] {
			t.Errorf("line %d:\n%s\nwant\n%s", i, rest, want[i])
		}
	}
}

// BenchmarkTell measures the writer's cost of logging a batch with the start and the end of a job.
func BenchmarkTell(b *testing.B) {
	told := newTold(slog.New(slog.DiscardHandler))
	stop := told.start()
	defer stop(time.Hour)
	job := &pb.JobRecord{Id: 7, Spec: &pb.JobSpec{User: "ada"}}
	events := []state.Event{state.JobStarted{Job: job}, state.JobEnded{Job: job}}
	for b.Loop() {
		told.tell(events, 1)
	}
}
