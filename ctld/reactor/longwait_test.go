package reactor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// endOf ends a job without the events before that, and gives the work that it was, also that of later turns.
func (b *bench) endOf(id uint32) (units, changes int) {
	tx := state.Begin(b.view, b.now)
	done := state.CloneJob(tx.Job(id))
	done.State = pb.JobState_JOB_COMPLETED
	tx.Emit(state.JobEnded{Job: done})
	Follow(tx, 0)
	for {
		units += tx.Spent()
		for _, e := range tx.Events() {
			if _, ok := e.(state.JobChanged); ok {
				changes++
			}
		}
		if b.view, _ = tx.Freeze(); !b.view.Owing() {
			return units, changes
		}
		tx = state.Begin(b.view, b.now)
		FollowUp{}.Handle(tx)
		Follow(tx, 0)
	}
}

// TestLongDependency: a job that depends on as many others as allowed, some of them ended, is released by the last of them. It is not
// evaluated at the end of each, which would cost some 500 million units.
func TestLongDependency(t *testing.T) {
	for name, c := range map[string]struct {
		n, jobs    int
		spec       *pb.JobSpec
		dependency func(id int) string
	}{
		"jobs": {jobid.MaxDependencies, jobid.MaxDependencies, &pb.JobSpec{Name: "one"},
			func(id int) string { return fmt.Sprint(":", id) }},
		"tasks": {8192, 1, &pb.JobSpec{Name: "arr", Array: "0-8191"}, func(id int) string { return fmt.Sprintf(":1_%d", id-1) }},
	} {
		t.Run(name, func(t *testing.T) {
			n := c.n
			b := newBench(t, func(s *state.Settings) { s.MaxJobsPerUser, s.MaxJobCount, s.MaxArraySize = 0, uint32(2*n), uint32(2*n) })
			chain(t, b, c.jobs, func(uint32) *pb.JobSpec { return &pb.JobSpec{Name: c.spec.Name, Array: c.spec.Array} })
			if c.spec.Array != "" { // each of them has a record, as if it had started
				tx := state.Begin(b.view, b.now)
				for task := range uint32(n) {
					ownTask(tx, tx.Job(tx.TaskRecord(1, task)), task)
				}
				b.view, _ = tx.Freeze()
			}
			records := state.Begin(b.view, b.now).ArrayRecords(1)
			text := strings.Builder{}
			text.WriteString("afterok")
			for id := 1; id <= n; id++ {
				text.WriteString(c.dependency(id))
				if c.spec.Array == "" {
					records = append(records, uint32(id))
				}
			}
			for _, id := range records[:n/2] {
				b.endOf(id)
			}
			tx := state.Begin(b.view, b.now)
			r := Submit{Job: &pb.JobRecord{Spec: &pb.JobSpec{Name: "gather", Uid: alice.UID, User: "alice", Dependency: text.String()},
				Partition: "debug", Reason: "None"}}.Handle(tx)
			Follow(tx, 0)
			b.view, _ = tx.Freeze()
			b.followUp()
			gather := r.(Submitted).ID
			units, changes := 0, 0
			for i, id := range records[n/2:] {
				if j := b.job(gather); j.Reason != "Dependency" || j.Dependency == "" {
					t.Fatalf("after %d of %d: %s", n/2+i, n, b.state(gather))
				}
				u, c := b.endOf(id)
				units, changes = units+u, changes+c
			}
			if j := b.job(gather); j.Reason != "None" || j.Dependency != "" || j.DependencyShown != "" {
				t.Errorf("after all: %s %.80s", b.state(gather), j.DependencyShown)
			}
			// the last 1,024 are weighed at each end, the others sixteen times while their number falls by the factor e
			if changes > 1024+16*4 || units > 20e6 {
				t.Errorf("%d changes of the record, %d units", changes, units)
			}
		})
	}
}

