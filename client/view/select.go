package view

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/jobid"
)

// Selector is one element of -j or -s: a job, or tasks of an array. Job 0 is every job.
type Selector struct {
	Job   uint32
	Tasks map[uint32]bool // nil: all
	Step  string          // "" = all
}

// ParseSelector reads one id. Like Slurm, it takes "8_x" as an element that does not exist.
func ParseSelector(word string, steps bool) (s Selector, ok bool) {
	if steps {
		word, s.Step, _ = strings.Cut(word, ".")
	}
	digits, tasks, hasTasks := strings.Cut(word, "_")
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || n == 0 {
		return s, false
	}
	s.Job = uint32(n)
	if !hasTasks || tasks == "*" {
		return s, true
	}
	s.Tasks = map[uint32]bool{}
	format.ExpandTasks(strings.Trim(tasks, "[]"), func(task uint32) bool {
		s.Tasks[task] = true
		return len(s.Tasks) < maxSelectedTasks
	})
	return s, true
}

// maxSelectedTasks bounds the cost of "12_[0-4000000000]".
const maxSelectedTasks = 1 << 20

// Matches reports whether a record is the job or contains one of the tasks.
func (s Selector) Matches(r *msg.JobRecord) bool {
	if s.Tasks == nil {
		return s.isJob(r)
	}
	if r.GetArrayJobId() == 0 || s.Job != 0 && s.Job != r.GetArrayJobId() {
		return false
	}
	if r.GetArrayTasks() == "" {
		return s.Tasks[r.GetArrayTaskId()]
	}
	found := false
	format.ExpandTasks(r.GetArrayTasks(), func(task uint32) bool {
		found = s.Tasks[task]
		return !found
	})
	return found
}

// isJob reports whether a record belongs to the job or the array.
func (s Selector) isJob(r *msg.JobRecord) bool {
	return s.Job == 0 || s.Job == r.GetId() || s.Job == r.GetArrayJobId()
}

// IDs returns the ids to query. For tasks that is the array, all of whose records the controller returns.
func IDs(jobs []Selector) []string {
	var ids []string
	for _, j := range jobs {
		ids = append(ids, strconv.FormatUint(uint64(j.Job), 10))
	}
	return ids
}

// AskedPart reduces a record of several tasks to the requested ones.
func AskedPart(jobs []Selector, r *msg.JobRecord) *msg.JobRecord {
	if r.GetArrayTasks() == "" || slices.ContainsFunc(jobs, func(s Selector) bool { return s.Tasks == nil && s.Matches(r) }) {
		return r
	}
	var tasks []uint32
	format.ExpandTasks(r.GetArrayTasks(), func(task uint32) bool {
		if WantsTask(jobs, r, task) {
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

// WantsTask reports whether a task of a pending array was requested.
func WantsTask(jobs []Selector, r *msg.JobRecord, task uint32) bool {
	return slices.ContainsFunc(jobs, func(s Selector) bool {
		return s.isJob(r) && (s.Tasks == nil || s.Tasks[task])
	})
}
