package sim

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/sched/record"
)

var (
	updateDocs = flag.Bool("update-docs", false, "measure, and rewrite the tables of docs/scheduling.md")
	onlyTables = flag.String("tables", "", "with -update-docs, only tables of these names, such as policies,halves")
)

const docPath = "../../docs/scheduling.md"

// TestDocTables rewrites the tables of docs/scheduling.md:
//
//	go test ./sched/sim -run TestDocTables -update-docs -seeds 10 -timeout 30m -traces DIR
func TestDocTables(t *testing.T) {
	if !*updateDocs {
		t.Skip("tables are measured only with -update-docs")
	}
	for _, table := range []struct {
		name string
		make func(*testing.T) string
	}{{"policies", policyTable}, {"halves", halvesTable}, {"load", loadTable}, {"placement", placementTable}, {"philly", phillyTable},
		{"cost", costTable}} {
		if *onlyTables != "" && !slices.Contains(strings.Split(*onlyTables, ","), table.name) {
			continue
		}
		if err := replaceTable(docPath, table.name, table.make(t)); err != nil {
			t.Fatal(err)
		}
	}
}

func replaceTable(path, name, text string) error {
	doc, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	open, end := []byte("<!-- table "+name+" -->\n"), []byte("<!-- end "+name+" -->\n")
	i, j := bytes.Index(doc, open), bytes.Index(doc, end)
	if i < 0 || j < i {
		return fmt.Errorf("no table %s in %s", name, path)
	}
	out := append(append(append([]byte(nil), doc[:i+len(open)]...), text...), doc[j:]...)
	return os.WriteFile(path, out, 0o644)
}

// swfTraces are the traces and the processors of their machines.
var swfTraces = []struct {
	trace string
	procs int
}{{"KTH-SP2", 100}, {"CTC-SP2", 338}, {"SDSC-SP2", 128}}

func policyTable(t *testing.T) string {
	var b bytes.Buffer
	b.WriteString(
		"| trace | policy | mean wait s | p50 | p90 | p99 | max | slowdown | utilization | Jain | wait vs Slurm-like | slowdown vs " +
			"Slurm-like | max vs EASY |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
	)
	for _, c := range swfTraces {
		jobs := readTrace(t, c.trace)
		var slurm, easy *Report
		for _, policy := range []string{"slurm-like", "easy", "fifo", "easy-sjbf", "default"} {
			r, err := Run(Options{Jobs: jobs, Procs: c.procs, Policy: policy})
			if err != nil {
				t.Fatal(err)
			}
			switch policy {
			case "slurm-like":
				slurm = r
			case "easy":
				easy = r
			}
			fmt.Fprintf(
				&b,
				"| %s | %s | %.0f | %d | %d | %d | %d | %.2f | %.3f | %.3f | %+.0f %% | %+.0f %% |",
				c.trace,
				policy,
				r.WaitMean,
				r.WaitP50,
				r.WaitP90,
				r.WaitP99,
				r.WaitMax,
				r.Slowdown,
				r.Utilization,
				r.Fairness,
				percent(r.WaitMean, slurm.WaitMean),
				percent(r.Slowdown, slurm.Slowdown),
			)
			if easy != nil {
				fmt.Fprintf(&b, " %+.1f %%", percent(float64(r.WaitMax), float64(easy.WaitMax)))
			}
			b.WriteString(" |\n")
		}
	}
	return b.String()
}

// halvesTable is each half of each trace for itself, begun with an idle machine.
func halvesTable(t *testing.T) string {
	b := newPartTable("half")
	for _, c := range swfTraces {
		jobs := readTrace(t, c.trace)
		for i, half := range [][]Job{jobs[:len(jobs)/2], jobs[len(jobs)/2:]} {
			b.rows(t, c.trace, fmt.Sprint(i+1), c.procs, half)
		}
	}
	return b.String()
}

