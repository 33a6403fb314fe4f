package loop

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"pgregory.net/rapid"
)

// numbered is a command that can be told from others.
type numbered struct {
	reactor.Command
	n int
}

// For any senders and any costs: everything is served, and each sender's commands keep their order. While two users, or two kinds of
// senders, both have commands waiting, neither gets more than the other by more than two commands of the largest cost.
func TestTurnsAreFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const dearest = 1000
		b := newMailbox()
		var senders []sender
		for uid := range uint32(rapid.IntRange(1, 5).Draw(t, "users")) {
			senders = append(senders, sender{who: Users, uid: uid})
		}
		for n := range rapid.IntRange(1, 5).Draw(t, "nodes") {
			senders = append(senders, sender{who: Nodes, node: fmt.Sprint("n", n)})
		}
		senders = append(senders, sender{who: Controller}, sender{who: Operators})
		sent, served := map[sender][]int{}, map[sender][]int{}
		got, since := map[sender]int{}, map[sender]map[sender]int{} // since: what each had when both began to wait together
		waits := func(s sender) bool { return len(sent[s]) > len(served[s]) }
		rank := func(s sender) Who { return s.who }
		pairs := func(f func(a, b sender)) {
			for i, x := range senders {
				for _, y := range senders[i+1:] {
					if rank(x) == rank(y) {
						f(x, y)
					}
				}
			}
		}
		begin := func() {
			pairs(func(x, y sender) {
				if since[x] == nil {
					since[x] = map[sender]int{}
				}
				if waits(x) && waits(y) {
					if _, ok := since[x][y]; !ok {
						since[x][y] = got[x] - got[y]
					}
				} else {
					delete(since[x], y)
				}
			})
		}
		number := 0
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "put") {
				s := rapid.SampledFrom(senders).Draw(t, "sender")
				for range rapid.IntRange(1, 10).Draw(t, "burst") {
					number++
					if !b.put(s, request{cmd: numbered{n: number}}) {
						t.Fatal("refused")
					}
					sent[s] = append(sent[s], number)
				}
				begin()
				continue
			}
			r, ok := b.next()
			if ok != slices.ContainsFunc(senders, waits) {
				t.Fatalf("next gives %v", ok)
			}
			if !ok {
				continue
			}
			served[r.from] = append(served[r.from], r.cmd.(numbered).n)
			cost := rapid.IntRange(0, dearest).Draw(t, "cost")
			b.charge(r.from, cost)
			got[r.from] += cost + perCommand
			pairs(func(x, y sender) {
				if at, ok := since[x][y]; ok {
					if d := got[x] - got[y] - at; d > 2*(dearest+perCommand) || -d > 2*(dearest+perCommand) {
						t.Fatalf("%v and %v waited together, and one got %d more", x, y, d)
					}
				}
			})
			begin()
		}
		for {
			r, ok := b.next()
			if !ok {
				break
			}
			served[r.from] = append(served[r.from], r.cmd.(numbered).n)
			b.charge(r.from, 1)
		}
		for s, list := range sent {
			if !slices.Equal(served[s], list) {
				t.Fatalf("%v sent %v, and was served %v", s, list, served[s])
			}
		}
		if n := b.waiting(); n != 0 {
			t.Fatalf("%d left", n)
		}
	})
}

// A crowd of users with more than the writer can do leaves nodes, the planner and root a quarter of it each.
func TestUsersDoNotStarveTheCluster(t *testing.T) {
	b := newMailbox()
	for uid := range uint32(50) {
		for range 100 {
			b.put(sender{who: Users, uid: uid}, request{})
		}
	}
	for _, who := range []Who{Controller, Nodes, Operators} {
		for range 200 {
			b.put(sender{who: who}, request{})
		}
	}
	served, uids := map[Who]int{}, map[uint32]int{}
	for range 400 {
		r, _ := b.next()
		served[r.from.who]++
		if r.from.who == Users {
			uids[r.from.uid]++
		}
		b.charge(r.from, 100)
	}
	for who := range kinds {
		if n := served[who]; n < 99 || n > 101 {
			t.Errorf("kind %d was served %d times of 400", who, n)
		}
	}
	for uid := range uint32(50) {
		if uids[uid] != 2 {
			t.Errorf("user %d was served %d times, want 2", uid, uids[uid])
		}
	}
}

