// Package acct builds the rows and columns of sacct from accounting records: one row for each job and one for each of
// its steps. Columns print what Slurm 22.05 prints (client/cli/testdata/sacct); newer fields follow sacct(1) of 25.11.
package acct

import (
	"slices"
	"time"

	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/jobid"
)

// Row is one line of sacct: an attempt of a job, or a step of it.
type Row struct {
	*msg.JobRecord
	Step string // "", "batch", "extern", or the number of a step that srun has made
	made *msg.StepRecord
	all  []*msg.StepUsage // of a job: what it used with its steps, by node
	live bool             // its usage is that of the step alone: what nodes say of it while it runs
	// whole: the line of a job whose steps have lines of their own, which have the figures that it then lacks.
	whole bool
}

// DefaultAccount is the account of jobs that name none.
const DefaultAccount = "root"

// Context is what columns depend on besides their row.
type Context struct {
	format.Context
	Units  byte // --units: one of KMGTP, 0 = each figure in its own
	Extern bool // each job has an extern step
	// Made are the steps that srun has made, by the attempt that they are of; by id.
	Made map[Attempt][]*msg.StepRecord
	// Since and Until cut start and end (-T), in nanoseconds; 0 = not.
	Since, Until int64
	GroupOf      func(gid uint32) string
}

// Attempt is one of a job's.
type Attempt struct{ Job, Number uint32 }

// MadeFor are the steps that srun has made in an attempt.
func (c *Context) MadeFor(j *msg.JobRecord) []*msg.StepRecord {
	return c.Made[Attempt{j.GetId(), j.GetAttempt()}]
}

// now is the controller's clock, in nanoseconds.
func (c *Context) now() int64 { return c.Now.UnixNano() }

// Rows are the lines of an attempt; steps is false for -X.
func Rows(j *msg.JobRecord, c *Context, steps bool) []Row {
	made := c.MadeFor(j)
	rows := []Row{{JobRecord: j, all: Together(j, made)}}
	if !steps || j.GetStartNs() == 0 || len(j.GetAlloc()) == 0 {
		return rows
	}
	if !j.GetSpec().GetInteractive() {
		rows = append(rows, Row{JobRecord: j, Step: "batch"})
	}
	if c.Extern || !j.GetSpec().GetInteractive() && elsewhere(j) {
		rows = append(rows, Row{JobRecord: j, Step: "extern"})
	}
	for _, s := range made {
		rows = append(rows, Row{JobRecord: j, Step: jobid.StepName(s.GetStepId()), made: s})
	}
	rows[0].whole = len(rows) > 1
	return rows
}

// elsewhere: a node without the batch script has reported what was used there, the GPUs it gave for instance: the figures of an extern
// step, which the job then has even where none was asked for.
func elsewhere(j *msg.JobRecord) bool {
	return slices.ContainsFunc(j.GetUsage(), func(u *msg.StepUsage) bool { return u.GetNode() != j.GetBatchHost() })
}

func ended(j *msg.JobRecord) bool {
	return j.GetState().Terminal() || j.GetStateFlags()&msg.JobRequeued != 0
}

// start is when the row began, 0 = not yet. A job that ended before it could start did so at its end.
func (r Row) start(c *Context) int64 {
	ns := r.GetStartNs()
	switch {
	case r.made != nil:
		ns = r.made.GetStartNs()
	case r.Step == "batch" && r.GetBatchStartNs() != 0:
		ns = max(ns, r.GetBatchStartNs())
	case ns == 0 && ended(r.JobRecord):
		ns = r.GetEndNs()
	}
	if c.Since != 0 && ns != 0 {
		ns = max(ns, c.Since)
	}
	return ns
}