// TestLongIsAsShort holds what becomes of dependencies that are judged condition by condition against those that are weighed each time.
func TestLongIsAsShort(t *testing.T) {
	defer func(n int) { state.LongConditions = n }(state.LongConditions)
	kinds := []string{"after", "afterany", "afterok", "afternotok"}
	rapid.Check(t, func(rt *rapid.T) {
		build := func(long int) *bench {
			state.LongConditions = long
			b := newBench(t, func(s *state.Settings) { s.MinJobAgeS, s.MaxArraySize = 1, 1000 })
			b.submit(&pb.JobSpec{Name: "arr", Array: "0-29"})
			for range 20 {
				b.submit(&pb.JobSpec{Name: "one", Requeue: pb.Yes})
			}
			return b
		}
		long, short := build(1), build(1<<20)
		var waiting []uint32
		requeued := false
		both := func(do func(b *bench)) {
			state.LongConditions = 1
			do(long)
			state.LongConditions = 1 << 20
			do(short)
		}
		for range rapid.IntRange(1, 3).Draw(rt, "dependents") {
			var parts []string
			odd := rapid.IntRange(0, 3).Draw(rt, "odd conditions")
			usual := rapid.SampledFrom([]string{"afterany", "afterok", "afterok", "after"}).Draw(rt, "kind")
			for i := range 50 { // of 21 jobs and 29 tasks
				kind := usual
				if i < odd {
					kind = rapid.SampledFrom(kinds).Draw(rt, "odd kind")
				}
				if i < 21 {
					parts = append(parts, fmt.Sprintf("%s:%d", kind, i+1))
				} else {
					parts = append(parts, fmt.Sprintf("%s:1_%d", kind, i-20))
				}
			}
			s := strings.Join(parts, rapid.SampledFrom([]string{",", ",", ",", "?"}).Draw(rt, "by"))
			var id uint32
			both(func(b *bench) { id = b.submit(&pb.JobSpec{Name: "d", Dependency: s}) })
			waiting = append(waiting, id)
		}
		end := func(b *bench, id uint32, exit uint32) {
			if j := b.job(id); j != nil && state.Pending(j) && j.ArrayTasks == "" {
				b.start(id, "n1")
				b.ended(id, "n1", "exited", exit<<8)
			}
		}
		var did []string
		bad := rapid.SampledFrom([]int{0, 1, 40}).Draw(rt, "how many fail")
		for range 150 {
			task, id := rapid.Uint32Range(0, 29).Draw(rt, "task"), rapid.Uint32Range(2, 21).Draw(rt, "id")
			exit := uint32(0)
			if rapid.IntRange(0, 39).Draw(rt, "bad") < bad {
				exit = 1
			}
			op := rapid.SampledFrom([]string{"job", "job", "job", "task", "task", "task", "drop", "cancel",
				"requeue", "purge", "restart"}).Draw(rt, "op")
			did = append(did, fmt.Sprint(op, " ", id, " ", task, " ", exit))
			requeued = requeued || op == "requeue"
			both(func(b *bench) {
				switch op {
				case "job":
					end(b, id, exit)
				case "task":
					if j := b.job(state.Begin(b.view, b.now).TaskRecord(1, task)); j != nil && state.Pending(j) {
						b.runTask(1, task, exit)
					}
				case "drop":
					b.do(Cancel{Caller: root, IDs: []string{fmt.Sprintf("1_[%d-%d]", task, min(task+3, 29))}})
				case "cancel":
					b.do(Cancel{Caller: root, IDs: []string{fmt.Sprint(id)}})
				case "requeue":
					b.do(Control{Caller: root, Verb: "requeue", IDs: []string{fmt.Sprint(id)}})
				case "restart":
					rebuilt(b.view)
					b.followUp()
				case "purge":
					b.now += 1000e9
					b.do(Tick{Purge: true})
					b.do(Tick{Purge: true})
				}
			})
			for _, id := range waiting {
				l, s := long.job(id), short.job(id)
				if (l.Dependency == "") != (s.Dependency == "") || !requeued && l.Reason != s.Reason {
					rt.Fatalf("after %q:\n%s %s\nwant %s %s", did, l.Reason, l.DependencyShown, s.Reason, s.DependencyShown)
				}
			}
			if l, s := long.view.Jobs.Len(), short.view.Jobs.Len(); op == "purge" && l != s {
				rt.Fatalf("after %q: %d jobs are left, want %d", did, l, s)
			}
		}
	})
}