// One user does not fill the mailbox, nor do many, and neither do nodes: there is room for another's command, and always for those of root
// and the controller.
func TestRoomForAnother(t *testing.T) {
	b := newMailbox()
	for _, of := range []func(int) sender{
		func(i int) sender { return sender{who: Users, uid: uint32(i)} },
		func(i int) sender { return sender{who: Nodes, node: fmt.Sprint("n", i)} },
	} {
		fill := func(i int) (n int) {
			for b.put(of(i), request{}) {
				n++
			}
			return n
		}
		if n := fill(0); n > laneSize/2+1 {
			t.Errorf("%v has %d of %d places", of(0), n, laneSize)
		}
		for i := range 1000 {
			if n := fill(i + 1); n == 0 {
				t.Fatalf("no room for %v", of(i+1))
			}
		}
	}
	for _, who := range []Who{Controller, Operators} {
		if !b.put(sender{who: who}, request{}) {
			t.Errorf("no room for kind %d", who)
		}
	}
}

// TestAFloodOfOneNode: a node that has always something waiting leaves every other one its turn: each command of another is served after at
// most one of the flood's.
func TestAFloodOfOneNode(t *testing.T) {
	b := newMailbox()
	for range 5000 {
		b.put(sender{who: Nodes, node: "flood"}, request{})
	}
	b.put(sender{who: Users, uid: 1}, request{})
	for i := range 100 {
		other := sender{who: Nodes, node: fmt.Sprint("n", i)}
		b.put(other, request{})
		for turns := 0; ; turns++ {
			r, _ := b.next()
			b.charge(r.from, 100)
			if r.from == other {
				break
			}
			if turns == 2 && i > 0 { // at first one user's command as well
				t.Fatalf("%v waits for %d commands of others", other, turns+1)
			}
		}
	}
}

// A command on thousands of jobs is carried out in slices, with other senders served in between. It has one answer, which lists all jobs.
func TestLongCommandsLetOthersIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs = 2000
		store := &gated{journal.NewMemory(), make(chan journal.Batch), make(chan struct{})}
		l := newLoop(store)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		commits := 0
		pass := func() {
			<-store.entered
			commits++
			store.let <- struct{}{}
		}
		do := func(uid uint32, cmd reactor.Command) chan any {
			done := make(chan any, 1)
			go func() {
				out, err := l.Do(For(ctx, Users, uid), cmd)
				if err != nil {
					out = err
				}
				done <- out
			}()
			synctest.Wait()
			return done
		}
		var ids []string
		for i := range jobs {
			done := do(1000, submission(fmt.Sprint(i)))
			pass()
			ids = append(ids, fmt.Sprint((<-done).(reactor.Submitted).ID))
		}
		commits = 0
		long := do(1000, reactor.Cancel{Caller: reactor.Caller{UID: 1000}, IDs: ids})
		other := do(1001, submission("other"))
		for len(other) == 0 {
			pass()
			synctest.Wait()
			if commits > 3 {
				t.Fatal("another user waits for more than three slices")
			}
		}
		if len(long) > 0 {
			t.Fatal("all was done in one slice")
		}
		for len(long) == 0 {
			pass()
			synctest.Wait()
		}
		out := (<-long).(reactor.Outcomes)
		if refused := slices.ContainsFunc(out.List, func(o *pb.JobOutcome) bool { return o.Problem != nil }); len(out.List) != jobs ||
			refused {
			t.Errorf("%d outcomes, some refused: %v", len(out.List), refused)
		}
		most := jobs*40/reactor.SliceUnits + 2
		if least := jobs * 20 / reactor.SliceUnits; commits < least || commits > most {
			t.Errorf("%d jobs took %d commits, want %d to %d", jobs, commits, least, most)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
