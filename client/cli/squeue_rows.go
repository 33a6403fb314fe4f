package cli

import (
	"os"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client/format"
	pb "github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/jobid"
)

// selects makes the choices that a record has to meet whatever the controller left out.
func (o *squeueOptions) selects(r *pb.JobRecord) bool {
	return o.inStates(r) && o.isAskedFor(r) && o.hasLicense(r) && !(o.notMe && r.GetSpec().GetUid() == uint32(os.Getuid()))
}

func (o *squeueOptions) inStates(r *pb.JobRecord) bool {
	completing := r.GetStateFlags()&pb.JobCompleting != 0
	switch {
	case o.haveStates && o.allStates:
		return true
	case o.haveStates:
		return r.GetStateFlags()&o.flags != 0 || slices.Contains(o.states, r.GetState())
	case o.start:
		return r.GetState() == pb.JobState_JOB_PENDING
	}
	return completing || slices.Contains(activeStates, r.GetState())
}

// isAskedFor compares with -j: by job id, by the id of its array, or by task.
func (o *squeueOptions) isAskedFor(r *pb.JobRecord) bool {
	if !o.haveJobs {
		return true
	}
	return slices.ContainsFunc(o.jobs, func(s jobSelector) bool { return s.matches(r) })
}

func (s jobSelector) matches(r *pb.JobRecord) bool {
	if s.tasks == nil {
		return s.job == r.GetId() || s.job == r.GetArrayJobId()
	}
	if s.job != r.GetArrayJobId() {
		return false
	}
	if r.GetArrayTasks() == "" {
		return s.tasks[r.GetArrayTaskId()]
	}
	found := false
	format.ExpandTasks(r.GetArrayTasks(), func(task uint32) bool {
		found = s.tasks[task]
		return !found
	})
	return found
}

// hasLicense compares with -L: any of the names.
func (o *squeueOptions) hasLicense(r *pb.JobRecord) bool {
	if len(o.licenses) == 0 {
		return true
	}
	for _, want := range list(r.GetSpec().GetLicenses()) {
		name, _, _ := strings.Cut(want, ":")
		if slices.Contains(o.licenses, name) {
			return true
		}
	}
	return false
}

// expand gives the rows of a record to add: one, or with -r and -P one for each task and each partition. It reports what add did.
func (o *squeueOptions) expand(r *pb.JobRecord, add func(format.Job) bool) bool {
	job := format.Job{JobRecord: o.askedPart(r)}
	if !o.perPartition || r.GetState() != pb.JobState_JOB_PENDING {
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

// askedPart is a record of several tasks without those that -j does not name; with -r, wantsTask leaves them out.
func (o *squeueOptions) askedPart(r *pb.JobRecord) *pb.JobRecord {
	if r.GetArrayTasks() == "" || o.array || !o.haveJobs || slices.ContainsFunc(o.jobs, func(s jobSelector) bool { return s.tasks == nil && s.matches(r) }) {
		return r
	}
	var tasks []uint32
	format.ExpandTasks(r.GetArrayTasks(), func(task uint32) bool {
		if o.wantsTask(r, task) {
			tasks = append(tasks, task)
		}
		return true
	})
	part := *r
	if part.ArrayTasks = jobid.FormatTasks(jobid.SetOf(tasks...), 0, 0); len(tasks) == 1 {
		part.ArrayTasks, part.ArrayTaskId, part.IsArrayTask = "", tasks[0], true
	}
	return &part
}

func (o *squeueOptions) expandTasks(job format.Job, add func(format.Job) bool) bool {
	if !o.array || job.GetArrayTasks() == "" {
		return add(job)
	}
	if !format.ExpandTasks(job.GetArrayTasks(), func(uint32) bool { return false }) {
		return add(job) // not an expression that can be taken apart
	}
	fits := true
	format.ExpandTasks(job.GetArrayTasks(), func(task uint32) bool {
		if o.wantsTask(job.JobRecord, task) {
			job.Task, job.IsTask = task, true
			fits = add(job)
		}
		return fits
	})
	return fits
}

// wantsTask compares one task of a pending array with -j.
func (o *squeueOptions) wantsTask(r *pb.JobRecord, task uint32) bool {
	if !o.haveJobs {
		return true
	}
	return slices.ContainsFunc(o.jobs, func(s jobSelector) bool {
		return (s.job == r.GetId() || s.job == r.GetArrayJobId()) && (s.tasks == nil || s.tasks[task])
	})
}