// TestLongWaits: a condition that has been met stays so, the last that fails decides, and no job is forgotten before its condition has
// gone from the record.
func TestLongWaits(t *testing.T) {
	defer func(n int) { state.LongConditions = n }(state.LongConditions)
	state.LongConditions = 1
	const n = 40 // the third change is a sixteenth of them
	setup := func() (b *bench, gather uint32) {
		b = newBench(t, func(s *state.Settings) { s.MinJobAgeS = 1 })
		var parts []string
		for range n {
			parts = append(parts, fmt.Sprint("afterok:", b.submit(&pb.JobSpec{Requeue: pb.Yes})))
		}
		gather = b.submit(&pb.JobSpec{Dependency: strings.Join(parts, ",")})
		b.start(1, "n1")
		b.ended(1, "n1", "exited", 0)
		return b, gather
	}
	end := func(b *bench, from, to uint32) {
		for id := from; id <= to; id++ {
			b.start(id, "n1")
			b.ended(id, "n1", "exited", 0)
		}
	}
	names := func(b *bench, id uint32) int { return strings.Count(b.job(id).Dependency, "afterok") }

	b, gather := setup()
	end(b, 2, 2)
	if got := names(b, gather); got != n {
		t.Errorf("after the second end the record has %d conditions, want %d", got, n)
	}
	b.do(Control{Caller: root, Verb: "requeue", IDs: []string{"2"}})
	end(b, 3, n)
	if got := b.state(gather); got != "PENDING None" || b.state(2) != "PENDING BeginTime" {
		t.Errorf("all have ended, one was requeued (%s): %s", b.state(2), got)
	}

	b, gather = setup()
	end(b, 2, 2)
	b.now += 1000e9
	b.do(Tick{Purge: true})
	if b.job(1) == nil || b.job(2) == nil || names(b, gather) != n-2 {
		t.Errorf("after one look at what is old: job 1 %v, job 2 %v, %d conditions", b.job(1), b.job(2), names(b, gather))
	}
	b.do(Tick{Purge: true})
	rebuilt(b.view) // as after a start of the controller
	b.followUp()
	if b.job(1) != nil || b.job(2) != nil || b.state(gather) != "PENDING Dependency" {
		t.Errorf("after the second: job 1 %v, job 2 %v, %s", b.job(1), b.job(2), b.state(gather))
	}

	b = newBench(t, nil)
	for range n {
		b.submit(&pb.JobSpec{})
	}
	text := "afterok:1"
	for id := 2; id <= n; id++ {
		text += fmt.Sprint("?afterok:", id)
	}
	gather = b.submit(&pb.JobSpec{Dependency: text})
	for id := 1; id <= n; id++ {
		if got := b.state(gather); got != "PENDING Dependency" {
			t.Fatalf("one of %d, %d cancelled: %s", n, id-1, got)
		}
		b.do(Cancel{Caller: root, IDs: []string{fmt.Sprint(id)}})
	}
	shown := b.job(gather).DependencyShown
	if got := b.state(gather); got != "PENDING DependencyNeverSatisfied" || strings.Count(shown, "(failed)") != n {
		t.Errorf("all are cancelled: %s %s", got, shown)
	}
}

// TestUpdateToLongDependency: scontrol update takes as many conditions as a submission, and the record still fits into a message.
func TestUpdateToLongDependency(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.MaxArraySize, s.MaxJobsPerUser, s.MaxJobCount = 40000, 0, 100000 })
	b.submit(&pb.JobSpec{Array: "0-32768"})
	id := b.submit(&pb.JobSpec{Hold: true})
	set := func(value string) *pb.Problem {
		return b.do(UpdateJob{Caller: root, IDs: []string{fmt.Sprint(id)},
			Set: []*pb.KeyValue{{Key: "Dependency", Value: value}}}).(Outcomes).List[0].Problem
	}
	if p := set("afternotok:1_[0-32768]"); p.GetCode() != uint32(pb.CodeDependency) {
		t.Errorf("32,769 conditions: %v", p)
	}
	if p := set("afternotok:1_[1-32768]"); p != nil {
		t.Fatalf("32,768 conditions: %v", p)
	}
	if n := strings.Count(b.job(id).DependencyShown, "(unfulfilled)"); n != jobid.MaxDependencies {
		t.Errorf("%d are shown", n)
	}
	if size := proto.Size(b.job(id)); size > 4<<20 {
		t.Errorf("the record has %d bytes", size)
	}
	if p := set(""); p != nil || b.job(id).Dependency != "" {
		t.Errorf("none again: %v, %.80s", p, b.job(id).Dependency)
	}
}
