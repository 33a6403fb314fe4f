package reactor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// flood submits held jobs of a user until one is refused, most times at most, and returns how many there were and the refusal.
func (b *bench) flood(uid uint32, most int) (n int, p *pb.Problem) {
	b.t.Helper()
	for n < most {
		j, p := admit.Job(b.view, &pb.JobSpec{Uid: uid, User: fmt.Sprint("u", uid), Hold: true}, "")
		if p != nil {
			b.t.Fatal(p)
		}
		if p, ok := b.do(Submit{Job: j, Layout: b.view.Layout}).(*pb.Problem); ok {
			return n, p
		}
		n++
	}
	return n, nil
}

// TestNobodyTakesTheWholeTable: MaxJobCount is far below the limit per user. A new user still finds room, and root always does. Once
// everything has been cancelled, new jobs do not wait for MinJobAge.
func TestNobodyTakesTheWholeTable(t *testing.T) {
	const most = 200
	b := newBench(t, func(s *state.Settings) { s.MaxJobCount, s.MaxJobsPerUser = most, 20_000 })
	var got []int
	for uid := range uint32(4) {
		n, p := b.flood(1000+uid, 2*most)
		if p == nil || p.Code != uint32(pb.CodeQueueFull) ||
			p.GetPhrase() != "Slurm temporarily unable to accept job, sleeping and retrying" ||
			!strings.Contains(p.Error(), "MaxJobCount=200 (slurm.conf)") || p.Hint == "" {
			t.Fatalf("user %d is refused with %v", uid, p)
		}
		got = append(got, n)
	}
	if fmt.Sprint(got) != "[150 38 9 3]" { // three quarters of what is left, each time
		t.Errorf("the users got %v of %d places", got, most)
	}
	if n, p := b.flood(0, 2*most); n != 20 || p == nil || !strings.Contains(p.Error(), "a tenth more") {
		t.Errorf("root got %d places beyond MaxJobCount, and %v", n, p)
	}
	for j := range b.view.Jobs.All() {
		b.do(Cancel{Caller: root, IDs: []string{fmt.Sprint(j.Id)}})
	}
	if n, _ := b.flood(1000, most); n != 150 {
		t.Errorf("after an administrator has cancelled everything, a user got %d places, not 150", n)
	}
	first := uint32(0)
	for j := range b.view.Jobs.All() {
		first = j.Id
		break
	}
	if out := outcomesOf(b.do(Control{Caller: Caller{UID: 1000}, Verb: "requeue",
		IDs: []string{fmt.Sprint(first)}})); !strings.Contains(out,
		"Job violates accounting/QOS policy") {
		t.Errorf("a cancelled job is requeued past the share: %s", out)
	}
	before := b.view.Jobs.Len()
	b.now += requestMemoryNS + 1
	b.do(Tick{Purge: true})
	if n := b.view.Jobs.Len(); n != 150 || before <= most {
		t.Errorf("%d records, of which %d are left though only 150 are active: %d ended without having run", before, n, before-150)
	}
}

// TestJobsThatRanKeepTheirPlace until MinJobAge has passed, however full the table is: squeue and scontrol show them as in Slurm.
func TestJobsThatRanKeepTheirPlace(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.MaxJobCount = 4 })
	id := b.submit(&pb.JobSpec{NumTasks: 1})
	b.start(id, "n1")
	b.ended(id, "n1", "exited", 0)
	if n, p := b.flood(alice.UID, 4); n != 2 || p == nil {
		t.Errorf("beside a job that has run there is room for %d, %v", n, p)
	}
	if n, _ := b.flood(0, 30); n != 17 { // of 4 places and 16 for root 3 are taken
		t.Errorf("root got %d", n)
	}
	b.now += 200e9
	b.do(Tick{Purge: true})
	if b.view.Jobs.Get(id) == nil {
		t.Error("a job that ran was forgotten before MinJobAge")
	}
}

// TestRootSplitsArraysOfAFullTable: an operator's commands on a user's array need records, too.
func TestRootSplitsArraysOfAFullTable(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.MaxJobCount = 2 })
	arr := b.submit(&pb.JobSpec{Array: "0-9"})
	for i, c := range []struct {
		who  Caller
		want string
	}{{alice, ""}, {alice, "Job violates accounting/QOS policy"}, {root, ""}} {
		id := fmt.Sprintf("%d_%d", arr, i)
		if out := outcomesOf(b.do(Control{Caller: c.who, Verb: "hold", IDs: []string{id}})); !strings.Contains(out, c.want) ||
			c.want == "" && out != id {
			t.Errorf("%s by uid %d: %q", id, c.who.UID, out)
		}
	}
}
