package explain

import (
	"fmt"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
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
	// After are running jobs on those nodes that have to end first.
	After []uint32
	// Smaller are changes to the request with each of which the job would start
	// now, as options of sbatch.
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
	nodes := "nodes"
	if f.Nodes == 1 {
		nodes = "node"
	}
	if f.Most < 0 {
		return fmt.Sprintf("%d %s: %s", f.Nodes, nodes, f.Why)
	}
	return fmt.Sprintf("%d %s: %s (at most %d)", f.Nodes, nodes, f.Why, f.Most)
}

// String is the explanation as `sluice explain` prints it, a line for each point.
func (x *Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "reason: %s\n", x.Reason)
	if x.Partition != "" {
		fmt.Fprintf(&b, "%s\n", x.Partition)
	}
	for _, f := range x.Nodes {
		fmt.Fprintln(&b, f)
	}
	if len(x.Licenses) > 0 {
		fmt.Fprintf(&b, "licenses not free: %s\n", strings.Join(x.Licenses, ", "))
	}
	if x.Switches != "" {
		fmt.Fprintf(&b, "%s\n", x.Switches)
	}
	if x.Start > 0 && x.Start < record.Forever {
		fmt.Fprintf(&b, "expected on %s\n", hostlist.Fold(x.Where))
	}
	if x.TooFar {
		b.WriteString("expected start not computed: too many jobs are ahead of this one\n")
	}
	switch len(x.After) {
	case 0:
	case 1:
		fmt.Fprintf(&b, "after the end of job %d\n", x.After[0])
	default:
		fmt.Fprintf(&b, "after the end of jobs %s\n", joinIDs(x.After))
	}
	for _, how := range x.Smaller {
		fmt.Fprintf(&b, "would start now: %s\n", how)
	}
	return b.String()
}

func joinIDs(ids []uint32) string {
	const most = 20
	var words []string
	for i, id := range ids {
		if i == most {
			words = append(words, fmt.Sprintf("and %d more", len(ids)-most))
			break
		}
		words = append(words, fmt.Sprint(id))
	}
	return strings.Join(words, ",")
}