// loadTable is each trace with its jobs submitted closer together and further apart, and a synthetic one without estimates.
func loadTable(t *testing.T) string {
	b := newPartTable("gaps")
	for _, c := range swfTraces {
		for _, tenths := range []int64{11, 9} {
			jobs := readTrace(t, c.trace)
			for i := range jobs {
				jobs[i].Submit = jobs[0].Submit + (jobs[i].Submit-jobs[0].Submit)*tenths/10
			}
			b.rows(t, c.trace, fmt.Sprintf("× %d.%d", tenths/10, tenths%10), c.procs, jobs)
		}
	}
	b.rows(t, "lublin_256", "× 1.0", 256, readTrace(t, "lublin_256"))
	return b.String()
}

func readTrace(t *testing.T, name string) []Job {
	t.Helper()
	jobs, _, err := ReadSWF(needTrace(t, name+".swf.gz"))
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

// partTable compares three policies on variants of traces.
type partTable struct{ bytes.Buffer }

func newPartTable(variant string) *partTable {
	b := &partTable{}
	fmt.Fprintf(
		b,
		"| trace | %s | policy | mean wait s | max | slowdown | wait vs Slurm-like | slowdown vs Slurm-like | max vs EASY "+
			"|\n|---|---|---|---|---|---|---|---|---|\n",
		variant,
	)
	return b
}

func (b *partTable) rows(t *testing.T, trace, variant string, procs int, jobs []Job) {
	t.Helper()
	var slurm, easy *Report
	for _, policy := range []string{"slurm-like", "easy", "default"} {
		r, err := Run(Options{Jobs: jobs, Procs: procs, Policy: policy})
		if err != nil {
			t.Fatal(err)
		}
		switch policy {
		case "slurm-like":
			slurm = r
		case "easy":
			easy = r
		}
		fmt.Fprintf(
			b,
			"| %s | %s | %s | %.0f | %d | %.2f | %+.0f %% | %+.0f %% |",
			trace,
			variant,
			policy,
			r.WaitMean,
			r.WaitMax,
			r.Slowdown,
			percent(r.WaitMean, slurm.WaitMean),
			percent(r.Slowdown, slurm.Slowdown),
		)
		if easy != nil {
			fmt.Fprintf(b, " %+.1f %%", percent(float64(r.WaitMax), float64(easy.WaitMax)))
		}
		b.WriteString(" |\n")
	}
}

func percent(x, of float64) float64 { return 100 * (x - of) / of }

func phillyTable(t *testing.T) string {
	jobs := readTrace(t, "philly")
	var b bytes.Buffer
	b.WriteString(
		"| GPUs | policy | longest queue | mean wait s | slowdown | passes | probes | wall s | µs per pass " +
			"|\n|---|---|---|---|---|---|---|---|---|\n",
	)
	for _, procs := range []int{768, 640, 440} {
		for _, policy := range []string{"easy", "default"} {
			r, err := Run(Options{Jobs: jobs, Procs: procs, Policy: policy, Clock: time.Now})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(
				&b,
				"| %d | %s | %d | %.0f | %.2f | %d | %d | %.1f | %.0f |\n",
				procs,
				policy,
				r.Queue,
				r.WaitMean,
				r.Slowdown,
				r.Passes,
				r.Probes,
				r.WallS,
				1e6*r.WallS/float64(r.Passes),
			)
		}
	}
	return b.String()
}

func placementTable(t *testing.T) string {
	var b bytes.Buffer
	fmt.Fprintf(
		&b,
		"GPU allocation in %% at 130 %% of demand, mean of %d seeds.\n\n| tasks | fgd | best fit | pack |\n|---|---|---|---|\n",
		*seeds,
	)
	for _, list := range []string{"default", "multigpu50", "gpuspec33"} {
		nodes, pods, err := ReadOpenb(needTrace(t, "openb_node_list_gpu_node.csv.gz"), needTrace(t, "openb_pod_list_"+list+".csv.gz"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "| %s |", list)
		for _, rule := range []record.Placement{record.FGD, record.BestFit, record.Pack} {
			var m mean
			for seed := range int64(*seeds) {
				m.add(100 * Placement(nodes, pods, rule, seed))
			}
			fmt.Fprintf(&b, " %.2f |", m.value())
		}
		b.WriteString("\n")
	}
	return b.String()
}
