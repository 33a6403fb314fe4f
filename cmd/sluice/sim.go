package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/sched/record"
	"github.com/sluice-hpc/sluice/sched/sim"
)

// simVerb is `sluice sim`: it replays workload traces through the scheduler of the controller.
func simVerb() *command.Verb {
	value := func(long, meta, help, standard string) command.Option {
		return command.Option{Name: opt.Name{Long: long, Arg: opt.Required}, Meta: meta, Help: help, Default: standard}
	}
	number := func(long, meta, help, standard string) command.Option {
		o := value(long, meta, help, standard)
		o.Is = command.Whole
		return o
	}
	return &command.Verb{
		Name: "sim", Line: "replay a workload trace through the scheduler",
		Page: command.Page{
			About: `Replays a workload trace through the scheduler of the controller: an SWF trace (Parallel Workloads Archive; .gz
too), or the openb placement experiment (Alibaba cluster-trace-gpu-v2023). Each policy is compared with EASY
backfill and with Slurm's rule on the same jobs.`,
			Options: []command.Option{
				value("swf", "FILE", "trace in the standard workload format", ""),
				number("procs", "P", "processors of the machine", ""),
				number("node-procs", "N", "divide the machine into nodes of N processors (default: one pool)", ""),
				value("policy", "NAME", strings.Join(policyNames(), ", ")+", or all", "default"),
				value("estimates", "WHICH", "run times as requested by users, or exact", "requested"),
				value("against", "POLICIES", "compare with these policies, or with none", "easy,slurm-like"),
				number("copies", "N", "replay N copies with gaps of 0.997 to 1.003 between submissions", "1"),
				value("scale-gaps", "F", "multiply the gaps between submissions by F", "1"),
				value("scale-times", "F", "multiply run times and time limits by F", "1"),
				value("weights", "FACTOR=N,...", "multifactor priority: "+strings.Join(slices.Sorted(maps.Keys(weightOf)), ", "), ""),
				value("qos", "QUEUE=N,...", "priorities of the trace's queues", ""),
				number("half-life", "DAYS", "half-life of usage, for fair share", "7"),
				value("plots", "DIR", "write waits.svg, utilization.svg and backlog.svg to DIR", ""),
				value("openb-nodes", "CSV", "node list of the placement experiment", ""),
				value("openb-pods", "CSV", "pod list of the placement experiment", ""),
				value("placement", "RULE", "pack, fgd or bestfit", "fgd"),
				number("seeds", "N", "repetitions of the placement experiment", "10"),
				value("jobs-out", "FILE", "write \"id submit start end\" of each job to FILE", ""),
				{Name: opt.Name{Long: "json"}, Help: "print the figures as JSON"},
				{Name: opt.Name{Long: "quiet", Short: 'q'}, Help: "no progress"},
			},
			Examples: `  sluice sim --swf KTH-SP2.swf.gz --procs 100
  sluice sim --swf trace.swf --procs 64 --policy all --json
  sluice sim --swf trace.swf --procs 64 --scale-gaps 0.9 --copies 9 --against easy
  sluice sim --swf trace.swf --procs 64 --weights age=1000,fairshare=10000,qos=5000 --qos 1=10,2=5 --plots plots
  sluice sim --openb-nodes nodes.csv.gz --openb-pods pods.csv.gz --placement fgd --seeds 10
`,
		},
		Run: runSim,
	}
}

func policyNames() []string { return slices.Sorted(maps.Keys(sim.Policies)) }

func runSim(c *command.Call) error {
	switch {
	case c.Text("openb-nodes") != "" && c.Text("openb-pods") != "":
		return runOpenb(c)
	case c.Text("swf") == "":
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
	if out := c.Text("jobs-out"); out != "" { // first, so that a file that cannot be written does not cost a whole run
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
	if c.Given("json") {
		return writeJSON(c.Stdout, results)
	}
	x.print(c.Stdout, results)
	return nil
}

// readJobs reads the trace, drops jobs that the machine cannot run, and scales it.
func readJobs(c *command.Call, x *experiment) ([]sim.Job, error) {
	jobs, left, err := sim.ReadSWF(c.Text("swf"))
	if err != nil {
		return nil, err
	}
	jobs, large := sim.Fitting(jobs, x.procs)
	if left > 0 && !c.Given("quiet") {
		fmt.Fprintf(c.Stderr, "%d jobs without a run time, processors or a submit time are skipped\n", left)
	}
	if large > 0 && !c.Given("quiet") {
		fmt.Fprintf(c.Stderr, "%d jobs that request more than %d processors are skipped\n", large, x.procs)
	}
	return sim.Scale(jobs, x.gaps, x.times)
}

// progress shows the progress of a run on a terminal.
func progress(c *command.Call, policy string) func(done, all int) {
	if info, err := os.Stderr.Stat(); c.Given("quiet") || err != nil || info.Mode()&os.ModeCharDevice == 0 {
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

func runOpenb(c *command.Call) error {
	rule, ok := placements[c.Text("placement")]
	if !ok {
		return fmt.Errorf("--placement takes pack, fgd or bestfit, not %q", c.Text("placement"))
	}
	nodes, pods, err := sim.ReadOpenb(c.Text("openb-nodes"), c.Text("openb-pods"))
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
		return fmt.Errorf("--seeds must be at least 1")
	}
	if c.Given("json") {
		return writeJSON(c.Stdout, map[string]any{"placement": c.Text("placement"), "allocated": each, "mean": sum / float64(len(each))})
	}
	fmt.Fprintf(c.Stdout, "%s: %.2f %% of the GPUs allocated at 130 %% of demand (mean of %d seeds)\n", c.Text("placement"),
		100*sum/float64(len(each)), len(each))
	return nil
}
