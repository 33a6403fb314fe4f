package sim

import (
	"fmt"
	"math"
)

// maxScale bounds Scale's factors, so that times stay within what a trace may hold.
const maxScale = 1000

// Scale returns a copy of jobs in which the gaps between submissions are multiplied by gaps and the run times and time limits by times.
// Both together change the unit of time. Times are rounded to whole seconds and are at least one.
func Scale(jobs []Job, gaps, times float64) ([]Job, error) {
	for _, f := range []float64{gaps, times} {
		if !(f >= 1.0/maxScale && f <= maxScale) {
			return nil, fmt.Errorf("cannot scale a trace by %g: factors are from %g to %d", f, 1.0/maxScale, maxScale)
		}
	}
	out := make([]Job, len(jobs))
	for i, j := range jobs {
		j.Submit = jobs[0].Submit + int64(math.Round(float64(j.Submit-jobs[0].Submit)*gaps))
		j.RunS = max(1, int64(math.Round(float64(j.RunS)*times)))
		j.RequestS = max(j.RunS, int64(math.Round(float64(j.RequestS)*times)))
		out[i] = j
	}
	return out, nil
}

// Perturbed returns factors for the gaps of n copies of a trace that differ only by chance: evenly from 0.997 to 1.003, with 1 in the
// middle. A result that holds for one copy and not for the next says nothing about a rule.
func Perturbed(n int) []float64 {
	const most = 0.003
	if n <= 1 {
		return []float64{1}
	}
	out := make([]float64, n)
	for i := range out {
		out[i] = 1 - most + 2*most*float64(i)/float64(n-1)
	}
	return out
}
