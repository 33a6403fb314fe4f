package root

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/policy"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

func end(job uint32) *pb.ExitRecord {
	return &pb.ExitRecord{Key: &pb.StepKey{JobId: job, Attempt: 1, Epoch: 3, Step: pb.BatchStep}, Verdict: "exited", WaitStatus: 256,
		StartNs: 5, EndNs: 9, RanNs: 4}
}

// name is one that needs quoting.
const name = "a \"b\"\n c."

var ofJob = &pb.StepJob{Uid: 1000, Name: name, ArrayJobId: 7, ArrayTaskId: 2}

// TestPastOnAHungDisk: while an end cannot be written, what is known is told all the same.
func TestPastOnAHungDisk(t *testing.T) {
	var p past
	if err := p.open(filepath.Join(t.TempDir(), "ended")); err != nil {
		t.Fatal(err)
	}
	defer p.close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_ = w.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	for err == nil { // until it is full
		_, err = w.Write(make([]byte, 1<<16))
	}
	_ = w.SetWriteDeadline(time.Time{})
	_ = p.f.Close()
	p.f = w
	added := make(chan error, 1)
	go func() { added <- p.add(end(7), ofJob) }()
	for p.of(end(7).Key) == nil {
		runtime.Gosched()
	}
	if len(p.keys()) != 1 {
		t.Errorf("known: %v", p.keys())
	}
	_ = r.Close()
	if err := <-added; err == nil {
		t.Error("an end has been written into a closed pipe")
	}
}

// TestPastSynced: an end that has been added is on disk, and one sync does for all that were written before it.
func TestPastSynced(t *testing.T) {
	var p, again past
	path := filepath.Join(t.TempDir(), "ended")
	if err := p.open(path); err != nil {
		t.Fatal(err)
	}
	defer p.close()
	for job := range uint32(2) {
		if _, err := p.write(end(job+1), ofJob); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.flush(1); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe() // which cannot be synced
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_ = p.f.Close()
	p.f = w
	if err := p.flush(2); err != nil {
		t.Errorf("the second end is synced once more: %v", err)
	}
	if err := p.add(end(3), ofJob); err == nil {
		t.Error("an end counts as kept that has not been synced")
	}
	if err := p.flush(3); err == nil {
		t.Error("and so it does for another who waits")
	}
	if err := p.add(end(3), ofJob); err != nil {
		t.Errorf("tried again: %v", err)
	}
	if err := again.open(path); err != nil {
		t.Fatal(err)
	}
	defer again.close()
	if again.of(end(3).Key) == nil {
		t.Error("an end that was tried again is not on disk")
	}
}

// TestPast: what became of attempts outlives daemons, and the end of the file being cut off; the oldest are let go.
func TestPast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ended")
	var p past
	reopen := func() {
		t.Helper()
		p.close()
		p = past{}
		if err := p.open(path); err != nil {
			t.Fatal(err)
		}
	}
	reopen()
	const n = 2*mostPast + 10
	for job := range uint32(n) {
		if _, err := p.write(end(job+1), ofJob); err != nil {
			t.Fatal(err)
		}
	}
	again := end(n)
	again.Verdict = "lost"
	if err := p.add(again, ofJob); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if p.of(end(n-mostPast).Key) != nil || !proto.Equal(p.of(end(n-mostPast+1).Key), end(n-mostPast+1)) ||
			!proto.Equal(p.of(end(n).Key), end(n)) || len(p.keys()) != mostPast {
			t.Errorf("%d are known, of the last %v", len(p.keys()), p.of(end(n).Key))
		}
		_, lost := p.above(2)
		if _, none := p.above(3); lost != (gone{3, 9}) || none != (gone{}) {
			t.Errorf("of epochs above 2 %v was let go, above 3 %v", lost, none)
		}
		reopen()
	}
	fi, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, fi.Size()-3)
	}
	if err != nil {
		t.Fatal(err)
	}
	reopen()
	if err := p.add(end(n+1), ofJob); err != nil {
		t.Fatal(err)
	}
	reopen()
	if p.of(end(n).Key) != nil || p.of(end(n-1).Key) == nil || p.of(end(n+1).Key) == nil {
		t.Error("a line that was cut off spoils others")
	}
	p.close()
}

