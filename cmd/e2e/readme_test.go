package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPages runs the examples of the pages for people, the blocks that begin with "```sh example", each page's in one shell, as a
// newcomer would.
func TestPages(t *testing.T) {
	t.Parallel()
	for _, page := range []struct {
		file     string
		examples int      // there are at least so many
		clusters []string // the folders of those that it starts
		prints   []string
	}{
		{"README.md", 4, []string{"mycluster", "gpucluster"}, []string{"hello from n", "Submitted batch job 3", "new disk", "is stopped",
			"wiped", "CPU Efficiency", "device 0, number ", "8 GPUs: "}},
		{"docs/user.md", 10, []string{"try"}, []string{"on n1 with GPU 0", "refused, as it should be", "expected start: ", "COMPLETED",
			"GPU Efficiency", "learning rate 0.03, batch size 128", "data", "restart 0, from step 0", "wiped"}},
		{"docs/from-slurm.md", 2, []string{"rehearsal"}, []string{"slurm.conf: no faults", "there is no munge", "gpu:rtx_3090:2",
			"not free", "wiped"}},
	} {
		t.Run(filepath.Base(page.file), func(t *testing.T) {
			t.Parallel()
			b, err := os.ReadFile(filepath.Join(root, page.file))
			if err != nil {
				t.Fatal(err)
			}
			examples := blocks(string(b), "```sh example")
			if len(examples) < page.examples {
				t.Fatalf("%s has %d examples", page.file, len(examples))
			}
			dir := scratch(t)
			for _, cluster := range page.clusters {
				t.Cleanup(func() { stopCluster(t, dir, filepath.Join(dir, cluster)) })
			}
			// This machine may have a cluster of that name, and its cgroups.
			script := strings.ReplaceAll(strings.Join(examples, "\n"), "ClusterName=lab", fmt.Sprintf("ClusterName=lab%d", os.Getpid()))
			out, err := shell(dir, "set -eu\n"+script)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range page.prints {
				if !strings.Contains(out, want) {
					t.Errorf("the examples do not print %q", want)
				}
			}
			if t.Failed() {
				t.Log(out)
			}
		})
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
