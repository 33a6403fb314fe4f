package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/sluice-hpc/sluice/sched/sim"
)

// print prints the figures of each policy, their increase over other policies, and the figures of each class of jobs.
func (x *experiment) print(w io.Writer, results []*result) {
	fmt.Fprintf(w, "%-13s %8s %10s %8s %8s %8s %9s %9s %10s %6s %6s %7s %9s %11s %8s\n", "policy", "jobs", "wait mean", "p50", "p90",
		"p99", "max", "slowdown", "area wait", "util", "Jain", "queue", "passes", "probes", "wall s")
	for _, r := range results {
		fmt.Fprintf(w, "%-13s %8d %10.0f %8d %8d %8d %9d %9.2f %10.0f %6.3f %6.3f %7d %9d %11d %8.1f\n", r.Policy, r.Jobs, r.WaitMean,
			r.WaitP50, r.WaitP90, r.WaitP99, r.WaitMax, r.Slowdown, r.WaitArea, r.Utilization, r.Fairness, r.Queue, r.Passes, r.Probes,
			r.WallS)
	}
	if x.copies > 1 {
		fmt.Fprintf(w, "\nmean of %d copies with gaps of 0.997 to 1.003, and their range\n", x.copies)
		printSpreads(w, results, "%.0f", func(r *result) sim.Spread { return r.Copies })
	}
	for _, of := range x.against {
		fmt.Fprintf(w, "\npercent over %s", of)
		if x.copies > 1 {
			fmt.Fprintf(w, ", mean of %d copies and their range", x.copies)
		}
		fmt.Fprintln(w)
		printSpreads(w, results, "%+.1f", func(r *result) sim.Spread { return r.Over[of] })
	}
	for _, r := range results {
		printClasses(w, r)
	}
}

// printClasses prints the figures of each class of jobs, and the increase of its mean wait over other policies, in percent.
func printClasses(w io.Writer, r *result) {
	fmt.Fprintf(w, "\n%-15s %8s %10s %8s %9s %9s", r.Policy, "jobs", "wait mean", "p99", "max", "slowdown")
	for _, of := range r.against {
		fmt.Fprintf(w, " %15s", "over "+of.Policy)
	}
	fmt.Fprintln(w)
	for i, k := range r.Classes { // a trace has the same classes under every policy
		fmt.Fprintf(w, "%-15s %8d %10.0f %8d %9d %9.2f", k.Name, k.Jobs, k.WaitMean, k.WaitP99, k.WaitMax, k.Slowdown)
		for _, of := range r.against {
			was := of.Classes[i].WaitMean
			fmt.Fprintf(w, " %+15.1f", 100*(k.WaitMean-was)/max(was, 1))
		}
		fmt.Fprintln(w)
	}
}

// printSpreads prints a line per result, with the range after each mean if there is one.
func printSpreads(w io.Writer, results []*result, number string, of func(*result) sim.Spread) {
	fmt.Fprintf(w, "%-13s %28s %28s %28s %28s %28s\n", "policy", "wait", "slowdown", "p99", "max", "area wait")
	for _, r := range results {
		s := of(r)
		show := func(mean, low, high float64) string {
			if low == high {
				return fmt.Sprintf(number, mean)
			}
			return fmt.Sprintf(number+" ("+number+" to "+number+")", mean, low, high)
		}
		fmt.Fprintf(w, "%-13s %28s %28s %28s %28s %28s\n", r.Policy, show(s.Mean.Wait, s.Low.Wait, s.High.Wait),
			show(s.Mean.Slowdown, s.Low.Slowdown, s.High.Slowdown), show(s.Mean.P99, s.Low.P99, s.High.P99),
			show(s.Mean.Max, s.Low.Max, s.High.Max), show(s.Mean.WaitArea, s.Low.WaitArea, s.High.WaitArea))
	}
}

// plotParts is the number of equal intervals into which the time is divided.
const plotParts = 400

// plot writes the plots of all policies.
func (x *experiment) plot(results []*result) error {
	if x.plots == "" {
		return nil
	}
	plots := []struct {
		file, title string
		lines       []sim.Series
	}{
		{"waits.svg", "mean wait by submission time, hours", nil},
		{"utilization.svg", "share of processors in use", nil},
		{"backlog.svg", "queued work, hours of the whole machine", nil},
	}
	days := 0.0
	for _, r := range results {
		waits, used, backlog := r.Timeline(x.jobs, x.procs, plotParts)
		for i, s := range []sim.Series{waits, used, backlog} {
			plots[i].lines = append(plots[i].lines, s)
		}
		days = max(days, r.Days())
	}
	for _, p := range plots {
		f, err := os.Create(filepath.Join(x.plots, p.file))
		if err == nil {
			err = sim.WritePlot(f, p.title, days, p.lines)
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			return fmt.Errorf("cannot write a plot: %w", err)
		}
	}
	return nil
}
