package explain

import (
	"fmt"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/sched/reason"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Explanation explains in words why a pending job waits.
type Explanation struct {
	Reason reason.Reason
	// Partition describes how the job exceeds what the partition has or allows; Nodes is then empty.
	Partition string
	// Nodes counts the partition's nodes by the first cause that keeps the job off each, most frequent first.
	Nodes []Failing
	// Switches describes the connection of the nodes that could take a part of the job now, if it keeps the job from starting; else "".
	Switches string
	// Licenses lists the job's licenses that are not free now, with the free numbers.
	Licenses []string
	// Reserved names others' reservations that keep the job off nodes.
	Reserved []string
	// Start and Where are the expected start and nodes; Start is 0 when the job would start now, Forever when unknown.
	Start int64
	Where []string
	// TooFar: too many jobs come before this one to compute its start.
	TooFar bool
	// Ahead are the jobs before it in the queue of its partition.
	Ahead []uint32
	// Delays are others' reservations that delay the expected start.
	Delays []Delay
	// Ways are sets of other jobs without which the job would start now.
	Ways []Way
	// Smaller are changes to the request, as options of sbatch. With each of them the job would start if it were submitted now or a minute
	// later, beside this job or in place of it, as the text says.
	Smaller []string
}

// Failing is a number of nodes and the cause that keeps the job off them.
type Failing struct {
	Nodes int
	Why   string
	// Most is the largest amount of the missing resource on these nodes; below 0 where it is no amount.
	Most int64
}

func (f Failing) String() string {
	text := count(int64(f.Nodes), "node") + ": " + f.Why
	if f.Most < 0 {
		return text
	}
	return fmt.Sprintf("%s (at most %d)", text, f.Most)
}

// String returns the explanation with jobs named by their ids.
func (x *Explanation) String() string {
	return x.Text(func(id uint32) string { return fmt.Sprint(id) })
}

// Text returns the explanation as `sluice explain` prints it, a line for each point.
func (x *Explanation) Text(name func(id uint32) string) string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	say("reason: %s", x.Reason)
	if x.Partition != "" {
		say("%s", x.Partition)
	}
	for _, f := range x.Nodes {
		say("%s", f)
	}
	if len(x.Licenses) > 0 {
		say("licenses not free: %s", strings.Join(x.Licenses, ", "))
	}
	if x.Switches != "" {
		say("%s", x.Switches)
	}
	if len(x.Ahead) > 0 {
		say("ahead of it in the queue: %s", jobs(x.Ahead, "and", name))
	}
	if x.Start > 0 && x.Start < record.Forever {
		say("expected on %s", hostlist.Fold(x.Where))
	}
	if x.TooFar {
		say("expected start not computed: too many jobs are ahead of this one")
	}
	for _, d := range x.Delays {
		say("%s", d)
	}
	for i := range x.Ways {
		say("would start now if %s", x.Ways[i].text(name))
	}
	for _, how := range x.Smaller {
		say("would start now: %s", how)
	}
	return b.String()
}

func (d Delay) String() string {
	what := "reservation " + d.Reservations[0] + " delays the start"
	if len(d.Reservations) > 1 {
		what = "reservations " + strings.Join(d.Reservations, ", ") + " delay the start"
	}
	if d.ByS == record.Forever {
		return what
	}
	return what + " by " + timespec.Clock(d.ByS)
}

// text formats a clause: "job 1 or 2 ended", "jobs 1 and 2 ended and waiting job 3 were cancelled".
func (w *Way) text(name func(uint32) string) string {
	join := "and"
	if w.Any {
		join = "or"
	}
	var clauses []string
	if len(w.Runs) > 0 {
		clauses = append(clauses, jobs(w.Runs, join, name)+" ended")
	}
	if len(w.Waiting) > 0 {
		verb := " were cancelled"
		if w.Any || len(w.Waiting) == 1 {
			verb = " was cancelled"
		}
		clauses = append(clauses, "waiting "+jobs(w.Waiting, join, name)+verb)
	}
	return strings.Join(clauses, " and ")
}

// jobs formats "job 1", "job 1 or 2", "jobs 1, 2 and 3".
func jobs(ids []uint32, join string, name func(uint32) string) string {
	const most = 20
	word := "jobs "
	if len(ids) == 1 || join == "or" {
		word = "job "
	}
	var words []string
	for _, id := range ids[:min(len(ids), most)] {
		words = append(words, name(id))
	}
	switch n := len(words); {
	case len(ids) > most:
		return word + strings.Join(words, ", ") + fmt.Sprintf(" %s %d more", join, len(ids)-most)
	case n > 1:
		return word + strings.Join(words[:n-1], ", ") + " " + join + " " + words[n-1]
	}
	return word + words[0]
}
