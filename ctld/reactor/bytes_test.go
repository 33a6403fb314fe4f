package reactor

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// noisy is a script that does not become smaller.
func noisy(size int, seed byte) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// send submits a held job with a script.
func (b *bench) send(spec *pb.JobSpec, script []byte) any {
	b.t.Helper()
	spec.Hold = true
	j, p := admit.Job(b.view, spec, "")
	if p != nil {
		b.t.Fatal(p)
	}
	texts, err := state.PackTexts(spec.Uid, script, []string{"A=b"})
	if err != nil {
		b.t.Fatal(err)
	}
	return b.do(Submit{Job: j, Texts: texts, Layout: b.view.Layout})
}

// held returns the bytes that a user holds in the state.
func (b *bench) held(uid uint32) int64 { return state.Begin(b.view, b.now).UserBytes(uid) }

func quota(mib int64) func(*state.Settings) {
	return func(s *state.Settings) { s.MaxUserBytes, s.MaxArraySize = mib<<20, 100_001 }
}

// refusedFor checks a refusal for what a user holds.
func (b *bench) refusedFor(what string, reply any) {
	b.t.Helper()
	p, ok := reply.(*pb.Problem)
	if !ok || p.Code != uint32(pb.CodeAccountingPolicy) || !strings.Contains(p.Error(), "8.0 MiB are allowed (max_user_state") ||
		p.Hint == "" {
		b.t.Errorf("%s: %v", what, reply)
	}
}

// TestBytesOfAUser: one user cannot fill the disk with scripts. Equal scripts count once, forgotten ones no more. Root and other users are
// not affected.
func TestBytesOfAUser(t *testing.T) {
	b := newBench(t, quota(8))
	me := func() *pb.JobSpec { return &pb.JobSpec{Uid: 7, User: "me", Name: "j"} }
	var reply any
	n := byte(0)
	for ; n < 20; n++ {
		if reply = b.send(me(), noisy(1<<20, n)); reply == nil {
			t.Fatal("no answer")
		}
		if _, refused := reply.(*pb.Problem); refused {
			break
		}
	}
	if b.refusedFor("the eighth MiB", reply); n != 7 {
		t.Errorf("%d scripts of 1 MiB fit into 8 MiB", n)
	}
	for range 50 {
		if r, ok := b.send(me(), noisy(1<<20, 3)).(Submitted); !ok {
			t.Fatalf("a script that the user has already: %v", r)
		}
	}
	for _, other := range []uint32{0, 8} {
		if r, ok := b.send(&pb.JobSpec{Uid: other}, noisy(1<<20, 30)).(Submitted); !ok {
			t.Errorf("uid %d: %v", other, r)
		}
	}
	for j := range b.view.Jobs.All() {
		b.do(Cancel{Caller: root, IDs: []string{fmt.Sprint(j.Id)}})
	}
	b.refusedFor("jobs that have just ended are on the disk", b.send(me(), noisy(1<<20, 40)))
	b.now += 1000e9
	b.do(Tick{Purge: true})
	if n := b.held(7); n != 0 {
		t.Errorf("%d bytes are left of jobs that were forgotten", n)
	}
	if r, ok := b.send(me(), noisy(1<<20, 40)).(Submitted); !ok {
		t.Errorf("when the jobs have been forgotten: %v", r)
	}
}

// TestBytesOfEverythingElse: arguments, arrays that repeat them, additions by updates, parts of an array, and the crontab count as well.
func TestBytesOfEverythingElse(t *testing.T) {
	b := newBench(t, quota(8))
	long := []string{strings.Repeat("a", 400<<10)}
	b.refusedFor("an array with long arguments", b.send(&pb.JobSpec{Uid: 7, Args: long, Array: "0-99"}, []byte("x")))
	if r, ok := b.send(&pb.JobSpec{Uid: 7, Array: "0-99999"}, []byte("x")).(Submitted); !ok {
		t.Errorf("a large array without: %v", r)
	}
	var last Submitted
	for range 100 {
		r, ok := b.send(&pb.JobSpec{Uid: 7, Args: long}, []byte("x")).(Submitted)
		if !ok {
			break
		}
		last = r
	}
	b.refusedFor("arguments", b.send(&pb.JobSpec{Uid: 7, Args: long}, []byte("x")))
	for i := range 100 { // up to the last KiB
		if _, ok := b.send(&pb.JobSpec{Uid: 7, Comment: strings.Repeat("c", max(60<<10-i<<10, 0))}, []byte("x")).(Submitted); !ok {
			break
		}
	}
	me := Caller{UID: 7}
	set := []*pb.KeyValue{{Key: "comment", Value: strings.Repeat("c", 60<<10)}}
	for _, c := range []struct {
		who  Caller
		full bool
	}{{me, true}, {root, false}} {
		out := outcomesOf(b.do(UpdateJob{Caller: c.who, IDs: []string{fmt.Sprint(last.ID)}, Set: set}))
		if strings.Contains(out, "violates") != c.full {
			t.Errorf("an update by uid %d: %s", c.who.UID, out)
		}
	}
	if out := outcomesOf(b.do(Control{Caller: me, Verb: "release", IDs: []string{"1_5"}})); !strings.Contains(out, "violates") {
		t.Errorf("a part of an array becomes a record: %s", out)
	}
	tab := UpdateCrontab{Caller: me, UID: 7, User: "me", Text: "* * * * * x\n", Jobs: []CronJob{cronJob("* * * * *", "n", 1)}}
	b.refusedFor("a crontab", b.do(tab))
	tab.Caller = root
	if r, ok := b.do(tab).(*pb.CrontabRecord); !ok {
		t.Errorf("a crontab that root writes: %v", r)
	}
	before := b.held(7)
	b.view.Reindex()
	if after := b.held(7); after != before || before < 8<<20 {
		t.Errorf("%d bytes are counted, anew %d", before, after)
	}
}
