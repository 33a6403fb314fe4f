package explain

import (
	"fmt"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Explanation says in words why a pending job waits.
type Explanation struct {
	Reason record.Reason
	// Partition is what the job asks for beyond what the partition has or
	// allows; Nodes then says nothing.
	Partition string
	// Nodes counts the partition's nodes by the first thing that keeps the job
	// off each, most frequent first.
	Nodes []Failing
	// Switches is how the nodes that could take a part of the job now are
	// connected, where that is what keeps it from starting; else "".
	Switches string
	// Licenses says which of the job's licenses are not free now, with how many are.
	Licenses []string
	// Reserved are the reservations of others that keep it off nodes, by name.
	Reserved []string
	// Start and Where are the expected start and nodes; Start is 0 when the
	// job would start now, Forever when nothing can be said.
	Start int64
	Where []string
	// TooFar: so many come before the job that it was not worked out when it
	// starts.
	TooFar bool
	// Ahead are the jobs that stand before it in the queue of its partition.
	Ahead []uint32
	// Delays are reservations of others that move the expected start.
	Delays []Delay
	// Ways are which other jobs would have to go for the job to start now.
	Ways []Way
	// Smaller are changes to the request with each of which the job would start if it were submitted now or a minute later, as options of
	// sbatch, and whether beside this job or in place of it.
	Smaller []string
}

// Failing is a number of nodes and what keeps the job off them.
type Failing struct {
	Nodes int
	Why   string
	// Most is how much the best of these nodes has of what they are short of;
	// below 0 where that is no amount.
	Most int64
}

func (f Failing) String() string {
	text := count(int64(f.Nodes), "node") + ": " + f.Why
	if f.Most < 0 {
		return text
	}
	return fmt.Sprintf("%s (at most %d)", text, f.Most)
}

// String is the explanation with jobs named by their ids.
func (x *Explanation) String() string {
	return x.Text(func(id uint32) string { return fmt.Sprint(id) })
}

// Text is the explanation as `sluice explain` prints it, a line for each point.
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

// text is a clause: "job 1 or 2 ended", "jobs 1 and 2 ended and waiting job 3 were cancelled".
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

// jobs is "job 1", "job 1 or 2", "jobs 1, 2 and 3".
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
