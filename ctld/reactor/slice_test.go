package reactor

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"pgregory.net/rapid"
)

// The most that a slice may cost: its share, the share of its consequences, and the record in progress, which may split into jobid.MaxSpans
// pieces. A unit is about a microsecond (BenchmarkUnits), so this is far below 50 ms even on a machine that is five times slower.
const (
	maxSlice      = SliceUnits + SliceUnits/2 + maxPieces/8
	maxSliceBytes = 16 << 20
)

// spend carries out a command in slices as the loop does, each with its own commit. It fails if a slice costs too many units or allocates
// too much memory; the memory would show a cost that the units leave out.
func (b *bench) spend(t rapid.TB, cmd Command) (reply any, units, slices int) {
	t.Helper()
	for {
		tx := state.Begin(b.view, b.now)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		reply = cmd.Handle(tx)
		runtime.ReadMemStats(&after)
		Follow(tx, 0)
		b.view, _ = tx.Freeze()
		units, slices = units+tx.Spent(), slices+1
		if n := tx.Spent(); n > maxSlice {
			t.Fatalf("a slice of %T costs %d units, more than %d", cmd, n, maxSlice)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > maxSliceBytes {
			t.Fatalf("a slice of %T allocates %d MiB", cmd, n>>20)
		}
		more, ok := reply.(More)
		if !ok && b.view.Owing() {
			more.Next, ok = FollowUp{}, true
			if _, following := cmd.(FollowUp); !following {
				defer func(first any) { reply = first }(reply)
			}
		}
		if !ok {
			return reply, units, slices
		}
		if cmd = more.Next; slices > 10000 {
			t.Fatalf("%T does not end", cmd)
		}
	}
}

// crowded is a state with arrays of two users, split in many ways, and plain jobs. It fits what one user may have.
func crowded(t *testing.T) *bench {
	b := newBench(t, func(s *state.Settings) { s.MaxJobsPerUser, s.MaxArraySize = 20000, 100001 })
	b.submit(&pb.JobSpec{Name: "a", Uid: alice.UID, Array: "0-999"})
	b.submit(&pb.JobSpec{Name: "b", Uid: bob.UID, Array: "0-999"})
	b.submit(&pb.JobSpec{Name: "a", Uid: alice.UID, Array: "0-100000"})
	for range 50 {
		b.submit(&pb.JobSpec{Name: "p", Uid: alice.UID})
	}
	for _, c := range []Caller{alice, bob} { // parts that stand for several tasks, and single tasks
		var ids []string
		for i := 0; i < 300; i += 3 {
			ids = append(ids, fmt.Sprintf("%d_[%d,%d]", c.UID-alice.UID+1, i, i+1), fmt.Sprintf("%d_%d", c.UID-alice.UID+1, i+600))
		}
		b.spend(t, Control{Caller: c, Verb: "hold", IDs: ids})
	}
	return b
}

// A user without rights on an array could name it thousands of times. The owner is checked first, so each name costs no more than that.
func TestForeignArraysCostNothing(t *testing.T) {
	b := crowded(t)
	var ids []string
	for i := range 6000 {
		ids = append(ids, fmt.Sprintf("2_[%d-%d:2]", i%3, 998-2*(i/3)%900))
	}
	text := strings.Join(ids, ",")
	for _, cmd := range []Command{Cancel{Caller: alice, IDs: ids}, Control{Caller: alice, Verb: "hold", IDs: ids},
		UpdateJob{Caller: alice, IDs: ids, Set: []*pb.KeyValue{{Key: "Comment", Value: "x"}}},
		Cancel{Caller: alice, IDs: ids, Match: func(*pb.JobRecord) bool { return true }}} {
		reply, units, _ := b.spend(t, cmd)
		out := reply.(Outcomes).List
		if len(out) != len(ids) || slices.ContainsFunc(out, func(o *pb.JobOutcome) bool { return o.Problem == nil }) {
			t.Errorf("%T: %d outcomes of %d ids", cmd, len(out), len(ids))
		}
		if most := 4*len(ids) + len(text)/8; units > most {
			t.Errorf("%T on %d ids of somebody else costs %d units, more than %d", cmd, len(ids), units, most)
		}
	}
	if n := len(b.view.Jobs.Get(2).ArrayTasks); n == 0 || state.ArraySet(b.view.Jobs.Get(2)).Count() != 1000-200-100 {
		t.Errorf("the array was changed: %s", b.view.Jobs.Get(2).ArrayTasks)
	}
}

// No request, however long its lists, takes more than its share of a turn, or unbounded memory.
func TestNoRequestCostsMoreThanItsShare(t *testing.T) {
	full := crowded(t)
	rapid.Check(t, func(t *rapid.T) {
		b := &bench{view: full.view, now: full.now}
		defer full.view.Reindex() // which views share
		word := rapid.Custom(func(t *rapid.T) string {
			array := rapid.SampledFrom([]int{1, 1, 2, 3, 3, 5, 9999}).Draw(t, "array")
			first := rapid.SampledFrom([]int{0, 1, 500, 997, 99000, 1 << 23}).Draw(t, "first")
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0:
				return fmt.Sprint(array)
			case 1:
				return fmt.Sprintf("%d_%d", array, first)
			case 2:
				return fmt.Sprintf("%d_[%d-%d]", array, first, first+rapid.IntRange(0, 100000).Draw(t, "more"))
			case 3:
				return fmt.Sprintf("%d.%d", array, first)
			case 4:
				return fmt.Sprintf("%d_*", array)
			}
			return fmt.Sprintf("%d_[%d-%d:%d]", array, first, first+rapid.IntRange(0, 100000).Draw(t, "more"),
				rapid.IntRange(2, 5).Draw(t, "step"))
		})
		ids := rapid.SliceOfN(word, 1, 40).Draw(t, "ids")
		for n := rapid.IntRange(1, 20).Draw(t, "copies"); n > 1; n-- { // what nobody has taken for the same
			ids = append(ids, rapid.SampledFrom(ids).Draw(t, "copy")+".")
		}
		for i := range ids {
			ids[i] = strings.TrimSuffix(ids[i], ".")
		}
		c := rapid.SampledFrom([]Caller{alice, bob, root, {UID: 77}}).Draw(t, "caller")
		var cmd Command
		switch rapid.IntRange(0, 4).Draw(t, "verb") {
		case 0:
			cmd = Cancel{Caller: c, IDs: ids}
		case 1:
			cmd = Cancel{Caller: c, IDs: ids, Signal: 10}
		case 2:
			cmd = Cancel{Caller: c, IDs: ids, Match: func(j *pb.JobRecord) bool { return j.Id%2 == 0 }}
		case 3:
			cmd = Control{Caller: c, IDs: ids, Verb: rapid.SampledFrom([]string{"hold", "release", "requeue", "suspend"}).Draw(t,
				"control")}
		default:
			cmd = UpdateJob{Caller: c, IDs: ids, Set: []*pb.KeyValue{{Key: rapid.SampledFrom([]string{"Comment", "ArrayTaskThrottle",
				"TimeLimit"}).Draw(t, "key"), Value: "7"}}}
		}
		reply, _, _ := b.spend(t, cmd)
		bytes := 0
		for _, o := range reply.(Outcomes).List {
			bytes += len(o.Id) + len(o.GetProblem().GetDetail())
		}
		if bytes > maxOutcomeBytes {
			t.Fatalf("the answer has %d bytes", bytes)
		}
	})
}

