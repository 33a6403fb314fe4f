package hostile

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/internal/test/daemontest"
)

// TestHostWithoutFiles: a host that has a certificate and an address runs a job with the controller's prolog, follows a reconfigure, does
// not take a configuration that somebody else has made, and starts again without the controller.
func TestHostWithoutFiles(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	t.Cleanup(func() {
		for _, d := range []*daemon{c.node, c.ctld} {
			if d == nil {
				continue
			}
			c.end(d)
			if race := d.Race(); race != "" {
				t.Errorf("a race in %s:%s", d.Name, race)
			}
		}
		daemontest.Sweep(c.dir, c.name)
	})
	text, err := os.ReadFile(c.conf)
	must(t, err)
	folder, ran := filepath.Join(c.dir, "site"), filepath.Join(c.dir, "ran")
	must(t, os.Mkdir(folder, 0o755))
	// The folder of slurm.conf is the cluster's; the prolog lies below it.
	prolog := func(word string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(folder, "prolog"), []byte("#!/bin/sh\necho "+word+" $0 >>"+ran+"\n"), 0o755))
	}
	reconfigure := func(more string) string {
		t.Helper()
		must(t, os.WriteFile(c.conf, append(text, []byte("Prolog="+folder+"/pro*\n"+more)...), 0o644))
		said, code := c.run(0, "scontrol", "reconfigure").end()
		if code != 0 && more == "" {
			t.Fatalf("reconfigure: %s", said)
		}
		return said
	}
	prolog("first")
	reconfigure("")
	tls, spool, publish := filepath.Join(c.dir, "tls"), filepath.Join(c.dir, "bare"), filepath.Join(c.dir, "shown")
	out, err := exec.Command(filepath.Join(bin, "sluice-ctld"), "--conf", c.conf, "issue", "--node", "n1", "--out", tls).CombinedOutput()
	if err != nil {
		t.Fatalf("issue: %v: %s", err, out)
	}
	start := func() {
		t.Helper()
		c.node = c.launch("bare", "sluice-noded", "--conf-server", fmt.Sprintf("127.0.0.1:%d", c.port), "--tls", tls, "--spool", spool,
			"--publish", publish, "--relay", filepath.Join(c.dir, "relay.sock"), "--sessions", "none",
			"--gpus", "none", "--no-gpu-files", "--allow-root-jobs")
	}
	job := func() {
		t.Helper()
		if said, code := c.run(0, "sbatch", "--wait", "-o/dev/null", "--wrap=true").end(); code != 0 {
			t.Fatalf("the job fails: %s\n%s\n%s", said, c.node.Tail(20), c.ctld.Tail(20))
		}
	}
	lines := func() []string {
		b, _ := os.ReadFile(ran)
		return strings.Fields(string(b))
	}
	start()
	job()
	if got := lines(); len(got) != 2 || got[0] != "first" || got[1] != filepath.Join(spool, "conf/current/site/prolog") {
		t.Errorf("the prolog was %q", got)
	}
	shown := func() string {
		b, _ := os.ReadFile(filepath.Join(publish, "slurm.conf"))
		return string(b)
	}
	if !strings.Contains(shown(), "ClusterName="+c.name) {
		t.Errorf("commands find %q", shown())
	}

	prolog("second")
	reconfigure("KillWait=77\n")
	c.await("the host has what is new", func() bool { return strings.Contains(shown(), "KillWait=77") })
	job()
	if got := lines(); len(got) != 4 || got[2] != "second" {
		t.Errorf("after a reconfigure the prolog was %q", got)
	}
	if said := reconfigure("NoSuchKey=1\n"); !strings.Contains(said, "NoSuchKey") {
		t.Errorf("a faulty slurm.conf: %s", said)
	}
	if said, _ := c.run(0, "scontrol", "show", "node", "n1").end(); strings.Contains(said, "is behind") {
		t.Errorf("a node that has all is behind: %s", said)
	}

	c.end(c.node)
	must(t, c.ctld.Cmd.Process.Kill())
	<-c.ctld.Done
	start()
	c.await("the node daemon starts without the controller", func() bool {
		return strings.Count(c.node.Text(), "node daemon started") == 2
	})
	c.end(c.node)
}
