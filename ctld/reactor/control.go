package reactor

import (
	"strings"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Control is hold, uhold, release, requeue, requeuehold, top, suspend, resume and notify (scontrol(1)).
type Control struct {
	Caller Caller
	Verb   string
	IDs    []string
	Named  []NamedJobs // jobs by name, instead of ids
	// Special: requeuehold state=SpecialExit (scontrol(1)), shown as SPECIAL_EXIT.
	Special bool
	// Incomplete: requeue skips pending and ended jobs (scontrol(1)).
	Incomplete bool
	Text       string // of notify
	Ends       Ends   // ends of forgotten jobs in dependencies of the jobs to requeue

	walk *walk // the rest of an earlier slice
}

// Handle applies the verb to each job.
func (c Control) Handle(tx *state.Tx) any {
	w := walk{ids: c.IDs}
	if c.walk != nil {
		w = *c.walk
	}
	w.out.Seq = tx.Seq
	f := newFinder(tx, c.Caller)
	done := w.each(tx, c.Caller, func(id string) (*application, []*pb.JobOutcome) { return c.begin(f, id) },
		func(_ *application, j *pb.JobRecord) *pb.Problem { return c.one(tx, j) }, (*application).outcomes)
	if !done || !c.named(tx, &w) {
		c.walk = &w
		return More{c}
	}
	return w.done()
}

// begin looks up one id.
func (c Control) begin(f *finder, id string) (*application, []*pb.JobOutcome) {
	t, p := f.find(id)
	if p != nil {
		return nil, []*pb.JobOutcome{outcome(unbracketed(id), p)}
	}
	if strings.HasPrefix(c.Verb, "requeue") {
		t.named = true // ended tasks are included
		t.refuse = func(j *pb.JobRecord) *pb.Problem {
			if state.Pending(j) && !c.Incomplete {
				return pb.NewProblem(pb.CodeJobPending, "job %s is already pending", state.JobName(j))
			}
			return nil
		}
	}
	return newApplication(f.tx, c.Caller, id, t), nil
}

// NamedJobs are the jobs that had a name in an earlier View, so that the writer need not search.
type NamedJobs struct {
	Name string
	Jobs []uint32

	found bool // some were handled
}

// named handles jobs by their names. It returns false if its share of the turn ended first.
func (c *Control) named(tx *state.Tx, w *walk) bool {
	for from := tx.Spent(); len(c.Named) > 0; {
		n := c.Named[0]
		for ; len(n.Jobs) > 0; n.Jobs = n.Jobs[1:] {
			if tx.Spent()-from >= SliceUnits {
				c.Named = append([]NamedJobs{n}, c.Named[1:]...)
				return false
			}
			j := tx.Job(n.Jobs[0])
			tx.Spend(2)
			if j != nil && j.Spec.Name == n.Name && state.Active(j) && c.Caller.mayTouch(j) {
				n.found = true
				w.add(outcome(state.JobName(j), c.one(tx, j)))
			}
		}
		if !n.found {
			w.add(outcome(n.Name, pb.NewProblem(pb.CodeInvalidJobID, "you have no job named %q", n.Name)))
		}
		c.Named = c.Named[1:]
	}
	return true
}

func (c Control) one(tx *state.Tx, j *pb.JobRecord) *pb.Problem {
	switch c.Verb {
	case "hold", "uhold", "release":
		return setHold(tx, c.Caller, j, c.Verb)
	case "requeue", "requeuehold":
		if c.Incomplete && c.Caller.mayTouch(j) && !state.Live(j) {
			return nil
		}
		return requeue(tx, c.Caller, j, c.requeueKind(), c.Ends)
	case "top":
		return top(tx, c.Caller, j)
	case "suspend", "resume":
		return suspend(tx, c.Caller, j, c.Verb == "suspend")
	case "notify":
		return notify(tx, c.Caller, j, c.Text)
	}
	return pb.NewProblem(pb.CodeNotSupported, "no such verb %q", c.Verb)
}

// requeueKind returns the reason for which the attempt is stopped.
func (c Control) requeueKind() string {
	if c.Verb == "requeuehold" && c.Special {
		return pb.StopSpecialExit
	}
	return c.Verb
}