// end is when the row ended, 0 = not yet.
func (r Row) end(c *Context) int64 {
	ns := int64(0)
	switch {
	case r.made != nil && r.made.GetEndNs() != 0:
		ns = r.made.GetEndNs()
	case r.Step == "batch" && r.GetBatchEndNs() != 0:
		ns = r.GetBatchEndNs()
		if !r.stopped() { // whose script may take until KillWait, when the job has ended
			ns = min(ns, r.jobEnd())
		}
	case ended(r.JobRecord):
		ns = r.GetEndNs()
	}
	if c.Until != 0 && (ns == 0 && r.GetStartNs() != 0 || ns > c.Until) {
		ns = c.Until
	}
	return ns
}

// stopped: the job was told to end, and its end is when that was.
func (r Row) stopped() bool {
	switch r.GetState() {
	case msg.JobState_JOB_CANCELLED, msg.JobState_JOB_TIMEOUT, msg.JobState_JOB_PREEMPTED:
		return true
	}
	return r.GetStateFlags()&msg.JobRequeued != 0
}

func (r Row) jobEnd() int64 {
	if ended(r.JobRecord) {
		return r.GetEndNs()
	}
	return r.GetBatchEndNs()
}

// suspended is how long the row has been suspended, in seconds.
func (r Row) suspended(c *Context) int64 {
	ns := r.GetSuspendedNs()
	if r.made != nil {
		ns = r.made.GetSuspendedNs()
	}
	if (r.made == nil || r.made.GetEndNs() == 0) && r.GetState() == msg.JobState_JOB_SUSPENDED {
		ns += c.now() - r.GetSuspendNs()
	}
	return max(ns, 0) / int64(time.Second)
}

// elapsed is how long the row has run, in seconds, without suspensions.
func (r Row) elapsed(c *Context) int64 {
	from, to := r.start(c), r.end(c)
	if from == 0 {
		return 0
	}
	if to == 0 {
		to = c.now()
	}
	// Seconds are counted as the clock shows them: start, end and elapsed must agree in the table.
	return max(to/int64(time.Second)-from/int64(time.Second)-r.suspended(c), 0)
}

// usage is what the row used: a step that srun has made what its nodes say of it, the batch step all else that was used on the batch host,
// the extern step what else was used on the other nodes, the job all of it.
func (r Row) usage() (list []*msg.StepUsage) {
	switch {
	case r.live:
		return r.Usage
	case r.made != nil:
		return usageOf(r.made)
	case r.Step == "" && r.all != nil:
		return r.all
	}
	for _, u := range r.GetUsage() {
		if r.Step == "" || (r.Step == "batch") == (u.GetNode() == r.GetBatchHost()) {
			list = append(list, u)
		}
	}
	return list
}

// cpu is the CPU time used, in microseconds.
func (r Row) cpu() (user, system uint64) {
	for _, u := range r.usage() {
		user, system = user+u.GetCpuUsecUser(), system+u.GetCpuUsecSystem()
	}
	return user, system
}

// cpus is how many CPUs the row has, or asks for while it has none.
func (r Row) cpus() uint64 {
	if r.made != nil {
		return uint64(r.made.GetNumCpus())
	}
	if r.Step == "batch" {
		return uint64(r.share().GetCpus())
	}
	return uint64(max(r.GetNumCpus(), 1))
}

// share is the job's part of the batch host.
func (r Row) share() *msg.NodeAlloc {
	for _, a := range r.GetAlloc() {
		if a.GetNode() == r.GetBatchHost() {
			return a
		}
	}
	return &msg.NodeAlloc{}
}

// tasks of a step: the batch script is one, extern is one on each node.
func (r Row) tasks() uint64 {
	if r.made != nil {
		return uint64(r.made.GetNumTasks())
	}
	return max(r.nodes(), 1)
}

// nodes is how many nodes the row has.
func (r Row) nodes() uint64 {
	switch {
	case r.made != nil:
		return uint64(len(r.made.GetNodes()))
	case r.Step == "batch":
		return 1
	}
	return uint64(len(r.GetAlloc()))
}
