package sched

import (
	"github.com/sluice-hpc/sluice/sched/record"
	"testing"
)

// TestUnlimitedJobsAreNotPassedForEver: without time limits, a job that needs a whole node is promised it a year ahead, as in Slurm. Other
// jobs without a limit do not pass it; shorter jobs do.
func TestUnlimitedJobsAreNotPassedForEver(t *testing.T) {
	w := newWorld(t, record.Params{}, 1, 8)
	w.add(1, record.Forever, record.Request{Tasks: 4})
	w.want("start 1 n1:4")
	w.in.Now += 10
	w.add(2, record.Forever, record.Request{Tasks: 8})
	const ahead = "reserve 2 at 31535990 on n1" // 365 days after the start, in seconds from now
	w.want(ahead + "; 2: Resources")
	w.add(3, record.Forever, record.Request{Tasks: 4})
	w.want(ahead + "; 3: Priority")
	w.add(4, 365*86400-10, record.Request{Tasks: 2})
	w.want("start 4 n1:2; " + ahead)
	w.in.Now += record.UnlimitedS // over a year: given another
	w.end(4)
	w.want(ahead)
	w.end(1)
	w.want("start 2 n1:8; reserve 3 at 31536000 on n1; 3: Resources")
	if got := w.in.Running[len(w.in.Running)-1]; got.ID != 2 || got.End != record.Forever {
		t.Errorf("job 2 has no limit, and ends at %d", got.End)
	}
}

// TestNoPromiseOfAYearAtOnce: while the first that waits may be made to wait, a start that hangs on jobs without a limit is not kept free
// for it: others without a limit would be kept from a node that is half empty.
func TestNoPromiseOfAYearAtOnce(t *testing.T) {
	w := newWorld(t, record.Params{Order: record.Merit, HeadGuardS: 1000, ShortQueue: 2}, 1, 8)
	w.add(1, record.Forever, record.Request{Tasks: 2})
	w.want("start 1 n1:2")
	w.add(2, record.Forever, record.Request{Tasks: 8})
	w.want("2: Resources")
	w.in.Now += 10
	w.add(3, record.Forever, record.Request{Tasks: 2})
	w.want("start 3 n1:2")
	w.in.Now += 990
	w.add(4, record.Forever, record.Request{Tasks: 2})
	w.want("reserve 2 at 31535010 on n1; 4: Priority") // a year after the start of 3
}

// TestUnlimitedIsMoreThanTheLongestLimit: a partition's MaxTime of more than a year is less than no limit.
func TestUnlimitedIsMoreThanTheLongestLimit(t *testing.T) {
	w := newWorld(t, record.Params{}, 1, 8)
	w.in.Partitions[0].MaxTimeS = 3 * record.UnlimitedS
	w.add(1, record.Forever, record.Request{Tasks: 4})
	w.want("1: PartitionTimeLimit")
	w.add(2, record.Forever, record.Request{Tasks: 4}).TimeMinS = 60
	w.want("start 2 n1:4")
}

// TestDeadlineIsTheLimit: a job without a time limit that has a deadline runs until then at the longest, and is given up when a minute
// is not left, as in a real Slurm. One that has a limit has to be able to use it.
func TestDeadlineIsTheLimit(t *testing.T) {
	w := newWorld(t, record.Params{}, 1, 8)
	w.add(1, record.Forever, record.Request{Tasks: 1}).Deadline = 3600
	w.want("start 1 n1:1")
	if got := w.in.Running[0].End; got != 3600 {
		t.Errorf("the job may run until %d, its deadline is 3600", got)
	}
	w.in.Now += 10
	w.add(2, record.Forever, record.Request{Tasks: 1}).Deadline = w.in.Now + 59
	w.add(3, 600, record.Request{Tasks: 1}).Deadline = w.in.Now + 599
	w.add(4, record.Forever, record.Request{Tasks: 1}).Deadline = w.in.Now + 60
	w.want("start 4 n1:1; 2: DeadLine; 3: DeadLine")
}

// TestHostileInput: input that a controller should have refused does not break a plan.
func TestHostileInput(t *testing.T) {
	w := newWorld(t, record.Params{}, 2, 4)
	w.in.Reservations = []*record.Reservation{
		{Name: "a", Start: 5, End: 3, Nodes: []string{"nowhere"}},
		{Name: "b", Start: 900, End: 1100, Nodes: []string{"n1"}},
		{Name: "c", Start: 950, End: 1050, Nodes: []string{"n1"}},
	}
	w.add(1, 50, record.Request{Tasks: 1, Features: "[a&(b"})
	j := w.add(2, 50, record.Request{Tasks: 1})
	j.Array = &record.Array{Tasks: []record.TaskRange{{First: 9, Last: 3}, {First: 0, Last: 1<<32 - 1}}}
	w.add(3, 50, record.Request{Tasks: 1}).Partitions = []string{"unknown"}
	w.add(4, -5, record.Request{Tasks: 1, NodeList: []string{"nowhere"}})
	w.add(5, 50, record.Request{Tasks: 1, Licenses: []record.License{{Name: "none", Count: 1}}})
	w.want(
		"start 2_0 n2:1; start 2_1 n2:1; start 2_2 n2:1; start 2_3 n2:1; reserve 2 at 50 on n2; 1: BadConstraints; 2: Resources; 3: " +
			"PartitionDown; 4: BadConstraints; 5: Licenses",
	)
}
