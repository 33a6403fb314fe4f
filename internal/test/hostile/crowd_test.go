package hostile

import (
	"fmt"
	"strings"
	"testing"
)

// crowd runs a command of an ordinary user so many times at once, each with its number in place of {}. All must succeed with the status
// that is wanted; it gives what they have printed.
func (c *cluster) crowd(times, status int, command string) string {
	c.t.Helper()
	script := fmt.Sprintf("PATH=%s:$PATH; seq %d | xargs -P %d -I{} sh -c '%s; [ $? = %d ] || echo {} FAILED' 2>&1",
		bin, times, times, command, status)
	out, code := start(c.t, alice, c.env(), "/bin/sh", "-c", script).end()
	if code != 0 || strings.Contains(out, "FAILED") {
		c.t.Errorf("%s, %d at once: exit status %d\n%.4000s", command, times, code, out)
	}
	return out
}

// TestManyCommandsAtOnce: whatever an ordinary user runs at once, no command fails for there being so many of them, and none says anything
// but what it is asked for.
func TestManyCommandsAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "MaxJobCount=10000")
	out := c.crowd(600, 0, "sbatch --parsable --hold -J plain --wrap=true")
	ids := strings.Fields(out)
	if len(ids) != 600 {
		t.Fatalf("%d lines of 600 submissions:\n%.4000s", len(ids), out)
	}
	out = c.crowd(300, 0, "squeue -h -o%i -j "+ids[0])
	if strings.Trim(out, "\n") != strings.Join(strings.Fields(strings.Repeat(ids[0]+" ", 300)), "\n") {
		t.Errorf("300 listings of one job show:\n%.4000s", out)
	}
	// 400 that wait, until somebody cancels what they wait for: sbatch's status is then 1.
	all := make(chan string, 1)
	go func() { all <- c.crowd(400, 1, "sbatch --wait --parsable --hold -J waited --wrap=true") }()
	c.await("all are submitted", func() bool {
		out, _ := c.run(alice, "squeue", "-h", "-o%i", "-n", "waited").end()
		return len(strings.Fields(out)) == 400
	})
	if out, code := c.run(alice, "scancel", "-n", "waited").end(); code != 0 {
		t.Errorf("cancelled beside 400 who wait: %s", out)
	}
	if out := <-all; len(strings.Fields(out)) != 400 {
		t.Errorf("400 submissions with --wait print:\n%.4000s", out)
	}
	for _, command := range []string{"scontrol show job " + ids[1], "scontrol hold " + ids[2], "sacct -n -X -j " + ids[3], "sinfo",
		"scancel {}"} {
		c.crowd(100, 0, command)
	}
}
