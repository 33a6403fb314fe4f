package sim

// Figures are the figures by which rules are compared; lower is better. Times are seconds.
type Figures struct {
	Wait, P99, Max, Slowdown, WaitArea float64
}

// Figures returns those of the report.
func (r *Report) Figures() Figures {
	return Figures{r.WaitMean, float64(r.WaitP99), float64(r.WaitMax), r.Slowdown, r.WaitArea}
}

// Over returns by how many percent the figures exceed those of another rule.
func (f Figures) Over(of Figures) Figures {
	return f.each(of, func(a, b float64) float64 {
		if a == b {
			return 0
		}
		return 100 * (a - b) / max(b, 1)
	})
}

func (f Figures) each(g Figures, do func(a, b float64) float64) Figures {
	return Figures{do(f.Wait, g.Wait), do(f.P99, g.P99), do(f.Max, g.Max), do(f.Slowdown, g.Slowdown), do(f.WaitArea, g.WaitArea)}
}

// Spread is the mean of figures over several replays, and the lowest and the highest of each.
type Spread struct {
	Mean, Low, High Figures
	n               float64
}

// Add adds the figures of one more replay.
func (s *Spread) Add(f Figures) {
	if s.n == 0 {
		s.Low, s.High = f, f
	}
	s.n++
	s.Mean = s.Mean.each(f, func(m, x float64) float64 { return m + (x-m)/s.n })
	s.Low = s.Low.each(f, func(a, b float64) float64 { return min(a, b) })
	s.High = s.High.each(f, func(a, b float64) float64 { return max(a, b) })
}
