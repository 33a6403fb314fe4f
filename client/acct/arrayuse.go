package acct

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/conf/timespec"
)

// ArrayUse sums up seff's figures for the tasks of an array.
type ArrayUse struct {
	Records int // number of records added
	head    []byte
	states  map[string]uint64
	tasks   uint64

	ran, cpu, core       uint64 // tasks that held resources; CPU seconds used and held
	wall, longest        int64
	memUsed, mem, worst  uint64 // KiB, and the maximum of one task
	gpuSeconds, measured float64
	gpuUsed              float64
}

// Add adds a task, or the record of the tasks that have not begun.
func (a *ArrayUse) Add(c *Context, j *msg.JobRecord) {
	r := Row{JobRecord: j, all: Together(j, c.MadeFor(j))}
	if a.Records++; a.Records == 1 {
		a.states = map[string]uint64{}
		a.head = fmt.Appendf(nil, "Array Job ID: %d\nCluster: %s\nUser/Group: %s/%s\n", j.GetArrayJobId(), format.Escape(c.Cluster),
			format.Escape(or(j.GetSpec().GetUser(), number(uint64(j.GetSpec().GetUid())))), format.Escape(group(c, r)))
	}
	n := uint64(1)
	if tasks, err := jobid.ParseArray(j.GetArrayTasks()); j.GetArrayTasks() != "" && err == nil {
		n = tasks.Total()
	}
	a.tasks += n
	a.states[or(strings.Fields(r.State())[0], "UNKNOWN")] += n
	if len(j.GetAlloc()) == 0 {
		return
	}
	user, system := r.cpu()
	wall := r.elapsed(c)
	a.ran++
	a.cpu += (user + system) / 1e6
	a.core += uint64(wall) * r.cpus()
	a.wall, a.longest = a.wall+wall, max(a.longest, wall)
	var used uint64
	for _, u := range r.usage() {
		used += u.GetMaxRssKib()
	}
	a.memUsed, a.worst = a.memUsed+used, max(a.worst, used)
	for _, s := range j.GetAlloc() {
		a.mem += s.GetMemMib() << 10
	}
	if gpus, _, _ := r.gpus(); gpus > 0 {
		held := float64(wall) * float64(gpus)
		a.gpuSeconds += held
		if u := format.UseOf(j).GPUs; u.UtilOf > 0 {
			a.measured += held
			a.gpuUsed += held * min(u.Util, 100) / 100
		}
	}
}

// Append appends the summary.
func (a *ArrayUse) Append(b []byte) []byte {
	b = append(b, a.head...)
	var states []string
	for state := range a.states {
		states = append(states, state)
	}
	slices.SortFunc(states, func(x, y string) int {
		if a.states[x] != a.states[y] {
			return int(a.states[y]) - int(a.states[x])
		}
		return strings.Compare(x, y)
	})
	for i, state := range states {
		states[i] = fmt.Sprintf("%d %s", a.states[state], state)
	}
	b = fmt.Appendf(b, "Tasks: %d (%s)\n", a.tasks, strings.Join(states, ", "))
	if a.ran > 0 {
		b = fmt.Appendf(b, "CPU Utilized: %s\nCPU Efficiency: %s of %s core-walltime\n", timespec.Clock(int64(a.cpu)),
			percent(float64(a.cpu), float64(a.core)), timespec.Clock(int64(a.core)))
		b = fmt.Appendf(b, "Job Wall-clock time: %s on average, at most %s\n", timespec.Clock(a.wall/int64(a.ran)),
			timespec.Clock(a.longest))
		b = fmt.Appendf(b, "Memory Utilized: %s on average, at most %s\n", kib(a.memUsed/a.ran), kib(a.worst))
		if a.mem > 0 {
			b = fmt.Appendf(b, "Memory Efficiency: %s of %s on average\n", percent(float64(a.memUsed), float64(a.mem)), kib(a.mem/a.ran))
		}
	}
	switch {
	case a.measured > 0:
		b = fmt.Appendf(b, "GPU Efficiency: %s of %s GPU-walltime\n", percent(a.gpuUsed, a.measured), timespec.Clock(int64(a.measured)))
	case a.gpuSeconds > 0:
		b = append(b, "GPU Efficiency: n/a\n"...)
	}
	return append(b, "Each task: seff --tasks JOB, or seff JOB_TASK\n"...)
}