// A command in slices does to each record what it would have done in one, also when tasks start between the slices.
func TestTasksThatStartBetweenSlices(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.MaxJobsPerUser, s.MaxArraySize = 20000, 1001 })
	array := b.submit(&pb.JobSpec{Name: "a", Uid: alice.UID, Array: "0-999"})
	var ids []string
	for i := range 400 {
		ids = append(ids, fmt.Sprintf("%d_%d", array, 999-i))
	}
	b.do(Control{Caller: alice, Verb: "hold", IDs: ids}) // 400 records of their own
	reply := b.slice(Control{Caller: alice, Verb: "requeue", IDs: []string{fmt.Sprint(array)}})
	if _, ok := reply.(More); ok {
		t.Fatal("refusals are dear")
	}
	// All of the array is cancelled. The record of the tasks that wait comes last here: it is the array's own id that is split off.
	cmd := Command(Cancel{Caller: alice, IDs: []string{fmt.Sprintf("%d_[0-999]", array)}})
	started := 0
	for {
		more, ok := b.slice(cmd).(More)
		if !ok {
			break
		}
		cmd = more.Next
		if j := b.job(array); state.Pending(j) && j.ArrayTasks != "" && started < 3 {
			task, _ := state.ArraySet(j).Min()
			b.startTask(array, task, "n1")
			started++
		}
	}
	for j := range b.view.Jobs.All() {
		if state.Active(j) && j.StopReason != "cancel" {
			t.Errorf("%s is %s", state.JobName(j), state.StateName(j))
		}
	}
}

