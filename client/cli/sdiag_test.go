package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/sdiag"
)

// statsOf is a controller that answers Stats alone.
type statsOf struct {
	msg.ControllerAPIClient
	reply *msg.StatsReply
	asked *msg.StatsRequest
}

func (s *statsOf) Close() error { return nil }

func (s *statsOf) Stats(_ context.Context, r *msg.StatsRequest) (*msg.StatsReply, error) {
	s.asked = r
	return s.reply, nil
}

func runSdiag(s *statsOf, args ...string) (rc int, stdout, stderr string) {
	var out, errs bytes.Buffer
	e := &command.Env{Name: "sdiag", Stdout: &out, Stderr: &errs, Now: time.Now,
		Dial: func(context.Context) (*client.Client, error) { return &client.Client{ControllerAPIClient: s}, nil }}
	rc = sdiag.Main(e, args)
	return rc, out.String(), errs.String()
}

func someStats() *statsOf {
	return &statsOf{reply: &msg.StatsReply{NowNs: 1795199176e9, SinceNs: 1795199056e9,
		Values: map[string]float64{"passes": 10, "truncated": 1, "pass_last_ns": 2e6, "pass_max_ns": 9e6, "pass_total_ns": 4e7,
			"tried": 50, "last_tried": 4, "queued": 70, "queue": 6,
			"pass_last_s": 1795199170, "jobs_submitted": 12, "jobs_canceled": 2, "backfilled": 3, "backfilled_ever": 5, "active_calls": 1,
			"links": 2, "pending": 6, "running": 4, "latency_us": 23},
		Methods: []*msg.CallStats{{Name: "Jobs", Count: 9, TotalUs: 900}, {Name: "Ping", Count: 4, TotalUs: 4000},
			{Name: "Explain", Count: 1, TotalUs: 8}},
		Users: []*msg.CallStats{{Name: "root", Count: 10, TotalUs: 100}, {Name: "al\nice", Uid: 1000, Count: 4, TotalUs: 4808}}}}
}

// The lines are those that exporters look for, after the label as they cut it.
func TestSdiagText(t *testing.T) {
	rc, out, stderr := runSdiag(someStats())
	if rc != 0 || stderr != "" {
		t.Fatalf("exit code %d, %q", rc, stderr)
	}
	sections := strings.SplitN(out, "Backfilling stats\n", 2)
	if len(sections) != 2 {
		t.Fatalf("no backfilling stats:\n%s", out)
	}
	for i, want := range [][]string{
		{"Server thread count:  1", "Agent queue size:     0", "Jobs submitted: 12", "Jobs pending:   6", "\tLast cycle:   2000",
			"\tMean cycle:   4000", "\tMean depth cycle:  5",
			"\tCycles per minute: 5", "\tLast queue length: 6", "\tEnd of job queue:  9"},
		{"\tTotal backfilled jobs (since last slurm start): 5", "\tTotal backfilled jobs (since last stats cycle start): 3",
			"\tLast cycle: 2000", "\tMean cycle: 4000", "\tDepth Mean: 5",
			"\tDepth Mean (try depth): 5", "\tQueue length mean: 7", "Latency for 1000 calls to gettimeofday(): 23 microseconds",
			"\tREQUEST_JOB_INFO                        ( 2003) count:9      ave_time:100    total_time:900",
			"\tREQUEST_EXPLAIN                         (    0) count:1      ave_time:8      total_time:8",
			"\troot            (       0) count:10     ave_time:10     total_time:100",
			"\tal\\nice         (    1000) count:4      ave_time:1202   total_time:4808",
			"Pending RPC statistics", "\tNo pending RPCs"},
	} {
		lines := strings.Split(sections[i], "\n")
		for _, w := range want {
			if !contains(lines, w) {
				t.Errorf("no line %q in part %d:\n%s", w, i, sections[i])
			}
		}
	}
}

func contains(lines []string, want string) bool {
	for _, l := range lines {
		if l == want {
			return true
		}
	}
	return false
}

func TestSdiagOptions(t *testing.T) {
	order := func(args ...string) string {
		_, out, _ := runSdiag(someStats(), args...)
		var names []string
		for _, l := range strings.Split(out, "\n") {
			if f := strings.Fields(l); len(f) > 0 && strings.HasPrefix(f[0], "REQUEST_") {
				names = append(names, strings.TrimPrefix(f[0], "REQUEST_"))
			}
		}
		return strings.Join(names, " ")
	}
	for arg, want := range map[string]string{"-a": "JOB_INFO PING EXPLAIN", "-i": "EXPLAIN PING JOB_INFO", "-t": "PING JOB_INFO EXPLAIN",
		"-T": "PING JOB_INFO EXPLAIN"} {
		if got := order(arg); got != want {
			t.Errorf("%s: %s, want %s", arg, got, want)
		}
	}
	s := someStats()
	if rc, out, _ := runSdiag(s, "-r"); rc != 0 || out != "Reset scheduling statistics\n" || !s.asked.GetReset_() {
		t.Errorf("-r: %d, %q, asked %v", rc, out, s.asked)
	}
	var doc struct {
		Statistics map[string]any
		Meta       map[string]any
	}
	_, out, _ := runSdiag(someStats(), "--json")
	if err := json.Unmarshal([]byte(out), &doc); err != nil || doc.Statistics["jobs_pending"] != 6.0 ||
		doc.Statistics["bf_depth_mean"] != 5.0 || doc.Meta == nil {
		t.Errorf("--json: %v, %v", err, doc.Statistics)
	}
	followsSchema(t, "statistics", doc.Statistics)
	for _, list := range []string{"rpcs_by_message_type", "rpcs_by_user"} {
		followsSchema(t, "statistics "+list, doc.Statistics[list].([]any)[0])
	}
	if rc, _, stderr := runSdiag(someStats(), "--bogus"); rc != 1 || !strings.Contains(stderr, "unrecognized option '--bogus'") {
		t.Errorf("--bogus: %d, %q", rc, stderr)
	}
}
