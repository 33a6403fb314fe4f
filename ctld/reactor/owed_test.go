package reactor

import (
	"fmt"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// waiters is a state in which many jobs wait for one, and tasks of an array for those of another.
func waiters(t *testing.T, n int) *bench {
	b := newBench(t, func(s *state.Settings) { s.MaxJobsPerUser, s.MaxArraySize, s.MaxJobCount = 0, 100001, 100000 })
	b.submit(&pb.JobSpec{Name: "first", Uid: alice.UID})
	b.submit(&pb.JobSpec{Name: "array", Uid: alice.UID, Array: "0-99"})
	b.submit(&pb.JobSpec{Name: "corr", Uid: bob.UID, Array: "0-99", Dependency: "aftercorr:2"})
	tx := state.Begin(b.view, b.now)
	for i := range n {
		on := "afterany:1"
		if i%3 == 0 {
			on = "afterany:1,afterany:2"
		}
		s := &pb.JobSpec{Name: "w", Uid: bob.UID, Dependency: on}
		if i%3 == 1 {
			s.Dependency, s.KillOnInvalidDep = "afterok:1", pb.Yes
		}
		if p, ok := (Submit{Job: &pb.JobRecord{Spec: s, Partition: "debug", Reason: "None"}}).Handle(tx).(*pb.Problem); ok {
			t.Fatal(p)
		}
	}
	Follow(tx, 0)
	b.view, _ = tx.Freeze()
	b.followUp()
	return b
}

// The consequences of the end of a job that thousands wait for take many short turns, with the same result as in one.
func TestThousandsWaitForOne(t *testing.T) {
	const n = 2000
	b := waiters(t, n)
	_, _, turns := b.spend(t, Cancel{Caller: alice, IDs: []string{"1", "2"}})
	if least := n * state.UnitsOfEvent / maxSlice; turns < least {
		t.Errorf("%d turns, at least %d were expected", turns, least)
	}
	b.waitersDone(t, 0)
}

// waitersDone checks that every job that waited for the cancelled jobs has been updated; forgotten of those that ended are gone.
func (b *bench) waitersDone(t *testing.T, forgotten int) {
	t.Helper()
	count := map[string]int{}
	for j := range b.view.Jobs.All() {
		if j.Id > 3 || j.ArrayJobId == 3 {
			count[j.Spec.Dependency+" "+b.state(j.Id)]++
		}
	}
	for want, n := range map[string]int{"afterany:1 PENDING None": 666, "afterany:1,afterany:2 PENDING None": 667,
		"afterok:1 CANCELLED DependencyNeverSatisfied": 667 - forgotten} {
		if count[want] != n {
			t.Errorf("%d jobs are %q, want %d: %v", count[want], want, n, count)
		}
	}
	for j := range b.view.Jobs.All() {
		if j.ArrayJobId == 3 && j.Reason != "DependencyNeverSatisfied" {
			t.Errorf("%s: %s", state.JobName(j), b.state(j.Id))
		}
	}
}

// The work left to later turns survives the loss of the index at any of these turns: a refused commit or a start rebuilds it. Jobs that
// others still wait for are not forgotten meanwhile, and nothing is left in the end.
func TestOwedLooksSurvive(t *testing.T) {
	b := waiters(t, 2000)
	b.slice(Cancel{Caller: alice, IDs: []string{"1", "2"}})
	forgotten := 0 // soon: what the first turn has ended
	for j := range b.view.Jobs.All() {
		if j.Spec.Dependency == "afterok:1" && !state.Active(j) {
			forgotten++
		}
	}
	b.now += 3600e9
	for turn := 0; b.view.Owing(); turn++ {
		if turn > 1000 {
			t.Fatal("this does not end")
		}
		tx := state.Begin(b.view, b.now)
		Tick{Purge: true}.Handle(tx)
		b.view, _ = tx.Freeze()
		if b.view.Owing() && b.view.Jobs.Get(1) == nil {
			t.Fatal("the job was forgotten before all that wait for it have learnt of its end")
		}
		if turn%3 == 2 {
			b.view.Reindex()
		}
		b.slice(FollowUp{})
		if turn%3 == 1 && b.view.Owing() { // of a turn whose commit is refused nothing is left
			tx := state.Begin(b.view, b.now)
			FollowUp{}.Handle(tx)
			b.view.Reindex()
		}
	}
	b.waitersDone(t, forgotten)
}

// The limit of an array's tasks is given to thousands of records, ended ones too, in many turns; of two commands the later one's is that of
// all, also when their turns alternate, or the controller is killed between two of them.
func TestThrottleInSlices(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.MaxJobsPerUser, s.MaxArraySize, s.MaxJobCount = 0, 100001, 100000 })
	b.submit(&pb.JobSpec{Name: "a", Uid: alice.UID, Array: "0-1999"})
	var ids []string
	for i := range 1500 {
		ids = append(ids, fmt.Sprintf("1_%d", i))
	}
	b.spend(t, Control{Caller: alice, Verb: "hold", IDs: ids})
	b.spend(t, Cancel{Caller: alice, IDs: ids[:700]})
	set := func(id, value string) Command {
		return UpdateJob{Caller: alice, IDs: []string{id}, Set: []*pb.KeyValue{{Key: "ArrayTaskThrottle", Value: value}}}
	}
	all := func(want uint32) {
		t.Helper()
		for j := range b.view.Jobs.All() {
			if j.ArrayThrottle != want {
				t.Errorf("the limit of %s is %d, want %d", state.JobName(j), j.ArrayThrottle, want)
				return
			}
		}
	}
	for _, id := range []string{"1_900", "1"} {
		reply, _, turns := b.spend(t, set(id, "7"))
		if len(reply.(Outcomes).List) != 1 || reply.(Outcomes).List[0].Problem != nil || id == "1_900" && turns < 5 {
			t.Errorf("%s: %v in %d turns", id, reply, turns)
		}
		all(7)
	}
	for _, alternate := range []string{"abbbbbbbbbbbbbbb", "aaaabaaaaaaaaaaaaa", "abababababab", "aaabaabbbbaaabbb"} {
		now := map[rune]Command{'a': set("1", "3"), 'b': set("1_1000", "5")}
		for i := 0; len(now) > 0; i++ {
			who := rune(alternate[i%len(alternate)])
			if now[who] == nil {
				continue
			}
			if more, ok := b.slice(now[who]).(More); ok {
				now[who] = more.Next
			} else {
				delete(now, who)
			}
		}
		all(5)
	}
	if _, ok := b.slice(set("1", "9")).(More); !ok { // and then the controller is killed
		t.Fatal("this takes one turn")
	}
	b.view.Reindex() // what a start does: nobody repeats the command
	b.followUp()
	all(9)
	b.slice(set("1_900", "0"))
	b.view.Reindex()
	b.slice(FollowUp{})
	if !b.view.Owing() {
		t.Error("this takes one turn")
	}
	b.spend(t, set("1", "4")) // while it is finished
	b.followUp()
	all(4)
}
