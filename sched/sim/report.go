package sim

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
)

// Report is the result of a replay. Times are seconds.
type Report struct {
	Policy      string  `json:"policy"`
	Jobs        int     `json:"jobs"`
	WaitMean    float64 `json:"wait_mean_s"`
	WaitP50     int64   `json:"wait_p50_s"`
	WaitP90     int64   `json:"wait_p90_s"`
	WaitP99     int64   `json:"wait_p99_s"`
	WaitMax     int64   `json:"wait_max_s"`
	Slowdown    float64 `json:"bounded_slowdown_mean"` // max(1, (wait+run)/max(run, 10))
	Utilization float64 `json:"utilization"`           // of the machine, from the first submission to the last end
	Fairness    float64 `json:"fairness_jain"`         // Jain's index over the users' mean bounded slowdowns
	// WaitArea is the mean wait weighted by processors times run time: the wait for one processor hour.
	WaitArea float64  `json:"wait_mean_by_area_s"`
	Classes  []*Class `json:"classes"`
	Queue    int      `json:"queue_max"`
	Passes   int      `json:"passes"`
	Probes   int64    `json:"probes"`
	WallS    float64  `json:"wall_s"`
	Records  []Record `json:"-"`
}

func (w *world) report() *Report {
	r := &Report{Policy: w.opts.Policy, Jobs: len(w.recs), Queue: w.queue, Passes: w.passN, Probes: w.probe, Records: w.recs}
	waits := make([]int64, len(w.recs))
	users := map[string]*mean{}
	var wait, slow mean
	var area, waited float64
	first, last := int64(math.MaxInt64), int64(0)
	for i := range w.recs {
		rec, j := &w.recs[i], &w.jobs[i]
		waits[i] = rec.Start - rec.Submit
		b := bounded(waits[i], j.RunS)
		wait.add(float64(waits[i]))
		slow.add(b)
		if users[j.User] == nil {
			users[j.User] = &mean{}
		}
		users[j.User].add(b)
		work := float64(j.RunS) * float64(j.Procs)
		area += work
		waited += work * float64(waits[i])
		first, last = min(first, rec.Submit), max(last, rec.End)
	}
	slices.Sort(waits)
	r.WaitMean, r.Slowdown = wait.value(), slow.value()
	r.WaitP50, r.WaitP90, r.WaitP99, r.WaitMax = rank(waits, 50), rank(waits, 90), rank(waits, 99), waits[len(waits)-1]
	r.Utilization = area / (float64(w.opts.Procs) * float64(max(1, last-first)))
	r.Fairness, r.WaitArea, r.Classes = jain(users), waited/area, w.classes()
	return r
}

func bounded(wait, run int64) float64 {
	return math.Max(1, float64(wait+run)/float64(max(run, 10)))
}

// rank returns the nearest-rank percentile of sorted values.
func rank(sorted []int64, percent int) int64 {
	i := (len(sorted)*percent + 99) / 100
	return sorted[max(0, i-1)]
}

type mean struct {
	sum float64
	n   int
}

func (m *mean) add(x float64)  { m.sum, m.n = m.sum+x, m.n+1 }
func (m *mean) value() float64 { return m.sum / float64(max(1, m.n)) }

// jain is (Σx)² / (n Σx²): 1 when all are equal, 1/n when one has it all. The
// sum goes over sorted values, so that it does not depend on a map's order.
func jain(users map[string]*mean) float64 {
	values := make([]float64, 0, len(users))
	for _, m := range users {
		values = append(values, m.value())
	}
	slices.Sort(values)
	var sum, squares float64
	for _, x := range values {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(values)) * squares)
}

// WriteRecords writes a line "id submit start end" per job, in order of submission.
func (r *Report) WriteRecords(w io.Writer) error {
	b := bufio.NewWriter(w)
	for _, rec := range r.Records {
		fmt.Fprintf(b, "%d %d %d %d\n", rec.ID, rec.Submit, rec.Start, rec.End)
	}
	return b.Flush()
}
