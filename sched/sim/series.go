package sim

// Series is a line of a plot: a value for each of equal parts of the time from the first submission to the last end.
type Series struct {
	Name   string
	Values []float64
}

// Timeline describes a replay over time, in parts: the mean wait in hours of the jobs submitted in each, the fraction of the processors in
// use, and the waiting work (run time times processors) in hours of the whole machine, the latter two as means of the part.
func (r *Report) Timeline(jobs []Job, procs, parts int) (waits, used, backlog Series) {
	waits, used, backlog = Series{r.Policy, make([]float64, parts)}, Series{r.Policy, make([]float64, parts)},
		Series{r.Policy, make([]float64, parts)}
	first, last := r.span()
	width := float64(max(1, last-first)) / float64(parts)
	submitted := make([]mean, parts)
	for i, rec := range r.Records {
		p := float64(jobs[i].Procs) / float64(procs)
		at := min(parts-1, int(float64(rec.Submit-first)/width))
		submitted[at].add(float64(rec.Start-rec.Submit) / 3600)
		spread(used.Values, float64(rec.Start-first)/width, float64(rec.End-first)/width, p)
		spread(backlog.Values, float64(rec.Submit-first)/width, float64(rec.Start-first)/width, p*float64(jobs[i].RunS)/3600)
	}
	for i := range submitted {
		waits.Values[i] = submitted[i].value()
	}
	return waits, used, backlog
}

// spread adds x to values from one point to another, proportionally where it covers a value in part.
func spread(values []float64, from, to, x float64) {
	for i := max(0, int(from)); i < len(values) && float64(i) < to; i++ {
		values[i] += x * (min(to, float64(i+1)) - max(from, float64(i)))
	}
}

// span returns the times of the first submission and the last end.
func (r *Report) span() (first, last int64) {
	first, last = r.Records[0].Submit, r.Records[0].End
	for _, rec := range r.Records {
		last = max(last, rec.End)
	}
	return first, last
}

// Days returns the length of the replay, in days.
func (r *Report) Days() float64 {
	first, last := r.span()
	return float64(last-first) / 86400
}
