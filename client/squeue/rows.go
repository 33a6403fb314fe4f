package squeue

import (
	"os"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/view"
)

// selects applies all filters to a record, whatever the controller has already left out.
func (o *options) selects(r *msg.JobRecord) bool {
	return o.inStates(r) && o.isAskedFor(r) && o.hasLicense(r) && !(o.notMe && r.GetSpec().GetUid() == uint32(os.Getuid()))
}

func (o *options) inStates(r *msg.JobRecord) bool {
	completing := r.GetStateFlags()&msg.JobCompleting != 0
	switch {
	case o.haveStates && o.allStates:
		return true
	case o.haveStates:
		// as in Slurm, a job whose nodes are not ready is not RUNNING
		return r.GetStateFlags()&o.flags != 0 || r.GetStateFlags()&msg.JobConfiguring == 0 && slices.Contains(o.states, r.GetState())
	case o.start:
		return r.GetState() == msg.JobState_JOB_PENDING
	}
	return completing || slices.Contains(activeStates, r.GetState())
}

// isAskedFor applies -j: by job id, array id, or task.
func (o *options) isAskedFor(r *msg.JobRecord) bool {
	if !o.haveJobs {
		return true
	}
	return slices.ContainsFunc(o.jobs, func(s view.Selector) bool { return s.Matches(r) })
}

// hasLicense applies -L: any of the names.
func (o *options) hasLicense(r *msg.JobRecord) bool {
	if len(o.licenses) == 0 {
		return true
	}
	for _, want := range command.List(r.GetSpec().GetLicenses()) {
		name, _, _ := strings.Cut(want, ":")
		if slices.Contains(o.licenses, name) {
			return true
		}
	}
	return false
}

// expand calls add for the rows of a record: one, or with -r and -P one per task and partition. It returns the result of add.
func (o *options) expand(r *msg.JobRecord, add func(format.Job) bool) bool {
	job := format.Job{JobRecord: r}
	if o.haveJobs && !o.array { // with -r each task has a row of its own, or none
		job.JobRecord = view.AskedPart(o.jobs, r)
	}
	if !o.perPartition || r.GetState() != msg.JobState_JOB_PENDING {
		return o.expandTasks(job, add)
	}
	for _, p := range job.Partitions() {
		job.InPartition = p
		if (len(o.partitions) == 0 || slices.Contains(o.partitions, p)) && !o.expandTasks(job, add) {
			return false
		}
	}
	return true
}

func (o *options) expandTasks(job format.Job, add func(format.Job) bool) bool {
	if !o.array || job.GetArrayTasks() == "" {
		return add(job)
	}
	if !format.ExpandTasks(job.GetArrayTasks(), func(uint32) bool { return false }) {
		return add(job) // not a valid expression
	}
	fits := true
	format.ExpandTasks(job.GetArrayTasks(), func(task uint32) bool {
		if !o.haveJobs || view.WantsTask(o.jobs, job.JobRecord, task) {
			job.Task, job.IsTask = task, true
			fits = add(job)
		}
		return fits
	})
	return fits
}
