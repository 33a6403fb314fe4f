package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/client/command"
)

// simulate runs `sluice sim` on a trace of 300 jobs for 16 processors.
func simulate(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var trace strings.Builder
	for i := range 300 {
		run := 10 + i*37%900
		fmt.Fprintf(&trace, "%d %d -1 %d %d -1 -1 %d %d -1 1 %d %d -1 %d -1 -1 -1\n", i+1, i*30, run, 1+i%16, 1+i%16, 3*run, i%5, i%2, i%3)
	}
	path := filepath.Join(t.TempDir(), "trace.swf")
	if err := os.WriteFile(path, []byte(trace.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	env := &command.Env{Name: "sluice sim", Stdout: &out, Stderr: &errs}
	if simVerb().Main(env, append([]string{"--swf", path, "--procs", "16", "-q"}, args...)) != 0 {
		return out.String(), errors.New(errs.String())
	}
	return out.String(), nil
}

func TestSim(t *testing.T) {
	plots := filepath.Join(t.TempDir(), "plots")
	out, err := simulate(t, "--copies", "3", "--scale-gaps", "0.9", "--weights", "age=10,fairshare=100,qos=5", "--qos", "1=7",
		"--plots", plots)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\npercent over easy, mean of 3 copies and their range\n", "\npercent over slurm-like, mean of 3 copies",
		"\nwidth over 1/3 ", "\nrun to 10 min ", " over slurm-like\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for _, file := range []string{"waits.svg", "utilization.svg", "backlog.svg"} {
		if text, err := os.ReadFile(filepath.Join(plots, file)); err != nil || !strings.HasSuffix(string(text), "</svg>\n") {
			t.Errorf("%s: %v", file, err)
		}
	}
	for want, args := range map[string][]string{
		`unknown policy "best"`:           {"--policy", "best"},
		`--scale-gaps takes a factor`:     {"--scale-gaps", "fast"},
		`cannot scale a trace by 100000:`: {"--scale-times", "100000"},
		`unknown factor "beauty"`:         {"--weights", "beauty=3"},
		`NAME=NUMBER, not "3"`:            {"--qos", "3"},
		`requires a single policy`:        {"--jobs-out", filepath.Join(t.TempDir(), "jobs"), "--copies", "2"},
	} {
		if _, err := simulate(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
}

// TestSimAgainst: a policy compared with itself is nothing above itself, and fifo is above EASY.
func TestSimAgainst(t *testing.T) {
	out, err := simulate(t, "--policy", "all", "--against", "easy", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var results []struct {
		Policy string
		Over   map[string]struct{ Mean struct{ Wait, Max float64 } } `json:"percent_over"`
	}
	if err := json.Unmarshal([]byte(out), &results); err != nil {
		t.Fatal(err)
	}
	over := map[string]float64{}
	for _, r := range results {
		over[r.Policy] = r.Over["easy"].Mean.Wait
	}
	if w, ok := over["easy"]; !ok || w != 0 || !(over["fifo"] > 0) {
		t.Errorf("percent over EASY: %v", over)
	}
}
