package hostile

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/msg"
)

func init() {
	// jobs BYTES COUNT submits held jobs, each with a script of so many bytes that do not compress, until one is refused for good. It says
	// how many there were, and the refusal.
	attacks["jobs"] = func(a *attacker) {
		size, err := strconv.Atoi(a.args[0])
		a.need(err)
		count, err := strconv.Atoi(a.args[1])
		a.need(err)
		c, err := client.Dial(context.Background(), os.Getenv("SLUICE_SOCKET"))
		a.need(err)
		script, pid := make([]byte, size), os.Getpid()
		for n := range count {
			_, _ = rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(pid), byte(pid >> 8)}).Read(script)
			req := &msg.SubmitRequest{Script: append([]byte("#!/bin/sh\n#"), script...), Env: []string{"A=b"},
				Spec: &msg.JobSpec{Name: "flood", WorkDir: "/", StdOut: "/dev/null", Hold: true}}
			_, err := c.SubmitJob(context.Background(), req)
			for client.ProblemOf(err).GetCode() == uint32(msg.CodeRateLimited) {
				time.Sleep(10 * time.Millisecond)
				_, err = c.SubmitJob(context.Background(), req)
			}
			if p := client.ProblemOf(err); p != nil {
				a.say("%d %s: %v", n, p.GetPhrase(), p)
				a.await()
				return
			}
			a.need(err)
		}
		a.say("%d", count)
		a.await()
	}
}

// flood submits until it is refused, and returns how often that was not so.
func (c *cluster) flood(size, count int, refusal ...string) int {
	c.t.Helper()
	p := c.attack(mallory, "jobs", fmt.Sprint(size), fmt.Sprint(count))
	defer p.kill()
	number, text, _ := strings.Cut(p.line(), " ")
	n, err := strconv.Atoi(number)
	must(c.t, err)
	for _, want := range refusal {
		if !strings.Contains(text, want) {
			c.t.Errorf("after %d jobs the refusal is %q, without %q", n, text, want)
		}
	}
	return n
}

// TestScriptsOfOneUserAreBounded: what a user submits, and cancels, stays in the database for a while, and takes the disk only so far.
func TestScriptsOfOneUserAreBounded(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "SlurmctldParameters=max_user_state=32")
	if n := c.flood(3<<20, 50, "Job violates accounting/QOS policy", "32.0 MiB are allowed (max_user_state"); n != 10 {
		t.Errorf("%d scripts of 3 MiB", n)
	}
	if out, code := c.run(mallory, "scancel", "-u", fmt.Sprint(mallory)).end(); code != 0 {
		t.Errorf("scancel: %s", out)
	}
	if n := c.flood(3<<20, 50, "32.0 MiB are allowed"); n != 0 {
		t.Errorf("%d more after those that wait have been cancelled", n)
	}
	var used int64
	must(t, filepath.WalkDir(filepath.Join(c.dir, "state"), func(_ string, e fs.DirEntry, err error) error {
		if info, ierr := e.Info(); err == nil && ierr == nil && e.Type().IsRegular() {
			used += info.Size()
		}
		return nil
	}))
	if used > 160<<20 { // the database, its redo log and a backup
		t.Errorf("the controller's folder has %d MiB", used>>20)
	}
	c.unharmed()
}

// TestTableOfOneUser: MaxJobCount is for all. One user gets three quarters of it, others go on, root too; and nobody waits for MinJobAge
// when an administrator has cancelled everything.
func TestTableOfOneUser(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "MaxJobCount=40")
	for range 2 {
		if n := c.flood(10, 100, "Slurm temporarily unable to accept job, sleeping and retrying",
			"MaxJobCount=40 (slurm.conf)"); n != 30 {
			t.Errorf("one user got %d of 40 places", n)
		}
		c.bystander()
		if out, code := c.run(0, "sbatch", "--hold", "--wrap=true").end(); code != 0 {
			t.Errorf("root: %s", out)
		}
		if out, code := c.run(0, "scancel", "-u", fmt.Sprint(mallory)).end(); code != 0 {
			t.Errorf("scancel: %s", out)
		}
		if out, code := c.run(0, "scancel", "-u", "root").end(); code != 0 {
			t.Errorf("scancel: %s", out)
		}
	}
	c.unharmed()
}
