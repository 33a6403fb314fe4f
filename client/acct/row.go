// Package acct builds the rows and columns of sacct from accounting records: one row per job and one per step. Columns follow the
// output of Slurm 22.05 (client/cli/testdata/sacct); newer fields follow sacct(1) of 25.11.
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
	Step string // "", "batch", "extern", or the number of a step created by srun
	made *msg.StepRecord
	all  []*msg.StepUsage // of a job: usage including its steps, by node
	live bool             // Usage is that of this running step alone, as reported by nodes
	// whole: the line of a job whose steps have lines of their own. Those have the usage, this line does not.
	whole bool
}

// DefaultAccount is the account of jobs without one.
const DefaultAccount = "root"

// Context is the input of columns in addition to the row.
type Context struct {
	format.Context
	Units  byte // --units: one of KMGTP, 0 = each figure in a suitable unit
	Extern bool // every job has an extern step
	// Made are the steps created by srun, by attempt, in the order of ids.
	Made map[Attempt][]*msg.StepRecord
	// Since and Until cut start and end (-T), in nanoseconds; 0 = no cut.
	Since, Until int64
	GroupOf      func(gid uint32) string
}

// Attempt identifies an attempt of a job.
type Attempt struct{ Job, Number uint32 }

// MadeFor returns the steps created by srun in an attempt.
func (c *Context) MadeFor(j *msg.JobRecord) []*msg.StepRecord {
	return c.Made[Attempt{j.GetId(), j.GetAttempt()}]
}

// now is the controller's clock, in nanoseconds.
func (c *Context) now() int64 { return c.Now.UnixNano() }

// Rows returns the lines of an attempt; steps is false for -X.
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

// elsewhere reports whether a node other than the batch host reported usage, for instance of its GPUs. The job then has an extern
// step to show it, even if none was requested.
func elsewhere(j *msg.JobRecord) bool {
	return slices.ContainsFunc(j.GetUsage(), func(u *msg.StepUsage) bool { return u.GetNode() != j.GetBatchHost() })
}

func ended(j *msg.JobRecord) bool {
	return j.GetState().Terminal() || j.GetStateFlags()&msg.JobRequeued != 0
}

// start is the start of the row, 0 = not started. A job that ended before it started has its end instead.
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

// end is the end of the row, 0 = not ended.
func (r Row) end(c *Context) int64 {
	ns := int64(0)
	switch {
	case r.made != nil && r.made.GetEndNs() != 0:
		ns = r.made.GetEndNs()
	case r.Step == "batch" && r.GetBatchEndNs() != 0:
		ns = r.GetBatchEndNs()
		if !r.stopped() { // otherwise the script may outlive the job's end, up to KillWait
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

// stopped reports whether the job was told to end. Its end is then the time of that order.
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

// suspended is how long the row was suspended, in seconds.
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

// elapsed is the run time of the row, in seconds, without suspensions.
func (r Row) elapsed(c *Context) int64 {
	from, to := r.start(c), r.end(c)
	if from == 0 {
		return 0
	}
	if to == 0 {
		to = c.now()
	}
	// Count whole seconds of the clock: start, end and elapsed must agree in the table.
	return max(to/int64(time.Second)-from/int64(time.Second)-r.suspended(c), 0)
}

// usage is the usage of the row. A step created by srun has the usage that its nodes report, the batch step all other usage on the
// batch host, the extern step all other usage on the other nodes, and the job all of it.
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

// cpus is the number of CPUs of the row, or requested while it has none.
func (r Row) cpus() uint64 {
	if r.made != nil {
		return uint64(r.made.GetNumCpus())
	}
	if r.Step == "batch" {
		return uint64(r.share().GetCpus())
	}
	return uint64(max(r.GetNumCpus(), 1))
}

// share is the job's allocation on the batch host.
func (r Row) share() *msg.NodeAlloc {
	for _, a := range r.GetAlloc() {
		if a.GetNode() == r.GetBatchHost() {
			return a
		}
	}
	return &msg.NodeAlloc{}
}

// tasks of a step: the batch script counts as one, extern as one per node.
func (r Row) tasks() uint64 {
	if r.made != nil {
		return uint64(r.made.GetNumTasks())
	}
	return max(r.nodes(), 1)
}

// nodes is the number of nodes of the row.
func (r Row) nodes() uint64 {
	switch {
	case r.made != nil:
		return uint64(len(r.made.GetNodes()))
	case r.Step == "batch":
		return 1
	}
	return uint64(len(r.GetAlloc()))
}
