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

	"github.com/sluice-hpc/sluice/client/admin"
	"github.com/sluice-hpc/sluice/sched/record"
	"github.com/sluice-hpc/sluice/sched/sim"
)

// simCommand replays workload traces through the scheduler of the controller.
func simCommand() *admin.Verb {
	return &admin.Verb{
		Name: "sim", Usage: "replay a workload trace through the scheduler",
		Description: "An SWF trace (Parallel Workloads Archive; .gz too), or the openb placement experiment (Alibaba " +
			"cluster-trace-gpu-v2023). Each policy is compared with EASY backfill and with Slurm's rule on the same jobs.\n\n" +
			"Examples:\n   sluice sim --swf KTH-SP2.swf.gz --procs 100\n   sluice sim --swf trace.swf --procs 64 --policy " +
			"all --json\n" +
			"   sluice sim --swf trace.swf --procs 64 --scale-gaps 0.9 --copies 9 --against easy\n" +
			"   sluice sim --swf trace.swf --procs 64 --weights age=1000,fairshare=10000,qos=5000 --qos 1=10,2=5 --plots plots\n" +
			"   sluice sim --openb-nodes nodes.csv.gz --openb-pods pods.csv.gz --placement fgd --seeds 10",
		Flags: func(f *flag.FlagSet) {
			f.String("swf", "", "trace in the standard workload format `FILE`")
			f.Int("procs", 0, "processors of the machine `P`")
			f.Int("node-procs", 0, "divide the machine into nodes of `N` processors (default: one pool)")
			f.String("policy", "default", "`NAME`: "+strings.Join(policyNames(), ", ")+", or all")
			f.String("estimates", "requested", "run times as `requested` by users, or exact")
			f.String("against", "easy,slurm-like", "the `POLICIES` to compare with, or none")
			f.Int("copies", 1, "replay `N` copies with gaps of 0.997 to 1.003 between submissions")
			f.String("scale-gaps", "1", "multiply the gaps between submissions by `F`")
			f.String("scale-times", "1", "multiply run times and time limits by `F`")
			f.String("weights", "", "multifactor priority, `FACTOR=N`,...: "+strings.Join(slices.Sorted(maps.Keys(weightOf)), ", "))
			f.String("qos", "", "priorities of the trace's queues, `QUEUE=N`,...")
			f.Int("half-life", 7, "of usage, for fair share, in `DAYS`")
			f.String("plots", "", "write waits.svg, utilization.svg and backlog.svg to `DIR`")
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
	}
	x, err := experimentOf(c)
	if err != nil {
		return err
	}
	if x.jobs, err = readJobs(c, x); err != nil {
		return err
	}
	var records *os.File
	if out := c.String("jobs-out"); out != "" { // before the work, so that nobody waits for what cannot be written
		if records, err = os.Create(out); err != nil {
			return fmt.Errorf("cannot write the jobs: %w", err)
		}
		defer records.Close()
	}
	if x.plots != "" {
		if err := os.MkdirAll(x.plots, 0o777); err != nil {
			return fmt.Errorf("cannot write the plots: %w", err)
		}
	}
	results, err := x.run(c)
	if err != nil {
		return err
	}
	if records != nil {
		if err := errors.Join(results[0].WriteRecords(records), records.Close()); err != nil {
			return fmt.Errorf("cannot write the jobs: %w", err)
		}
	}
	if err := x.plot(results); err != nil {
		return err
	}
	if c.Bool("json") {
		return writeJSON(c.Stdout, results)
	}
	x.print(c.Stdout, results)
	return nil
}

// readJobs reads the trace, leaves out what the machine cannot run, and scales it.
func readJobs(c *admin.Call, x *experiment) ([]sim.Job, error) {
	jobs, left, err := sim.ReadSWF(c.String("swf"))
	if err != nil {
		return nil, err
	}
	jobs, large := sim.Fitting(jobs, x.procs)
	if left > 0 && !c.Bool("quiet") {
		fmt.Fprintf(c.Stderr, "%d jobs without a run time, processors or a submit time are skipped\n", left)
	}
	if large > 0 && !c.Bool("quiet") {
		fmt.Fprintf(c.Stderr, "%d jobs that request more than %d processors are skipped\n", large, x.procs)
	}
	return sim.Scale(jobs, x.gaps, x.times)
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

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

var placements = map[string]record.Placement{"pack": record.Pack, "fgd": record.FGD, "bestfit": record.BestFit}

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