// An array that would fall into more pieces than a record may have is not split.
func TestPiecesAreBounded(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.MaxJobsPerUser, s.MaxArraySize = 20000, 4000001 })
	array := b.submit(&pb.JobSpec{Name: "a", Uid: alice.UID, Array: "0-3999999"})
	name := func(text string) []string { return []string{fmt.Sprintf("%d_[%s]", array, text)} }
	if reply, _, _ := b.spend(t, Cancel{Caller: alice, IDs: name("0-3999998:2")}); firstProblem(reply.(Outcomes).List) == nil {
		t.Error("two million pieces were cut")
	}
	for i, ok := range []bool{true, false, false} { // a piece that is taken out counts, and so does what is left beside it
		text := fmt.Sprintf("%d-%d:2", i*100000, i*100000+40000)
		reply, _, _ := b.spend(t, Control{Caller: alice, Verb: "hold", IDs: name(text)})
		if p := firstProblem(reply.(Outcomes).List); (p == nil) != ok || p != nil && !strings.Contains(p.Error(), fmt.Sprint(maxPieces)) {
			t.Errorf("%s: %v", text, p)
		}
	}
	if j := b.job(array); state.ArraySet(j).Count() != 4000000-20001 {
		t.Errorf("%d tasks are left", state.ArraySet(j).Count())
	}
	if p := (Submit{Job: &pb.JobRecord{Spec: &pb.JobSpec{Uid: 1000, User: "u", Array: "0-3999998:2"},
		Partition: "debug"}}).Handle(state.Begin(b.view,
		b.now)); !strings.Contains(fmt.Sprint(p), "2000000 separate") {
		t.Errorf("an array of two million pieces is accepted: %v", p)
	}
}

// BenchmarkUnits says what a unit takes: the commands that a user may send, over what they spend.
func BenchmarkUnits(bm *testing.B) {
	t := &testing.T{}
	full := crowded(t)
	for name, cmd := range map[string]Command{
		"hold":     Control{Caller: alice, Verb: "hold", IDs: []string{"1"}},
		"cancel":   Cancel{Caller: alice, IDs: []string{"1"}},
		"foreign":  Cancel{Caller: alice, IDs: slices.Repeat([]string{"2_[0-998:2]"}, 1000)},
		"stepped":  Control{Caller: alice, Verb: "uhold", IDs: slices.Repeat([]string{"1_[0-998:2]"}, 20)},
		"comment":  UpdateJob{Caller: alice, IDs: []string{"1"}, Set: []*pb.KeyValue{{Key: "Comment", Value: "x"}}},
		"limit":    UpdateJob{Caller: alice, IDs: []string{"1"}, Set: []*pb.KeyValue{{Key: "TimeLimit", Value: "7"}}},
		"throttle": UpdateJob{Caller: alice, IDs: []string{"1"}, Set: []*pb.KeyValue{{Key: "ArrayTaskThrottle", Value: "7"}}},
	} {
		bm.Run(name, func(bm *testing.B) {
			units := 0
			for bm.Loop() {
				b := &bench{view: full.view, now: full.now}
				_, n, _ := b.spend(t, cmd)
				units += n
				bm.StopTimer()
				full.view.Reindex()
				bm.StartTimer()
			}
			bm.ReportMetric(float64(bm.Elapsed().Nanoseconds())/float64(max(units, 1)), "ns/unit")
		})
	}
}
