package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadme runs the README's examples, the blocks that begin with "```sh example", in one shell, as a newcomer would.
func TestReadme(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	examples := blocks(string(b), "```sh example")
	if len(examples) < 4 {
		t.Fatalf("the README has %d examples", len(examples))
	}
	dir := scratch(t)
	t.Cleanup(func() { stopCluster(t, dir, filepath.Join(dir, "mycluster")) })
	t.Cleanup(func() { stopCluster(t, dir, filepath.Join(dir, "gpucluster")) })
	out, err := shell(dir, "set -eu\n"+strings.Join(examples, "\n"))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"hello from n", "Submitted batch job 3", "new disk", "is stopped", "wiped", "CPU Efficiency",
		"device 0, number ", "8 GPUs: "} {
		if !strings.Contains(out, want) {
			t.Errorf("the examples do not print %q", want)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

// TestDemo runs what `make demo` runs.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("the demonstration takes half a minute")
	}
	t.Parallel()
	dir := scratch(t)
	demo, err := filepath.Abs(filepath.Join(root, "examples/demo.sh"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := shell(dir, "export SLUICE_BIN="+bin+" TMPDIR="+dir+"\nexec "+demo)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"200 jobs acknowledged, 200 runs: none lost, none twice", "expected start: ",
		"sacct has all 200 small jobs as COMPLETED",
		"Nothing is left behind"} {
		if !strings.Contains(out, want) {
			t.Errorf("the demonstration does not print %q:\n%s", want, out)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("the demonstration leaves files behind: %v", left)
	}
	for _, left := range leftovers(dir, "") {
		t.Errorf("left behind: %s", left)
	}
}

// scratch is a folder that every user may enter.
func scratch(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// shell runs a script with our programs first in PATH.
func shell(dir, script string) (string, error) {
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// stopCluster stops a cluster and reports what it leaves behind.
func stopCluster(t *testing.T, dir, cluster string) {
	name := clusterName(cluster)
	if out, err := exec.Command(filepath.Join(bin, "sluice"), "down", "--now", "--dir", cluster).CombinedOutput(); err != nil {
		t.Errorf("sluice down: %v\n%s", err, out)
	}
	for _, left := range leftovers(dir, name) {
		t.Errorf("left behind: %s", left)
	}
}

// blocks gives the contents of the code blocks of a Markdown text that begin with this line.
func blocks(text, begin string) (found []string) {
	var b strings.Builder
	in := false
	for line := range strings.Lines(text) {
		switch {
		case !in && strings.TrimSpace(line) == begin:
			in = true
		case in && strings.TrimSpace(line) == "```":
			found = append(found, b.String())
			b.Reset()
			in = false
		case in:
			b.WriteString(line)
		}
	}
	return found
}