// TestHistory: the ends of later epochs than one are told with what is known of their jobs, also by a later daemon.
func TestHistory(t *testing.T) {
	r := newRoot(t, newNoSteps(), policy.Policy{})
	first, later := end(1), end(2)
	later.Key.Epoch, later.Verdict, later.StoppedOnOrder, later.StopReason = 4, "cancelled", true, "cancel"
	for _, x := range []*pb.ExitRecord{first, later} {
		if err := r.past.add(x, ofJob); err != nil {
			t.Fatal(err)
		}
	}
	path := r.past.path
	r.past.close()
	r.past = past{}
	if err := r.past.open(path); err != nil {
		t.Fatal(err)
	}
	want := &pb.StepReport{Key: later.Key, Phase: pb.StepPhase_STEP_ENDED, Exit: later, Job: ofJob}
	a, err := r.history(t.Context(), &nodepb.Request{What: &nodepb.Request_History{History: &nodepb.History{Above: 3}}})
	if err != nil || len(a.Ended) != 1 || !proto.Equal(a.Ended[0], want) {
		t.Errorf("%v, %v", a, err)
	}
}

// TestForgotten: of what was let go to make room the node says so, also of an attempt that it is asked for.
func TestForgotten(t *testing.T) {
	r := newRoot(t, newNoSteps(), policy.Policy{})
	r.past.gone = gone{5, 77}
	for above, want := range map[uint64]gone{4: {5, 77}, 5: {}} {
		a, err := r.history(t.Context(), &nodepb.Request{What: &nodepb.Request_History{History: &nodepb.History{Above: above}}})
		if err != nil || (gone{a.LostUpTo, a.LostUntilNs}) != want {
			t.Errorf("above %d: %v, %v", above, a, err)
		}
	}
	for epoch, want := range map[uint64]string{5: "forgotten", 6: "unknown"} {
		b := good()
		b.Key.JobId, b.Key.Epoch = uint32(epoch), epoch
		_, err := r.fail(t.Context(), &nodepb.Request{What: &nodepb.Request_Fail{Fail: &nodepb.Fail{Bundle: b,
			Exit: &pb.ExitRecord{Key: b.Key, Verdict: "unknown"}}}})
		if got := r.known[agent.KeyOf(b.Key)].rep.GetExit().GetVerdict(); err != nil || got != want {
			t.Errorf("epoch %d: %s, %v", epoch, got, err)
		}
	}
}

// TestEndedHere: an attempt that has ended and was forgotten is not launched by a later daemon, whoever orders it, and who is told that it
// is unknown here is told what it came to.
func TestEndedHere(t *testing.T) {
	r := newRoot(t, newNoSteps(), policy.Policy{})
	b := good()
	x := &pb.ExitRecord{Key: b.Key, Verdict: "exited", EndNs: 9}
	if err := r.past.add(x, ofJob); err != nil {
		t.Fatal(err)
	}
	a, err := r.launch(t.Context(), &nodepb.Request{What: &nodepb.Request_Launch{Launch: &nodepb.Launch{Bundle: b}}})
	if err == nil || !a.GetRefused() {
		t.Errorf("it was launched: %v, %v", a, err)
	}
	_, err = r.fail(t.Context(), &nodepb.Request{What: &nodepb.Request_Fail{Fail: &nodepb.Fail{Bundle: b,
		Exit: &pb.ExitRecord{Key: b.Key, Verdict: "unknown"}}}})
	if got := r.known[agent.KeyOf(b.Key)].rep.GetExit(); err != nil || !proto.Equal(got, x) {
		t.Errorf("%v, %v", got, err)
	}
}
