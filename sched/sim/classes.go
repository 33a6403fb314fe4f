package sim

import "slices"

// Class holds a replay's measurements for the jobs of a width or of a run time. Times are seconds.
type Class struct {
	Name     string  `json:"name"`
	Jobs     int     `json:"jobs"`
	WaitMean float64 `json:"wait_mean_s"`
	WaitP99  int64   `json:"wait_p99_s"`
	WaitMax  int64   `json:"wait_max_s"`
	Slowdown float64 `json:"bounded_slowdown_mean"`

	in    func(j *Job) bool
	waits []int64
	slow  mean
}

// classesOf returns the classes for a machine of procs processors: by the fraction of it that a job takes, and by run time.
func classesOf(procs int) []*Class {
	wider := func(less, most int) func(*Job) bool {
		return func(j *Job) bool { return j.Procs*most <= procs && (less == 0 || j.Procs*less > procs) }
	}
	longer := func(more, most int64) func(*Job) bool {
		return func(j *Job) bool { return j.RunS > more && (most == 0 || j.RunS <= most) }
	}
	return []*Class{
		{Name: "width to 1/32", in: wider(0, 32)},
		{Name: "width to 1/8", in: wider(32, 8)},
		{Name: "width to 1/3", in: wider(8, 3)},
		{Name: "width over 1/3", in: wider(3, 1)},
		{Name: "run to 10 min", in: longer(0, 600)},
		{Name: "run to 1 h", in: longer(600, 3600)},
		{Name: "run to 8 h", in: longer(3600, 8*3600)},
		{Name: "run over 8 h", in: longer(8*3600, 0)},
	}
}

// classes assigns the results to classes; those without jobs are left out.
func (w *world) classes() []*Class {
	all := classesOf(w.opts.Procs)
	for i := range w.recs {
		for _, c := range all {
			if c.in(&w.jobs[i]) {
				wait := w.recs[i].Start - w.recs[i].Submit
				c.waits = append(c.waits, wait)
				c.slow.add(bounded(wait, w.jobs[i].RunS))
			}
		}
	}
	for _, c := range all {
		if c.Jobs = len(c.waits); c.Jobs == 0 {
			continue
		}
		var wait mean
		for _, s := range c.waits {
			wait.add(float64(s))
		}
		slices.Sort(c.waits)
		c.WaitMean, c.Slowdown = wait.value(), c.slow.value()
		c.WaitP99, c.WaitMax = rank(c.waits, 99), c.waits[len(c.waits)-1]
		c.waits = nil
	}
	return slices.DeleteFunc(all, func(c *Class) bool { return c.Jobs == 0 })
}
