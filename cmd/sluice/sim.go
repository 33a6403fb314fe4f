package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/client/admin"
	"github.com/sluice-hpc/sluice/sched"
	"github.com/sluice-hpc/sluice/sched/sim"
)

// simCommand replays workload traces through the scheduler of the controller.
func simCommand() *admin.Verb {
	return &admin.Verb{
		Name: "sim", Usage: "replay a workload trace through the scheduler",
		Description: "An SWF trace (Parallel Workloads Archive; .gz too), or the openb placement experiment (Alibaba " +
			"cluster-trace-gpu-v2023).\n\n" +
			"Examples:\n   sluice sim --swf KTH-SP2.swf.gz --procs 100 --policy easy\n   sluice sim --swf trace.swf --procs 64 --policy " +
			"all --json\n" +
			"   sluice sim --openb-nodes nodes.csv.gz --openb-pods pods.csv.gz --placement fgd --seeds 10",
		Flags: func(f *flag.FlagSet) {
			f.String("swf", "", "trace in the standard workload format `FILE`")
			f.Int("procs", 0, "processors of the machine `P`")
			f.Int("node-procs", 0, "divide the machine into nodes of `N` processors (default: one pool)")
			f.String("policy", "default", "`NAME`: "+strings.Join(policyNames(), ", ")+", or all")
			f.String("estimates", "requested", "run times as `requested` by users, or exact")
			f.String("openb-nodes", "", "node list `CSV` of the placement experiment")
			f.String("openb-pods", "", "pod list `CSV` of the placement experiment")
			f.String("placement", "fgd", "`RULE`: pack, fgd or bestfit")
			f.Int("seeds", 10, "repetitions of the placement experiment `N`")
			f.String("jobs-out", "", "write \"id submit start end\" of each job to `FILE`")
			f.Bool("json", false, "print the figures as JSON")
			f.BoolVar(f.Bool("quiet", false, "no progress (-q)"), "q", false, "")
		},
		Run: runSim,
	}
}

func policyNames() []string { return slices.Sorted(maps.Keys(sim.Policies)) }

func runSim(c *admin.Call) error {
	switch {
	case c.String("openb-nodes") != "" && c.String("openb-pods") != "":
		return runOpenb(c)
	case c.String("swf") == "":
		return fmt.Errorf("give a trace: --swf FILE, or --openb-nodes FILE --openb-pods FILE")
	case c.Int("procs") < 1:
		return fmt.Errorf("give the number of processors of the machine: --procs P")
	}
	exact := c.String("estimates") == "exact"
	if !exact && c.String("estimates") != "requested" {
		return fmt.Errorf("--estimates is requested or exact, not %q", c.String("estimates"))
	}
	policies := []string{c.String("policy")}
	if policies[0] == "all" {
		policies = policyNames()
	}
	out := c.String("jobs-out")
	if out != "" && len(policies) > 1 {
		return fmt.Errorf("--jobs-out is for one policy at a time, not --policy all")
	}
	jobs, left, err := sim.ReadSWF(c.String("swf"))
	if err != nil {
		return err
	}
	jobs, large := sim.Fitting(jobs, c.Int("procs"))
	if left > 0 && !c.Bool("quiet") {
		fmt.Fprintf(c.Stderr, "%d jobs without a run time, processors or a submit time are skipped\n", left)
	}
	if large > 0 && !c.Bool("quiet") {
		fmt.Fprintf(c.Stderr, "%d jobs that request more than %d processors are skipped\n", large, c.Int("procs"))
	}
	var records *os.File
	if out != "" { // before the work, so that nobody waits for what cannot be written
		if records, err = os.Create(out); err != nil {
			return fmt.Errorf("cannot write the jobs: %w", err)
		}
		defer records.Close()
	}
	var reports []*sim.Report
	for _, p := range policies {
		r, err := sim.Run(sim.Options{Jobs: jobs, Procs: c.Int("procs"), NodeProcs: c.Int("node-procs"), Policy: p, Exact: exact,
			Progress: progress(c, p), Clock: time.Now})
		if err != nil {
			return err
		}
		reports = append(reports, r)
	}
	if records != nil {
		if err := errors.Join(reports[0].WriteRecords(records), records.Close()); err != nil {
			return fmt.Errorf("cannot write the jobs: %w", err)
		}
	}
	return printReports(c, reports)
}

// progress shows on a terminal how far a run has come.
func progress(c *admin.Call, policy string) func(done, all int) {
	if info, err := os.Stderr.Stat(); c.Bool("quiet") || err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return func(done, all int) {
		end := "\r"
		if done == all {
			end = "\r\033[K"
		}
		fmt.Fprintf(os.Stderr, "%s: %d of %d jobs%s", policy, done, all, end)
	}
}

func printReports(c *admin.Call, reports []*sim.Report) error {
	if c.Bool("json") {
		return writeJSON(c.Stdout, reports)
	}
	fmt.Fprintf(c.Stdout, "%-13s %8s %10s %8s %8s %8s %9s %9s %6s %6s %7s %9s %11s %8s\n", "policy", "jobs", "wait mean", "p50", "p90",
		"p99", "max", "slowdown", "util", "Jain", "queue", "passes", "probes", "wall s")
	for _, r := range reports {
		fmt.Fprintf(c.Stdout, "%-13s %8d %10.0f %8d %8d %8d %9d %9.2f %6.3f %6.3f %7d %9d %11d %8.1f\n", r.Policy, r.Jobs, r.WaitMean,
			r.WaitP50, r.WaitP90, r.WaitP99, r.WaitMax, r.Slowdown, r.Utilization, r.Fairness, r.Queue, r.Passes, r.Probes, r.WallS)
	}
	return nil
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

var placements = map[string]sched.Placement{"pack": sched.Pack, "fgd": sched.FGD, "bestfit": sched.BestFit}

func runOpenb(c *admin.Call) error {
	rule, ok := placements[c.String("placement")]
	if !ok {
		return fmt.Errorf("--placement is pack, fgd or bestfit, not %q", c.String("placement"))
	}
	nodes, pods, err := sim.ReadOpenb(c.String("openb-nodes"), c.String("openb-pods"))
	if err != nil {
		return err
	}
	var sum float64
	var each []float64
	for seed := range c.Int("seeds") {
		share := sim.Placement(nodes, pods, rule, int64(seed+1))
		each = append(each, share)
		sum += share
	}
	if len(each) == 0 {
		return fmt.Errorf("--seeds is at least 1")
	}
	if c.Bool("json") {
		return writeJSON(c.Stdout, map[string]any{"placement": c.String("placement"), "allocated": each, "mean": sum / float64(len(each))})
	}
	fmt.Fprintf(c.Stdout, "%s: %.2f %% of the GPUs allocated at 130 %% of demand (mean of %d seeds)\n", c.String("placement"),
		100*sum/float64(len(each)), len(each))
	return nil
}
